/** One batch file kept by Sluice, run by the batches of three providers that share no shape. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import { anthropic } from '../../src/providers/anthropic/anthropic.ts';
import { mistralAi } from '../../src/providers/mistral-ai/mistral-ai.ts';
import type { Provider } from '../../src/providers/provider.ts';
import { togetherAi } from '../../src/providers/together-ai/together-ai.ts';
import type { TrainingAdapter } from '../../src/providers/training.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { ANTHROPIC_KEY } from '../support/anthropic-upstream.ts';
import { type BatchWorld, batchWorld, chatLine } from '../support/batch-store.ts';
import { startAnthropicBatches } from '../support/upstreams/anthropic-batches.ts';
import { startMistral } from '../support/upstreams/mistral-ai.ts';
import { startTogether } from '../support/upstreams/together-ai.ts';

/** A provider's fake, and what makes the batch it was given last complete. */
interface Elsewhere {
  readonly provider: Provider;
  readonly base: string;
  readonly key?: string;
  readonly faults: string[];
  readonly received: readonly unknown[];
  finish(): void;
  /** Bodies of the lines as the provider got them. */
  bodies(): unknown[];
  stop(): Promise<void>;
}

const linesOf = (content: Buffer | undefined): JsonObject[] =>
  String(content ?? '')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as JsonObject);

const answered = (line: JsonObject): string =>
  JSON.stringify({
    custom_id: line.custom_id,
    response: {
      status_code: 200,
      body: { id: 'c', object: 'chat.completion', choices: [{ index: 0, finish_reason: 'stop', message: {} }] },
    },
  });

async function together(): Promise<Elsewhere> {
  const upstream = await startTogether();
  const input = () => linesOf([...upstream.contents.values()][0]);
  return {
    provider: togetherAi,
    base: upstream.url,
    faults: upstream.faults,
    received: upstream.received,
    bodies: () => input().map((line) => line.body),
    finish() {
      for (const batch of upstream.batches.values()) {
        Object.assign(batch, { status: 'COMPLETED', output_file_id: 'file-out' });
        upstream.files.set('file-out', { id: 'file-out', purpose: 'batch-generated' });
        upstream.contents.set('file-out', Buffer.from(input().map(answered).join('\n')));
      }
    },
    stop: upstream.stop,
  };
}

async function mistral(): Promise<Elsewhere> {
  const upstream = await startMistral();
  const input = () => {
    const uploaded = upstream.received.find(({ method, path }) => method === 'POST' && path === '/files');
    const body = uploaded?.body.toString('utf8') ?? '';
    const from = body.indexOf('\r\n\r\n', body.indexOf('filename='));
    return linesOf(Buffer.from(body.slice(from + 4, body.lastIndexOf('\r\n--'))));
  };
  return {
    provider: mistralAi,
    base: upstream.url,
    faults: upstream.faults,
    received: upstream.received,
    bodies: () => input().map((line) => line.body),
    finish() {
      for (const batch of upstream.batches.values()) {
        Object.assign(batch, { status: 'SUCCESS', output_file: 'file-out', total_requests: 2, succeeded_requests: 2 });
        upstream.files.set('file-out', { id: 'file-out', purpose: 'batch', sample_type: 'batch_result' });
        upstream.contents.set('file-out', Buffer.from(input().map(answered).join('\n')));
      }
    },
    stop: upstream.stop,
  };
}

async function messages(): Promise<Elsewhere> {
  const upstream = await startAnthropicBatches();
  return {
    provider: anthropic,
    base: `${upstream.url}/v1`,
    key: ANTHROPIC_KEY,
    faults: upstream.faults,
    received: upstream.received,
    bodies: () => (upstream.last.requests as JsonObject[]).map((one) => one.params),
    finish() {
      for (const id of upstream.batches.keys()) upstream.end(id);
    },
    stop: upstream.stop,
  };
}

/** The adapter with the context of the fake; looking at a batch makes it complete. */
function adapterOf({ provider, finish }: Elsewhere, context: TestContext): TrainingAdapter {
  const withContext = <T extends object>(part: T): T =>
    Object.fromEntries(
      Object.entries(part).map(([name, value]) => [
        name,
        typeof value !== 'function' || name === 'inputLine'
          ? value
          : (...args: unknown[]) => {
              if (name === 'retrieve') finish();
              return (value as (...given: unknown[]) => unknown)(...args.slice(0, -1), context);
            },
      ]),
    ) as T;
  const { files, batches } = provider.training ?? {};
  return {
    ...(files === undefined ? null : { files: withContext(files) }),
    ...(batches === undefined ? null : { batches: withContext(batches) }),
  };
}

describe.each([
  ['together-ai', together],
  ['mistral-ai', mistral],
  ['anthropic', messages],
] as const)('a batch of chat lines run at %s', (id, start) => {
  let upstream: Elsewhere;
  let context: TestContext;
  let world: BatchWorld;

  beforeEach(async () => {
    upstream = await start();
    context = adapterContext({ base: upstream.base, ...(upstream.key === undefined ? null : { key: upstream.key }) });
    world = await batchWorld('sqlite');
    world.local = () => adapterOf(upstream, context);
  });
  afterEach(async () => {
    await world.close();
    await context.close();
    await upstream.stop();
    expect(upstream.faults).toEqual([]);
  });

  it('is converted, run once, and its answers become chat completions in files of ours', async () => {
    const input = await world.input(
      [
        chatLine('first', 'hello', { max_tokens: 5 }),
        chatLine('order #7/ü', 'bye', {
          messages: [
            { role: 'developer', content: 'Be brief.' },
            { role: 'user', content: 'x' },
          ],
        }),
      ].join('\n'),
    );
    const made = await world.create({
      input_file_id: input,
      completion_window: '24h',
      model: 'claude-sonnet-4-5',
      metadata: { team: 'search' },
    });
    const done = await world.drive(made.id);
    expect(done).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
    expect(world.lines).toEqual([]);
    expect(upstream.bodies()[0]).toMatchObject({ messages: [{ role: 'user', content: 'hello' }], max_tokens: 5 });
    expect(JSON.stringify(upstream.bodies()[1])).not.toContain('developer');
    const output = await world.output(made.id);
    expect(output.map((line) => line.custom_id)).toEqual(['first', 'order #7/ü']);
    for (const line of output) {
      expect(line).toMatchObject({
        response: { status_code: 200, body: { object: 'chat.completion', choices: [{ finish_reason: 'stop' }] } },
        error: null,
      });
    }
  });

  it('names the line that the provider cannot run, and no batch is made there', async () => {
    const input = await world.input([chatLine('a'), chatLine('b', 'x', { logit_bias: { '1': 5 }, n: 3 })].join('\n'));
    const created = world.create({ input_file_id: input, completion_window: '24h', model: 'm-1' });
    if (id === 'together-ai') {
      // It knows both fields.
      expect((await world.drive((await created).id)).status).toBe('completed');
      return;
    }
    const failed = await world.drive((await created).id);
    expect(['failed', 'file_upload_failed', 'batch_start_failed']).toContain(failed.status);
    expect(failed.errors?.data[0]?.message).toMatch(/^Line 2/);
    expect(upstream.received).toEqual([]);
  });
});
