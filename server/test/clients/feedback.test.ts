// Own process: records must be found a moment later, whatever other files have left running.
/** Feedback as applications give it, through a whole server: with the official client, and by guardrails. */
import { Portkey } from 'portkey-ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
let portkey: Portkey;

beforeAll(async () => {
  server = await startServer({ SLUICE_HEADER_ALIASES: 'x-portkey-' });
  portkey = new Portkey({ apiKey: server.first.workspace_api_key, baseURL: `${server.url}/v1` });
});
afterAll(() => server?.stop());

const chat = (headers: Record<string, string> = {}) =>
  server.call('/chat/completions', { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] }, headers);
const read = (path: string) => server.admin('GET', path, undefined, server.first.workspace_api_key);
const ofTrace = async (trace: string) => {
  const { status, body } = await read(`/feedback?trace_id=${trace}`);
  expect(status, JSON.stringify(body)).toBe(200);
  return body.data as Record<string, unknown>[];
};

describe('the official client', () => {
  it('gives feedback on an answer as soon as it has it, changes it, and reads the graphs', async () => {
    const answer = await chat({ 'x-gateway-trace-id': 'conversation-17' });
    expect(answer.status).toBe(200);
    await answer.text();
    const made = await portkey.feedback.create({
      traceID: 'conversation-17',
      value: 5,
      weight: 0.5,
      metadata: { _user: 'ada' },
    });
    expect(made).toMatchObject({ status: 'success', matched: [true], feedback_ids: [expect.any(String)] });
    const [feedbackID] = (made as unknown as { feedback_ids: string[] }).feedback_ids;
    expect(await ofTrace('conversation-17')).toMatchObject([
      { id: feedbackID, value: 5, weight: 0.5, metadata: { _user: 'ada' }, provider: 'sandbox', ai_model: 'echo' },
    ]);
    const changed = await portkey.feedback.update({ feedbackID: feedbackID ?? '', value: -4 });
    expect(changed).toMatchObject({ status: 'success', feedback_ids: [feedbackID] });
    expect(await ofTrace('conversation-17')).toMatchObject([{ value: -4, weight: 0.5, metadata: { _user: 'ada' } }]);

    const now = Date.now();
    const range = {
      time_of_generation_min: new Date(now - 600_000).toISOString(),
      time_of_generation_max: new Date(now + 60_000).toISOString(),
    };
    expect(await portkey.analytics.graphs.feedbacks(range)).toMatchObject({ summary: { total: 1 } });
    expect(await portkey.analytics.graphs.feedbacks_score(range)).toMatchObject({
      data_points: [{ score: -4, total: 1 }],
    });
    expect(await portkey.analytics.graphs.feedbacks_weighted(range)).toMatchObject({ summary: { avg: -2 } });
    expect(await portkey.analytics.graphs.feedback_ai_models(range)).toMatchObject({
      data_points: [{ ai_model: 'echo', total: 1, avg_weighted_feedback: -2 }],
    });
  });

  it('gives feedback by the id of a request that named no trace', async () => {
    const answer = await chat();
    const id = answer.headers.get('x-gateway-request-id') ?? '';
    await answer.text();
    expect(await portkey.feedback.create({ traceID: id, value: 1 })).toMatchObject({ matched: [true] });
    expect(await ofTrace(id)).toMatchObject([{ ai_model: 'echo', matched: true }]);
  });
});

describe('guardrails', () => {
  const guarded = (guardrail: object, trace: string, headers = {}) => {
    const passing = { 'default.contains': { words: ['secret'], operator: 'none' } };
    const input_guardrails = [{ ...passing, ...guardrail }];
    return chat({
      'x-gateway-trace-id': trace,
      'x-gateway-config': JSON.stringify({ input_guardrails }),
      ...headers,
    });
  };
  const given = (trace: string) => expect.poll(() => ofTrace(trace), { timeout: 5_000, interval: 50 });

  it.each([
    ['that passes', { id: 'passes' }, 200, { value: 5, weight: 1, metadata: { successfulChecks: 'default.contains' } }],
    [
      'that refuses',
      {
        id: 'refuses',
        deny: true,
        'default.contains': { words: ['Hello'], operator: 'none' },
        on_fail: { feedback: { value: -8, weight: 0.25, metadata: { team: 'safety' } } },
      },
      446,
      { value: -8, weight: 0.25, metadata: { failedChecks: 'default.contains', team: 'safety' } },
    ],
    ['that runs beside the request', { id: 'beside', async: true }, 200, { value: 5, weight: 1 }],
  ])('one %s gives its feedback on the request', async (_title, guardrail, status, expected) => {
    const answer = await guarded(guardrail, `trace-${guardrail.id}`);
    expect(answer.status).toBe(status);
    await answer.text();
    await given(`trace-${guardrail.id}`).toMatchObject([
      {
        ...expected,
        source: 'guardrail',
        metadata: { guardrail: guardrail.id, ...('metadata' in expected ? expected.metadata : {}) },
        ai_model: 'echo',
        provider: 'sandbox',
      },
    ]);
  });

  it('give none without weight, nor on a dry run', async () => {
    const silent = { feedback: { weight: 0 } };
    await (await guarded({ id: 'silent', on_success: silent }, 'without')).text();
    await (await guarded({ id: 'dry' }, 'without', { 'x-gateway-dry-run': 'true' })).text();
    await (await guarded({ id: 'after' }, 'without')).text();
    await given('without').toMatchObject([{ metadata: { guardrail: 'after' } }]);
  });
});
