/** Which names of models a scrape shows: those of the catalogue, and those that an integration stores. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LogRecord } from '../../src/telemetry/record.ts';
import { readExposition, totalOf } from '../support/exposition.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

let server: TestServer;
let upstream: FakeUpstream;
let provider: string;

const ask = async (model: string) => {
  const body = { model, messages: [{ role: 'user', content: 'Hello' }] };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-provider': `@${provider}` });
  await answer.text();
  return answer.status;
};

/** Answers a completion of the model that was asked for, or the status. */
const answers = (status = 200) => {
  upstream.answer = ({ body }, response) => {
    if (status !== 200) return sendJson(response, status, { error: { message: 'No', type: 'x', code: null } });
    const { model } = JSON.parse(body.toString()) as { model: string };
    sendJson(response, 200, {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model,
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
    });
  };
};

beforeAll(async () => {
  upstream = await startUpstream(() => undefined);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.1' });
  provider = await server.provider({ id: 'openai', slug: 'mine', host: `${upstream.url}/v1` });
  const models = [{ slug: 'Our-Model', enabled: true, is_custom: true }];
  expect((await server.admin('PUT', '/integrations/mine-integration/models', { models })).status).toBe(200);
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

it('names versions by their model and stored names as stored; what callers make up is other, answered or not', async () => {
  answers();
  expect(await ask('gpt-4o-2024-08-06')).toBe(200);
  expect(await ask('OUR-MODEL')).toBe(200);
  expect(await ask('made-up-by-a-caller')).toBe(200);
  answers(400);
  expect(await ask('gpt-4o-2024-08-06')).toBe(400);
  expect(await ask('our-model')).toBe(400);
  expect(await ask('another-made-up')).toBe(400);
  const scrape = await fetch(`${server.url}/metrics`, {
    headers: { authorization: `Bearer ${server.first.operator_api_key}` },
  });
  const text = await scrape.text();
  expect(text).not.toMatch(/made-up|2024-08-06|OUR-MODEL/);
  const families = readExposition(text);
  const requests = (model: string, error = '') =>
    totalOf(families, 'gen_ai_server_request_duration_seconds', { gen_ai_request_model: model, error_type: error });
  for (const model of ['gpt-4o', 'our-model', 'other']) {
    expect([requests(model), requests(model, 'failed')], model).toEqual([1, 1]);
  }
  // Of two of the three no price is known.
  expect(totalOf(families, 'sluice_unpriced_total')).toBe(2);
  expect(totalOf(families, 'sluice_cost_microdollars_total', { provider: 'openai', model: 'gpt-4o' })).toBe(75);
});

it('counts requests, tokens, cost and errors of each model as its stored records do', async () => {
  const scrape = await fetch(`${server.url}/metrics`, {
    headers: { authorization: `Bearer ${server.first.operator_api_key}` },
  });
  const families = readExposition(await scrape.text());
  const records = (await server.records()) as unknown as LogRecord[];
  const shown: Readonly<Record<string, string>> = { 'gpt-4o-2024-08-06': 'gpt-4o', 'our-model': 'our-model' };
  const nameOf = ({ model_requested }: LogRecord) => shown[model_requested?.toLowerCase() ?? ''] ?? 'other';
  const slices = Map.groupBy(records, nameOf);
  expect([...slices.keys()].sort()).toEqual(['gpt-4o', 'other', 'our-model']);
  for (const [model, of] of slices) {
    const sum = (value: (record: LogRecord) => number | null | undefined) =>
      of.reduce((total, record) => total + (value(record) ?? 0), 0);
    const told = (name: string, labels: Readonly<Record<string, string>>, part?: '_sum') =>
      totalOf(families, name, labels, part);
    const asked = { gen_ai_request_model: model };
    const failed = of.filter(({ outcome }) => outcome === 'failed').length;
    expect([of.length, failed], model).toEqual([2, 1]);
    expect(told('gen_ai_server_request_duration_seconds', asked), model).toBe(of.length);
    expect(told('gen_ai_server_request_duration_seconds', { ...asked, error_type: 'failed' }), model).toBe(failed);
    expect(told('sluice_cost_microdollars_total', { model }), model).toBe(sum(({ cost_micros }) => cost_micros));
    for (const [type, count] of [
      ['input', sum(({ usage }) => usage?.input)],
      ['output', sum(({ usage }) => usage?.output)],
    ] as const) {
      const labels = { ...asked, gen_ai_token_type: type };
      expect(told('gen_ai_client_token_usage', labels, '_sum'), `${model} ${type}`).toBe(count);
    }
  }
});
