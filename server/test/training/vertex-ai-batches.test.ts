/** Batches of Vertex AI and their lines. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import type { BatchRequest } from '../../src/operations/training.ts';
import { VERTEX_NUMBER } from '../support/upstreams/vertex-ai.ts';
import { batches, context, idOf, inputLine, putRows, upstream, useVertex } from '../support/vertex-training.ts';
import { refusal, textOf, valueAt, walk } from './support.ts';

useVertex();

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: idOf('in/lines.jsonl'),
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: 'gemini-2.5-flash',
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

const line = (body: JsonObject, url = '/v1/chat/completions'): JsonObject => ({
  custom_id: 'row-1',
  method: 'POST',
  url,
  body: { model: 'gemini-2.5-flash', ...body },
});

const prediction = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: `${VERTEX_NUMBER}/batchPredictionJobs/${id}`,
  displayName: 'batch-1',
  model: 'publishers/google/models/gemini-2.5-flash',
  state: 'JOB_STATE_SUCCEEDED',
  createTime: '2026-01-01T00:00:00Z',
  startTime: '2026-01-01T00:01:00Z',
  endTime: '2026-01-01T01:00:00Z',
  inputConfig: { instancesFormat: 'jsonl', gcsSource: { uris: ['gs://bucket/in/lines.jsonl'] } },
  outputInfo: { gcsOutputDirectory: 'gs://bucket/in/prediction-1' },
  labels: { 'gateway-endpoint': 'chat-completions', team: 'search' },
  completionStats: { successfulCount: '2', failedCount: '1', incompleteCount: '-1' },
  ...more,
});

const outputOf = async (id: string): Promise<unknown[]> => {
  const text = await textOf(await batches.output(id, context));
  return text.split('\n').flatMap((one) => (one === '' ? [] : [JSON.parse(one) as unknown]));
};

describe('batches', () => {
  it('read from and write to the bucket, beside their input unless told otherwise', async () => {
    const created = await batches.create(batch({ metadata: { team: 'search' }, job_name: 'nightly' }), context);
    expect(upstream.last).toEqual({
      displayName: 'nightly',
      model: 'publishers/google/models/gemini-2.5-flash',
      inputConfig: { instancesFormat: 'jsonl', gcsSource: { uris: ['gs://bucket/in/lines.jsonl'] } },
      outputConfig: { predictionsFormat: 'jsonl', gcsDestination: { outputUriPrefix: 'gs://bucket/in/' } },
      labels: { team: 'search', 'gateway-endpoint': 'chat-completions' },
    });
    expect(created).toMatchObject({
      object: 'batch',
      status: 'validating',
      endpoint: '/v1/chat/completions',
      input_file_id: idOf('in/lines.jsonl'),
      metadata: { team: 'search' },
      model: 'gemini-2.5-flash',
      output_file_id: null,
    });
    await batches.create(
      batch({ output_data_config: 'gs://bucket/out', endpoint: '/v1/embeddings', model: 'google/text-embedding-005' }),
      context,
    );
    expect(upstream.last).toMatchObject({
      model: 'publishers/google/models/text-embedding-005',
      instanceConfig: { excludedFields: ['custom_id'] },
      outputConfig: { gcsDestination: { outputUriPrefix: 'gs://bucket/out' } },
    });
    expect(upstream.last.displayName).toMatch(/^gw-batch-[0-9a-f-]{36}$/);
  });

  it.each([
    ['endpoint', 'unsupported_parameter', { endpoint: '/v1/completions' }],
    ['role_arn', 'unsupported_parameter', { role_arn: 'arn' }],
    ['flavour', 'unsupported_parameter', { extra: { flavour: 'x' } }],
    ['completion_window', 'unsupported_parameter', { completion_window: 'immediate' as const }],
    ['model', null, { model: null }],
    ['model', null, { model: 'publishers/anthropic/models/claude-sonnet-4-5' }],
    ['input_file_id', null, { input_file_id: 'file-1' }],
    ['input_file_id', null, { input_file_id: idOf('in/*') }],
    ['metadata.Bad', null, { metadata: { Bad: 'x' } }],
  ])('a wrong %s is refused by name, before any call', async (param, code, more) => {
    expect(await refusal(() => batches.create(batch(more), context))).toMatchObject({ status: 400, param, code });
    expect(context.calls).toEqual([]);
  });

  it.each([
    ['JOB_STATE_PENDING', 'validating'],
    ['JOB_STATE_RUNNING', 'in_progress'],
    ['JOB_STATE_SUCCEEDED', 'completed'],
    ['JOB_STATE_PARTIALLY_SUCCEEDED', 'completed'],
    ['JOB_STATE_FAILED', 'failed'],
    ['JOB_STATE_CANCELLING', 'cancelling'],
    ['JOB_STATE_CANCELLED', 'cancelled'],
    ['JOB_STATE_EXPIRED', 'expired'],
  ])('%s is %s', async (state, status) => {
    upstream.batches.set('1', prediction('1', { state }));
    const found = await batches.retrieve('1', context);
    expect(found).toMatchObject({ status, in_progress_at: 1_767_225_660, metadata: { team: 'search' } });
    expect(found.request_counts).toEqual({ total: 3, completed: 2, failed: 1 });
    if (status !== 'in_progress')
      expect(found[`${status}_at`]).toBe(
        ['completed', 'failed', 'cancelled', 'expired'].includes(status) ? 1_767_229_200 : undefined,
      );
  });

  it('are walked in pages of any size, and found again by their input', async () => {
    for (let i = 130; i > 0; i--) upstream.batches.set(String(i), prediction(String(i)));
    const seen = await walk((page) => batches.list(page, context), 7);
    expect(seen).toEqual([...upstream.batches.keys()]);
    const request = batch({ input_file_id: idOf('in/mine.jsonl') });
    expect(await batches.findByName?.(request, context)).toBeNull();
    const { id } = await batches.create(request, context);
    expect((await batches.findByName?.(request, context))?.id).toBe(id);
  });

  it('are cancelled, and refuse it after their end', async () => {
    upstream.batches.set('1', prediction('1', { state: 'JOB_STATE_RUNNING' }));
    expect((await batches.cancel('1', context)).status).toBe('cancelling');
    upstream.batches.set('2', prediction('2'));
    expect(await refusal(() => batches.cancel('2', context))).toMatchObject({ status: 400 });
  });

  it('answer every row of every file under its own id, in the shape of chat completions', async () => {
    upstream.batches.set('9', prediction('9'));
    const usage = { promptTokenCount: 5, candidatesTokenCount: 7, thoughtsTokenCount: 2, cachedContentTokenCount: 1 };
    putRows('in/prediction-1/predictions_0001.jsonl', [
      {
        custom_id: 'a',
        status: '',
        request: {},
        response: {
          responseId: 'r1',
          modelVersion: 'gemini-2.5-flash',
          createTime: '2026-01-01T00:30:00Z',
          candidates: [
            {
              content: { parts: [{ text: 'think', thought: true }, { text: 'Hello ' }, { text: 'you' }] },
              finishReason: 'STOP',
            },
          ],
          usageMetadata: usage,
        },
      },
      {
        custom_id: 'b',
        status: 'Bad Request: {"error": {"code": 400, "message": "Too long", "status": "INVALID_ARGUMENT"}}',
      },
    ]);
    putRows('in/prediction-1/predictions_0002.jsonl', [
      { custom_id: 'c', status: 'Something broke' },
      { custom_id: 'd', response: { promptFeedback: { blockReason: 'SAFETY' } } },
      {
        custom_id: 'e',
        response: {
          candidates: [
            { content: { parts: [{ functionCall: { name: 'f', args: { x: 1 } }, thoughtSignature: 'sig' }] } },
          ],
        },
      },
    ]);
    putRows('in/prediction-1/incremental.txt', [{ not: 'rows' }]);
    putRows('in/prediction-12/other.jsonl', [{ custom_id: 'of another batch' }]);
    const [a, b, c, d, e, ...more] = await outputOf('9');
    expect(more).toEqual([]);
    expect(a).toEqual({
      id: '9-a',
      custom_id: 'a',
      response: {
        status_code: 200,
        request_id: '9',
        body: {
          id: 'r1',
          object: 'chat.completion',
          created: 1_767_227_400,
          model: 'gemini-2.5-flash',
          choices: [
            {
              index: 0,
              message: { role: 'assistant', content: 'Hello you', refusal: null },
              logprobs: null,
              finish_reason: 'stop',
            },
          ],
          usage: {
            prompt_tokens: 5,
            completion_tokens: 9,
            total_tokens: 14,
            prompt_tokens_details: { cached_tokens: 1, cache_write_tokens: 0, audio_tokens: 0 },
            completion_tokens_details: {
              reasoning_tokens: 2,
              audio_tokens: 0,
              accepted_prediction_tokens: 0,
              rejected_prediction_tokens: 0,
            },
          },
        },
      },
      error: null,
    });
    expect(b).toMatchObject({
      custom_id: 'b',
      response: { status_code: 400, body: { error: { message: 'Too long' } } },
      error: null,
    });
    expect(c).toEqual({
      id: '9-c',
      custom_id: 'c',
      response: null,
      error: { code: 'provider_error', message: 'Something broke' },
    });
    expect(valueAt(d, 'response.body.choices.0.finish_reason')).toBe('content_filter');
    expect(valueAt(e, 'response.body.choices.0')).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: null,
        tool_calls: [
          {
            type: 'function',
            function: { name: 'f', arguments: '{"x":1}' },
            extra_content: { google: { thought_signature: 'sig' } },
          },
        ],
      },
    });
  });

  it('answer embeddings as lists of numbers', async () => {
    upstream.batches.set(
      '9',
      prediction('9', {
        labels: { 'gateway-endpoint': 'embeddings' },
        model: 'publishers/google/models/text-embedding-005',
      }),
    );
    putRows('in/prediction-1/000000000000.jsonl', [
      {
        instance: { content: 'x' },
        custom_id: 'a',
        predictions: [{ embeddings: { values: [0.5, -1], statistics: { token_count: 3 } } }],
        status: '',
      },
    ]);
    expect(await outputOf('9')).toMatchObject([
      {
        custom_id: 'a',
        response: {
          body: {
            object: 'list',
            model: 'text-embedding-005',
            data: [{ object: 'embedding', index: 0, embedding: [0.5, -1] }],
            usage: { prompt_tokens: 3, total_tokens: 3 },
          },
        },
      },
    ]);
  });

  it('have no output before their end, and an empty one when nothing was written', async () => {
    upstream.batches.set('1', prediction('1', { state: 'JOB_STATE_RUNNING' }));
    expect(await refusal(() => batches.output('1', context))).toMatchObject({ status: 400 });
    upstream.batches.set('2', prediction('2'));
    expect(await outputOf('2')).toEqual([]);
    upstream.batches.set('3', prediction('3', { outputInfo: { gcsOutputDirectory: 'gs://other-bucket/x' } }));
    expect(await refusal(() => batches.output('3', context))).toMatchObject({ status: 403 });
  });
});

describe('lines of a batch', () => {
  it('become rows that carry the whole request', () => {
    const schema = { type: 'object', properties: { city: { type: 'string' } } };
    const row = inputLine(
      line({
        messages: [
          { role: 'system', content: 'Be kind.' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'Look' },
              { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
            ],
          },
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://a.example/b.jpg?x=1' } }] },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Ulm"}' } }],
          },
          { role: 'tool', tool_call_id: 'c1', content: '{"sky":"blue"}' },
          { role: 'developer', content: 'Be brief.' },
        ],
        max_completion_tokens: 50,
        temperature: 0.5,
        stop: 'END',
        seed: 7,
        user: 'somebody',
        reasoning_effort: 'low',
        tools: [{ type: 'function', function: { name: 'weather', description: 'Sky', parameters: schema } }],
        tool_choice: { type: 'function', function: { name: 'weather' } },
        response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
      }),
      batch(),
    );
    expect(row).toEqual({
      custom_id: 'row-1',
      request: {
        systemInstruction: { parts: [{ text: 'Be kind.' }, { text: 'Be brief.' }] },
        contents: [
          {
            role: 'user',
            parts: [
              { text: 'Look' },
              { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
              { fileData: { mimeType: 'image/jpeg', fileUri: 'https://a.example/b.jpg?x=1' } },
            ],
          },
          { role: 'model', parts: [{ functionCall: { name: 'weather', args: { city: 'Ulm' } } }] },
          { role: 'user', parts: [{ functionResponse: { name: 'weather', response: { sky: 'blue' } } }] },
        ],
        generationConfig: {
          maxOutputTokens: 50,
          temperature: 0.5,
          stopSequences: ['END'],
          seed: 7,
          thinkingConfig: { thinkingBudget: 1024 },
          responseMimeType: 'application/json',
          responseJsonSchema: schema,
        },
        tools: [{ functionDeclarations: [{ name: 'weather', description: 'Sky', parametersJsonSchema: schema }] }],
        toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['weather'] } },
      },
    });
    const embedding = inputLine(line({ input: ['Hello'] }, '/v1/embeddings'), batch({ endpoint: '/v1/embeddings' }));
    expect(embedding).toEqual({ custom_id: 'row-1', content: 'Hello' });
  });

  const hello = { messages: [{ role: 'user', content: 'Hi' }] };
  it.each<[string, JsonObject]>([
    ['parallel_tool_calls', { ...hello, parallel_tool_calls: false }],
    ['logit_bias', { ...hello, logit_bias: { 5: 1 } }],
    ['nonsense', { ...hello, nonsense: 1 }],
    ['reasoning_effort', { ...hello, reasoning_effort: 'max' }],
    [
      'messages[0].content[0].image_url',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://a.example/b' } }] }] },
    ],
    ['messages[1].tool_call_id', { messages: [...hello.messages, { role: 'tool', tool_call_id: 'x', content: 'y' }] }],
    ['messages[0]', { messages: [{ role: 'user', content: '' }] }],
    ['messages', { messages: [] }],
  ])('are refused with the name of what a row cannot hold: %s', async (param, body) => {
    expect(await refusal(async () => inputLine(line(body), batch()))).toMatchObject({ status: 400, param });
  });

  it('are rows or refusals, whatever they hold', async () => {
    const anything = fc.jsonValue() as fc.Arbitrary<JsonObject[string]>;
    const message = fc.record(
      {
        role: fc.constantFrom('system', 'user', 'assistant', 'tool', 'other'),
        content: anything,
        tool_calls: anything,
        tool_call_id: fc.constantFrom('c1', 'c2'),
      },
      { requiredKeys: ['role'] },
    );
    const body = fc.record(
      {
        messages: fc.oneof(fc.array(message), anything),
        tools: anything,
        tool_choice: anything,
        stop: anything,
        response_format: anything,
        reasoning_effort: anything,
      },
      { requiredKeys: ['messages'] },
    );
    await fc.assert(
      fc.asyncProperty(body, async (given) => {
        try {
          expect(inputLine(line(given as JsonObject), batch()).custom_id).toBe('row-1');
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
          expect(errorStatus(error as SluiceError)).toBe(400);
        }
      }),
    );
  });
});
