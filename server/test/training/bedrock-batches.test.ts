import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import type { BatchRequest } from '../../src/operations/training.ts';
import { outputLines } from '../../src/providers/bedrock/batch-lines.ts';
import { bedrock } from '../../src/providers/bedrock/bedrock.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { S3_REGION, type S3Server, startS3Server } from '../support/s3-server.ts';
import { AWS_KEYS, type BedrockUpstream, type Fields, ROLE, startBedrock } from '../support/upstreams/bedrock.ts';
import { refusal, textOf, walk } from './support.ts';

const { batches } = bedrock.training ?? {};
if (!batches?.inputLine || !batches.findByName) throw new Error('a part is missing');
const { inputLine, findByName } = batches;

const NOW = Date.parse('2026-11-21T12:00:00Z');
const MODEL = 'amazon.nova-lite-v1:0';

let upstream: BedrockUpstream;
let s3: S3Server;
let context: TestContext;

beforeEach(async () => {
  upstream = await startBedrock({ now: () => NOW });
  s3 = await startS3Server({ buckets: ['my-bucket'], keys: [AWS_KEYS], now: () => NOW });
  context = contextWith();
});

afterEach(async () => {
  await context.close();
  await Promise.all([upstream.stop(), s3.stop()]);
  expect([upstream.faults, s3.faults]).toEqual([[], []]);
});

function contextWith(headers: Record<string, string> = {}): TestContext {
  return adapterContext({
    base: upstream.url,
    key: null,
    settings: {
      aws_auth_type: 'accessKey',
      aws_region: S3_REGION,
      aws_access_key_id: AWS_KEYS.accessKeyId,
      aws_secret_access_key: AWS_KEYS.secretAccessKey,
      aws_s3_endpoint: s3.url,
    },
    headers,
    now: () => NOW,
  });
}

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: encodeURIComponent('s3://my-bucket/in/rows.jsonl'),
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: MODEL,
  job_name: 'batch-a',
  role_arn: ROLE,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

describe('creating a batch', () => {
  it('sends every field to its place and answers the batch', async () => {
    const made = await batches.create(
      batch({ metadata: { team: 'search' }, output_data_config: 's3://other-bucket/out/' }),
      context,
    );
    expect({ ...upstream.last, clientRequestToken: null }).toEqual({
      jobName: 'batch-a',
      roleArn: ROLE,
      clientRequestToken: null,
      modelId: MODEL,
      modelInvocationType: 'Converse',
      inputDataConfig: { s3InputDataConfig: { s3Uri: 's3://my-bucket/in/rows.jsonl', s3InputFormat: 'JSONL' } },
      outputDataConfig: { s3OutputDataConfig: { s3Uri: 's3://other-bucket/out/' } },
      timeoutDurationInHours: 24,
      tags: [
        { key: 'gateway-endpoint', value: '/v1/chat/completions' },
        { key: 'team', value: 'search' },
      ],
    });
    expect(made).toMatchObject({
      object: 'batch',
      endpoint: '/v1/chat/completions',
      input_file_id: encodeURIComponent('s3://my-bucket/in/rows.jsonl'),
      status: 'validating',
      created_at: NOW / 1000,
      expires_at: NOW / 1000 + 86_400,
      metadata: { team: 'search' },
    });
    expect(batches.prepare(batch(), context).url).toBe(`${upstream.url}/model-invocation-job`);
  });

  it('derives output and name, and passes the key of the encryption', async () => {
    const kms = 'arn:aws:kms:eu-central-1:123456789012:key/abc';
    const encrypted = contextWith({ 'x-gateway-amz-server-side-encryption-aws-kms-key-id': kms });
    const { body } = batches.prepare(batch({ job_name: null, endpoint: '/v1/embeddings' }), encrypted);
    const { jobName } = body;
    expect(jobName).toMatch(/^gw-batch-/);
    expect(body).toMatchObject({
      modelInvocationType: 'InvokeModel',
      outputDataConfig: {
        s3OutputDataConfig: { s3Uri: `s3://my-bucket/in/${String(jobName)}/`, s3EncryptionKeyId: kms },
      },
    });
    await encrypted.close();
  });

  it.each([
    ['endpoint', { endpoint: '/v1/responses' }],
    ['completion_window', { completion_window: 'immediate' }],
    ['model', { model: null }],
    ['role_arn', { role_arn: null }],
    ['input_file_id', { input_file_id: 'file-1' }],
    ['output_data_config', { output_data_config: 'out/' }],
    ['job_name', { job_name: 'has space' }],
    ['metadata', { metadata: { 'a*': 'b' } }],
    ['flavour', { extra: { flavour: 'x' } }],
  ] as const)('%s is refused by name when it cannot be expressed', async (param, wrong) => {
    expect(await refusal(() => batches.create(batch(wrong as Partial<BatchRequest>), context))).toMatchObject({
      status: 400,
      param,
    });
    expect(context.calls).toEqual([]);
  });

  it('is found again by its exact name', async () => {
    await batches.create(batch({ job_name: 'batch-a1' }), context);
    expect(await findByName(batch({ job_name: 'batch-a' }), context)).toBeNull();
    const made = await batches.create(batch({ job_name: 'batch-a' }), context);
    expect((await findByName(batch({ job_name: 'batch-a' }), context))?.id).toBe(made.id);
  });
});

describe('reading batches', () => {
  it.each([
    ['Submitted', 'validating', null],
    ['Validating', 'validating', null],
    ['Scheduled', 'validating', null],
    ['InProgress', 'in_progress', null],
    ['Completed', 'completed', 'completed_at'],
    ['PartiallyCompleted', 'expired', 'expired_at'],
    ['Expired', 'expired', 'expired_at'],
    ['Failed', 'failed', 'failed_at'],
    ['Stopping', 'cancelling', null],
    ['Stopped', 'cancelled', 'cancelled_at'],
  ] as const)('%s is %s', async (status, expected, at) => {
    const { jobArn } = upstream.addBatch({
      status,
      endTime: '2026-11-21T11:30:00Z',
      message: 'said so',
      totalRecordCount: 3,
      successRecordCount: 2,
      errorRecordCount: 1,
    });
    const id = String(jobArn).split('/').at(-1) ?? '';
    for (const name of [encodeURIComponent(String(jobArn)), String(jobArn), id]) {
      const read = await batches.retrieve(name, context);
      expect(read).toMatchObject({
        id: encodeURIComponent(String(jobArn)),
        status: expected,
        model: MODEL,
        request_counts: { total: 3, completed: 2, failed: 1 },
      });
      if (at !== null) expect(read[at]).toBe(Date.parse('2026-11-21T11:30:00Z') / 1000);
      expect(read.errors?.data[0]?.message).toBe(status === 'Failed' ? 'said so' : undefined);
      const done = status === 'Completed' || status === 'PartiallyCompleted';
      expect(read.output_file_id).toBe(done ? encodeURIComponent(`s3://my-bucket/out/${id}/rows.jsonl.out`) : null);
    }
  });

  it('knows endpoint and metadata from its tags, and does without where it may not read them', async () => {
    const made = await batches.create(batch({ endpoint: '/v1/embeddings', metadata: { a: 'b' } }), context);
    expect(await batches.retrieve(made.id, context)).toMatchObject({
      endpoint: '/v1/embeddings',
      metadata: { a: 'b' },
    });
    upstream.fail = (call) =>
      call.includes('listTags') ? { status: 403, name: 'AccessDeniedException', message: 'no' } : null;
    expect(await batches.retrieve(made.id, context)).toMatchObject({ endpoint: '/v1/chat/completions' });
  });

  it('the list is walked completely with any page size', async () => {
    for (let i = 0; i < 11; i++) {
      upstream.addBatch({ submitTime: new Date(NOW - Math.floor(i / 2) * 1000).toISOString() });
    }
    const expected = (await batches.list({ after: null, limit: 100 }, context)).data.map(({ id }) => id);
    expect(new Set(expected).size).toBe(11);
    for (const limit of [1, 3, 10, 11])
      expect(await walk((page) => batches.list(page, context), limit)).toEqual(expected);
    expect(await refusal(() => batches.list({ after: 'abcdefghijkl', limit: 2 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
  });

  it('cancel answers cancelling; what is over is 400', async () => {
    const { jobArn } = upstream.addBatch({});
    expect(await batches.cancel(String(jobArn), context)).toMatchObject({ status: 'cancelling' });
    const done = upstream.addBatch({ status: 'Completed' });
    expect(await refusal(() => batches.cancel(String(done.jobArn), context))).toMatchObject({ status: 400 });
    expect(await refusal(() => batches.retrieve('nobody', context))).toMatchObject({ status: 404 });
  });
});

const about = { jobId: 'abc', model: MODEL, created: 7 };
const converse = (text: string): Fields => ({
  output: { message: { role: 'assistant', content: [{ text }] } },
  stopReason: 'end_turn',
  usage: { inputTokens: 5, outputTokens: 2, totalTokens: 7, cacheReadInputTokens: 3 },
});

describe('the output of a batch', () => {
  async function finished(lines: readonly unknown[], fields: Fields = {}): Promise<string> {
    const { jobArn } = upstream.addBatch({ status: 'Completed', endTime: '2026-11-21T11:30:00Z', ...fields });
    const folder = `out/${String(jobArn).split('/').at(-1)}`;
    await s3.put('my-bucket', `${folder}/rows.jsonl.out`, lines.map((line) => JSON.stringify(line)).join('\n'));
    await s3.put('my-bucket', `${folder}/manifest.json.out`, '{"totalRecordCount":1}');
    return String(jobArn);
  }

  it('is one line for each record in the shape of chat completions, failures among them', async () => {
    const arn = await finished([
      { recordId: 'r1', modelInput: { messages: [] }, modelOutput: converse('hello') },
      { recordId: 'r2', modelInput: {}, error: { errorCode: 429, errorMessage: 'too many' } },
    ]);
    const jobId = arn.split('/').at(-1);
    const lines = (await textOf(await batches.output(arn, context)))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines).toEqual([
      {
        id: `${jobId}-r1`,
        custom_id: 'r1',
        response: {
          status_code: 200,
          request_id: jobId,
          body: {
            id: `chatcmpl-${jobId}-r1`,
            object: 'chat.completion',
            created: Date.parse('2026-11-21T11:30:00Z') / 1000,
            model: MODEL,
            choices: [
              {
                index: 0,
                message: { role: 'assistant', content: 'hello', refusal: null },
                logprobs: null,
                finish_reason: 'stop',
              },
            ],
            usage: {
              prompt_tokens: 8,
              completion_tokens: 2,
              total_tokens: 10,
              prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 0, audio_tokens: 0 },
              completion_tokens_details: {
                reasoning_tokens: 0,
                audio_tokens: 0,
                accepted_prediction_tokens: 0,
                rejected_prediction_tokens: 0,
              },
            },
          },
        },
        error: null,
      },
      {
        id: `${jobId}-r2`,
        custom_id: 'r2',
        response: {
          status_code: 429,
          request_id: jobId,
          body: {
            error: { message: 'too many', type: 'rate_limit_error', param: null, code: 'rate_limit_exceeded' },
          },
        },
        error: null,
      },
    ]);
  });

  it('of a folder of inputs is every file it wrote, one after the other', async () => {
    const { jobArn } = upstream.addBatch({
      status: 'Completed',
      inputDataConfig: { s3InputDataConfig: { s3Uri: 's3://my-bucket/in/' } },
    });
    const folder = `out/${String(jobArn).split('/').at(-1)}`;
    for (const name of ['b', 'a']) {
      const line = { recordId: name, modelInput: {}, modelOutput: converse(name) };
      await s3.put('my-bucket', `${folder}/${name}.jsonl.out`, `${JSON.stringify(line)}\n`);
    }
    const text = await textOf(await batches.output(String(jobArn), context));
    expect(
      text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).custom_id),
    ).toEqual(['a', 'b']);
    expect((await batches.retrieve(String(jobArn), context)).output_file_id).toBeNull();
  });

  it('is not there before the end', async () => {
    const { jobArn } = upstream.addBatch({ status: 'InProgress' });
    expect(await refusal(() => batches.output(String(jobArn), context))).toMatchObject({ status: 400 });
  });

  it('keeps big numbers and is the same wherever the bytes are cut', async () => {
    const record = (id: string) =>
      `{"recordId":"${id}","modelInput":{},"modelOutput":{"odd":12345678901234567890,"ü":"é\\n"}}`;
    const bytes = Buffer.from(`${record('a')}\n\n${record('b')}\r\n${record('c')}`);
    const whole = await all([bytes]);
    expect(whole).toContain('12345678901234567890');
    expect(whole.trimEnd().split('\n')).toHaveLength(3);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(bytes.length), { maxLength: 8 }), async (cuts) => {
        const places = [0, ...cuts.sort((a, b) => a - b), bytes.length];
        const parts = places.slice(1).map((to, i) => bytes.subarray(places[i], to));
        expect(await all(parts)).toBe(whole);
      }),
      { numRuns: 100 },
    );
  });

  async function all(parts: readonly Buffer[]): Promise<string> {
    async function* source(): AsyncGenerator<Buffer> {
      yield* parts;
    }
    const out: Buffer[] = [];
    for await (const piece of outputLines(source(), about)) out.push(piece);
    return Buffer.concat(out).toString();
  }

  it.each([
    ['no JSON', 'nonsense'],
    ['no object', '[1]'],
    ['no outcome', '{"recordId":"a","modelInput":{}}'],
  ])('a line that is %s is an error, and never left out', async (_what, line) => {
    expect(await refusal(() => all([Buffer.from(line)]))).toMatchObject({ status: 502 });
  });

  it('calls, stops and vectors come back under their own names', async () => {
    const line = async (modelOutput: Fields) =>
      JSON.parse(await all([Buffer.from(JSON.stringify({ recordId: 'r', modelOutput }))])).response.body;
    const called = await line({
      output: { message: { content: [{ toolUse: { toolUseId: 't1', name: 'find', input: { q: 1 } } }] } },
      stopReason: 'tool_use',
    });
    expect(called.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: null,
        tool_calls: [{ id: 't1', type: 'function', function: { name: 'find', arguments: '{"q":1}' } }],
      },
    });
    const cut = await line({ output: { message: { content: [{ text: 'a' }] } }, stopReason: 'max_tokens' });
    expect(cut.choices[0].finish_reason).toBe('length');
    expect(await line({ embedding: [0.5, 1], inputTextTokenCount: 4 })).toMatchObject({
      data: [{ embedding: [0.5, 1] }],
      usage: { prompt_tokens: 4 },
    });
    expect(
      await line({ generation: 'text', stop_reason: 'length', prompt_token_count: 1, generation_token_count: 2 }),
    ).toMatchObject({
      object: 'text_completion',
      choices: [{ text: 'text', finish_reason: 'length' }],
      usage: { total_tokens: 3 },
    });
  });
});

describe('lines of a batch', () => {
  const line = (body: JsonObject, more: Partial<BatchRequest> = {}): JsonObject =>
    inputLine({ custom_id: 'r-1', method: 'POST', url: '/v1/chat/completions', body }, batch(more));
  const user = { role: 'user', content: 'hi' };

  it('a chat becomes a Converse request: turns alternate, results stand first, nothing is lost', () => {
    expect(
      line({
        model: MODEL,
        messages: [
          { role: 'system', content: 'be brief' },
          { role: 'developer', content: [{ type: 'text', text: 'and kind' }] },
          user,
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }] },
          {
            role: 'assistant',
            content: 'looking',
            tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'find', arguments: '{"q":"x"}' } }],
          },
          { role: 'tool', tool_call_id: 'call_1', content: 'found' },
          { role: 'user', content: 'and?' },
        ],
        tools: [{ type: 'function', function: { name: 'find', description: 'finds', parameters: { type: 'object' } } }],
        tool_choice: 'required',
        max_completion_tokens: 100,
        temperature: 0.5,
        top_p: 1,
        stop: 'END',
        metadata: { a: 'b' },
        response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' } } },
        n: 1,
        user: 'u',
      }),
    ).toEqual({
      recordId: 'r-1',
      modelInput: {
        system: [{ text: 'be brief' }, { text: 'and kind' }],
        messages: [
          { role: 'user', content: [{ text: 'hi' }, { image: { format: 'png', source: { bytes: 'AAAA' } } }] },
          {
            role: 'assistant',
            content: [{ text: 'looking' }, { toolUse: { toolUseId: 'call_1', name: 'find', input: { q: 'x' } } }],
          },
          {
            role: 'user',
            content: [{ toolResult: { toolUseId: 'call_1', content: [{ text: 'found' }] } }, { text: 'and?' }],
          },
        ],
        inferenceConfig: { maxTokens: 100, temperature: 0.5, topP: 1, stopSequences: ['END'] },
        toolConfig: {
          tools: [{ toolSpec: { name: 'find', description: 'finds', inputSchema: { json: { type: 'object' } } } }],
          toolChoice: { any: {} },
        },
        outputConfig: {
          textFormat: {
            type: 'json_schema',
            structure: { jsonSchema: { schema: '{"type":"object"}', name: 'n' } },
          },
        },
        requestMetadata: { a: 'b' },
      },
    });
  });

  it.each([
    ['n', { n: 2 }],
    ['seed', { seed: 1 }],
    ['logprobs', { logprobs: true }],
    ['temperature', { temperature: 1.5 }],
    ['presence_penalty', { presence_penalty: 1 }],
    ['parallel_tool_calls', { parallel_tool_calls: false }],
    ['response_format', { response_format: { type: 'json_object' } }],
    ['top_k', { top_k: 3 }],
    ['reasoning_effort', { reasoning_effort: 'high' }],
    ['stream', { stream: true }],
    ['service_tier', { service_tier: 'scale' }],
    ['unknown_field', { unknown_field: 1 }],
    ['messages[0].content[0].type', { messages: [{ role: 'user', content: [{ type: 'input_unknown' }] }] }],
    [
      'messages[0].content[0].image_url.url',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://a.example/x.png' } }] }] },
    ],
  ] as const)('%s cannot be said to Converse and is refused by name', async (param, wrong) => {
    const model = 'meta.llama3-1-8b-instruct-v1:0';
    expect(await refusal(() => line({ messages: [user], ...wrong } as JsonObject, { model }))).toMatchObject({
      status: 400,
      param,
    });
  });

  it('embeddings and completions take the body of the model, where it is known', async () => {
    const embed = { endpoint: '/v1/embeddings', model: 'amazon.titan-embed-text-v2:0' };
    expect(line({ input: 'text', dimensions: 256 }, embed)).toEqual({
      recordId: 'r-1',
      modelInput: { inputText: 'text', dimensions: 256 },
    });
    expect(await refusal(() => line({ input: ['a', 'b'] }, embed))).toMatchObject({ param: 'input' });
    expect(await refusal(() => line({ input: 'a' }, { ...embed, model: MODEL }))).toMatchObject({ param: 'model' });
    const llama = { endpoint: '/v1/completions', model: 'meta.llama3-1-8b-instruct-v1:0' };
    expect(line({ prompt: 'p', max_tokens: 5, temperature: 0.1 }, llama)).toEqual({
      recordId: 'r-1',
      modelInput: { prompt: 'p', max_gen_len: 5, temperature: 0.1 },
    });
    expect(await refusal(() => line({ prompt: 'p', stop: 'x' }, llama))).toMatchObject({ param: 'stop' });
    expect(await refusal(() => line({ prompt: 'p' }, { ...llama, model: MODEL }))).toMatchObject({ param: 'model' });
  });

  it('an id that Bedrock could not give back is refused', async () => {
    for (const custom_id of ['', 'has space', 'x'.repeat(65), null, 7, 'ü']) {
      expect(await refusal(() => inputLine({ custom_id, body: { messages: [user] } }, batch()))).toMatchObject({
        status: 400,
        param: 'custom_id',
      });
    }
  });

  it('whatever a line holds, it becomes a record or a refusal with a name', () => {
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.constantFrom(
            'messages',
            'tools',
            'tool_choice',
            'stop',
            'metadata',
            'top_p',
            'thinking',
            'response_format',
          ),
          fc.jsonValue(),
        ),
        (body) => {
          try {
            expect(line(body as JsonObject)).toHaveProperty('modelInput');
          } catch (error) {
            expect(errorStatus(error as SluiceError)).toBe(400);
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
