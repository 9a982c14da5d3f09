/**
 * Two operations that only this file knows: a row each in the table, and no other file touched. What a row says is all that
 * routes, limits, guards, caches and records it.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

vi.mock('../../src/operations/table.ts', async (original) => {
  const { ROWS } = await original<typeof import('../../src/operations/table.ts')>();
  type Row = import('../../src/operations/row.ts').OperationRow;
  const summarise: Row = {
    ...ROWS.completions,
    path: '/summaries',
    requestType: 'summarise',
    title: 'Summarise a text',
    deployed: true,
    cached: true,
  };
  const look: Row = {
    ...summarise,
    path: '/looks',
    requestType: 'look',
    title: 'Look',
    limitClass: 'reads',
    guarded: false,
    deployed: false,
    cached: false,
  };
  return { ROWS: { ...ROWS, summarise, look } };
});

const SECRET = { 'default.contains': { words: ['secret'], operator: 'none' }, deny: true };

let upstream: FakeUpstream;
let server: TestServer;
let provider: string;

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const said = JSON.parse(request.body.toString('utf8')) as { prompt: string };
    sendJson(response, 200, {
      id: 'cmpl-1',
      object: 'text_completion',
      model: 'gpt-4o',
      choices: [
        { index: 0, text: `In short: ${said.prompt === 'tell' ? 'a secret' : 'nothing'}`, finish_reason: 'stop' },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 },
    });
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  provider = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const ask = (path: string, prompt: string, config: object = {}, headers: Record<string, string> = {}) =>
  server.call(
    path,
    { model: 'gpt-4o', prompt },
    { 'x-gateway-config': JSON.stringify({ provider: `@${provider}`, ...config }), ...headers },
  );

describe('an operation that is a row of the table', () => {
  it('is routed to its path at the provider, also below the name of a deployment where the row says so', async () => {
    expect((await ask('/summaries', 'Hello')).status).toBe(200);
    expect(upstream.received.at(-1)?.path).toBe('/v1/summaries');
    expect((await ask('/deployments/gpt-4o/summaries', 'Hello')).status).toBe(200);
    expect(upstream.received.at(-1)?.path).toBe('/v1/summaries');
    // Without such a row the path belongs to the administration of deployments, and goes to no provider.
    expect((await ask('/deployments/gpt-4o/looks', 'Hello')).status).toBe(404);
    expect(upstream.received.at(-1)?.path).toBe('/v1/summaries');
  });

  it('is recorded under its id, with what it used', async () => {
    await ask('/summaries', 'Hello');
    const [record] = await server.records();
    expect(record).toMatchObject({ operation: 'summarise', outcome: 'ok', usage: { input: 5, output: 3 } });
  });

  it('has guardrails over requests and answers where the row says so', async () => {
    const before = upstream.received.length;
    expect((await ask('/summaries', 'a secret', { input_guardrails: [SECRET] })).status).toBe(446);
    expect(upstream.received).toHaveLength(before);
    expect((await ask('/summaries', 'tell', { output_guardrails: [SECRET] })).status).toBe(446);
    expect((await ask('/looks', 'a secret', { input_guardrails: [SECRET] })).status).toBe(200);
  });

  it('is answered from the cache where the row says so', async () => {
    const config = { cache: { mode: 'simple' } };
    const statuses = async (path: string) => {
      const out: (string | null)[] = [];
      for (let i = 0; i < 2; i++) {
        const answer = await ask(path, `cached ${path}`, config);
        await answer.text();
        out.push(answer.headers.get('x-gateway-cache-status'));
      }
      return out;
    };
    expect(await statuses('/summaries')).toEqual(['MISS', 'HIT']);
    expect(await statuses('/looks')).not.toContain('HIT');
  });

  it('counts under limits as what the row says it is for', async () => {
    const { body: key } = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'Once',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      rate_limits: [{ type: 'requests', unit: 'rpw', value: 1 }],
    });
    const own = { 'x-gateway-api-key': String(key.key) };
    const statuses: number[] = [];
    for (const path of ['/looks', '/looks', '/summaries', '/summaries', '/looks']) {
      statuses.push((await ask(path, 'Hello', {}, own)).status);
    }
    expect(statuses).toEqual([200, 200, 200, 429, 200]);
  });

  it('is in the reference under its title', async () => {
    const { dataPlanePaths } = await import('../../src/llm/openapi.ts');
    expect(dataPlanePaths()['/v1/summaries']).toMatchObject({ post: { summary: 'Summarise a text' } });
  });
});
