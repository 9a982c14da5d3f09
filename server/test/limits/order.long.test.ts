/** Which limit is named when two are used up: the documented order, for every pair of kinds, through the steps themselves. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;
let key: { id: string; key: string };
const policies: Record<string, string> = {};

beforeAll(async () => {
  upstream = await startUpstream((_request, response) =>
    sendJson(response, 200, {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'gpt-4o',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
      // Above every limit of this file, in tokens.
      usage: { prompt_tokens: 5, completion_tokens: 5, total_tokens: 10 },
    }),
  );
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await done('POST', '/integrations', {
    name: 'one',
    slug: 'one',
    ai_provider_id: 'openai',
    key: 'sk-test',
    create_default_provider: false,
    configurations: { custom_host: `${upstream.url}/v1` },
  });
  const { workspace_id } = server.first;
  await done('POST', '/providers', { name: 'p', slug: 'p', integration_id: 'one', workspace_id });
  key = (await done('POST', '/api-keys/workspace/service', {
    name: 'k',
    workspace_id,
    scopes: ['completions.write'],
  })) as typeof key;
  const selects = { conditions: [{ key: 'api_key', value: '*' }], group_by: [{ key: 'api_key' }], workspace_id };
  for (const name of ['elder', 'younger']) {
    const rate = { name, type: 'requests', unit: 'rpw', value: 1_000 };
    policies[`rate ${name}`] = String((await done('POST', '/policies/rate-limits', { ...selects, ...rate })).id);
    const usage = { name, type: 'tokens', credit_limit: 1_000_000 };
    policies[`usage ${name}`] = String((await done('POST', '/policies/usage-limits', { ...selects, ...usage })).id);
  }
  for (const [, , set] of ORDER) await set(false);
  // Each has counted before it is used up.
  for (let i = 0; i < 3; i++) expect((await chat()).status).toBe(200);
  await pause(100);
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

async function done(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
  const answer = await server.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

async function chat(): Promise<{ status: number; text: string }> {
  const body = { model: '@p/gpt-4o', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5 };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-api-key': key.key });
  return { status: answer.status, text: await answer.text() };
}

const pause = (ms: number) => new Promise((resolve) => systemClock.after(ms, () => resolve(undefined)));
const rates = (used: boolean) => (used ? [{ type: 'requests', unit: 'rpw', value: 0 }] : null);
/** Far away, so that each has counted before it is used up by being lowered. */
const usage = (used: boolean) => ({ type: 'tokens', credit_limit: used ? 1 : 1_000_000 });
const access = (more: object) =>
  done('PUT', '/integrations/one/workspaces', {
    workspaces: [{ id: server.first.workspace_id, enabled: true, create_default_provider: false, ...more }],
  });
const workspace = (more: object) => done('PUT', `/admin/workspaces/${server.first.workspace_id}`, more);

/** In the order in which they are asked, with what each is called and how it is used up. */
const ORDER: readonly (readonly [string, string, (used: boolean) => Promise<unknown>])[] = [
  [
    'rate of the key',
    'Rate limit of key k',
    (used) => done('PUT', `/api-keys/${key.id}`, { rate_limits: rates(used) }),
  ],
  ['rate of the workspace', 'Rate limit of workspace', (used) => workspace({ rate_limits: rates(used) })],
  [
    'rate of the provider',
    'Rate limit of provider p',
    (used) => done('PUT', '/providers/p', { rate_limits: rates(used) }),
  ],
  ['rate of the integration', 'Rate limit of integration one', (used) => access({ rate_limits: rates(used) })],
  ...['elder', 'younger'].map(
    (name) =>
      [
        `rate of the ${name} policy`,
        `Rate limit of policy ${name}`,
        (used: boolean) =>
          done('PUT', `/policies/rate-limits/${policies[`rate ${name}`]}`, { value: used ? 1 : 1_000 }),
      ] as const,
  ),
  [
    'usage of the key',
    'usage limit of API key k',
    (used) => done('PUT', `/api-keys/${key.id}`, { usage_limits: usage(used) }),
  ],
  ['usage of the workspace', 'usage limit of workspace', (used) => workspace({ usage_limits: [usage(used)] })],
  [
    'usage of the provider',
    'usage limit of provider p',
    (used) => done('PUT', '/providers/p', { usage_limits: usage(used) }),
  ],
  ['usage of the integration', 'usage limit of integration one', (used) => access({ usage_limits: [usage(used)] })],
  ...['elder', 'younger'].map(
    (name) =>
      [
        `usage of the ${name} policy`,
        `Budget \\"${name}\\"`,
        (used: boolean) =>
          done('PUT', `/policies/usage-limits/${policies[`usage ${name}`]}`, { credit_limit: used ? 1 : 1_000_000 }),
      ] as const,
  ),
];

/** Uses limits up one after the other, from the last in the order: each that is added must be the one that is named. */
async function until(named: string): Promise<string> {
  for (let i = 0; ; i++) {
    const { text } = await chat();
    // A node may refuse from memory for a quarter of a second, by what it refused by before.
    if (text.includes(named) || i > 100) return text;
    await pause(10);
  }
}

describe('the order of limits', () => {
  it('of all that are used up the first is named: rate limits before usage limits, key, workspace, provider, integration, policies', async () => {
    for (const [, named, set] of [...ORDER].reverse()) {
      await set(true);
      // Whatever comes later in the order is used up already.
      expect(await until(named)).toContain(named);
    }
    for (const [, , set] of ORDER) await set(false);
  });

  it.each(ORDER.map(([title], index) => [title, index] as const))(
    '%s is named alone when only it is used up',
    async (_, index) => {
      const [, named, set] = ORDER[index] as (typeof ORDER)[number];
      await set(true);
      expect(await until(named)).toContain(named);
      await set(false);
    },
  );

  it('a request that a later limit refuses is counted by none of the earlier ones, and one that passes by all', async () => {
    const count = async (name: string) => {
      const { body } = await server.admin('GET', `/policies/usage-limits/${policies[`usage ${name}`]}/entities`);
      return Number((body.data as { current_usage: number }[])[0]?.current_usage);
    };
    const settled = async () => {
      let before = [-1, -1];
      // Settlements reach the books some 20 ms later, on a busy machine much later: several looks must agree.
      for (let same = 0; same < 8; ) {
        const now = [await count('elder'), await count('younger')];
        same = now.join() === before.join() ? same + 1 : 0;
        before = now;
        await pause(60);
      }
      return before;
    };
    let status = 0;
    for (let i = 0; i < 100 && status !== 200; i++) status = (await chat()).status;
    const [elder = 0, younger = 0] = await settled();
    expect((await chat()).status).toBe(200);
    expect(await settled()).toEqual([elder + 10, younger + 10]);
    const last = ORDER.at(-1) as (typeof ORDER)[number];
    await last[2](true);
    await until(last[1]);
    const before = await settled();
    for (let i = 0; i < 3; i++) expect((await chat()).status).toBe(412);
    expect(await settled()).toEqual(before);
    await last[2](false);
  });
});
