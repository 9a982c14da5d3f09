/**
 * The route table of the administration API, checked before anything listens: a row that cannot be
 * authorised, validated or audited stops the start.
 */
import { z } from 'zod';
import { SCOPES, TOKEN } from '../auth/scopes.ts';
import type { KnownPaths } from '../http/known-paths.ts';
import type { AnyAction, AnyOperatorAction } from '../resources/resource.ts';

export type AdminRow = AnyAction | AnyOperatorAction;

const PREFIXES = ['/v1', '/v2'] as const;

/**
 * First parts of paths that are the administration's although no action is there yet, below `/v1`. No provider has them:
 * a request for one is 404 and never passed on.
 */
export const RESERVED_AREAS = [
  'agent-integrations',
  'agent-servers',
  'auth',
  'budgets',
  'invites',
  'labels',
  'mcp-integrations',
  'mcp-servers',
  'plugins',
  'prompts',
  'scim',
  'secret-references',
  'spend',
  'teams',
  'usage',
  'users',
  'workspaces',
] as const;

/** Every complete path of a row: its version prefixes, then the aliases. */
export function pathsOf(row: AdminRow): [string, ...string[]] {
  const [first = '/v1', ...others] = row.prefixes ?? PREFIXES;
  return [first + row.path, ...others.map((prefix) => prefix + row.path), ...(row.aliases ?? [])];
}

/** What to tell the caller of a path that names no object: which parts of it to check, and what lists the right ones. */
export function missingText(row: AdminRow, paths: KnownPaths): string {
  const [path] = pathsOf(row);
  const named = [...path.matchAll(/:(\w+)/g)].map((match) => match[1]);
  const lists = path
    .split('/')
    .flatMap((part, i, parts) => (part.startsWith(':') ? [parts.slice(0, i).join('/')] : []))
    .filter((list) => paths.has('GET', list))
    .map((list) => `GET ${list.replace(/:(\w+)/g, '{$1}')}`);
  const check = named.length === 0 ? '' : ` Check ${named.join(' and ')} in the path.`;
  const listed =
    lists.length === 0 ? '' : ` ${lists.join(' and ')} ${lists.length === 1 ? 'lists' : 'list'} what it can see.`;
  return `There is no such object, or your credential cannot see it.${check}${listed}`;
}

/** Throws an Error that names the row when the table is not complete and consistent. */
export function checkTable(rows: readonly AdminRow[]): void {
  const ids = new Set<string>();
  const served = new Set<string>();
  for (const row of rows) {
    const refuse = (why: string) => new Error(`administration route ${row.id}: ${why}`);
    if (ids.has(row.id)) throw refuse('its id is used twice');
    ids.add(row.id);
    for (const path of pathsOf(row)) {
      const key = `${row.method} ${path}`;
      if (served.has(key)) throw refuse(`${key} is served twice`);
      served.add(key);
    }
    if (row.auth === 'public') throw refuse('this handler serves no public routes');
    const scoped = row.auth === 'key' || row.auth === 'key_or_login';
    if (scoped === (row.scopes.length === 0)) throw refuse(scoped ? 'it names no scope' : 'it cannot have scopes');
    for (const scope of row.scopes) {
      if (!expandAll(scope, row.params).some((name) => SCOPES.has(name) || TOKEN.has(name)))
        throw refuse(`unknown scope ${scope}`);
    }
    const reads = row.method === 'GET' || (row.method === 'POST' && row.readOnly === true);
    // A GET that asks others may keep what it found out.
    const keeps = row.method === 'GET' && 'ahead' in row && row.ahead !== undefined;
    if (row.writes === reads && !keeps) throw refuse('GET reads and every other method writes');
    if (row.standalone && (row.writes || row.auth !== 'operator'))
      throw refuse('only an operator read can stand alone');
    if (row.answers?.as === 'text' && !row.answers.contentType.includes('/')) throw refuse('its content type is none');
    if (row.takes === 'form' && row.body === null) throw refuse('a form needs a schema of its body');
    if (row.writes && (row.audit === null) !== (row.unaudited === true)) {
      throw refuse('a write needs an audit action, or says that it is unaudited');
    }
    const named = [...row.path.matchAll(/:(\w+)/g)].map((match) => match[1]);
    const declared = row.params instanceof z.ZodObject ? Object.keys(row.params.shape) : [];
    if (named.sort().join() !== declared.sort().join()) throw refuse('path parameters and params schema differ');
  }
}

/** The scopes of a call: `{type}` and `{subType}` stand for path parameters. */
export function scopesFor(row: AdminRow, params: Readonly<Record<string, unknown>>): string[] {
  return row.scopes.map((scope) => scope.replace(/\{(\w+)\}/g, (_match, name: string) => String(params[name])));
}

/** A scope template with every value its parameters may take; itself when it is none. */
export function expandAll(scope: string, params: AdminRow['params']): string[] {
  const match = /\{(\w+)\}/.exec(scope);
  if (!match) return [scope];
  const field: unknown = params instanceof z.ZodObject ? params.shape[match[1] ?? ''] : undefined;
  const values = field instanceof z.ZodEnum ? field.options.map(String) : [];
  return values.flatMap((value) => expandAll(scope.replace(match[0], value), params));
}
