/** Batches that Sluice manages, on both stores: run line by line and by a provider, killed anywhere, cancelled, expired. */
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { compileInline } from '../../src/guardrails/compile.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { ResultLine } from '../../src/providers/batch-lines.ts';
import type { TrainingAdapter } from '../../src/providers/training.ts';
import type { InternalCall } from '../../src/runtime/internal-call.ts';
import { linesOf } from '../../src/training/managed/lines.ts';
import { sandboxTraining } from '../../src/training/sandbox/sandbox.ts';
import { type BatchWorld, batchWorld, chatLine, contentOf, read } from '../support/batch-store.ts';
import { ENGINES } from '../support/job-store.ts';
import { refusal } from './support.ts';

const inputOf = (count: number, content: (i: number) => string = (i) => `line ${i}`) =>
  Array.from({ length: count }, (_, i) => chatLine(`id-${i}`, content(i))).join('\n');
const ids = (lines: readonly ResultLine[]) => lines.map((line) => line.custom_id);
const statuses = (lines: readonly ResultLine[]) =>
  Object.fromEntries(lines.map((line) => [line.custom_id, line.response?.status_code ?? line.error?.code]));

describe.each(ENGINES)('gateway-managed batches on %s', (engine) => {
  let world: BatchWorld;

  beforeAll(async () => {
    world = await batchWorld(engine, { concurrency: 25 });
  });
  afterAll(() => world?.close());
  beforeEach(() => {
    world.answer = () => ({});
    world.local = (tenant) =>
      sandboxTraining({ tables: world.store.tables, blobs: world.blobs, clock: world.clock, log: silentLog }, tenant);
    world.fuse = null;
    world.lines.length = 0;
    Object.assign(world.load, { most: 0, now: 0 });
    world.load.starts.length = 0;
  });

  describe('run by Sluice', () => {
    it('every request becomes one line of the output, in the order of the input, in the published shape', async () => {
      world.answer = (line) =>
        contentOf(line) === 'line 1' ? { status: 400, body: { error: { message: 'no' } } } : {};
      const input = await world.input(`${inputOf(3)}\r\n\n`);
      const made = await world.create({ input_file_id: input, metadata: { team: 'search' } });
      expect(made).toMatchObject({
        object: 'batch',
        status: 'validating',
        input_file_id: input,
        completion_window: 'immediate',
        model: 'echo',
        metadata: { team: 'search' },
        output_file_id: null,
      });
      expect(made.id).toMatch(/^gw_batch_/);
      expect(made.expires_at).toBe(made.created_at + 86_400);
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 2, failed: 1 } });
      for (const stamp of ['in_progress_at', 'finalizing_at', 'completed_at']) expect(done[stamp]).toBeTypeOf('number');
      const output = await world.output(made.id);
      expect(ids(output)).toEqual(['id-0', 'id-2', 'id-1']);
      expect(output[0]).toEqual({
        id: expect.stringMatching(/^batch_req_[0-9a-f]{24}$/),
        custom_id: 'id-0',
        response: { status_code: 200, request_id: expect.stringMatching(/^req-/), body: { said: 'line 0' } },
        error: null,
      });
      expect(output[2]?.response).toMatchObject({ status_code: 400, body: { error: { message: 'no' } } });
      const files = (await world.file(String(done.output_file_id))) + (await world.file(String(done.error_file_id)));
      expect(files.trim().split('\n').length).toBe(3);
      const row = await world.store.tables.systemRead((tx) => tx.find('files', { id: String(done.output_file_id) }));
      expect(row).toMatchObject({ purpose: 'batch_output', filename: `${made.id}_output.jsonl`, workspace_id: 'w1' });
    });

    it('each line is run as the key of the batch, with its options, one trace and its number in the metadata', async () => {
      const made = await world.create({
        input_file_id: await world.input(chatLine('a', 'hello', { temperature: 0, model: '@sb/echo' })),
        gateway_options: { 'x-gateway-virtual-key': 'sb', 'x-gateway-metadata': '{"team":"search"}' },
      });
      await world.drive(made.id);
      expect(world.lines).toMatchObject([
        {
          keyId: 'key-w1',
          organisationId: 'o1',
          workspaceId: 'w1',
          endpoint: '/v1/chat/completions',
          body: { model: 'echo', temperature: 0, messages: [{ role: 'user', content: 'hello' }] },
        },
      ]);
      const { headers } = world.lines[0] as InternalCall;
      expect(headers).toMatchObject({ 'x-gateway-virtual-key': 'sb', 'x-gateway-trace-id': made.id });
      expect(JSON.parse(headers['x-gateway-metadata'] ?? '')).toEqual({
        team: 'search',
        _batch_id: made.id,
        _batch_line: '1',
      });
    });

    it('as many requests as are set are under way at a time, and the next begins when one ends, without a pause', async () => {
      const made = await world.create({ input_file_id: await world.input(inputOf(220)) });
      await world.drive(made.id);
      expect(world.load.most).toBe(25);
      expect(new Set(world.load.starts).size).toBe(1);
      expect(ids(await world.output(made.id))).toEqual(Array.from({ length: 220 }, (_, i) => `id-${i}`));
    });

    it('while the provider refuses the rate, no other line is begun and fewer are under way afterwards', async () => {
      const refusedAt = new Set<number>();
      const lines = new Map<number, number>();
      world.answer = () => {
        const now = world.clock.now();
        const count = (lines.get(now) ?? 0) + 1;
        lines.set(now, count);
        if (count <= 10) return {};
        refusedAt.add(now);
        return { status: 429, retryAfterMs: 20_000 };
      };
      const made = await world.create({ input_file_id: await world.input(inputOf(80)) });
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'completed', request_counts: { total: 80, completed: 80, failed: 0 } });
      const moments = [...lines.keys()];
      for (const [i, at] of moments.entries()) {
        if (refusedAt.has(moments[i - 1] ?? 0)) expect(at - (moments[i - 1] ?? 0)).toBeGreaterThanOrEqual(20_000);
      }
      const [first = 0, second = 0] = lines.values();
      expect(first).toBeLessThanOrEqual(25 + 10);
      expect(second).toBeLessThanOrEqual(10 + 10);
    });

    it('the counts of a batch rise with every result that is written', async () => {
      const gate = Promise.withResolvers<void>();
      world.answer = async (line) => {
        if (contentOf(line) === 'line 7') await gate.promise;
        return {};
      };
      const made = await world.create({ input_file_id: await world.input(inputOf(8)) });
      await world.turn(made.id);
      const running = world.turn(made.id);
      const counts = async () =>
        (await world.store.tables.systemRead((tx) => tx.find('batches', { id: made.id })))?.batch.request_counts;
      await vi.waitFor(async () => expect(await counts()).toEqual({ total: 8, completed: 7, failed: 0 }), {
        timeout: 20_000,
      });
      gate.resolve();
      await running;
      expect(await counts()).toEqual({ total: 8, completed: 8, failed: 0 });
    });

    it('a failure that may pass is tried again three times with growing waits, others are not', async () => {
      const calls = new Map<string, number[]>();
      world.answer = (line) => {
        const content = contentOf(line);
        calls.set(content, [...(calls.get(content) ?? []), world.clock.now()]);
        const tries = calls.get(content)?.length ?? 0;
        if (content === 'twice') return tries <= 2 ? { status: 503 } : {};
        if (content === 'always') return { status: 500 };
        if (content === 'asks') return tries <= 1 ? { status: 429, retryAfterMs: 60_000 } : {};
        return content === 'refused' ? { status: 404 } : {};
      };
      const names = ['twice', 'always', 'asks', 'refused', 'fine'];
      const made = await world.create({ input_file_id: await world.input(inputOf(5, (i) => names[i] ?? '')) });
      await world.drive(made.id);
      expect(statuses(await world.output(made.id))).toEqual({
        'id-0': 200,
        'id-1': 500,
        'id-2': 200,
        'id-3': 404,
        'id-4': 200,
      });
      expect(names.map((name) => calls.get(name)?.length)).toEqual([3, 4, 2, 1, 1]);
      const waits = (name: string) => (calls.get(name) ?? []).slice(1).map((at, i) => at - (calls.get(name)?.[i] ?? 0));
      expect(waits('always')).toEqual([5_000, 10_000, 20_000]);
      expect(waits('asks')).toEqual([60_000]);
    });

    it('a key with a rate limit is run at the pace of its limit: no line fails, the key is not flooded', async () => {
      const windows = new Map<number, number>();
      let refused = 0;
      world.answer = () => {
        const minute = Math.floor(world.clock.now() / 60_000);
        const used = windows.get(minute) ?? 0;
        if (used >= 7) {
          refused += 1;
          const retryAfterMs = (minute + 1) * 60_000 - world.clock.now();
          return { status: 429, limited: true, retryAfterMs, body: { error: { code: '429' } } };
        }
        windows.set(minute, used + 1);
        return {};
      };
      const made = await world.create({ input_file_id: await world.input(inputOf(40)) });
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'completed', request_counts: { total: 40, completed: 40, failed: 0 } });
      expect([...windows.values()].reduce((a, b) => a + b)).toBe(40);
      expect(windows.size).toBeGreaterThanOrEqual(6);
      expect(refused).toBeLessThan(60);
    });

    it('a key that was revoked stops the batch with a clear error, and what was done stays', async () => {
      world.answer = (line) =>
        contentOf(line) === 'line 30'
          ? { status: 401, keyRefused: 'The API key has been revoked.', body: { error: { code: 'AB05' } } }
          : {};
      const made = await world.create({ input_file_id: await world.input(inputOf(60)) });
      const done = await world.drive(made.id);
      expect(done.status).toBe('failed');
      expect(done.errors?.data).toMatchObject([
        { code: 'invalid_api_key', message: expect.stringContaining('The API key has been revoked.') },
      ]);
      const output = await world.output(made.id);
      expect(ids(output).sort()).toEqual(Array.from({ length: 60 }, (_, i) => `id-${i}`).sort());
      const found = statuses(output);
      expect(found['id-0']).toBe(200);
      expect(found['id-30']).toBe(401);
      expect(found['id-59']).toBe('batch_failed');
      expect(world.lines.length).toBeLessThanOrEqual(25 + 31);
    });

    it('a cancelled batch ends with what was done and says so of the rest', async () => {
      const cancelled = new AbortController();
      world.answer = (line) =>
        Number(contentOf(line).slice('line '.length)) < 25
          ? {}
          : new Promise((resolve) => line.signal.addEventListener('abort', () => resolve({ status: 499 })));
      const made = await world.create({ input_file_id: await world.input(inputOf(60)) });
      await world.turn(made.id);
      const running = world.turn(made.id, { cancelled: cancelled.signal });
      while (world.lines.length < 50) await new Promise((resolve) => setImmediate(resolve));
      const cancelling = read(await world.batches.cancel(world.call({ params: { batch_id: made.id } })));
      expect(cancelling).toMatchObject({ status: 'cancelling', cancelling_at: expect.any(Number) });
      const again = read(await world.batches.cancel(world.call({ params: { batch_id: made.id } })));
      expect(again.cancelling_at).toBe(cancelling.cancelling_at);
      cancelled.abort();
      expect(await running).toEqual({ again: 0 });
      const asked = world.clock.now();
      const done = await world.drive(made.id);
      expect(world.clock.now() - asked).toBeLessThan(600_000);
      expect(done).toMatchObject({ status: 'cancelled', request_counts: { total: 60, completed: 25, failed: 35 } });
      const output = await world.output(made.id);
      expect(output.length).toBe(60);
      expect(output.filter((line) => line.error?.code === 'batch_cancelled').length).toBe(35);
      expect(world.lines.length).toBe(50);
      expect(await refusal(() => world.batches.cancel(world.call({ params: { batch_id: made.id } })))).toMatchObject({
        status: 400,
        code: 'AB01',
      });
    });

    it('requests under way are let go of when the batch is cancelled', async () => {
      const cancelled = new AbortController();
      world.answer = (line) =>
        new Promise((resolve) => {
          if (contentOf(line) === 'line 0') resolve({});
          else line.signal.addEventListener('abort', () => resolve({ status: 499 }));
        });
      const made = await world.create({ input_file_id: await world.input(inputOf(5)) });
      await world.turn(made.id);
      const flushing = world.turn(made.id, { cancelled: cancelled.signal });
      while (world.lines.length < 5) await new Promise((resolve) => setImmediate(resolve));
      await world.batches.cancel(world.call({ params: { batch_id: made.id } }));
      cancelled.abort();
      expect(await flushing).toEqual({ again: 0 });
      await world.drive(made.id);
      expect(statuses(await world.output(made.id))).toEqual({
        'id-0': 200,
        'id-1': 'batch_cancelled',
        'id-2': 'batch_cancelled',
        'id-3': 'batch_cancelled',
        'id-4': 'batch_cancelled',
      });
    });

    it('a batch that is not done after 24 hours expires', async () => {
      world.answer = () => ({ status: 429, limited: true, retryAfterMs: 3_600_000 });
      const made = await world.create({ input_file_id: await world.input(inputOf(3)) });
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'expired', request_counts: { total: 3, completed: 0, failed: 3 } });
      expect(Number(done.expired_at)).toBeGreaterThanOrEqual(Number(done.expires_at));
      expect(Number(done.expired_at)).toBeLessThan(Number(done.expires_at) + 3_700);
      expect((await world.output(made.id)).map((line) => line.error?.code)).toEqual(Array(3).fill('batch_expired'));
    });

    it('an input file that disappears ends the batch with what was done', async () => {
      const input = await world.input(inputOf(30));
      world.answer = (line) =>
        Number(contentOf(line).slice('line '.length)) < 25 ? {} : { status: 429, limited: true, retryAfterMs: 60_000 };
      const made = await world.create({ input_file_id: input });
      await world.turn(made.id);
      await world.turn(made.id);
      await world.blobs.delete(systemTenant('o1', 'w1'), input);
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'failed', errors: { data: [{ code: 'input_file_missing' }] } });
      expect((await world.output(made.id)).length).toBe(25);
    });
  });

  describe('killed and taken up again', () => {
    it('from every point: each line has exactly one result, the same as without', async () => {
      const count = 8;
      const text = inputOf(count, (i) => (i % 3 === 2 ? `bad ${i}` : `line ${i}`));
      world.answer = (line) => ({ status: contentOf(line).startsWith('bad') ? 400 : 200, requestId: 'req' });
      const small = await batchWorld(engine, { concurrency: 3 });
      try {
        small.answer = world.answer;
        const run = async (fuse: number | null) => {
          const made = await small.create({ input_file_id: await small.input(text) });
          small.fuse = fuse;
          const done = await small.drive(made.id);
          const survived = small.fuse !== null;
          small.fuse = null;
          const output = (await small.output(made.id)).map(({ custom_id, response }) => ({ custom_id, response }));
          const left = await small.store.tables.systemRead((tx) =>
            tx.count('batch_results', { where: { organisation_id: 'o1', batch_id: made.id } }),
          );
          expect(left).toBe(0);
          return { done, output, survived };
        };
        const whole = await run(null);
        expect(whole.output.length).toBe(count);
        let points = 0;
        for (let fuse = 1; fuse < 200; fuse++) {
          const { done, output, survived } = await run(fuse);
          expect(output, `killed at ${fuse}`).toEqual(whole.output);
          expect(done).toMatchObject({ status: 'completed', request_counts: { total: 8, completed: 6, failed: 2 } });
          if (survived) break;
          points += 1;
        }
        expect(points).toBeGreaterThan(15);
      } finally {
        await small.close();
      }
    });

    it('any interleaving of kills gives the same output', async () => {
      const small = await batchWorld(engine, { concurrency: 2, retries: 2 });
      try {
        await fc.assert(
          fc.asyncProperty(
            fc.array(fc.constantFrom('fine', 'bad', 'flaky'), { minLength: 1, maxLength: 6 }),
            fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 6 }),
            async (kinds, fuses) => {
              const seen = new Map<string, number>();
              small.answer = (line) => {
                const content = contentOf(line);
                seen.set(content, (seen.get(content) ?? 0) + 1);
                if (content.startsWith('bad')) return { status: 422 };
                return content.startsWith('flaky') && (seen.get(content) ?? 0) === 1 ? { status: 503 } : {};
              };
              const made = await small.create({
                input_file_id: await small.input(inputOf(kinds.length, (i) => `${kinds[i]} ${i}`)),
              });
              for (const fuse of fuses) {
                small.fuse = fuse;
                try {
                  while ((await small.turn(made.id)) !== 'done') small.clock.jump(60_000);
                  break;
                } catch (error) {
                  if (!(error instanceof Error)) throw error;
                  expect(error.constructor.name).toBe('Killed');
                }
              }
              small.fuse = null;
              const done = await small.drive(made.id);
              const expected = Object.fromEntries(kinds.map((kind, i) => [`id-${i}`, kind === 'bad' ? 422 : 200]));
              const output = await small.output(made.id);
              expect(output.length).toBe(kinds.length);
              expect(statuses(output)).toEqual(expected);
              expect(done.status).toBe('completed');
            },
          ),
          { numRuns: 15 },
        );
      } finally {
        await small.close();
      }
    }, 60_000);

    it("a worker that lost its row writes nothing, and its successor's files stay", async () => {
      const made = await world.create({ input_file_id: await world.input(inputOf(2)) });
      await world.turn(made.id);
      const gate = Promise.withResolvers<void>();
      world.answer = async () => {
        await gate.promise;
        return { body: 'late' };
      };
      const slow = world.turn(made.id);
      slow.catch(() => undefined);
      while (world.lines.length < 2) await new Promise((resolve) => setImmediate(resolve));
      world.answer = () => ({ body: 'first' });
      await world.drive(made.id);
      gate.resolve();
      await expect(slow).rejects.toThrow('the claim was lost');
      expect((await world.output(made.id)).map((line) => line.response?.body)).toEqual(['first', 'first']);
    });
  });

  describe('the input is checked before anything is sent', () => {
    it('faults are told with their lines, and nothing is run', async () => {
      const text = [
        chatLine('a'),
        chatLine('a'),
        '{"custom_id":"b","method":"GET","url":"/v1/chat/completions","body":{}}',
        '{"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}}',
        '{"custom_id":"d","method":"POST","url":"/v1/chat/completions","body":[]}',
        chatLine('e', 'x', { stream: true }),
        chatLine('f', 'x', { model: 'lorem' }),
        '{"custom_id":7}',
        'nonsense',
        '',
        '[]',
        chatLine('g').replace('{', '{"priority":1,'),
      ].join('\n');
      const made = await world.create({ input_file_id: await world.input(text) });
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'failed', output_file_id: null, error_file_id: null });
      expect(done.errors?.data.map((fault) => [fault.line, fault.code, fault.param])).toEqual([
        [2, 'duplicate_custom_id', 'custom_id'],
        [3, 'invalid_method', 'method'],
        [4, 'invalid_url', 'url'],
        [5, 'invalid_body', 'body'],
        [6, 'invalid_body', 'body.stream'],
        [7, 'mismatched_model', 'body.model'],
        [8, 'invalid_custom_id', 'custom_id'],
        [9, 'invalid_json_line', null],
        [11, 'invalid_json_line', null],
        [12, 'unknown_field', 'priority'],
      ]);
      expect(world.lines).toEqual([]);
      expect(await refusal(() => world.output(made.id))).toMatchObject({
        status: 400,
        message: expect.stringMatching(
          /^The batch is "failed" and has no output\. The error of line 2: .+ \(GET .+ lists 9 more\)\. Mend what/,
        ),
      });
    });

    it('a line that would exhaust the process is a fault like any other', async () => {
      const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
      const lines = [deep, `{"a":${deep}}`, '{"a":1,"a":2}'].map((value, i) =>
        chatLine(`id-${i}`, 'x', { x: '?' }).replace('"?"', () => value),
      );
      const made = await world.create({ input_file_id: await world.input([chatLine('fine'), ...lines].join('\n')) });
      const done = await world.drive(made.id);
      expect(done.status).toBe('failed');
      expect(done.errors?.data.map((fault) => [fault.line, fault.code])).toEqual(
        [2, 3, 4].map((line) => [line, 'invalid_json_line']),
      );
      expect(world.lines).toEqual([]);
    });

    it('at most 100 faults are listed, with their total; an empty file is one', async () => {
      const many = await world.create({ input_file_id: await world.input('x\n'.repeat(250)) });
      const { errors } = await world.drive(many.id);
      expect(errors?.data.length).toBe(100);
      expect(errors).toMatchObject({ total: 250 });
      const empty = await world.create({ input_file_id: await world.input(' \r\n\n') });
      expect((await world.drive(empty.id)).errors?.data).toMatchObject([{ code: 'empty_file' }]);
    });

    it.each([
      ['a file of a provider', { input_file_id: 'file-abc' }, 400, 'input_file_id'],
      ['a file that is not there', { input_file_id: 'gw_file_none' }, 404, 'input_file_id'],
      ['no model', { model: undefined }, 400, 'model'],
      ['another window', { completion_window: '7d' }, 400, 'completion_window'],
      ['another endpoint', { endpoint: '/v1/images/generations' }, 400, 'endpoint'],
      ['an unknown provider', { gateway_options: { 'x-gateway-virtual-key': 'none' } }, 503, null],
      ['a model that is not enabled', { gateway_options: { 'x-gateway-virtual-key': 'few' } }, 400, null],
      [
        'an unknown config',
        { gateway_options: { 'x-gateway-config': 'pc-none' } },
        400,
        'gateway_options.x-gateway-config',
      ],
      [
        'a config in the request',
        { gateway_options: { 'x-gateway-config': '{"retry":{}}' } },
        400,
        'gateway_options.x-gateway-config',
      ],
      [
        'a secret among the options',
        { gateway_options: { 'x-gateway-virtual-key': 'sb', 'x-gateway-aws-secret-access-key': 'x' } },
        400,
        'gateway_options.x-gateway-aws-secret-access-key',
      ],
      [
        'a dry run of every line',
        { gateway_options: { 'x-gateway-virtual-key': 'sb', 'x-gateway-dry-run': 'true' } },
        400,
        'gateway_options.x-gateway-dry-run',
      ],
      ['no provider at all', { gateway_options: undefined }, 400, null],
      ['a job name for requests that Sluice runs', { job_name: 'mine' }, 400, 'job_name'],
    ])('%s is refused when the batch is created', async (_title, more, status, param) => {
      const body = { input_file_id: await world.input(inputOf(1)), ...more };
      expect(await refusal(() => world.create(body))).toMatchObject({ status, param });
    });

    it('a session without a key cannot create one', async () => {
      const body = { input_file_id: await world.input(inputOf(1)) };
      expect(await refusal(() => world.create(body, { keyId: null }))).toMatchObject({ status: 403 });
    });

    it('a dry run tells what is wrong and starts nothing', async () => {
      const body = { input_file_id: await world.input(`${chatLine('a')}\nx`) };
      const before = await world.store.tables.systemRead((tx) => tx.count('batches'));
      const answer = await world.create(body, { dryRun: true });
      expect(answer).toMatchObject({
        object: 'dry_run',
        run_by: 'gateway',
        validation: { valid: false, requests: 2, error_count: 1, errors: [{ line: 2, code: 'invalid_json_line' }] },
      });
      expect(await world.store.tables.systemRead((tx) => tx.count('batches'))).toBe(before);
    });
  });

  describe('run by the provider', () => {
    const day = { completion_window: '24h' };
    const made = async (count = 3, more: object = {}) =>
      world.create({ ...day, input_file_id: await world.input(inputOf(count)), ...more });

    it('the input is uploaded, the batch watched and its output copied to Sluice', async () => {
      const batch = await made(3);
      const done = await world.drive(batch.id);
      expect(world.lines).toEqual([]);
      expect(done).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 3, failed: 0 } });
      expect(done.output_file_id).toMatch(/^gw_file_/);
      const output = await world.output(batch.id);
      expect(ids(output)).toEqual(['id-0', 'id-1', 'id-2']);
      expect(output[0]?.response?.body).toMatchObject({ model: 'echo', choices: [{ message: { content: 'line 0' } }] });
      expect(done).not.toHaveProperty('provider_details');
      const call = world.call({ params: { batch_id: batch.id }, query: 'include_provider_details=true' });
      expect(read(await world.batches.retrieve(call)).provider_details).toMatchObject({
        run_by: 'provider',
        provider_slug: 'sb',
        provider_batch_id: expect.stringMatching(/^batch_/),
        batch: { status: 'completed', system_fingerprint: 'sandbox' },
      });
    });

    it('nothing is begun for a key that was revoked meanwhile', async () => {
      const before = await counts();
      const batch = await made(2);
      const set = (status: 'archived' | 'active') =>
        world.store.tables.systemWrite((tx) => tx.update('api_keys', { id: 'key-w1' }, { status }));
      await set('archived');
      const done = await world.drive(batch.id).finally(() => set('active'));
      expect(done).toMatchObject({ status: 'file_upload_failed', errors: { data: [{ code: 'invalid_api_key' }] } });
      expect((await counts()).batch).toBe(before.batch);
    });

    it.each([
      ['before it was uploaded', 1, 'file_upload_failed'],
      ['before it was submitted', 2, 'batch_start_failed'],
    ])('nothing is begun where a guardrail has come that must judge it, %s', async (_, turns, status) => {
      const must = (actions: object) =>
        compileInline({ id: 'words', 'default.wordCount': {}, ...actions }, 'input_guardrails[0]');
      const before = await counts();
      const passing = await made(1);
      world.defaults = [must({}), must({ deny: true, async: true })];
      expect((await world.drive(passing.id)).status).toBe('completed');
      world.defaults = [];
      const batch = await made(2);
      for (let turn = 0; turn < turns; turn++) await world.turn(batch.id);
      world.defaults = [must({ deny: true })];
      const done = await world.drive(batch.id).finally(() => {
        world.defaults = [];
      });
      expect(done).toMatchObject({ status, errors: { data: [{ code: 'guardrail_not_enforced' }] } });
      expect((await counts()).batch).toBe(before.batch + 1);
      expect(world.lines).toEqual([]);
    });

    it('killed anywhere, the provider gets one file and one batch', async () => {
      let points = 0;
      for (let fuse = 1; fuse < 60; fuse++) {
        const before = await counts();
        const batch = await made(2);
        world.fuse = fuse;
        const done = await world.drive(batch.id);
        const survived = world.fuse !== null;
        world.fuse = null;
        expect(done).toMatchObject({ status: 'completed', request_counts: { completed: 2 } });
        const after = await counts();
        // Its input and its output are files, too.
        expect(after, `killed at ${fuse}`).toEqual({ batch: before.batch + 1, file: before.file + 2 });
        if (survived) break;
        points += 1;
      }
      expect(points).toBeGreaterThan(8);
    });

    const counts = async () => {
      const count = (kind: 'batch' | 'file') =>
        world.store.tables.systemRead((tx) => tx.count('sandbox_objects', { where: { kind } }));
      return { batch: await count('batch'), file: await count('file') };
    };

    it('an upload that is refused is file_upload_failed, a submission that is refused batch_start_failed', async () => {
      const own = world.local;
      const refuse = (message: string) => () => Promise.reject(new SluiceError('invalid_request', message));
      const spoilt = (part: (adapter: Required<TrainingAdapter>) => TrainingAdapter) => {
        world.local = (tenant) => part(own(tenant) as Required<TrainingAdapter>);
      };
      spoilt((adapter) => ({ ...adapter, files: { ...adapter.files, upload: refuse('no room') } }));
      const first = await made();
      expect(await world.drive(first.id)).toMatchObject({
        status: 'file_upload_failed',
        errors: { data: [{ message: 'no room' }] },
        failed_at: expect.any(Number),
      });
      spoilt((adapter) => ({ ...adapter, batches: { ...adapter.batches, create: refuse('no quota') } }));
      const second = await made();
      expect(await world.drive(second.id)).toMatchObject({
        status: 'batch_start_failed',
        errors: { data: [{ message: 'no quota' }] },
      });
      spoilt((adapter) => ({
        ...adapter,
        batches: {
          ...adapter.batches,
          inputLine: () => {
            throw new SluiceError('unsupported_parameter', 'cannot express seed', { param: 'body.seed' });
          },
        },
      }));
      const third = await made();
      expect(await world.drive(third.id)).toMatchObject({
        status: 'file_upload_failed',
        errors: { data: [{ message: 'Line 1: cannot express seed', param: 'body.seed' }] },
      });
    });

    it('a cancelled batch is cancelled at the provider', async () => {
      const batch = await made();
      for (let i = 0; i < 4; i++) await world.turn(batch.id);
      expect((await world.get(batch.id)).status).toBe('in_progress');
      await world.batches.cancel(world.call({ params: { batch_id: batch.id } }));
      expect((await world.get(batch.id)).status).toBe('cancelling');
      const asked = world.clock.now();
      expect((await world.drive(batch.id)).status).toBe('cancelled');
      expect(world.clock.now() - asked).toBeLessThan(600_000);
      const early = await made();
      await world.batches.cancel(world.call({ params: { batch_id: early.id } }));
      expect((await world.drive(early.id)).status).toBe('cancelled');
    });

    it('a provider without batches of its own leaves the requests to Sluice, as a config that does more than route', async () => {
      const own = world.local;
      world.local = (tenant) => ({ jobs: own(tenant).jobs }) as TrainingAdapter;
      const plain = await made(2);
      expect((await world.drive(plain.id)).status).toBe('completed');
      expect(world.lines.length).toBe(2);
      world.local = own;
      const configs = { 'pc-guard': { provider: '@sb', input_guardrails: ['g'] }, 'pc-route': { provider: '@sb' } };
      const guarded = await world.create(
        { ...day, input_file_id: await world.input(inputOf(2)), gateway_options: { 'x-gateway-config': 'pc-guard' } },
        { configs: configs as never },
      );
      await world.drive(guarded.id);
      expect(world.lines.length).toBe(4);
      expect(world.lines[3]?.headers).toMatchObject({ 'x-gateway-config': 'pc-guard' });
      const routed = await world.create(
        { ...day, input_file_id: await world.input(inputOf(2)), gateway_options: { 'x-gateway-config': 'pc-route' } },
        { configs: configs as never },
      );
      await world.drive(routed.id);
      expect(world.lines.length).toBe(4);
      // The config of the key itself is none that a provider's batch would ask, whatever account is named.
      const pinned = await world.create(
        { ...day, input_file_id: await world.input(inputOf(1)) },
        { configs: configs as never, defaults: { config_id: 'pc-guard', allow_config_override: false } },
      );
      await world.drive(pinned.id);
      expect(world.lines.length).toBe(5);
      expect(world.lines[4]?.headers).not.toHaveProperty('x-gateway-config');
    });
  });

  describe('told to callers', () => {
    it('another workspace finds nothing', async () => {
      const batch = await world.create({ input_file_id: await world.input(inputOf(1)) });
      await world.drive(batch.id);
      const call = world.call({ workspace: 'w2', params: { batch_id: batch.id } });
      for (const run of [
        () => world.batches.retrieve(call),
        () => world.batches.cancel(call),
        () => world.batches.output(call),
      ]) {
        expect(await refusal(run)).toMatchObject({ status: 404, code: 'AB08' });
      }
      const theirs = await world.input(inputOf(1), 'w2');
      expect(await refusal(() => world.create({ input_file_id: theirs }))).toMatchObject({ status: 404 });
      const list = read<{ data: { id: string }[] }>(await world.batches.list(world.call({ workspace: 'w2' })));
      expect(list.data).toEqual([]);
    });

    it('the list pages completely, newest first, while batches are added', async () => {
      const text = inputOf(1);
      const first: string[] = [];
      for (let i = 0; i < 5; i++) {
        world.clock.jump(1);
        first.push((await world.create({ input_file_id: await world.input(text) })).id);
      }
      const walked: string[] = [];
      let after = '';
      for (;;) {
        const call = world.call({ query: `limit=2${after === '' ? '' : `&after=${after}`}` });
        const page = read<{ data: { id: string }[]; has_more: boolean; first_id: string; last_id: string }>(
          await world.batches.list(call),
        );
        expect([page.first_id, page.last_id]).toEqual([page.data[0]?.id, page.data.at(-1)?.id]);
        walked.push(...page.data.map((one) => one.id));
        after = page.last_id;
        if (!page.has_more) break;
        await world.create({ input_file_id: await world.input(text) });
      }
      expect(walked.slice(0, 5)).toEqual([...first].reverse());
      expect(new Set(walked).size).toBe(walked.length);
      const unknown = world.call({ query: 'after=gw_batch_none' });
      expect(await refusal(() => world.batches.list(unknown))).toMatchObject({ status: 400, param: 'after' });
    });

    it('a batch that somebody else ended stays ended, whatever its worker is about to write', async () => {
      const made = await world.create({ input_file_id: await world.input(inputOf(3)) });
      await world.turn(made.id);
      world.answer = async () => {
        await world.store.tables.systemWrite((tx) =>
          tx.update('batches', { id: made.id }, { status: 'completed', batch: { ...made, status: 'completed' } }),
        );
        return {};
      };
      expect(await world.turn(made.id)).toBe('done');
      expect(await world.get(made.id)).toMatchObject({ status: 'completed', output_file_id: null });
    });
  });
});

describe('lines of a file', () => {
  it('end with LF or CRLF and nothing else, wherever the chunks are cut, and can be read on from any of them', async () => {
    const piece = fc.constantFrom('a', '\n', '\r', '\r\n', '\u2028', 'é', '');
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 20 }), fc.integer({ min: 1, max: 5 }), async (pieces, size) => {
        const bytes = Buffer.from(pieces.join(''));
        const chunks = (from: number) => {
          const out: Buffer[] = [];
          for (let at = from; at < bytes.length; at += size) out.push(bytes.subarray(at, at + size));
          return Readable.from(out);
        };
        const collect = async (from?: { number: number; offset: number }) => {
          const out: { number: number; offset: number; end: number; text: string }[] = [];
          for await (const line of linesOf(chunks(from?.offset ?? 0), 1000, from)) {
            out.push({ number: line.number, offset: line.offset, end: line.end, text: line.bytes.toString('utf8') });
          }
          return out;
        };
        const all = await collect();
        const expected = bytes.toString('utf8').split('\n');
        if (expected.at(-1) === '') expected.pop();
        expect(all.map((line) => line.text)).toEqual(expected.map((line) => line.replace(/\r$/, '')));
        for (const [i, line] of all.entries()) {
          expect(await collect({ number: line.number, offset: line.offset })).toEqual(all.slice(i));
        }
      }),
      { numRuns: 100 },
    );
  });
});
