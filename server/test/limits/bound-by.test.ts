/** `GET /limits`: what a caller reads there is what refuses its requests. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
}, 60_000);
afterAll(() => server?.stop());

interface Limit {
  kind: string;
  id: string;
  counts: string;
  type: string;
  applies: string;
  value_key: string | null;
  limit: number;
  used: number | null;
  remaining: number | null;
  status: string | null;
}

const make = async (name: string, more: object = {}) => {
  const { status, body } = await server.admin('POST', '/api-keys/workspace/service', {
    name,
    scopes: ['completions.write'],
    ...here(),
    ...more,
  });
  expect([status, body]).toEqual([200, expect.anything()]);
  return body as unknown as { id: string; key: string };
};
const here = () => ({ workspace_id: server.first.workspace_id });
const ask = (key: string) =>
  server.call(
    '/chat/completions',
    { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] },
    { 'x-gateway-api-key': key },
  );
const limits = async (key?: string, query = '') =>
  (await server.admin('GET', `/limits?workspace_id=${server.first.workspace_id}${query}`, undefined, key)).body
    .data as Limit[];

it('a key reads each limit that binds it, tightest first, with what its requests used', async () => {
  const { id, key } = await make('bound', {
    usage_limits: { type: 'tokens', credit_limit: 10_000, periodic_reset: 'monthly' },
    rate_limits: [{ type: 'requests', unit: 'rpd', value: 100 }],
  });
  const other = await make('other');
  const policy = (value: string) =>
    server.admin('POST', '/policies/usage-limits', {
      ...here(),
      name: `for ${value}`,
      conditions: [{ key: 'api_key', value }],
      group_by: [{ key: 'api_key' }],
      type: 'requests',
      credit_limit: 2,
    });
  await policy(other.id);
  const mine = String((await policy(id)).body.id);
  for (const _ of [1, 2]) expect((await ask(key)).status).toBe(200);
  const own = async () =>
    (await limits(key)).map(({ kind, counts, status, applies }) => [kind, counts, status, applies]);
  await vi.waitFor(
    async () =>
      expect(await own()).toEqual([
        ['policy', 'usage', 'exhausted', 'always'],
        ['key', 'rate', 'active', 'always'],
        ['key', 'usage', 'active', 'always'],
      ]),
    { timeout: 20_000 },
  );
  const [policed, rate, tokens] = await limits(key);
  expect(policed).toMatchObject({ id: mine, value_key: `api_key:${id}`, used: 2, remaining: 0 });
  expect(rate).toMatchObject({ used: 2, remaining: 98 });
  expect(tokens?.used).toBeGreaterThan(0);
  expect((tokens?.used ?? 0) + (tokens?.remaining ?? 0)).toBe(10_000);
  expect((await ask(key)).status).toBe(412);
  // An administrator reads the same of the key, and of the workspace every key.
  expect(await limits(undefined, `&api_key_id=${id}`)).toEqual(await limits(key));
  expect((await limits(undefined, '&all=true')).map((limit) => limit.id)).toEqual(expect.arrayContaining([id, mine]));
}, 60_000);

it('a key reads the limits of no other key', async () => {
  const other = await make('not to be seen', { usage_limits: { credit_limit: 7 } });
  const { key } = await make('curious');
  const refused = await server.admin('GET', `/limits?api_key_id=${other.id}`, undefined, key);
  expect(refused).toMatchObject({ status: 404, body: { error: { param: 'api_key_id' } } });
  const seen = (await limits(key, '&all=true')).map(({ id }) => id);
  expect(seen).not.toContain(other.id);
});
