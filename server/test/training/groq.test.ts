import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BatchRequest } from '../../src/operations/training.ts';
import { groq } from '../../src/providers/groq.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { startGroq } from '../support/upstreams/groq.ts';
import type { OpenAiObjects } from '../support/upstreams/openai.ts';
import { refusal, textOf, walk } from './support.ts';

const { files, batches } = groq.training ?? {};
if (!files || !batches) throw new Error('a part is missing');

let upstream: OpenAiObjects;
let context: TestContext;

beforeEach(async () => {
  upstream = await startGroq();
  context = adapterContext({ base: upstream.base });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const upload = (content: string, purpose = 'batch') =>
  files.upload(
    {
      filename: 'lines.jsonl',
      purpose,
      contentType: 'application/jsonl',
      stream: Readable.from([Buffer.from(content)]),
      bytes: Buffer.byteLength(content),
    },
    context,
  );

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: 'file-1',
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: null,
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

describe('Groq', () => {
  it('does not train', () => {
    expect(groq.training?.jobs).toBeUndefined();
  });

  it('keeps files for batches only', async () => {
    const { id } = await upload('{"custom_id":"a"}\n');
    expect(await textOf((await files.content(id, context)).stream)).toBe('{"custom_id":"a"}\n');
    expect((await files.list('batch', context)).map((one) => one.id)).toEqual([id]);
    expect(await files.list('fine-tune', context)).toEqual([]);
    expect(upstream.received.at(-1)?.path).toBe('/openai/v1/files');
    expect(await refusal(() => upload('x', 'fine-tune'))).toMatchObject({ status: 400, param: 'purpose' });
    await files.remove(id, context);
    expect(await refusal(() => files.retrieve(id, context))).toMatchObject({ status: 404 });
  });

  it('walks batches although the provider lists them whole', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift((await batches.create(batch(), context)).id);
    for (const limit of [1, 2, 5, 20]) {
      expect(await walk((page) => batches.list(page, context), limit)).toEqual(ids);
    }
    expect(await refusal(() => batches.list({ after: 'batch_none', limit: 5 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
  });

  it('sends a batch as it is and reads its results', async () => {
    const made = await batches.create(batch({ metadata: { team: 'a' } }), context);
    expect(upstream.last).toEqual({
      input_file_id: 'file-1',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { team: 'a' },
    });
    const { id } = await upload('{"custom_id":"a"}');
    const row = upstream.state.batches.get(made.id);
    upstream.state.batches.set(made.id, { ...row, status: 'completed', output_file_id: id, error_file_id: '' });
    expect(await textOf(await batches.output(made.id, context))).toBe('{"custom_id":"a"}\n');
    expect((await batches.retrieve(made.id, context)).error_file_id).toBeNull();
    expect((await batches.cancel(made.id, context)).status).toBe('cancelling');
  });

  it('tells by name what a batch here cannot have', async () => {
    for (const param of ['job_name', 'role_arn', 'output_data_config'] as const) {
      expect(await refusal(() => batches.create(batch({ [param]: 'x' }), context))).toMatchObject({ param });
    }
    expect(context.calls).toEqual([]);
  });
});
