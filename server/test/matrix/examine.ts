/**
 * What a caller learns and changes when it names what is not its own: each route on own objects, then each place of it
 * with the objects of every tenant that the caller cannot see, beside invented names.
 */
import { each, type Matrix, type Told } from './harness.ts';
import type { Caller } from './principals.ts';
import { build, type Channel, type Route } from './routes.ts';
import { newId, OF_ORGANISATION, type Tenant } from './world.ts';

export interface Examined {
  /** What must not be, in words. */
  readonly found: readonly string[];
  /** Routes that some caller carried out on its own objects: without it the rest would prove nothing. */
  readonly done: ReadonlySet<string>;
  readonly calls: number;
}

export async function examine(matrix: Matrix, callers: readonly Caller[], routes: readonly Route[]): Promise<Examined> {
  const found: string[] = [];
  const done = new Set<string>();
  let calls = 0;
  /** One call with something else in one place, as it is told to the caller. */
  const tell = async (caller: Caller, channel: Channel, value: string): Promise<Told> => {
    const unbound = caller.bound === null || caller.member;
    const nameWorkspace = unbound && channel.field !== 'workspace_id' && !namesPast(channel);
    const told = await matrix.send(build(channel.route, caller.own, { channel, value, nameWorkspace }), caller.headers);
    calls += 1;
    return { ...told, text: told.text.replaceAll(value, '<named>') };
  };
  const victims = async (caller: Caller) =>
    (await matrix.foreign(caller.own)) + (caller.bound === null ? '' : await matrix.neighbour(caller.own));
  const all = Object.values(matrix.tenants);
  for (const caller of callers) {
    const hidden = all.filter((tenant) => !sees(caller, tenant));
    const before = await victims(caller);
    const nameWorkspace = caller.bound === null || caller.member;
    matrix.undo('all');
    const carried = await each(routes, async (route) => {
      const own = await matrix.send(build(route, caller.own, { nameWorkspace }), caller.headers);
      calls += 1;
      if (own.status === 200) done.add(route.name);
      found.push(...leaks(caller, route, own, hidden));
      return own.status === 200;
    });
    matrix.undo('audit');
    const channels = routes.flatMap((route, index) =>
      route.channels.map((channel) => ({ route, channel, able: carried[index] === true })),
    );
    await each(channels, async ({ route, channel, able }) => {
      for (const spelling of spellings(channel, caller.own)) {
        const invented = await tell(caller, channel, spelling === 'id' ? newId() : `invented-${newId()}`);
        for (const tenant of all.filter((one) => conceals(caller, channel, one))) {
          const value = tenant.objects[channel.kind][spelling] ?? '';
          const told = await tell(caller, channel, value);
          const where = `${caller.name}: ${route.name} ${channel.at} ${channel.field} = ${tenant.tag} ${spelling}`;
          if (!same(told, invented)) found.push(`${where}: ${told.text} ≠ ${invented.text}`);
          found.push(...leaks(caller, route, told, hidden).map((leak) => `${where}: ${leak}`));
          const fault = able ? unexpected(caller, channel, told) : null;
          if (fault !== null) found.push(`${where}: ${fault}`);
        }
      }
    });
    const after = await victims(caller);
    if (after !== before) {
      found.push(`${caller.name} changed something of another tenant: ${difference(before, after)}`);
    }
  }
  return { found, done, calls };
}

const sees = (caller: Caller, tenant: Tenant) =>
  caller.bound === null ? tenant.organisationId === caller.own.organisationId : tenant === caller.bound;

/** Whether this caller must not learn that the tenant has such an object. */
const conceals = (caller: Caller, channel: Channel, tenant: Tenant) =>
  OF_ORGANISATION.has(channel.kind) ? tenant.organisationId !== caller.own.organisationId : !sees(caller, tenant);

function spellings(channel: Channel, own: Tenant): ('id' | 'slug')[] {
  return own.objects[channel.kind].slug === undefined ? ['id'] : ['id', 'slug'];
}

const same = (a: Told, b: Told) => a.status === b.status && a.text === b.text && a.headers === b.headers;

/** Operations that say in which workspaces a person works, by slug, to whoever may read the people. */
const NAMES_WORKSPACES = new Set(['users.read', 'users.list']);

/** What an answer says that it must not: a text of a hidden tenant, a sealed one, or a number that counts more. */
function leaks(caller: Caller, route: Route, told: Told, hidden: readonly Tenant[]): string[] {
  const out: string[] = [];
  let { text } = told;
  if (NAMES_WORKSPACES.has(route.row.id))
    for (const { workspaceSlug } of hidden) text = text.replaceAll(workspaceSlug, '');
  for (const tenant of hidden) {
    const near = tenant.organisationId === caller.own.organisationId;
    const names = [tenant.canary, tenant.workspaceId, ...(near ? [] : [tenant.shared])];
    // A person may work in several workspaces of an organisation, so a neighbour's people are no secret of its own.
    const people = near && /^(users|invites)\./.test(route.row.id);
    if (!people && names.some((name) => text.includes(name))) out.push(`${route.name} tells of ${tenant.tag}: ${text}`);
    if (text.includes(tenant.secret)) out.push(`${route.name} tells a secret: ${text}`);
  }
  if (text.includes(caller.own.secret)) out.push(`${route.name} tells a secret of its own: ${text}`);
  if (told.status >= 500) out.push(`${route.name} → ${told.status}`);
  const total = told.body?.total;
  const items = ['data', 'records', 'workspaces', 'models'].map((name) => told.body?.[name]).find(Array.isArray);
  if (typeof total === 'number' && items && items.length < 20 && total !== items.length) {
    out.push(`${route.name} counts ${total} and shows ${items.length}`);
  }
  return out;
}

/** Security 2.3 as data: what the caller who may carry out a route is told of an object that it cannot see. */
const ANSWERS = {
  path: ['404 AB08'],
  'workspace_id, bound': ['403 AB03'],
  'workspace_id, organisation-wide': ['404 AB02'],
  organisation_id: ['403 AB03'],
  body: ['404 AB02'],
  'body, as the contract says': ['400 AB01'],
  ids: ['200'],
  'who acted, once': ['200'],
} as const;

/** Body fields whose unknown values the contract answers with 400. */
const BAD_REQUEST = new Set([
  'defaults.user_api_key_config',
  'workspaces[].workspace_id',
  'auth_settings.workspaces_allowed[]',
  'auth_settings.remove_workspaces_allowed[]',
  ...['input_guardrails[]', 'output_guardrails[]'].flatMap((field) => [field, `defaults.${field}`]),
]);

/** `workspace_slug` of what reads a workspace: the other name of `workspace_id`, ignored with a key that is bound to one. */
const namesPast = ({ field, route }: Channel): boolean => field === 'workspace_slug' && route.row.workspace === 'past';

function situation(caller: Caller, channel: Channel): keyof typeof ANSWERS {
  const { at, field } = channel;
  if (field === 'organisation_id') return 'organisation_id';
  if (field === 'workspace_id')
    return caller.bound === null ? 'workspace_id, organisation-wide' : 'workspace_id, bound';
  if (namesPast(channel))
    return caller.bound === null ? 'workspace_id, organisation-wide' : caller.member ? 'workspace_id, bound' : 'ids';
  if (at === 'path') return 'path';
  if (field === 'ids' || field === 'workspace_slug') return 'ids';
  // The log outlives its people and keys: nobody can say which of them was never there.
  if (channel.route.row.id === 'audit-logs.list') return 'who acted, once';
  return BAD_REQUEST.has(field) ? 'body, as the contract says' : 'body';
}

function unexpected(caller: Caller, channel: Channel, told: Told): string | null {
  const wanted: readonly string[] = ANSWERS[situation(caller, channel)];
  const got = told.status === 200 ? '200' : `${told.status} ${told.body?.error?.code}`;
  return wanted.includes(got) ? null : `${got}, not ${wanted.join(' or ')}: ${told.text}`;
}

function difference(before: string, after: string): string {
  let at = 0;
  while (before[at] === after[at]) at += 1;
  return `…${before.slice(Math.max(0, at - 80), at + 80)}… → …${after.slice(Math.max(0, at - 80), at + 80)}…`;
}
