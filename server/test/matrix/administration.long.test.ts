/**
 * Every credential × every administration route × every place that can name an object. The routes are those
 * of the catalogue: one that this folder does not know how to call fails the first test.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scopesOf } from '../../src/auth/scopes.ts';
import { SCHEMA, type TenantTable } from '../../src/store/schema.ts';
import { examine } from './examine.ts';
import { each, type Matrix, startMatrix, type Told } from './harness.ts';
import { LEAK_NAMES, leakId, plantedRows } from './planted.ts';
import { addKey, KEY_KINDS } from './principals.ts';
import { build, ROWS, type Route, readRoutes } from './routes.ts';
import { MAKERS, picture, type Tenant } from './world.ts';

const { routes, faults } = readRoutes(ROWS);
const tenantRoutes = routes.filter(({ row }) => row.auth !== 'operator');

let matrix: Matrix;
beforeAll(async () => {
  matrix = await startMatrix('sqlite', plantedRows);
}, 60_000);
afterAll(async () => {
  await matrix?.close();
});

/** Refused for want of all scopes of the route, before any object was looked at. */
const unscoped = (route: Route, { status, body }: Told) =>
  status === 403 && body?.error?.message?.startsWith(`This needs the scope ${route.scopes.join(' or ')}, `) === true;

const failure = (list: readonly string[]) => expect(list.slice(0, 12).join('\n')).toBe('');

describe('what is put before the matrix', () => {
  it('every route, parameter and field that can name something is known', () => {
    failure(faults);
    expect(new Set(routes.map(({ row }) => row.id))).toEqual(new Set(ROWS.map(({ id }) => id)));
  });

  it('every tenant has a row in every table, and its canary in every text of it', async () => {
    const { a1, b2 } = matrix.tenants;
    const missing: string[] = [];
    for (const tenant of [a1, b2]) {
      for (const table of Object.keys(MAKERS) as TenantTable[]) {
        if (table === 'audit_heads') continue;
        const rows = MAKERS[table](tenant);
        if (rows.length === 0) missing.push(`${table}: no row`);
        for (const [name, value] of Object.entries(rows[0] ?? {})) {
          const { kind } = SCHEMA[table].columns[name as never] as { kind: string };
          const free = kind === 'text' && value !== null && !FIXED.test(`${table}.${name}`);
          if (free && !String(value).includes(tenant.canary)) missing.push(`${table}.${name} is ${String(value)}`);
        }
      }
    }
    failure(missing);
    const kept = await picture(matrix.admin.tables, b2.organisationId);
    expect([...kept].filter(([name, rows]) => rows.length === 0 && name in MAKERS).map(([name]) => name)).toEqual([
      'audit_heads',
    ]);
  });
});

/** Columns whose text a tenant does not write: identifiers, and words out of a list. */
const FIXED =
  /\.(id|.*_id|status|role|type|kind|direction|creation_mode|creation_source|action|method|user_type|level|purpose|content_type|provider|step|target|unit|key|digest|kek_id|wrapped|account|owner_kind|from_account|to_account|type|source|source_type|connection_status|period|segment|journal|node|window|on_outage|channel|format|manager_type|selects|scope|token_endpoint_auth_method|vouched_role)$/;

describe('credentials × routes', () => {
  it('a credential that opens nothing gets the same refusal everywhere, whatever is named', async () => {
    const { a1, b1 } = matrix.tenants;
    const before = [await matrix.foreign(a1), await matrix.foreign(b1)];
    const found: string[] = [];
    let calls = 0;
    for (const refused of matrix.people.refused) {
      const answers = await each(
        routes.flatMap((route) =>
          route.paths.flatMap((path) => [a1, b1].map((own) => ({ route, call: build(route, own, { path }) }))),
        ),
        async ({ route, call }) => ({ route, call, told: await matrix.send(call, refused.headers) }),
      );
      calls += answers.length;
      for (const { route, call, told } of answers) {
        const code = refused.status === 401 ? 'AB05' : 'AB03';
        const good = told.status === refused.status && told.body.error.code === code;
        if (!good) found.push(`${refused.name}: ${route.name} ${call.path} → ${told.status} ${told.text}`);
      }
      const texts = new Set(answers.map(({ route, told }) => `${route.row.auth} ${told.text}`));
      if (texts.size !== new Set(routes.map(({ row }) => row.auth)).size)
        found.push(`${refused.name}: ${[...texts].join(' ')}`);
    }
    failure(found);
    expect(calls).toBeGreaterThan(1_000);
    const without = (text: string) => text.replace(/\["audit_.*?\]\]/g, '').replace(/\["changes",.*?\]\]/g, '');
    expect([await matrix.foreign(a1), await matrix.foreign(b1)].map(without)).toEqual(before.map(without));
  }, 60_000);

  it('the operator key opens the operator routes only, and they open to nobody else', async () => {
    const { a1 } = matrix.tenants;
    const found: string[] = [];
    matrix.undo('all');
    await each(routes, async (route) => {
      const operator = await matrix.send(build(route, a1), { 'x-gateway-api-key': matrix.admin.operatorKey });
      const opens = route.row.auth === 'operator';
      const refused = route.row.auth === 'login' ? 401 : 403;
      if (operator.status !== (opens ? 200 : refused)) {
        found.push(`operator: ${route.name} → ${operator.status} ${operator.text}`);
      }
      if (!opens) return;
      for (const caller of matrix.people.callers) {
        const told = await matrix.send(build(route, a1), caller.headers);
        if (told.status !== 403 && told.status !== 401) found.push(`${caller.name}: ${route.name} → ${told.status}`);
      }
    });
    matrix.undo('audit');
    failure(found);
  }, 60_000);

  it('a caller passes exactly where it holds a scope of the route', async () => {
    const found: string[] = [];
    matrix.undo('all');
    for (const caller of matrix.people.callers) {
      await each(tenantRoutes, async (route) => {
        const told = await matrix.send(
          build(route, caller.own, { nameWorkspace: caller.bound === null || caller.member }),
          caller.headers,
        );
        if (caller.signedIn && route.row.auth === 'key') {
          if (told.status !== 401) found.push(`${caller.name}: ${route.name} → ${told.status} ${told.text}`);
          return;
        }
        const signedIn = caller.signedIn || caller.name.startsWith('token of');
        if (!signedIn && route.row.auth === 'login') {
          if (told.status !== 401) found.push(`${caller.name}: ${route.name} → ${told.status} ${told.text}`);
          return;
        }
        const open = route.row.auth === 'any_credential' || route.row.auth === 'login';
        const holds = open || route.scopes.some((scope) => caller.scopes.has(scope));
        // A member has rights in a workspace only: what takes none is refused as such.
        const nowhere = caller.member && told.status === 400 && told.body.error.param === 'workspace_id';
        if (unscoped(route, told) === holds && !nowhere)
          found.push(`${caller.name}: ${route.name} → ${told.status} ${told.text}`);
        if (told.status >= 500)
          found.push(`${caller.name}: ${route.name} → ${told.text} ${matrix.admin.logged.at(-1)}`);
      });
    }
    matrix.undo('audit');
    failure(found);
  }, 60_000);

  it('each scope alone opens its routes, all others together do not, decided before anything is read', async () => {
    const { a1, b1 } = matrix.tenants;
    const cases = tenantRoutes
      .filter(({ row }) => row.auth !== 'any_credential' && row.auth !== 'login')
      .flatMap((route) =>
        KEY_KINDS.flatMap((kind) => {
          const held = route.scopes.filter((scope) => scopesOf(kind).has(scope));
          const others = [...scopesOf(kind)].filter((scope) => !route.scopes.includes(scope));
          return [
            { route, kind, scopes: others, opens: false },
            ...held.map((scope) => ({ route, kind, scopes: [scope], opens: true })),
          ];
        }),
      );
    const keys = await matrix.admin.tables.systemWrite(async (tx) => {
      const out: string[] = [];
      const userId = matrix.admin.a.user_id;
      for (const { kind, scopes } of cases) out.push(await addKey(tx, { kind, scopes, tenant: a1, userId }));
      return out;
    });
    const found: string[] = [];
    matrix.undo('all');
    for (const [index, { route, kind, scopes, opens }] of cases.entries()) {
      const headers = { 'x-gateway-api-key': keys[index] ?? '' };
      const call = (own: Tenant) => build(route, own, { nameWorkspace: kind === 'organisation-service' });
      if (opens) {
        const told = await matrix.send(call(a1), headers);
        if (unscoped(route, told)) found.push(`${kind} with ${scopes.join()}: ${route.name} → ${told.text}`);
        continue;
      }
      // The refusal is written down in the audit log; that is the only transaction.
      matrix.transactions();
      const own = await matrix.send(call(a1), headers);
      const read = matrix.transactions() - (route.row.writes ? 1 : 0);
      const foreign = await matrix.send(call(b1), headers);
      if (!unscoped(route, own))
        found.push(`${kind} without ${route.scopes.join()}: ${route.name} → ${own.status} ${own.text}`);
      if (own.text !== foreign.text) found.push(`${kind} without scope: ${route.name}: ${own.text} ≠ ${foreign.text}`);
      if (read > 0) found.push(`${kind} without scope: ${route.name} read ${read} times`);
    }
    matrix.undo('audit');
    failure(found);
    expect(cases.length).toBeGreaterThan(200);
  }, 120_000);
});

describe('callers × routes × everything that can be named', () => {
  it('foreign and missing are one answer, nothing of another tenant is read, and nothing of it changes', async () => {
    const { found, done, calls } = await examine(matrix, matrix.people.callers, tenantRoutes);
    failure(found);
    // Every route was carried out on own objects by some caller. The organisation is handed over to an admin only, and
    // would take the owner's rights from the callers that follow: owner.test.ts carries it out. An approval of a program is
    // its user's alone, who calls nothing here: oauth/client.test.ts ends one.
    const carriedOut = new Set([...done, 'users.ownership', 'oauth-approvals.delete']);
    failure(tenantRoutes.filter(({ name }) => !carriedOut.has(name)).map(({ name }) => name));
    expect(calls).toBeGreaterThan(5_000);
  }, 240_000);

  it('ids of others are left out, of what is shown and of what is counted', async () => {
    const lists = tenantRoutes.flatMap(({ channels }) => channels.filter(({ field }) => field === 'ids'));
    expect(lists.length).toBeGreaterThan(0);
    const { a1, a2, b1 } = matrix.tenants;
    for (const caller of matrix.people.callers) {
      for (const channel of lists) {
        const { id } = caller.own.objects[channel.kind];
        const all = [a1, a2, b1].map((tenant) => tenant.objects[channel.kind].id);
        const own =
          caller.bound === null ? all.filter((_one, at) => (at === 2 ? caller.own === b1 : caller.own !== b1)) : [id];
        const value = [...all, id, 'f0000000-0000-7000-8000-000000000000'].join();
        const nameWorkspace = caller.member;
        const told = await matrix.send(
          build(channel.route, caller.own, { channel, value, nameWorkspace }),
          caller.headers,
        );
        if (told.status === 403) continue;
        const shown = (told.body.data as { id: string }[]).map((one) => one.id).sort();
        // A member sees keys of his own only.
        const wanted = caller.member && shown.length === 0 ? [] : own.sort();
        expect([caller.name, told.body.total, shown]).toEqual([caller.name, wanted.length, wanted]);
      }
    }
  });

  it.each(LEAK_NAMES)('a route that %s is found', async (name) => {
    const planted = readRoutes(plantedRows(matrix.admin.tables).filter(({ id }) => id === leakId(name)));
    expect(planted.faults).toEqual([]);
    const { found } = await examine(matrix, matrix.people.callers.slice(0, 2), planted.routes);
    expect(found.length, name).toBeGreaterThan(0);
  });
});
