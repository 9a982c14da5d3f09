/** Batches that Sluice manages, on both stores: run line by line and by a provider, killed anywhere, cancelled, expired. */
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import type { ResultLine } from '../../src/providers/batch-lines.ts';
import type { InternalCall } from '../../src/runtime/internal-call.ts';
import { batchWorld, chatLine, contentOf, read } from '../support/batch-store.ts';
import { ENGINES } from '../support/job-store.ts';
import { ids, inputOf, useBatches, world } from '../support/managed-batches.ts';
import { refusal } from './support.ts';

const statuses = (lines: readonly ResultLine[]) =>
  Object.fromEntries(lines.map((line) => [line.custom_id, line.response?.status_code ?? line.error?.code]));

describe.each(ENGINES)('gateway-managed batches on %s', (engine) => {
  useBatches(engine);

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
});
