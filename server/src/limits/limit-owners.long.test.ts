/**
 * The life of a usage limit on everything that has one: used up, shown, raised, lowered,
 * reset, removed. Two nodes on one PostgreSQL: what is changed on the first holds on the second within a second.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migratedDatabase } from '../../test/support/postgres.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../test/support/upstream.ts';
import { compose, type Running } from '../compose.ts';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';

/** Tokens of each answer. */
const TOKENS = 7;
const WITHIN_MS = 1_000;

let upstream: FakeUpstream;
let one: TestServer;
let two: Running;
let dataDir: string;
let workspaceKey: string;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) =>
    sendJson(response, 200, {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'gpt-4o',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: TOKENS },
    }),
  );
  const shared = {
    SLUICE_DATABASE_URL: await migratedDatabase(),
    SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
    SLUICE_ADMIN_REQUESTS_PER_MINUTE: '100000',
  };
  one = await startServer(shared);
  dataDir = await mkdtemp(join(tmpdir(), 'sluice-node-'));
  const env = { ...shared, SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error' };
  two = await compose(loadConfig([], env, dataDir), silentLog);
  workspaceKey = one.first.workspace_api_key;
  await done('POST', '/integrations', {
    name: 'Shared',
    slug: 'shared',
    ai_provider_id: 'openai',
    key: 'sk-test',
    create_default_provider: false,
    configurations: { custom_host: `${upstream.url}/v1` },
  });
}, 60_000);

afterAll(async () => {
  await two?.stop({ noticeMs: 0, drainMs: 1_000 });
  await one?.stop();
  await upstream?.stop();
  await rm(dataDir, { recursive: true, force: true });
});

async function done(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
  const answer = await one.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

async function chat(url: string, headers: Record<string, string>, slug: string): Promise<Answer> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': workspaceKey, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: `@${slug}/gpt-4o`, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 }),
  });
  return { status: answer.status, text: await answer.text() };
}

/** Asks until `good`, for a second at most. */
async function within<T>(ask: () => Promise<T>, good: (value: T) => boolean, ms = WITHIN_MS): Promise<T> {
  const since = performance.now();
  for (;;) {
    const value = await ask();
    if (good(value) || performance.now() - since > ms) return value;
    await new Promise((resolve) => systemClock.after(20, () => resolve(undefined)));
  }
}

type Shown = Record<string, unknown>;
/** Something that has a usage limit. */
interface Owner {
  readonly named: string;
  readonly headers: Record<string, string>;
  readonly slug: string;
  set(limit: object | null, more?: object): Promise<unknown>;
  /** The limit as it is answered, and the owner's own status where it has one. */
  shown(): Promise<{ limit: Shown | null; status: unknown }>;
}

let counter = 0;
async function provider(): Promise<string> {
  counter += 1;
  const made = await done('POST', '/providers', {
    name: `p${counter}`,
    slug: `p${counter}`,
    integration_id: 'shared',
    workspace_id: one.first.workspace_id,
  });
  return String(made.slug);
}

const first = (limits: unknown): Shown | null => ((limits as Shown[] | null)?.[0] ?? null) as Shown | null;

const OWNERS: Record<string, () => Promise<Owner>> = {
  'API key': async () => {
    const made = await done('POST', '/api-keys/workspace/service', {
      name: 'Limited key',
      workspace_id: one.first.workspace_id,
      scopes: ['completions.write'],
    });
    return {
      named: 'API key Limited key',
      headers: { 'x-gateway-api-key': String(made.key) },
      slug: await provider(),
      set: (limit, more) => done('PUT', `/api-keys/${made.id}`, { usage_limits: limit, ...more }),
      shown: async () => {
        const body = await done('GET', `/api-keys/${made.id}?include_usage=true`);
        return { limit: body.usage_limits as Shown | null, status: body.status };
      },
    };
  },
  workspace: async () => ({
    named: 'workspace ',
    headers: {},
    slug: await provider(),
    set: (limit, more) =>
      done('PUT', `/admin/workspaces/${one.first.workspace_id}`, { usage_limits: limit && [limit], ...more }),
    shown: async () => {
      const body = await done('GET', `/admin/workspaces/${one.first.workspace_id}?include_usage=true`);
      return { limit: first(body.usage_limits), status: null };
    },
  }),
  provider: async () => {
    const slug = await provider();
    return {
      named: `provider ${slug}`,
      headers: {},
      slug,
      set: (limit, more) => done('PUT', `/providers/${slug}`, { usage_limits: limit, ...more }),
      shown: async () => {
        const body = await done('GET', `/providers/${slug}`);
        return { limit: body.usage_limits as Shown | null, status: body.status };
      },
    };
  },
  'virtual key': async () => {
    const made = await done('POST', '/virtual-keys', {
      name: 'Old',
      provider: 'openai',
      key: 'sk-test',
      custom_host: `${upstream.url}/v1`,
      workspace_id: one.first.workspace_id,
    });
    return {
      named: `virtual key ${made.slug}`,
      headers: {},
      slug: String(made.slug),
      set: (limit, more) => done('PUT', `/virtual-keys/${made.slug}`, { usage_limits: limit, ...more }),
      shown: async () => {
        const body = await done('GET', `/virtual-keys/${made.slug}`);
        return { limit: body.usage_limits as Shown | null, status: body.status };
      },
    };
  },
  integration: async () => ({
    named: 'integration shared',
    headers: {},
    slug: await provider(),
    set: (limit, more) =>
      done('PUT', '/integrations/shared/workspaces', {
        workspaces: [
          {
            id: one.first.workspace_id,
            enabled: true,
            create_default_provider: false,
            usage_limits: limit && [limit],
            ...more,
          },
        ],
      }),
    shown: async () => {
      const body = await done('GET', '/integrations/shared/workspaces');
      return { limit: first((first(body.workspaces) as Shown).usage_limits), status: null };
    },
  }),
};

describe.each(Object.keys(OWNERS))('a usage limit of the %s', (name) => {
  let owner: Owner;
  const nodes = () => [one.url, two.url];
  /** What both nodes say, within a second. */
  const both = async (status: number): Promise<Answer[]> =>
    Promise.all(
      nodes().map((url) =>
        within(
          () => chat(url, owner.headers, owner.slug),
          (answer) => answer.status === status,
        ),
      ),
    );
  const usage = async () => (await owner.shown()).limit?.current_usage;

  beforeAll(async () => {
    owner = await (OWNERS[name] as () => Promise<Owner>)();
  });
  afterAll(() => owner.set(null));

  it('is exhausted, says so, is raised, lowered, reset, removed and begun anew', async () => {
    await owner.set({ type: 'tokens', credit_limit: 5 });
    await within(
      () => chat(one.url, owner.headers, owner.slug),
      ({ status }) => status === 412,
    );
    for (const { status, text } of await both(412)) {
      expect([status, text]).toEqual([412, expect.stringContaining(`The usage limit of ${owner.named}`)]);
    }
    const shown = await within(
      () => owner.shown(),
      ({ limit }) => limit?.status === 'exhausted',
    );
    const used = Number(shown.limit?.current_usage);
    expect(used).toBeGreaterThan(0);
    expect(used % TOKENS).toBe(0);
    expect(shown.limit).toMatchObject({ type: 'tokens', credit_limit: 5, status: 'exhausted', last_reset_at: null });
    if (shown.status !== null) expect(shown.status).toBe('exhausted');
    const sent = upstream.received.length;
    await both(412);
    expect(upstream.received.length).toBe(sent);

    // Raised: open on both nodes; what was used stays.
    await owner.set({ type: 'tokens', credit_limit: 5_000 });
    expect(await owner.shown()).toMatchObject({ limit: { current_usage: used, status: 'active' } });
    expect((await owner.shown()).status ?? 'active').toBe('active');
    expect((await both(200)).map(({ status }) => status)).toEqual([200, 200]);
    await within(usage, (now) => Number(now) >= used + 2 * TOKENS);

    // Lowered below what was used: closed on both.
    await owner.set({ type: 'tokens', credit_limit: 6 });
    expect((await owner.shown()).limit).toMatchObject({ status: 'exhausted' });
    expect((await owner.shown()).status ?? 'exhausted').toBe('exhausted');
    expect((await both(412)).map(({ status }) => status)).toEqual([412, 412]);

    // Reset: nothing is used, one request passes.
    await owner.set({ type: 'tokens', credit_limit: 5_000 }, { reset_usage: true });
    expect((await owner.shown()).limit).toMatchObject({
      current_usage: 0,
      status: 'active',
      last_reset_at: expect.any(String),
    });
    expect((await both(200)).map(({ status }) => status)).toEqual([200, 200]);

    // Removed: open. Given back, it begins at nothing.
    await owner.set({ type: 'tokens', credit_limit: 6 });
    await both(412);
    await owner.set(null);
    expect((await owner.shown()).limit).toBeNull();
    expect((await owner.shown()).status ?? 'active').toBe('active');
    expect((await both(200)).map(({ status }) => status)).toEqual([200, 200]);
    await owner.set({ type: 'tokens', credit_limit: 5_000 });
    expect((await owner.shown()).limit).toMatchObject({ current_usage: 0, status: 'active' });
  });

  it('that changes from tokens to cost counts anew, and what the old one counted closes nothing', async () => {
    await owner.set({ type: 'tokens', credit_limit: 5 });
    await both(412);
    await owner.set({ type: 'cost', credit_limit: 5 });
    expect(await owner.shown()).toMatchObject({ limit: { type: 'cost', current_usage: 0, status: 'active' } });
    expect((await owner.shown()).status ?? 'active').toBe('active');
    expect((await both(200)).map(({ status }) => status)).toEqual([200, 200]);
    await within(usage, (now) => Number(now) > 0);
    expect((await owner.shown()).status ?? 'active').toBe('active');
  });

  it('with a period shows when it is reset, and follows when that changes', async () => {
    const year = new Date().getUTCFullYear() + 1;
    await owner.set({ type: 'tokens', credit_limit: 5_000, periodic_reset_days: 30 });
    await both(200);
    const days = await within(
      () => owner.shown(),
      ({ limit }) => limit?.next_usage_reset_at !== undefined,
    );
    expect(days.limit).toMatchObject({
      periodic_reset_days: 30,
      next_usage_reset_at: expect.stringMatching(/T00:00:00\.000Z$/),
    });
    await owner.set({ type: 'tokens', credit_limit: 5_000, next_usage_reset_at: `${year}-05-06T07:08:09Z` });
    expect((await owner.shown()).limit).toMatchObject({ next_usage_reset_at: `${year}-05-06T00:00:00.000Z` });
  });

  it('takes no state from a body', async () => {
    await expect(owner.set({ credit_limit: 5, status: 'active' })).rejects.toThrow(/400.*status/);
    await expect(owner.set({ credit_limit: 5, current_usage: 0 })).rejects.toThrow(/400.*current_usage/);
  });
});

describe('what was counted stays with its owner', () => {
  const limit = { type: 'tokens', credit_limit: 5_000 } as const;
  const spent = (read: () => Promise<Shown | null>, tokens: number) =>
    within(
      async () => Number((await read())?.current_usage),
      (now) => now === tokens,
    );

  it('an API key that is rotated goes on counting, under both of its secrets', async () => {
    const { workspace_id } = one.first;
    const made = await done('POST', '/api-keys/workspace/service', {
      name: 'Rotated',
      workspace_id,
      scopes: ['completions.write'],
      usage_limits: limit,
    });
    const slug = await provider();
    const usage = async () => (await done('GET', `/api-keys/${made.id}`)).usage_limits as Shown;
    expect((await chat(one.url, { 'x-gateway-api-key': String(made.key) }, slug)).status).toBe(200);
    const rotated = await done('POST', `/api-keys/${made.id}/rotate`, {});
    for (const secret of [made.key, rotated.key]) {
      expect((await chat(two.url, { 'x-gateway-api-key': String(secret) }, slug)).status).toBe(200);
    }
    expect(await spent(usage, 3 * TOKENS)).toBe(3 * TOKENS);
  });

  it('a virtual key that becomes a provider takes its counter along', async () => {
    const owner = await (OWNERS['virtual key'] as () => Promise<Owner>)();
    await owner.set(limit);
    expect((await chat(one.url, {}, owner.slug)).status).toBe(200);
    expect(await spent(async () => (await owner.shown()).limit, TOKENS)).toBe(TOKENS);
    await done('POST', '/virtual-keys/migrate', {
      virtual_key_id: owner.slug,
      organisation_id: one.first.organisation_id,
    });
    const usage = async () => (await done('GET', `/providers/${owner.slug}`)).usage_limits as Shown;
    expect(await usage()).toMatchObject({ current_usage: TOKENS, status: 'active' });
    await done('PUT', `/providers/${owner.slug}`, { usage_limits: { ...limit, credit_limit: 5 } });
    const refused = await within(
      () => chat(two.url, {}, owner.slug),
      ({ status }) => status === 412,
    );
    expect([refused.status, refused.text]).toEqual([412, expect.stringContaining(`provider ${owner.slug} is used up`)]);
  });

  it('a new owner with the slug of one that was deleted begins at nothing', async () => {
    const { workspace_id } = one.first;
    const body = { name: 'again', slug: 'again', integration_id: 'shared', workspace_id, usage_limits: limit };
    const usage = async () => (await done('GET', '/providers/again')).usage_limits as Shown;
    await done('POST', '/providers', body);
    expect(
      (
        await within(
          () => chat(one.url, {}, 'again'),
          ({ status }) => status === 200,
        )
      ).status,
    ).toBe(200);
    expect(await spent(usage, TOKENS)).toBe(TOKENS);
    await done('DELETE', '/providers/again');
    await done('POST', '/providers', body);
    expect(await usage()).toMatchObject({ current_usage: 0, status: 'active' });
  });

  it('a workspace that loses its entry on an integration loses what it counted there, and gets the limits of all', async () => {
    const entry = { id: one.first.workspace_id, enabled: true, create_default_provider: false, usage_limits: [limit] };
    await done('PUT', '/integrations/shared/workspaces', { workspaces: [entry] });
    const slug = await provider();
    expect((await chat(one.url, {}, slug)).status).toBe(200);
    const shown = async () => {
      const { workspaces } = await done('GET', '/integrations/shared/workspaces');
      return first(first(workspaces)?.usage_limits);
    };
    expect(await spent(shown, TOKENS)).toBe(TOKENS);
    await done('PUT', '/integrations/shared/workspaces', {
      workspaces: [],
      override_existing_workspace_access: true,
      global_workspace_access: { enabled: true },
    });
    expect(
      (
        await within(
          () => chat(two.url, {}, slug),
          ({ status }) => status === 200,
        )
      ).status,
    ).toBe(200);
    await done('PUT', '/integrations/shared/workspaces', { workspaces: [entry] });
    expect(await shown()).toMatchObject({ current_usage: 0, status: 'active', credit_limit: 5_000 });
    await done('PUT', '/integrations/shared/workspaces', { workspaces: [{ ...entry, usage_limits: null }] });
  });
});

describe('several limits of a workspace', () => {
  const set = (usage_limits: unknown) =>
    one.admin('PUT', `/admin/workspaces/${one.first.workspace_id}`, { usage_limits });

  it('are one for each type and period: a second one is refused by its path', async () => {
    const limits = [
      { credit_limit: 5 },
      { type: 'cost', credit_limit: 9, periodic_reset: 'monthly' },
      { type: 'tokens', credit_limit: 9 },
      { credit_limit: 5, periodic_reset_days: 7 },
      { credit_limit: 5, periodic_reset_days: 8 },
    ];
    expect((await set(limits)).status).toBe(200);
    for (const again of limits) {
      const { status, body } = await set([...limits, { ...again, credit_limit: 3 }]);
      expect([status, (body.error as Shown).param]).toEqual([400, `usage_limits[${limits.length}]`]);
    }
    expect((await set(null)).status).toBe(200);
  });

  it('count each for itself: the one that is used up refuses, and says of which period it is', async () => {
    const slug = await provider();
    expect(
      (
        await set([
          { type: 'tokens', credit_limit: 5_000 },
          { type: 'tokens', credit_limit: 5, periodic_reset: 'weekly' },
        ])
      ).status,
    ).toBe(200);
    const refused = await within(
      () => chat(one.url, {}, slug),
      ({ status }) => status === 412,
    );
    expect([refused.status, refused.text]).toEqual([412, expect.stringContaining('It resets on ')]);
    const read = async () => (await done('GET', `/admin/workspaces/${one.first.workspace_id}`)).usage_limits as Shown[];
    const shown = await within(read, (limits) => limits[1]?.status === 'exhausted');
    expect(shown.map(({ status }) => status)).toEqual(['active', 'exhausted']);
    expect(shown[0]?.current_usage).toBe(shown[1]?.current_usage);
    expect((await set(null)).status).toBe(200);
  });
});
