/** Gateway-managed batches that a provider runs, and what callers see of them. */
import { describe, expect, it } from 'vitest';
import { compileInline } from '../../src/guardrails/compile.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { TrainingAdapter } from '../../src/providers/training.ts';
import { read } from '../support/batch-store.ts';
import { ENGINES } from '../support/job-store.ts';
import { ids, inputOf, useBatches, world } from '../support/managed-batches.ts';
import { refusal } from './support.ts';

describe.each(ENGINES)('gateway-managed batches on %s', (engine) => {
  useBatches(engine);

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
