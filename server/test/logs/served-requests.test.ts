// Own process: records must be found a moment later, whatever other files have left running.
/** A whole server: what it served is what its list, its records, its decisions and its graphs say, and the keeper's death changes none of it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LogKeeper } from '../../src/keeper/keeper-launcher.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

const keeper = () => server.running.logs as LogKeeper;
type Json = Record<string, unknown>;
const HOUR_MS = 3_600_000;

const range = () => {
  const iso = (at: number) => new Date(at).toISOString();
  const [from, to] = [Date.now() - HOUR_MS, Date.now() + HOUR_MS];
  return `time_of_generation_min=${iso(from)}&time_of_generation_max=${iso(to)}`;
};

async function ask(path: string): Promise<Json> {
  const answer = await server.admin('GET', path, undefined, server.first.workspace_api_key);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
}

/** Sends so many requests and answers their ids, newest first. */
async function chat(count: number, user: string): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const answer = await server.call(
      '/chat/completions',
      { model: '@sandbox/echo', messages: [{ role: 'user', content: `Hello ${i}` }] },
      { 'x-gateway-metadata': JSON.stringify({ _user: user }) },
    );
    expect(answer.status).toBe(200);
    await answer.text();
    ids.unshift(String(answer.headers.get('x-gateway-request-id')));
  }
  return ids;
}

describe('requests that a server has answered', () => {
  it('are in its list, one by one, in their decisions and in the graphs a moment later', async () => {
    expect(keeper().pid).toBeNull();
    const ids = await chat(5, 'ada');
    const { data } = (await ask(`/logs?${range()}`)) as { data: Json[] };
    expect(data.map(({ id }) => id)).toEqual(ids);
    expect(data[0]).toMatchObject({
      provider: 'sandbox',
      status: 200,
      metadata: { _user: 'ada' },
      path: '/v1/chat/completions',
    });
    expect(await ask(`/logs/${ids[2]}`)).toMatchObject({ _id: ids[2], response: { status: 200 } });
    expect(await ask(`/logs/${ids[2]}/decision`)).toMatchObject({ request_id: ids[2] });
    const graph = (await ask(`/analytics/graphs/requests?${range()}`)) as { summary: Json; data_points: Json[] };
    expect(graph.summary).toMatchObject({ total: 5 });
    expect(graph.data_points.reduce((sum, { total }) => sum + Number(total), 0)).toBe(5);
    const users = (await ask(`/analytics/groups/users?${range()}`)) as { data: Json[] };
    expect(users.data).toHaveLength(1);
  });

  it('fill a page of the console, which asks for a list with its total and six graphs at once', async () => {
    const graphs = ['requests', 'cost', 'latency', 'tokens', 'errors', 'users'].map(
      (name) => `/analytics/graphs/${name}`,
    );
    const paths = ['/logs', ...graphs].map((path) => `${path}?${range()}`);
    const [list] = await Promise.all(paths.map((path, i) => ask(i === 0 ? `${path}&total=true` : path)));
    expect(list).toMatchObject({ total: 5 });
  });

  it('are asked for with 503 and Retry-After after the keeper was killed, for a moment, and are all there then', async () => {
    const before = (await ask(`/logs?${range()}`)) as { data: Json[] };
    const { pid } = keeper();
    if (pid === null) throw new Error('the keeper does not run');
    process.kill(pid, 'SIGKILL');
    const [id] = await chat(1, 'eve');
    await expect.poll(() => keeper().status).not.toBe('running');
    const away = await fetch(`${server.url}/v1/logs?${range()}`, {
      headers: { 'x-gateway-api-key': server.first.workspace_api_key },
    });
    expect([away.status, Number(away.headers.get('retry-after'))]).toEqual([503, 1]);
    await expect
      .poll(
        async () => {
          const answer = await server.admin('GET', `/logs?${range()}`, undefined, server.first.workspace_api_key);
          return (answer.body.data as Json[] | undefined)?.map((each) => each.id);
        },
        { timeout: 20_000 },
      )
      .toEqual([id, ...before.data.map((each) => each.id)]);
  });
});
