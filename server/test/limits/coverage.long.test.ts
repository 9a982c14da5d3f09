/**
 * Every operation against every kind of limit, generated from the table of operations: each is counted by what its record
 * says, and refused by name when the limit is used up, before anything reaches the upstream. What costs nothing is stated
 * with its reason and proved free. What was seen is docs/limit-coverage.md; `npm run limit-coverage` writes it anew.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Principal } from '../../src/auth/principal.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { claimLimits } from '../../src/resources/claim-limits.ts';
import type { Counters, Tables } from '../../src/store/ports.ts';
import type { LimitOwner, LimitType } from '../../src/store/schema.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, startUpstream } from '../support/upstream.ts';
import { answerOf, BASES, type Base, CALLS, LINES, type Line } from './calls.ts';
import { type Cell, coverageText } from './document.ts';

const TOKEN = 'a.token.with.claims';
const HIGH = 1_000_000;
const WAIT = { timeout: 15_000, interval: 5 };
const DOCUMENT = new URL('../../../docs/limit-coverage.md', import.meta.url);

/** What the doubles below lend to the test. */
const lent = vi.hoisted(() => ({
  token: null as Principal | null,
  counters: null as Counters | null,
  /** Keys of rate windows that were ever asked. */
  windows: new Set<string>(),
}));

// Whoever verifies tokens makes a principal of their claims; here it is found by the token's text.
vi.mock('../../src/auth/authenticator.ts', async (original) => {
  const real = await original<typeof import('../../src/auth/authenticator.ts')>();
  return {
    ...real,
    createAuthenticator: (options: Parameters<typeof real.createAuthenticator>[0]) => {
      const keys = real.createAuthenticator(options);
      const authenticate = keys.authenticate.bind(keys);
      keys.authenticate = (token, address) =>
        token === TOKEN && lent.token !== null ? lent.token : authenticate(token, address);
      return keys;
    },
  };
});

vi.mock('../../src/limits/rate-limits.ts', async (original) => {
  const real = await original<typeof import('../../src/limits/rate-limits.ts')>();
  return {
    ...real,
    createAdmission: (options: Parameters<typeof real.createAdmission>[0]) => {
      const { counters } = options;
      lent.counters = counters;
      const hit: Counters['hit'] = (windows) => {
        for (const { key } of windows) lent.windows.add(key);
        return counters.hit(windows);
      };
      const spied: Counters = {
        hit,
        add: (windows) => counters.add(windows),
        get: (keys) => counters.get(keys),
        close: () => counters.close(),
      };
      return real.createAdmission({ ...options, counters: spied });
    },
  };
});

let upstream: FakeUpstream;
let server: TestServer;
let tables: Tables;
let key: { id: string; key: string };
const cells = new Map<string, Cell>();
const cellOf = (line: Line): Cell => {
  let cell = cells.get(line.title);
  if (cell === undefined) {
    cell = { line, used: null, counted: new Set(), refused: new Set() };
    cells.set(line.title, cell);
  }
  return cell;
};

beforeAll(async () => {
  upstream = await startUpstream(answerOf);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
  const { workspace_id } = server.first;
  key = (await done('POST', '/api-keys/workspace/service', {
    name: 'Limited key',
    workspace_id,
    scopes: ['completions.write'],
  })) as typeof key;
  for (const base of BASES) {
    const configurations = { custom_host: `${upstream.url}/v1` };
    const common = { name: base, ai_provider_id: base, key: 'sk-test', create_default_provider: false };
    await done('POST', '/integrations', { ...common, slug: `${base}-integration`, configurations });
    await done('POST', '/providers', {
      name: base,
      slug: `${base}-new`,
      integration_id: `${base}-integration`,
      workspace_id,
    });
    const custom_host = configurations.custom_host;
    await done('POST', '/virtual-keys', {
      name: base,
      slug: `${base}-old`,
      provider: base,
      key: 'sk-test',
      custom_host,
      workspace_id,
    });
  }
}, 60_000);

afterAll(async () => {
  await tables?.close();
  await server?.stop();
  await upstream?.stop();
});

async function done(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
  const answer = await server.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** Who calls, and by what. */
interface Way {
  readonly caller: 'key' | 'token';
  readonly account: 'new' | 'old';
}

async function send(line: Line, way: Way, more: Record<string, string> = {}) {
  const json = line.operation.body === 'json' || line.operation.family === 'proxy';
  const form = new FormData();
  for (const [name, value] of Object.entries(line.fields ?? {})) {
    if (value instanceof Blob) form.set(name, value, 'lines.jsonl');
    else form.set(name, String(value));
  }
  const answer = await fetch(`${server.url}/v1${line.path}`, {
    method: line.method,
    headers: {
      'x-gateway-api-key': way.caller === 'key' ? key.key : TOKEN,
      'x-gateway-provider': `@${line.base}-${way.account}`,
      'x-gateway-metadata': '{"team":"search"}',
      ...(json && line.fields !== null ? { 'content-type': 'application/json' } : {}),
      ...more,
    },
    ...(line.fields === null ? {} : { body: json ? JSON.stringify(line.fields) : form }),
  });
  return { status: answer.status, id: answer.headers.get('x-gateway-trace-id'), text: await answer.text() };
}

/** Rates by the week, so that no window ends within the test. */
const rate = (type: string, value: number) => ({ type, unit: 'rpw', value });
const policies = new Map<string, string>();

async function policy(area: 'rate-limits' | 'usage-limits', type: string, body: object): Promise<void> {
  const known = policies.get(`${area} ${type}`);
  if (known !== undefined) {
    await done('PUT', `/policies/${area}/${known}`, body);
    return;
  }
  const made = await done('POST', `/policies/${area}`, {
    name: `All ${type}`,
    conditions: [{ key: 'metadata.team', value: '*' }],
    group_by: [{ key: 'metadata.team' }],
    workspace_id: server.first.workspace_id,
    type,
    ...(area === 'rate-limits' ? { unit: 'rpw' } : { ...(type === 'cost' ? { unpriced: 'serve' } : {}) }),
    ...body,
  });
  policies.set(`${area} ${type}`, String(made.id));
}

/** Sets the limits of one kind of owner; of a list that holds one only, the first. */
type Set_ = (usage: object[] | undefined, rates: object[] | undefined) => Promise<unknown>;
const each = (run: (base: Base) => Promise<unknown>) => Promise.all(BASES.map(run));
const claims = { sub: 'tester', usage_limits: null as unknown, rate_limits: null as unknown };
const given = (usage: object | undefined, rates: object[] | undefined) => ({
  ...(usage === undefined ? {} : { usage_limits: usage }),
  ...(rates === undefined ? {} : { rate_limits: rates }),
});
const OWNERS: Record<Exclude<LimitOwner, 'policy'>, Set_> = {
  key: (usage, rates) => done('PUT', `/api-keys/${key.id}`, given(usage?.[0], rates)),
  token: async (usage, rates) => {
    if (usage !== undefined) claims.usage_limits = usage[0];
    if (rates !== undefined) claims.rate_limits = rates;
    const { organisation_id: organisationId, workspace_id: workspaceId } = server.first;
    lent.token = {
      kind: 'workspace-service',
      keyId: null,
      keyName: null,
      organisationId,
      workspaceId,
      userId: null,
      role: null,
      scopes: new Set(['completions.write']),
      defaults: {},
      expiresAt: null,
      ...claimLimits(claims, TOKEN, { organisationId, now: Date.now() }),
    };
  },
  workspace: (usage, rates) => done('PUT', `/admin/workspaces/${server.first.workspace_id}`, given(usage, rates)),
  provider: (usage, rates) => each((base) => done('PUT', `/providers/${base}-new`, given(usage?.[0], rates))),
  'virtual-key': (usage, rates) => each((base) => done('PUT', `/virtual-keys/${base}-old`, given(usage?.[0], rates))),
  integration: (usage, rates) =>
    each((base) => {
      const entry = { id: server.first.workspace_id, enabled: true, create_default_provider: false };
      const limits = given(usage?.slice(0, 1), rates?.slice(0, 1));
      return done('PUT', `/integrations/${base}-integration/workspaces`, { workspaces: [{ ...entry, ...limits }] });
    }),
};
const NAMES: Record<LimitOwner, string> = {
  key: 'key',
  token: 'token',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  policy: 'policy',
};
const wayOf = (owner: LimitOwner): Way => ({
  caller: owner === 'token' ? 'token' : 'key',
  account: owner === 'virtual-key' ? 'old' : 'new',
});
const usageOf = (type: string, credit_limit: number) => ({
  type,
  credit_limit,
  ...(type === 'cost' ? { unpriced: 'serve' } : {}),
});

/** What a kind is called in the refusal. */
function namedBy(area: string, owner: LimitOwner, line: Line, type: string): string {
  if (owner === 'key') return 'key Limited key';
  if (owner === 'token') return 'token tester';
  if (owner === 'policy' && area === 'usage') return `Budget "All ${type}" is used up for metadata.team:search`;
  if (owner === 'policy') return `policy All ${type} for metadata.team:search`;
  if (owner === 'workspace') return 'workspace ';
  if (owner === 'integration') return `integration ${line.base}-integration`;
  return owner === 'provider' ? `provider ${line.base}-new` : `virtual key ${line.base}-old`;
}

type Counted = Map<string, number>;

/** Everything that has counted, by `usage|rate <owner kind> <type>` and, where there are several, base. */
async function counted(): Promise<Counted> {
  const out: Counted = new Map();
  const ids = await idsOf();
  for (const row of await tables.systemRead((tx) => tx.list('usage_buckets', {}))) {
    if (row.credit_limit > 2 ** 51) continue;
    out.set(`usage ${row.owner_kind} ${row.type} ${ids.get(row.owner_id) ?? ''}`, row.used);
  }
  const keys = [...lent.windows];
  const values = (await lent.counters?.get(keys)) ?? [];
  for (const [index, window] of keys.entries()) {
    const [, , kind, ...rest] = window.split(':');
    const type = rest.at(-3);
    out.set(`rate ${kind} ${type} ${ids.get(rest[0] ?? '') ?? ''}`, values[index] ?? 0);
  }
  return out;
}

let known: Map<string, string> | null = null;
async function idsOf(): Promise<Map<string, string>> {
  known ??= await tables.systemRead(async (tx) => {
    const out = new Map<string, string>();
    for (const table of ['providers', 'virtual_keys', 'integrations'] as const) {
      for (const row of await tx.list(table, {})) out.set(row.id, row.slug.split('-')[0] ?? '');
    }
    return out;
  });
  return known;
}

/** What a request by this way counts against, with the type of the limit. */
function limitsOf(line: Line, way: Way, type: 'cost' | 'tokens'): string[] {
  const base = ` ${line.base}`;
  const account = way.account === 'new' ? 'provider' : 'virtual-key';
  const own = [`${way.caller} %`, `${account} %`].map((name) => (name.startsWith(account) ? name + base : `${name} `));
  const through = way.account === 'new' ? [`integration %${base}`] : [];
  const usage = [...own, ...through].map((name) => `usage ${name.replace('%', type)}`);
  const more = ['cost', 'tokens'].map((one) => `usage workspace ${one} `);
  const rated = ['requests', 'tokens'].flatMap((one) =>
    [...own, 'workspace % ', 'policy % '].map((name) => `rate ${name.replace('%', one)}`),
  );
  const integrated = through.map((name) => `rate ${name.replace('%', type === 'cost' ? 'requests' : 'tokens')}`);
  const budgets = ['cost', 'tokens', 'requests'].map((one) => `usage policy ${one} `);
  return [...usage, ...more, ...budgets, ...rated, ...integrated];
}

/** Whether a limit of this area counts it at all. */
const counts = (line: Line, area: string) => line.free === null && (line.ends === null || area === 'rate');

const pause = (ms: number) => new Promise((resolve) => systemClock.after(ms, () => resolve(undefined)));

describe('the table', () => {
  it('has every operation, and every stream of one', () => {
    expect(Object.keys(CALLS).sort()).toEqual(Object.keys(OPERATIONS).sort());
    for (const operation of Object.values(OPERATIONS)) {
      const { free, streamed } = CALLS[operation.id];
      if (free === undefined) expect([operation.id, streamed !== undefined]).toEqual([operation.id, operation.streams]);
      // What reads is free, and nothing else.
      expect([operation.id, free !== undefined]).toEqual([operation.id, operation.method === 'GET']);
    }
  });
});

describe.each<[string, Way, 'cost' | 'tokens']>([
  ['a key, a provider and its integration, by cost', { caller: 'key', account: 'new' }, 'cost'],
  ['a key, a provider and its integration, by tokens', { caller: 'key', account: 'new' }, 'tokens'],
  ['a token and a virtual key, by cost', { caller: 'token', account: 'old' }, 'cost'],
  ['a token and a virtual key, by tokens', { caller: 'token', account: 'old' }, 'tokens'],
])('limits of %s', (_title, way, type) => {
  beforeAll(async () => {
    const rates = [rate('requests', HIGH), rate('tokens', HIGH)];
    const both = [usageOf('cost', HIGH), usageOf('tokens', HIGH)];
    for (const [owner, set] of Object.entries(OWNERS)) {
      const usage = owner === 'workspace' ? both : [usageOf(type, HIGH)];
      await set(usage, owner === 'integration' && type === 'tokens' ? rates.slice(1) : rates);
    }
    for (const one of ['requests', 'tokens']) await policy('rate-limits', one, { value: HIGH });
    for (const one of ['requests', 'tokens', 'cost']) await policy('usage-limits', one, { credit_limit: HIGH });
    await pause(50);
  });

  it('count every operation by what its record says, and nothing else', async () => {
    const ids: [Line, string][] = [];
    let before = await counted();
    for (const line of LINES) {
      const answer = await send(line, way);
      expect.soft([line.title, answer.status, answer.text]).toEqual([line.title, 200, answer.text]);
      const names = limitsOf(line, way, type);
      let after = before;
      const record = (await server.records()).find(({ trace_id }) => trace_id === answer.id);
      expect.soft([line.title, record?.outcome]).toEqual([line.title, 'ok']);
      const usage = record?.usage as { input: number; output: number } | null;
      const truth: Record<LimitType, number> = {
        requests: 1,
        tokens: usage === null ? 0 : usage.input + usage.output,
        cost: Number(record?.cost_micros ?? 0),
      };
      const delta = (name: string) => (after.get(name) ?? 0) - (before.get(name) ?? 0);
      const wrong = () => {
        const out: string[] = [];
        for (const name of new Set([...after.keys(), ...names])) {
          const [area = '', , one = ''] = name.split(' ');
          const should = counts(line, area) && names.includes(name) ? truth[one as LimitType] : 0;
          // What a cost has below a micro-dollar is carried.
          if (Math.abs(delta(name) - should) > (one === 'cost' && should > 0 ? 1 : 0)) {
            out.push(`${name}: ${delta(name)} instead of ${should}`);
          }
        }
        return out;
      };
      for (let i = 0; i < 400; i++) {
        after = await counted();
        if (wrong().length === 0) break;
        await pause(10);
      }
      expect.soft([line.title, wrong()]).toEqual([line.title, []]);
      const cell = cellOf(line);
      cell.used = { ...truth, cost: record?.cost_micros === null ? null : truth.cost };
      for (const name of names) {
        const kind = name.split(' ').slice(0, 3);
        if (counts(line, kind[0] ?? '')) cell.counted.add(kind.join(' '));
      }
      before = after;
      ids.push([line, answer.id ?? '']);
    }
    // Nothing came late, not of what is free either.
    await pause(60);
    expect([...(await counted())]).toEqual([...before]);
    expect(ids.length).toBe(LINES.length);
  }, 60_000);
});

const KINDS: [string, LimitOwner, string][] = [
  ...(Object.keys(NAMES) as LimitOwner[]).flatMap((owner) =>
    ['requests', 'tokens'].map((type): [string, LimitOwner, string] => ['rate', owner, type]),
  ),
  ...(Object.keys(NAMES) as LimitOwner[]).flatMap((owner) =>
    ['cost', 'tokens', ...(owner === 'policy' ? ['requests'] : [])].map((type): [string, LimitOwner, string] => [
      'usage',
      owner,
      type,
    ]),
  ),
];

describe('a limit that is used up', () => {
  it.each(KINDS)(
    '%s limit of the %s, %s: refuses by name what counts, and nothing else',
    async (area, owner, type) => {
      const way = wayOf(owner);
      const status = area === 'rate' ? 429 : 412;
      await close(area, owner, type);
      for (const base of BASES) {
        const line = LINES.find((one) => one.base === base && one.free === null) as Line;
        await vi.waitFor(async () => expect((await send(line, way)).status).toBe(status), WAIT);
      }
      const counting = LINES.filter((line) => counts(line, area));
      const reached = upstream.received.length;
      await inParallel(counting, async (line) => {
        const answer = await send(line, way);
        expect([line.title, answer.status, answer.text]).toEqual([line.title, status, answer.text]);
        const limit = area === 'rate' ? 'Rate limit of ' : owner === 'policy' ? '' : 'The usage limit of ';
        const name = namedBy(area, owner, line, type);
        expect(answer.text.replaceAll('\\"', '"')).toContain(
          `${limit}${area === 'usage' && owner === 'key' ? 'API ' : ''}${name}`,
        );
        cellOf(line).refused.add(`${area} ${owner} ${type}`);
      });
      // What makes a dry run free asks nobody's limit: one owner shows it for each type.
      if (owner === 'policy') {
        await inParallel(counting, async (line) => {
          const answer = await send(line, way, { 'x-gateway-dry-run': 'true' });
          expect([line.title, [412, 429].includes(answer.status)]).toEqual([line.title, false]);
        });
      }
      expect(upstream.received.length).toBe(reached);
      await inParallel(
        LINES.filter((line) => !counts(line, area)),
        async (line) => {
          const answer = await send(line, way);
          expect([line.title, [412, 429].includes(answer.status)]).toEqual([line.title, false]);
        },
      );
      await open(area, owner, type);
      await vi.waitFor(async () => {
        const line = LINES.find((one) => one.base === 'openai') as Line;
        expect((await send(line, way)).status).toBe(200);
      }, WAIT);
    },
    60_000,
  );
});

async function inParallel(lines: readonly Line[], run: (line: Line) => Promise<void>): Promise<void> {
  const rest = [...lines];
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      for (let line = rest.shift(); line !== undefined; line = rest.shift()) await run(line);
    }),
  );
}

/** Makes one limit used up: the most direct way each kind has. */
async function close(area: string, owner: LimitOwner, type: string): Promise<void> {
  if (area === 'rate') {
    if (owner === 'policy') await policy('rate-limits', type, { value: 1 });
    else await OWNERS[owner](undefined, [rate(type, 0)]);
    return;
  }
  if (owner === 'policy') await policy('usage-limits', type, { credit_limit: HIGH - 1 });
  else {
    // Each has a counter before it is used up.
    await OWNERS[owner]([usageOf(type, HIGH - 1)], undefined);
    await vi.waitFor(() => touch(wayOf(owner), 200), WAIT);
    await pause(5);
    await OWNERS[owner]([usageOf(type, HIGH - 2)], undefined);
  }
  await fill(owner, type, 2 ** 51, 'exhausted');
}

async function touch(way: Way, status: number): Promise<void> {
  for (const base of BASES) {
    const line = LINES.find((one) => one.base === base && one.free === null) as Line;
    expect((await send(line, way)).status).toBe(status);
  }
}

function fill(owner: LimitOwner, type: string, used: number, status: 'active' | 'exhausted'): Promise<unknown> {
  const which = { owner_kind: owner, type: type as LimitType } as const;
  return tables.systemWrite((tx) => tx.update('usage_buckets', which, { used, status }));
}

async function open(area: string, owner: LimitOwner, type: string): Promise<void> {
  if (area === 'rate') {
    if (owner === 'policy') await policy('rate-limits', type, { value: HIGH });
    else await OWNERS[owner](undefined, [rate(type, HIGH)]);
    return;
  }
  await fill(owner, type, 0, 'active');
  if (owner === 'policy') await policy('usage-limits', type, { credit_limit: HIGH });
  else await OWNERS[owner]([usageOf(type, HIGH)], undefined);
}

describe('docs/limit-coverage.md', () => {
  it('says what was seen here: `npm run limit-coverage` writes it', async () => {
    const text = coverageText([...cells.values()], KINDS);
    if (process.env.SLUICE_WRITE_LIMIT_COVERAGE === '1') await writeFile(DOCUMENT, text);
    expect(await readFile(DOCUMENT, 'utf8')).toBe(text);
    for (const { line, counted: seen, refused } of cells.values()) {
      const wanted = KINDS.filter(([area]) => counts(line, area)).map((kind) => kind.join(' '));
      expect([line.title, [...seen].sort(), [...refused].sort()]).toEqual([
        line.title,
        [...wanted].sort(),
        [...wanted].sort(),
      ]);
    }
  });
});
