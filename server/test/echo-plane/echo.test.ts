/** A kind of traffic that knows nothing of models has callers, limits, guardrails, budgets, records and a drain. */
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { journalRecords } from '../support/stored-records.ts';
import { echoPlane } from './echo.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer({}, { planes: [echoPlane()] });
});
afterAll(() => server.stop());

function post(
  to: TestServer,
  body: unknown,
  key: string | null,
  headers = {},
  signal?: AbortSignal,
): Promise<Response> {
  return fetch(`${to.url}/echo`, {
    method: 'POST',
    headers: { ...headers, ...(key === null ? {} : { 'x-gateway-api-key': key }) },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });
}

async function echo(body: unknown, key: string | null = server.first.workspace_api_key, headers = {}) {
  const answer = await post(server, body, key, headers);
  return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Record<string, unknown> };
}

/** A key of the workspace. */
async function keyOf(more: object): Promise<string> {
  const body = { name: `k ${crypto.randomUUID()}`, workspace_id: server.first.workspace_id, ...more };
  const made = await server.admin('POST', '/api-keys/workspace/service', { scopes: ['completions.write'], ...body });
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  return String(made.body.key);
}

it('a caller with a key is answered, and leaves one record with the source, its cost and what only the plane knows', async () => {
  const { status, body, headers } = await echo({ text: 'hello' }, undefined, { 'x-gateway-metadata': '{"team":"a"}' });
  expect([status, body]).toEqual([200, { text: 'hello' }]);
  const [record, ...others] = (await server.records()).filter(({ source }) => source === 'echo');
  expect(others).toEqual([]);
  expect(record).toMatchObject({
    id: headers.get('x-request-id'),
    operation: 'echo',
    method: 'POST',
    path: '/echo',
    status: 200,
    outcome: 'ok',
    api_key_id: expect.any(String),
    cost_micros: 1_000_000,
    metadata: { team: 'a' },
    detail: { characters: 5 },
    model_requested: null,
    attempts: [],
  });
});

it('a caller without a key is 401, one whose key lacks the scope or the workspace is 403', async () => {
  expect((await echo({ text: 'a' }, null)).status).toBe(401);
  expect((await echo({ text: 'a' }, 'slc_wks_nobody')).status).toBe(401);
  const reader = await keyOf({ scopes: ['logs.view'] });
  const { status, body } = await echo({ text: 'a' }, reader);
  expect([status, body]).toMatchObject([403, { error: { message: 'This key lacks the scope completions.write.' } }]);
  expect((await echo({ text: 'a' }, server.first.admin_api_key)).status).toBe(403);
  expect((await echo({ nothing: 1 })).status).toBe(400);
});

it('rate limits of the key and rate policies of the workspace refuse with 429 and say when to come again', async () => {
  const key = await keyOf({ rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }] });
  expect((await echo({ text: 'a' }, key)).status).toBe(200);
  const refused = await echo({ text: 'a' }, key);
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  const [record] = await server.records();
  expect(record).toMatchObject({ source: 'echo', outcome: 'refused', limits: { refused: { kind: 'key' } } });

  const policy = await server.admin('POST', '/policies/rate-limits', {
    name: 'One a day for each team',
    workspace_id: server.first.workspace_id,
    conditions: [{ key: 'workspace_id', value: server.first.workspace_id }],
    group_by: [{ key: 'metadata.team' }],
    type: 'requests',
    unit: 'rpd',
    value: 1,
  });
  expect(policy.status, JSON.stringify(policy.body)).toBe(200);
  const of = async (team: string) =>
    (await echo({ text: 'a' }, undefined, { 'x-gateway-metadata': JSON.stringify({ team }) })).status;
  expect([await of('b'), await of('b'), await of('c')]).toEqual([200, 429, 200]);
  const removed = await server.admin('DELETE', `/policies/rate-limits/${policy.body.id}`);
  expect(removed.status).toBe(200);
});

it('a usage limit is reserved before and settled after: the call that has no room left is 412', async () => {
  const key = await keyOf({ usage_limits: { type: 'cost', credit_limit: 2 } });
  for (let i = 0; i < 2; i++) expect((await echo({ text: 'a' }, key)).status).toBe(200);
  expect((await echo({ text: 'a' }, key)).status).toBe(412);
  const [refused, served] = await server.records();
  expect(refused).toMatchObject({ status: 412, outcome: 'refused', limits: { refused: { limit: 'usage' } } });
  expect(served).toMatchObject({
    limits: { estimate: { cost: 1_000_000 }, used: { cost: 1_000_000, requests: 1, tokens: 1 } },
  });
});

it('guardrails of the workspace judge what is sent and what is answered, and a refusal uses nothing', async () => {
  const guardrail = await server.admin('POST', '/guardrails', {
    name: 'No secrets',
    workspace_id: server.first.workspace_id,
    checks: [{ id: 'default.contains', parameters: { words: ['secret'], operator: 'none' } }],
    actions: { deny: true, async: false, on_success: {}, on_fail: {} },
  });
  expect(guardrail.status, JSON.stringify(guardrail.body)).toBe(200);
  const attach = (input: readonly unknown[], output: readonly unknown[]) =>
    server.admin('PUT', `/admin/workspaces/${server.first.workspace_id}`, {
      defaults: { input_guardrails: input, output_guardrails: output },
    });
  for (const [lists, hook] of [
    [[[guardrail.body.slug], []], 'before_request_hooks'],
    [[[], [guardrail.body.slug]], 'after_request_hooks'],
  ] as const) {
    const attached = await attach(lists[0], lists[1]);
    expect(attached.status, JSON.stringify(attached.body)).toBe(200);
    expect((await echo({ text: 'open' })).status).toBe(200);
    const denied = await echo({ text: 'a secret' });
    expect(denied.status).toBe(446);
    expect(denied.body).toMatchObject({ hook_results: { [hook]: [{ verdict: false }] } });
    const [record] = await server.records();
    expect(record).toMatchObject({ source: 'echo', status: 446, guardrails: [{ verdict: false }] });
  }
  await attach([guardrail.body.slug], []);
  // What is refused before it began has room in its limits again.
  const key = await keyOf({
    usage_limits: { type: 'cost', credit_limit: 1 },
    rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }],
  });
  for (const text of ['secret one', 'secret two']) expect((await echo({ text }, key)).status).toBe(446);
  expect((await echo({ text: 'open' }, key)).status).toBe(200);
  await attach([], []);
});

it('paths below its prefix that it does not serve are unknown, and no other plane gets them', async () => {
  for (const path of ['/echo/more', '/echo/v1/chat/completions']) {
    const answer = await fetch(`${server.url}${path}`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key },
    });
    expect(answer.status, path).toBe(404);
  }
  expect((await fetch(`${server.url}/echo`)).status).toBe(404);
});

it('a server that stops waits for an echo that is still being made; its answer and its record are whole', async () => {
  const { promise: waiting, resolve: release } = Promise.withResolvers<void>();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const slow = () => {
    begin();
    return waiting;
  };
  const own = await startServer({}, { planes: [echoPlane(slow)] });
  onTestFinished(() => rm(own.dataDir, { recursive: true, force: true }));
  const answer = post(own, { text: 'late', slow: true }, own.first.workspace_api_key);
  await begun;
  let stopped = false;
  const stopping = own.running.stop({ noticeMs: 0, drainMs: 60_000 }).then(() => {
    stopped = true;
  });
  const refuses = () =>
    fetch(own.url).then(
      () => false,
      () => true,
    );
  await expect.poll(refuses).toBe(true);
  expect(stopped).toBe(false);
  release();
  expect(await (await answer).json()).toEqual({ text: 'late' });
  await stopping;
  expect(await journalRecords(own.dataDir)).toMatchObject([{ source: 'echo', status: 200 }]);
});

it('a caller that leaves ends its echo, which leaves a record all the same', async () => {
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const own = await startServer({}, { planes: [echoPlane(() => new Promise(() => begin()))] });
  onTestFinished(() => own.stop());
  const gone = new AbortController();
  const answer = post(own, { text: 'never', slow: true }, own.first.workspace_api_key, {}, gone.signal);
  await begun;
  gone.abort();
  await expect(answer).rejects.toThrow();
  await expect.poll(async () => (await own.records()).map(({ outcome }) => outcome)).toEqual(['aborted']);
});

it('the plane is small, and knows no other', () => {
  const source = readFileSync(new URL('echo.ts', import.meta.url), 'utf8');
  expect(source.split('\n').length).toBeLessThan(200);
  const areas = [...source.matchAll(/from '\.\.\/\.\.\/src\/(\w+)\//g)].map(([, area]) => area);
  expect(areas.length).toBeGreaterThan(0);
  expect(areas.filter((area) => ['llm', 'training', 'resources', 'compose'].includes(area ?? ''))).toEqual([]);
});
