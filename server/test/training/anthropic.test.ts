import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import type { BatchRequest } from '../../src/operations/training.ts';
import { anthropic } from '../../src/providers/anthropic/anthropic.ts';
import { decodeCustomId, encodeCustomId } from '../../src/providers/anthropic/batches.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { ANTHROPIC_KEY } from '../support/anthropic-upstream.ts';
import { batchRequest, readLines, walk } from '../support/lists.ts';
import { type AnthropicBatches, startAnthropicBatches } from '../support/upstreams/anthropic-batches.ts';
import { refusal } from './support.ts';

const { batches } = anthropic.training ?? {};
if (!batches?.createFromLines) throw new Error('anthropic has lost its batches');
const { createFromLines } = batches;

let upstream: AnthropicBatches;
let context: TestContext;

beforeEach(async () => {
  upstream = await startAnthropicBatches();
  context = adapterContext({ base: `${upstream.url}/v1`, key: ANTHROPIC_KEY });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const line = (customId: string, body: JsonObject = {}): JsonObject => ({
  custom_id: customId,
  method: 'POST',
  url: '/v1/chat/completions',
  body: { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: `hello ${customId}` }], ...body },
});

const of = (list: readonly JsonObject[]) =>
  async function* (): AsyncGenerator<JsonObject> {
    yield* list;
  };

const create = (list: readonly JsonObject[], fields: Partial<BatchRequest> = {}) =>
  createFromLines(batchRequest(fields), of(list), context);

describe('message batches at Anthropic', () => {
  it('has neither jobs nor files', () => {
    expect(Object.keys(anthropic.training ?? {})).toEqual(['batches']);
  });

  it('sends chat lines as messages in one request of known length', async () => {
    const made = await create([
      line('a', {
        messages: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'ü' },
        ],
        max_tokens: 7,
      }),
      line('b', { tools: [{ type: 'function', function: { name: 'weather' } }], stop: 'x', stream: false }),
    ]);
    expect(upstream.last).toEqual({
      requests: [
        {
          custom_id: 'a',
          params: {
            model: 'claude-sonnet-4-5',
            max_tokens: 7,
            system: [{ type: 'text', text: 'Be brief.' }],
            messages: [{ role: 'user', content: 'ü' }],
          },
        },
        {
          custom_id: 'b',
          params: {
            model: 'claude-sonnet-4-5',
            max_tokens: 64000,
            messages: [{ role: 'user', content: 'hello b' }],
            tools: [{ name: 'weather', input_schema: { type: 'object', properties: {} } }],
            stop_sequences: ['x'],
          },
        },
      ],
    });
    expect(made).toMatchObject({
      object: 'batch',
      endpoint: '/v1/chat/completions',
      input_file_id: 'file-in',
      completion_window: '24h',
      status: 'in_progress',
      request_counts: { total: 2, completed: 0, failed: 0 },
      created_at: Date.UTC(2026, 0, 1) / 1000,
      expires_at: Date.UTC(2026, 0, 2) / 1000,
    });
  });

  it('runs the model of the batch where it names one', async () => {
    await create([line('a')], { model: 'claude-opus-4-5' });
    expect(upstream.last).toMatchObject({ requests: [{ params: { model: 'claude-opus-4-5' } }] });
  });

  it('names line and field of what cannot be converted, and makes no call', async () => {
    await expect(create([line('a'), line('b', { seed: 7 })])).rejects.toMatchObject({
      kind: 'unsupported_parameter',
      param: 'seed',
      message: expect.stringMatching(/^Line 2 of the batch file: /),
    });
    const wrong: JsonObject[] = [
      line(''),
      { ...line('a'), url: '/v1/embeddings' },
      { ...line('a'), body: 'text' },
      line('a', { stream: true }),
      line('a', { model: null }),
      line('a', { messages: [] }),
      line('é'.repeat(40)),
    ];
    for (const one of wrong) {
      expect(await refusal(() => create([one]))).toMatchObject({
        status: 400,
        message: expect.stringMatching(/^Line 1 of the batch file: /),
      });
    }
    expect(await refusal(() => create([]))).toMatchObject({ status: 400, param: 'input_file_id' });
    expect(upstream.received).toEqual([]);
    const dropping = adapterContext({ base: context.base, key: ANTHROPIC_KEY, dropParams: ['seed'] });
    await createFromLines(batchRequest(), of([line('b', { seed: 7 })]), dropping);
    await dropping.close();
    expect(upstream.batches.size).toBe(1);
  });

  it('refuses more than 256 MiB before anything is sent', async () => {
    const long = 'x'.repeat(8 * 1024 * 1024);
    async function* many(): AsyncGenerator<JsonObject> {
      for (let i = 0; i < 40; i++) yield line(`l${i}`, { messages: [{ role: 'user', content: long }] });
    }
    expect(await refusal(() => createFromLines(batchRequest(), many, context))).toMatchObject({
      status: 400,
      param: 'input_file_id',
      message: expect.stringContaining('268435456 bytes'),
    });
    expect(upstream.received).toEqual([]);
  });

  it('refuses fields it cannot express by name, and batches of files it does not have', async () => {
    const cases: [Partial<BatchRequest>, string][] = [
      [{ metadata: { a: 'b' } }, 'metadata'],
      [{ endpoint: '/v1/embeddings' }, 'endpoint'],
      [{ completion_window: 'immediate' }, 'completion_window'],
      [{ role_arn: 'arn' }, 'role_arn'],
      [{ job_name: 'n' }, 'job_name'],
      [{ output_data_config: 's3://b' }, 'output_data_config'],
      [{ extra: { priority: 1 } }, 'priority'],
    ];
    for (const [fields, param] of cases) {
      await expect(create([line('a')], fields)).rejects.toMatchObject({ kind: 'unsupported_parameter', param });
    }
    expect(await refusal(() => batches.create(batchRequest(), context))).toMatchObject({
      status: 400,
      param: 'input_file_id',
      message: expect.stringContaining('x-gateway-provider: gateway'),
    });
    expect(upstream.received).toEqual([]);
  });

  it.each([
    ['in_progress', { processing: 3 }, 'in_progress'],
    ['canceling', { processing: 1, canceled: 2 }, 'cancelling'],
    ['ended', { succeeded: 2, errored: 1 }, 'completed'],
    ['ended', { errored: 3 }, 'completed'],
    ['ended', { canceled: 3 }, 'cancelled'],
    ['ended', { canceled: 2, succeeded: 1 }, 'completed'],
    ['ended', { expired: 1, errored: 2 }, 'expired'],
    ['ended', { expired: 2, succeeded: 1 }, 'completed'],
    ['something_new', { processing: 3 }, 'in_progress'],
  ])('shows %s with %j as %s', async (status, counts, ours) => {
    const { id } = await create([line('a'), line('b'), line('c')]);
    Object.assign(upstream.batches.get(id) ?? {}, {
      processing_status: status,
      request_counts: { processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 0, ...counts },
      ended_at: status === 'ended' ? '2026-01-01T00:05:00Z' : null,
    });
    const found = await batches.retrieve(id, context);
    expect(found.status).toBe(ours);
    expect(found.request_counts?.total).toBe(3);
    // Every request that ended without an answer has failed, however it ended.
    const completed = 'succeeded' in counts ? counts.succeeded : 0;
    const open = 'processing' in counts ? counts.processing : 0;
    expect(found.request_counts).toMatchObject({ completed, failed: 3 - completed - open });
    if (status === 'ended') expect(found[`${ours}_at`]).toBe(Date.UTC(2026, 0, 1, 0, 5) / 1000);
  });

  it('walks the list by the id of the last batch', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift((await create([line(`l${i}`)])).id);
    for (const limit of [1, 2, 5, 100]) {
      expect(await walk((after) => batches.list({ after, limit }, context))).toEqual(ids);
    }
    expect(await refusal(() => batches.list({ after: 'msgbatch_none', limit: 2 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
  });

  it('cancels a batch, and says 400 for one that has ended', async () => {
    const { id } = await create([line('a')]);
    expect(await batches.cancel(id, context)).toMatchObject({
      status: 'cancelling',
      cancelling_at: Date.UTC(2026, 0, 1, 0, 1) / 1000,
    });
    upstream.end(id);
    expect(await refusal(() => batches.cancel(id, context))).toMatchObject({ status: 400 });
    expect(await refusal(() => batches.cancel('msgbatch_none', context))).toMatchObject({ status: 404 });
  });

  it('gives answers as chat completions under the ids of the lines, and sends the key to no other host', async () => {
    const made = await create([line('a'), line('order #7/ü')]);
    expect(await refusal(() => batches.output(made.id, context))).toMatchObject({ status: 400 });
    upstream.end(made.id);
    const lines = await readLines(await batches.output(made.id, context));
    expect(lines).toMatchObject([
      { id: `${made.id}:a`, custom_id: 'a' },
      {
        id: `${made.id}:order #7/ü`,
        custom_id: 'order #7/ü',
        response: {
          status_code: 200,
          request_id: null,
          body: {
            object: 'chat.completion',
            model: 'claude-sonnet-4-5',
            choices: [{ index: 0, finish_reason: 'stop', message: { content: 'You said: hello order #7/ü' } }],
            usage: { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 },
          },
        },
        error: null,
      },
    ]);
    expect(context.calls.every(({ url }) => url.origin === upstream.url)).toBe(true);
  });

  it('gives failed, expired and cancelled lines as errors', async () => {
    const { id } = await create([line('a')]);
    upstream.end(id);
    const wrapped = { type: 'error', error: { type: 'invalid_request_error', message: 'bad' }, request_id: 'req_1' };
    upstream.results.set(id, [
      { custom_id: 'a', result: { type: 'errored', error: wrapped } },
      { custom_id: 'b', result: { type: 'errored', error: { type: 'overloaded_error', message: 'busy' } } },
      { custom_id: 'c', result: { type: 'expired' } },
      { custom_id: 'd', result: { type: 'canceled' } },
      { custom_id: 'e', result: { type: 'something_new' } },
      { custom_id: 'f', result: { type: 'succeeded', message: { type: 'message' } } },
    ]);
    expect(await readLines(await batches.output(id, context))).toMatchObject([
      {
        custom_id: 'a',
        response: {
          status_code: 400,
          request_id: 'req_1',
          body: { error: { message: 'bad', type: 'invalid_request_error', param: null, code: null } },
        },
        error: null,
      },
      { custom_id: 'b', response: { status_code: 529, body: { error: { type: 'overloaded_error' } } } },
      { custom_id: 'c', response: null, error: { code: 'batch_expired' } },
      { custom_id: 'd', response: null, error: { code: 'batch_cancelled' } },
      { custom_id: 'e', response: null, error: { message: 'The provider gave a result that is not known.' } },
      { custom_id: 'f', response: null, error: { code: 'model_error' } },
    ]);
  });

  it('keeps every id through the alphabet of the provider, or refuses it', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ minLength: 1, unit: 'grapheme' }), fc.constant('b64_YQ')), (id) => {
        let coded: string;
        try {
          coded = encodeCustomId(id);
        } catch {
          expect(Buffer.byteLength(id)).toBeGreaterThan(45);
          return;
        }
        expect(coded).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
        expect(decodeCustomId(coded)).toBe(id);
      }),
    );
  });
});
