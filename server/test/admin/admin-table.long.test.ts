/**
 * The administration API's route table against a second one, written by hand and kept apart: who may
 * do what. A row that is added, removed, widened or narrowed in the code must be changed here too, on purpose.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildOpenApi } from '../../src/admin/openapi.ts';
import { operatorActions } from '../../src/admin/operator.ts';
import { type AdminRow, checkTable, expandAll, pathsOf } from '../../src/admin/route.ts';
import { SIGN_IN_ACTIONS } from '../../src/admin/sign-in.ts';
import type { Principal, PrincipalKind } from '../../src/auth/principal.ts';
import { SCOPES, scopesOf } from '../../src/auth/scopes.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../support/admin.ts';
import { ALIASES, ID, PREFIXES, prefixesOf, TABLE } from '../support/admin-routes.ts';

const rows: readonly AdminRow[] = [...ACTIONS, ...operatorActions(async () => ({}))];
const served = TABLE.flatMap(([operation, method, path]) =>
  [...prefixesOf(operation).map((prefix) => prefix + path), ...(ALIASES[operation] ?? [])].map(
    (full) => `${method} ${full} ${operation}`,
  ),
);
const unique = (list: readonly string[]) => [...new Set(list)].sort();

let admin: AdminHarness;
/** Principals by the token that a request presents: authentication has tests of its own. */
const principals = new Map<string, Principal>();

beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'), {
    admin: {
      authenticator: {
        authenticate: (token) => {
          const principal = principals.get(token);
          if (!principal) throw new SluiceError('unauthenticated', 'The API key is not valid.');
          return principal;
        },
        invalidate: () => {},
      },
    },
  });
});

afterAll(async () => {
  await admin?.close();
});

const KINDS: readonly PrincipalKind[] = [
  'organisation-service',
  'workspace-service',
  'workspace-user',
  'user',
  'operator',
  'deployment',
];

function become(kind: PrincipalKind, scopes: Iterable<string>, role: Principal['role'] = null): string {
  const token = `${kind} ${role} ${principals.size}`.replaceAll(' ', '-');
  principals.set(token, {
    kind,
    keyId: kind === 'user' ? null : ID,
    keyName: null,
    organisationId: kind === 'operator' ? '' : admin.a.organisation_id,
    workspaceId: kind.startsWith('workspace') ? admin.a.workspace_id : null,
    userId: kind === 'user' || kind === 'workspace-user' ? admin.a.user_id : null,
    role,
    scopes: new Set(scopes),
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    expiresAt: null,
  });
  return token;
}

/** Whether the chain let the call through to the action; what the action says is not this test's business. */
function passed(answer: Answer): boolean {
  const message: string = answer.body?.error?.message ?? '';
  return answer.status !== 401 && !/^This needs the |^The operator key /.test(message);
}

const call = (method: string, path: string, key: string | null, body: object = { '?': 1 }) =>
  admin.call(method, path.startsWith('/v2/') ? path : `/v1${path}`, {
    key,
    ...(method === 'GET' || method === 'DELETE' ? {} : { body }),
  });

const declared = new WeakMap<AdminRow, readonly string[]>();

/** The scopes that a row names, with every value of its path parameters that makes one. */
function declaredScopes(row: AdminRow): readonly string[] {
  const known = declared.get(row);
  if (known) return known;
  const all = row.scopes
    .flatMap((scope) => expandAll(scope, row.params))
    .filter((scope) => SCOPES.has(scope) || scopesOf('token').has(scope));
  const scopes = unique(all);
  declared.set(row, scopes);
  return scopes;
}

/** The table above by operation. */
const WRITTEN = new Map<string, { readonly at: string; readonly scopes: string; readonly auth: string }>();
for (const [id, method, path] of TABLE) {
  const scopes = unique(TABLE.filter((row) => row[0] === id).flatMap((row) => row[4]));
  const auth = id.startsWith('workspace-exclusions.') ? 'key' : 'key_or_login';
  const OPEN: Readonly<Record<string, string>> = {
    'utils.test-auth': 'any_credential',
    'auth.self': 'login',
    'oauth-approvals.list': 'login',
    'oauth-approvals.delete': 'login',
  };
  WRITTEN.set(id, {
    at: `${method} ${path}`,
    scopes: scopes.join(),
    auth: scopes.length === 0 ? (OPEN[id] ?? 'operator') : auth,
  });
}

/** Where rows and the table above part. */
function differences(list: readonly AdminRow[]): string[] {
  const out: string[] = [];
  const seen = new Set<string>();
  for (const row of list) {
    if (seen.has(row.id) || !WRITTEN.has(row.id)) out.push(`${row.id} is not written here`);
    seen.add(row.id);
    out.push(...differencesOf(row));
  }
  for (const id of WRITTEN.keys()) if (!seen.has(id)) out.push(`${id} is not declared`);
  return out;
}

function differencesOf(row: AdminRow): readonly string[] {
  const out: string[] = [];
  const expected = WRITTEN.get(row.id);
  if (expected !== undefined) {
    if (expected.at !== `${row.method} ${row.path}`) out.push(`${row.id} is at ${row.method} ${row.path}`);
    if (expected.auth !== row.auth) out.push(`${row.id} is open to ${row.auth}`);
    const scopes = declaredScopes(row).join();
    if (scopes !== expected.scopes) out.push(`${row.id} needs ${scopes}`);
  }
  const aliases = (row.aliases ?? []).join();
  if (aliases !== (ALIASES[row.id] ?? []).join()) out.push(`${row.id} is also at ${aliases}`);
  return out;
}

describe('the table is what is served and what is documented', () => {
  it('the code declares exactly the rows written here, with their scopes', () => {
    expect(differences(rows)).toEqual([]);
  });

  it('any one row or scope taken away, added or exchanged is noticed', () => {
    const [extra] = rows;
    if (!extra) throw new Error('no rows');
    const unnoticed: string[] = [];
    let mutants = 0;
    const notice = (name: string, found: readonly string[]) => {
      mutants += 1;
      if (found.length === 0) unnoticed.push(name);
    };
    notice('one more row', differences([...rows, { ...extra, id: 'more' }]));
    for (const row of rows) {
      notice(`${row.id}: no row`, differences(rows.filter((one) => one !== row)));
      // Of a list that differs in one row the others are the same.
      const put = (name: string, changed: object) =>
        notice(`${row.id}: ${name}`, differencesOf({ ...row, ...changed } as AdminRow));
      for (const auth of ['public', 'login', 'key', 'key_or_login', 'any_credential', 'operator'].filter(
        (auth) => auth !== row.auth,
      )) {
        put(`auth ${auth}`, { auth });
      }
      put('another path', { path: `${row.path}/other` });
      put('one more path', { aliases: [...(row.aliases ?? []), '/v1/other'] });
      for (const scope of row.scopes) {
        put(`without ${scope}`, { scopes: row.scopes.filter((one) => one !== scope) });
      }
      const held = declaredScopes(row);
      for (const scope of SCOPES) {
        if (held.includes(scope)) continue;
        put(`with ${scope}`, { scopes: [...row.scopes, scope] });
        if (row.scopes.length > 0) put(`${scope} instead`, { scopes: [scope, ...row.scopes.slice(1)] });
      }
    }
    expect(unnoticed).toEqual([]);
    expect(mutants).toBeGreaterThan(rows.length * SCOPES.size);
  });

  it('a path answers 405 to the methods that it does not serve, and names those that it does', async () => {
    const methods = new Map<string, Set<string>>();
    for (const route of served) {
      const [method = '', path = ''] = route.split(' ');
      const own = methods.get(path) ?? new Set();
      methods.set(path, own.add(method));
      if (method === 'GET') own.add('HEAD');
    }
    for (const [path, own] of methods) {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        if (own.has(method)) continue;
        const { status, headers } = await admin.call(method, path.replace(/:(\w+)/g, 'some-$1'), { key: null });
        expect([method, path, status, headers.get('allow')]).toEqual([method, path, 405, [...own].sort().join(', ')]);
      }
    }
  });

  it('the listener serves exactly these paths, and HEAD with every GET', () => {
    const routes = admin.routes.filter(([, , operation]) => operation !== null);
    const own = routes.filter(([method]) => method !== 'HEAD').map((route) => route.join(' '));
    expect(unique(own)).toEqual(unique(served));
    const heads = routes.filter(([method]) => method === 'HEAD').map(([, path]) => path);
    const gets = served.filter((route) => route.startsWith('GET ')).map((route) => route.split(' ')[1] ?? '');
    expect(unique(heads)).toEqual(unique(gets));
  });

  it('what begins like one of these paths and is none is 404 on every method, and never goes to a provider', async () => {
    const areas = unique(served.map((route) => route.split(' ')[1]?.split('/').slice(0, 3).join('/') ?? ''));
    expect(areas).toContain('/v1/admin');
    for (const area of areas) {
      for (const method of ['GET', 'POST', 'DELETE', 'PATCH']) {
        const { status, body } = await admin.call(method, `${area}/none/of/these/x/y`, { key: null });
        expect([method, area, status, body.error.code]).toEqual([method, area, 404, 'AB08']);
      }
    }
    const { body } = await admin.call('POST', '/v1/admin/workspacez', { key: null });
    expect(body.error.message).toBe('Unknown path /v1/admin/workspacez. Did you mean POST /v1/admin/workspaces?');
  });

  it('OpenAPI documents exactly these operations', () => {
    const document = buildOpenApi(ACTIONS, '1.2.3') as {
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    const documented = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, { operationId }]) => {
        const operation = operationId.replace(/\.alias\d+$/, '');
        return `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')} ${operation}`;
      }),
    );
    const wanted = served.filter((route) => {
      const [, path = '', operation = ''] = route.split(' ');
      return path.startsWith('/v1') || operation in PREFIXES || (ALIASES[operation] ?? []).includes(path);
    });
    const signIn = SIGN_IN_ACTIONS.map(({ id, method, path }) => `${method} /v2${path} ${id}`);
    expect(unique(documented)).toEqual(unique([...wanted, ...signIn]));
  });

  it.each([
    ['without a scope', { scopes: [] }, /names no scope/],
    ['with an unknown scope', { scopes: ['configs.publish'] }, /unknown scope/],
    ['with a scope that no path parameter completes', { scopes: ['{type}.list'] }, /unknown scope/],
    ['that nobody is asked for', { auth: 'public', scopes: [] }, /no public routes/],
    ['whose write is not audited', { method: 'POST', writes: true, audit: null }, /needs an audit action/],
    ['whose GET writes', { writes: true, audit: { action: 'create', resource: 'x' } }, /GET reads/],
    ['with a path parameter that is not declared', { path: '/configs/:other' }, /path parameters/],
  ])('a row %s stops the start', (_title, patch, message) => {
    const row = rows.find(({ id }) => id === 'configs.list');
    expect(() => checkTable([{ ...row, ...patch } as AdminRow])).toThrow(message);
    expect(() => checkTable([row as AdminRow])).not.toThrow();
  });

  it('two rows with one id, or on one path, stop the start', () => {
    const row = rows.find(({ id }) => id === 'configs.list') as AdminRow;
    expect(() => checkTable([row, row])).toThrow(/id is used twice/);
    expect(() => checkTable([row, { ...row, id: 'other' } as AdminRow])).toThrow(/served twice/);
  });

  it('no route answers without a credential, on any of its paths and methods', async () => {
    for (const row of rows) {
      for (const path of pathsOf(row)) {
        const url = path.replace(':type', 'workspace').replace(':subType', 'service').replace(/:\w+/g, 'x');
        const answer = await admin.call(row.method, url, { key: null });
        expect([row.id, url, answer.status, answer.body.error.code]).toEqual([row.id, url, 401, 'AB05']);
      }
    }
  });
});

/**
 * Whether a route without scopes is open to the kind: the operator's own to its key, one for any credential to all others,
 * one for sign-ins to users.
 */
const opens = (kind: string, operation: string): boolean =>
  forSignIns(operation)
    ? kind === 'user' || kind === 'token'
    : (WRITTEN.get(operation)?.auth === 'any_credential') !== (kind === 'operator');
const forSignIns = (operation: string): boolean => WRITTEN.get(operation)?.auth === 'login';

/**
 * Erasing takes a rank beside the scope, which keys of workspaces have for sending requests; and so do groups of a directory,
 * whose scope such keys have for their own workspace. A mapping that is none is refused before anybody's rank is asked.
 */
const ranked = (kind: string, operation: string): boolean =>
  /^(?:logs\.(?:delete|erasures)|scim-groups\.|scim-workspaces\.(?!create))/.test(operation) &&
  kind.startsWith('workspace-');

describe('principal × route', () => {
  it.each(KINDS)(
    'a %s principal with every scope of its kind passes exactly where a scope of the row exists for it',
    async (kind) => {
      const token = become(kind, scopesOf(kind), kind === 'user' ? 'owner' : null);
      for (const [operation, method, , path, scopes] of TABLE) {
        const allowed =
          scopes.length === 0
            ? opens(kind, operation)
            : kind !== 'operator' && scopes.some((scope) => scopesOf(kind).has(scope));
        const answer = await call(method, path, token);
        expect([operation, passed(answer), answer.status === 403 && allowed], answer.text).toEqual([
          operation,
          allowed,
          allowed && ranked(kind, operation),
        ]);
      }
    },
  );

  it.each(KINDS)('a %s principal without any scope passes nowhere but on operator routes', async (kind) => {
    const token = become(kind, [], kind === 'user' ? 'admin' : null);
    for (const [operation, method, , path, scopes] of TABLE) {
      const answer = await call(method, path, token);
      expect([operation, passed(answer)], answer.text).toEqual([
        operation,
        scopes.length === 0 && opens(kind, operation),
      ]);
      const refusal = forSignIns(operation) ? [401, 'AB05'] : [403, 'AB03'];
      if (!passed(answer)) expect([answer.status, answer.body.error.code]).toEqual(refusal);
    }
  });

  it('each scope alone opens its rows, and every other scope together does not', async () => {
    for (const kind of ['organisation-service', 'workspace-service', 'workspace-user'] as const) {
      for (const [operation, method, , path, scopes] of TABLE) {
        const own = scopes.filter((scope) => scopesOf(kind).has(scope));
        for (const scope of own) {
          const suffices = !operation.startsWith('scim_tokens.');
          // What else a token of a directory takes is asked of one that could be made.
          const body = suffices ? undefined : { name: 'made' };
          const answer = await call(method, path, become(kind, [scope]), body);
          expect([operation, scope, passed(answer)], answer.text).toEqual([operation, scope, suffices]);
          // A token of a directory takes all that it will do.
          const whole = suffices ? answer : await call(method, path, become(kind, scopesOf(kind)), body);
          expect([operation, passed(whole)], whole.text).toEqual([operation, true]);
        }
        const others = [...SCOPES].filter((scope) => !scopes.includes(scope));
        const answer = await call(method, path, become(kind, others));
        expect([operation, passed(answer)], answer.text).toEqual([
          operation,
          scopes.length === 0 && opens(kind, operation),
        ]);
      }
    }
  });

  it('a signed-in member has rights only in a workspace that was joined, by the role there', async () => {
    const token = become('user', [], 'member');
    const outside = await admin.call('GET', '/v1/configs', { key: token });
    expect([outside.status, outside.body.error.param]).toEqual([400, 'workspace_id']);
    expect(outside.body.error.message).toContain('you have rights in workspaces only');
    expect(outside.body.error.message).toContain('in the query or the body; GET /v1/admin/workspaces lists them');
    const mine = await admin.call('GET', `/v1/configs?workspace_id=${admin.a.workspace_slug}`, { key: token });
    expect(mine.status, mine.text).toBe(200);
    const names = ['ws-invented', admin.b.workspace_id, admin.b.workspace_slug, ID];
    const answers = await Promise.all(
      names.map((name) => admin.call('GET', `/v1/configs?workspace_id=${name}`, { key: token })),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]?.body.error.code).toBe('AB03');
    expect(answers[0]?.body.error.message).toBe('workspace_id is not a workspace that you belong to.');
    const { workspace_id, user_id } = admin.a;
    await admin.tables.systemWrite((tx) =>
      tx.update('workspace_members', { workspace_id, user_id }, { role: 'member' }),
    );
    const body = { name: 'x', config: {}, workspace_id };
    const write = await admin.call('POST', '/v1/configs', { key: token, body });
    expect([write.status, passed(write)]).toEqual([403, false]);
    expect((await admin.call('GET', `/v1/configs?workspace_id=${workspace_id}`, { key: token })).status).toBe(200);
  });
});
