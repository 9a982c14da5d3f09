/** What the headers of an answer say is left of a usage limit, to clients that slow down by them. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { budgetKey, settledBooks } from '../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});

afterAll(() => server?.stop());

const ECHO = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };

async function remaining(type: string, key: string): Promise<[number, number, number]> {
  const answer = await server.call('/chat/completions', ECHO, { 'x-gateway-api-key': key });
  const { usage } = (await answer.json()) as { usage?: { total_tokens: number } };
  const left = Number(answer.headers.get(`x-gateway-limit-usage-${type}-remaining`));
  return [answer.status, left, usage?.total_tokens ?? 0];
}

it('what the answered request has reserved is not taken off a limit on tokens: it falls by what is used', async () => {
  const { key, id } = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 60 } });
  let used = 0;
  for (let i = 0; i < 4; i++) {
    const [status, left, tokens] = await remaining('tokens', key);
    expect([i, status, left]).toEqual([i, 200, 60 - used]);
    used += tokens;
    expect((await settledBooks(server, id)).used).toBe(used);
  }
});

it('the answered request is taken off a limit on requests', async () => {
  const { key } = await budgetKey(server);
  const made = await server.admin('POST', '/policies/usage-limits', {
    name: 'Three requests',
    workspace_id: server.first.workspace_id,
    conditions: [{ key: 'workspace_id', value: server.first.workspace_id }],
    group_by: [{ key: 'workspace_id' }],
    type: 'requests',
    credit_limit: 3,
  });
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const said: unknown[] = [];
  for (let i = 0; i < 4; i++) said.push((await remaining('requests', key)).slice(0, 2));
  expect(said).toEqual([
    [200, 2],
    [200, 1],
    [200, 0],
    [412, 0],
  ]);
});

it.each(['cost', 'tokens'])(
  'a fraction in the limit of a key is refused, and told what takes cents (%s)',
  async (type) => {
    const { status, body } = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'cents',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      usage_limits: { type, credit_limit: 0.5 },
    });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({
      param: 'usage_limits.credit_limit',
      message: expect.stringMatching(
        /^usage_limits\.credit_limit must be a whole number, .*POST \/policies\/usage-limits\)\.$/,
      ),
    });
  },
);

it('a list of policies has what their counters used when it is asked for', async () => {
  const list = async (query: string) => {
    const path = `/policies/usage-limits?workspace_id=${server.first.workspace_id}${query}`;
    const { status, body } = await server.admin('GET', path);
    expect(status, JSON.stringify(body)).toBe(200);
    return (body.data as { value_key_usage_map?: Record<string, { current_usage: number }> }[])[0]?.value_key_usage_map;
  };
  expect(await list('')).toBeUndefined();
  const used = Object.values((await list('&include_usage=true')) ?? {});
  expect(used.map(({ current_usage }) => current_usage)).toEqual([3]);
});
