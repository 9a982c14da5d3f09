/** The handler's own promises, shown on rows made for the purpose. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { type AdminHarness, emptyTables, plainVault, startAdmin } from '../../test/support/admin.ts';
import { ConsoleSessions, createLink } from '../auth/console-session.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { type AnyAction, action, type Call } from '../resources/resource.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { Tables } from '../store/ports.ts';
import { createAdminLimiter } from './rate-limit.ts';

let admin: AdminHarness | null = null;

afterEach(async () => {
  await admin?.close();
  admin = null;
});

const SECRET_TEXT = 'SELECT secret FROM /etc/passwd';

/** A write that renames the default workspace and then does what `finish` says. */
function write(id: string, finish: (call: Call) => unknown): AnyAction {
  return action({
    id,
    method: 'POST',
    path: `/test/${id}`,
    summary: 'For a test',
    tag: 'Test',
    auth: 'key_or_login',
    scopes: ['workspaces.update'],
    tenant: 'organisation',
    params: null,
    query: null,
    body: null,
    response: z.object({ ok: z.literal(true) }),
    writes: true,
    audit: { action: 'update', resource: 'workspaces' },
    run: async (call) => {
      await call.tx.update('workspaces', { is_default: true }, { name: `changed by ${id}` });
      call.tx.changed({ workspaceId: null, topic: 'workspaces', entityId: 'x' });
      return (await finish(call)) as { ok: true };
    },
  });
}

const rows = [
  write('fine', () => ({ ok: true, leaked: SECRET_TEXT })),
  write('mismatch', () => ({ ok: SECRET_TEXT })),
  write('crash', () => {
    throw new Error(SECRET_TEXT);
  }),
  write('late', (call) => {
    call.onCommit(() => {
      throw new Error('after the commit');
    });
    return { ok: true };
  }),
];

const workspaceName = async ({ tables, a }: AdminHarness) =>
  (await tables.systemRead((tx) => tx.find('workspaces', { id: a.workspace_id })))?.name;
const audits = ({ tables }: AdminHarness) =>
  tables.systemRead((tx) => tx.list('audit_log', { orderBy: [['timestamp', 'asc']] }));

describe('answers', () => {
  it('carry what their schema names and nothing else', async () => {
    admin = await startAdmin(await emptyTables('sqlite'), { rows });
    const answer = await admin.call('POST', '/v1/test/fine');
    expect(answer.body).toEqual({ ok: true });
    expect(await workspaceName(admin)).toBe('changed by fine');
  });

  it.each(['mismatch', 'crash'])(
    'a %s is a 500 whose detail is in the log alone, and the write is undone',
    async (id) => {
      admin = await startAdmin(await emptyTables('sqlite'), { rows });
      const answer = await admin.call('POST', `/v1/test/${id}`);
      expect([answer.status, answer.body.error.code, answer.body.error.type]).toEqual([500, 'AB04', 'server_error']);
      expect(answer.text).not.toContain('SELECT');
      const requestId = answer.headers.get('x-gateway-request-id') ?? '?';
      expect(admin.logged.filter((line) => line.includes(requestId))).toHaveLength(1);
      expect(await workspaceName(admin)).toBe('Default');
      expect((await audits(admin)).map((row) => [row.response_status_code, row.request_id])).toEqual([
        [500, requestId],
      ]);
      expect(await admin.tables.lastChange()).toBe(await organisationsOnly(admin.tables));
    },
  );

  it('a failure after the commit is logged, not answered', async () => {
    admin = await startAdmin(await emptyTables('sqlite'), { rows });
    expect((await admin.call('POST', '/v1/test/late')).body).toEqual({ ok: true });
    expect(await workspaceName(admin)).toBe('changed by late');
    expect(admin.logged.join()).toContain('after the commit');
  });
});

/** The last change when nothing but the two organisations was announced. */
async function organisationsOnly(tables: Tables): Promise<number> {
  const changes = await tables.changesAfter(0, 100);
  return Math.max(...changes.filter((change) => change.topic === 'organisations').map((change) => change.seq));
}

describe('the audit row', () => {
  it('that cannot be written undoes the write', async () => {
    const tables = await emptyTables('sqlite');
    let broken = false;
    const failing: Tables = new Proxy(tables, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'write') return typeof value === 'function' ? value.bind(target) : value;
        const run: Tables['write'] = (tenant, work) =>
          target.write(tenant, (tx) =>
            work({
              tenant: tx.tenant,
              find: (table, where) => tx.find(table, where),
              list: (table, query) => tx.list(table, query),
              count: (table, query) => tx.count(table, query),
              totals: (table, query) => tx.totals(table, query),
              insertAll: (table, rows) => tx.insertAll(table, rows),
              update: (table, where, patch) => tx.update(table, where, patch),
              remove: (table, where) => tx.remove(table, where),
              organisation: () => tx.organisation(),
              updateOrganisation: (patch) => tx.updateOrganisation(patch),
              changed: (change) => tx.changed(change),
              now: () => tx.now(),
              insert: async (table, row) => {
                if (broken && table === 'audit_log') throw new Error('disk full');
                await tx.insert(table, row);
              },
            }),
          );
        return run;
      },
    });
    admin = await startAdmin(failing, { rows });
    broken = true;
    const answer = await admin.call('POST', '/v1/test/fine');
    expect(answer.status).toBe(500);
    expect(await workspaceName(admin)).toBe('Default');
    broken = false;
    expect((await admin.call('POST', '/v1/test/fine')).status).toBe(200);
    expect(await workspaceName(admin)).toBe('changed by fine');
  });
});

describe('a change', () => {
  it('is acted upon by this node before the answer', async () => {
    const seen: string[] = [];
    admin = await startAdmin(await emptyTables('sqlite'), {
      rows,
      admin: { caughtUp: async () => seen.push('caught up') },
    });
    await admin.call('POST', '/v1/test/fine');
    await admin.call('POST', '/v1/test/crash');
    await admin.call('GET', '/v1/api-keys');
    expect(seen).toEqual(['caught up']);
  });
});

describe('P-116 the API’s own rate limit', () => {
  it.each(['local', 'shared'])(
    'admits 300 requests a minute and key, then answers 429 with Retry-After (%s)',
    async (kind) => {
      const clock = new TestClock(Date.UTC(2026, 0, 1) + 15_000);
      const counters = memoryCounters({ clock });
      admin = await startAdmin(await emptyTables('sqlite', clock), {
        clock,
        admin:
          kind === 'local'
            ? { requestsPerMinute: 300 }
            : { limiter: createAdminLimiter(counters, clock, silentLog, 300) },
      });
      for (let i = 0; i < 300; i++) expect((await admin.call('HEAD', '/v1/api-keys')).status).toBe(200);
      const refused = await admin.call('DELETE', '/v1/api-keys/x');
      expect([refused.status, refused.body.error.code, refused.headers.get('retry-after')]).toEqual([
        429,
        'AB06',
        '45',
      ]);
      expect((await admin.call('HEAD', '/v1/api-keys', { key: admin.b.admin_api_key })).status).toBe(200);
      expect(await audits(admin)).toEqual([]);
      clock.jump(45_000);
      expect((await admin.call('HEAD', '/v1/api-keys')).status).toBe(200);
      await counters.close();
    },
  );
});

describe('a console sign-in', () => {
  it('reads with its cookie, and writes only with the CSRF token and from its own origin', async () => {
    const tables = await emptyTables('sqlite');
    const publicUrl = () => 'http://127.0.0.1:8787';
    const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl });
    admin = await startAdmin(tables, { rows, admin: { sessions } });
    const { a } = admin;
    const { token } = await createLink(tables, systemClock, { id: a.user_id, organisation_id: a.organisation_id });
    const signedIn = await sessions.exchange(token);
    const cookie = `${sessions.cookieName}=${signedIn.token}`;
    const call = (method: string, path: string, headers: Record<string, string> = {}) =>
      (admin as AdminHarness).call(method, path, { key: null, headers: { cookie, ...headers } });
    expect((await call('GET', '/v1/api-keys')).body.total).toBe(2);
    const csrf = signedIn.session.csrf;
    const origin = publicUrl();
    expect((await call('POST', '/v1/test/fine')).status).toBe(403);
    expect((await call('POST', '/v1/test/fine', { origin })).status).toBe(403);
    expect((await call('POST', '/v1/test/fine', { origin: 'null', 'x-csrf-token': csrf })).status).toBe(403);
    expect((await call('POST', '/v1/test/fine', { origin: 'http://127.0.0.1', 'x-csrf-token': csrf })).status).toBe(
      403,
    );
    expect(await workspaceName(admin)).toBe('Default');
    expect((await call('POST', '/v1/test/fine', { origin, 'x-csrf-token': csrf })).status).toBe(200);
    expect((await audits(admin)).at(-1)).toMatchObject({ user_type: 'user', user_id: a.user_id });
  });
});

describe('a body that takes long', () => {
  /** Turns of the event loop that are given away, each with whether a write transaction was open. */
  async function turnsOf(body: object, path: string) {
    const tables = await emptyTables('sqlite');
    let writing = 0;
    const watched = new Proxy(tables, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'write' && name !== 'systemWrite') return typeof value === 'function' ? value.bind(target) : value;
        const begin = value as (...given: unknown[]) => Promise<unknown>;
        return (...given: unknown[]) => {
          const runs = given.map((one) =>
            typeof one !== 'function'
              ? one
              : async (tx: unknown) => {
                  writing += 1;
                  try {
                    return await one(tx);
                  } finally {
                    writing -= 1;
                  }
                },
          );
          return begin.apply(target, runs);
        };
      },
    });
    // Each look at the clock is five milliseconds later than the one before: every step that may end a turn does.
    let now = 0;
    const clock = { ...systemClock, monotonic: () => (now += 5) };
    admin = await startAdmin(watched, { admin: { clock } });
    const given: boolean[] = [];
    const real = globalThis.setImmediate;
    const spy = vi.spyOn(globalThis, 'setImmediate').mockImplementation(((run: () => void) => {
      if (new Error().stack?.includes('kernel/turns.ts')) given.push(writing > 0);
      return real(run);
    }) as typeof setImmediate);
    try {
      const answer = await admin.call('POST', path, { body: { workspace_id: admin.a.workspace_id, ...body } });
      return { given, status: answer.status };
    } finally {
      spy.mockRestore();
    }
  }

  it.each([
    [
      'a config',
      '/v1/configs',
      {
        name: 'c',
        config: {
          strategy: { mode: 'fallback' },
          targets: Array.from({ length: 100 }, () => ({
            provider: '@openai',
            input_guardrails: [{ 'default.contains': { words: ['a'.repeat(900)] } }],
          })),
        },
      },
    ],
    [
      'a guardrail',
      '/v1/guardrails',
      {
        name: 'g',
        checks: Array.from({ length: 100 }, () => ({
          id: 'default.contains',
          parameters: { words: ['a'.repeat(900)] },
        })),
      },
    ],
  ])('gives turns to others before and behind its write transaction, never within: %s', async (_what, path, body) => {
    const { given, status } = await turnsOf(body, path);
    expect(status).toBe(200);
    // One for each target or check, and those between the steps of the handler.
    expect(given.length).toBeGreaterThan(100);
    expect(given).not.toContain(true);
  });

  it.each([
    ['runs the write again', 'taken', 200],
    ['undoes it', 'failing', 500],
  ])('is hidden once for its audit row, also where the store %s', async (_what, id, status) => {
    const tables = await emptyTables('sqlite');
    let marks = 0;
    let runs = 0;
    const counting = {
      ...plainVault,
      mac: (use: string, data: Buffer) => {
        if (use === 'audit value' && data.includes('counted-canary')) marks += 1;
        return plainVault.mac(use, data);
      },
    };
    const again = new Proxy(tables, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'write') return typeof value === 'function' ? value.bind(target) : value;
        return (tenant: never, run: (tx: never) => Promise<unknown>, options: never) =>
          target.write(
            tenant,
            async (tx) => {
              if (runs === 0) await run(tx as never).catch(() => {});
              runs += 1;
              return run(tx as never);
            },
            options,
          );
      },
    });
    const body = z.strictObject({ token: z.string() });
    const fail = () => {
      throw new Error(SECRET_TEXT);
    };
    const taking = [
      { ...write('taken', () => ({ ok: true })), body },
      { ...write('failing', fail), body },
    ];
    admin = await startAdmin(again, { rows: taking, admin: { vault: counting as never } });
    const answer = await admin.call('POST', `/v1/test/${id}`, { body: { token: 'counted-canary' } });
    expect(answer.status).toBe(status);
    expect((await audits(admin)).at(-1)?.request_body).toMatch(/^\{"token":"\*{7}/);
    expect(marks).toBe(1);
  });
});
