/** What batches and jobs that a provider runs cost: reserved, read, booked and recorded once, on both stores. */
import { Readable } from 'node:stream';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { BucketTransaction } from '../../src/limits/ledger/bucket-transaction.ts';
import type { LimitSpec } from '../../src/limits/ledger/limit-spec.ts';
import type { Batch, FineTuningJob } from '../../src/operations/training.ts';
import type { BatchesAdapter, JobsAdapter, TrainingAdapter } from '../../src/providers/training.ts';
import type { ObjectCall } from '../../src/runtime/object-call.ts';
import type { RecordDraft } from '../../src/telemetry/recorder.ts';
import { sandboxTraining } from '../../src/training/sandbox/sandbox.ts';
import { begun } from '../../src/training/usage/begin.ts';
import type { UsageRow } from '../../src/training/usage/rows.ts';
import { runUsageTurn, type UsageServices } from '../../src/training/usage/work.ts';
import { type BatchWorld, batchWorld, chatLine, Killed, read } from '../support/batch-store.ts';
import { ENGINES } from '../support/job-store.ts';
import { audited, limitSpecWith } from '../support/ledger-node.ts';

const DAY = 86_400_000;

describe.each(ENGINES)('what a provider runs, on %s', (engine) => {
  let world: BatchWorld;
  let counter = 0;
  /** Records by their key: a log store keeps the first of each. */
  const records = new Map<string, RecordDraft>();
  let journaled = 0;

  beforeAll(async () => {
    world = await batchWorld(engine);
  });
  afterAll(() => world?.close());
  beforeEach(() => {
    world.local = (tenant) =>
      sandboxTraining({ tables: world.store.tables, blobs: world.blobs, clock: world.clock, log: silentLog }, tenant);
    world.fuse = null;
    records.clear();
    journaled = 0;
  });

  /** Limits of this test alone, with their buckets, as the request that begins an object leaves them. */
  async function limits(...given: Partial<LimitSpec>[]): Promise<LimitSpec[]> {
    counter += 1;
    const specs = given.map((one) => limitSpecWith({ ownerId: `p-${counter}`, bucketKey: one.type ?? 'cost', ...one }));
    await world.store.tables.systemWrite(async (tx) => {
      const now = world.clock.now();
      for (const one of specs) {
        const place = { organisationId: 'o1', workspaceId: 'w1' };
        await (await BucketTransaction.open(tx, place, one, world.clock, now)).close(tx, now);
      }
    });
    return specs;
  }
  const counted = async () => {
    const rows = await world.store.tables.systemRead((tx) =>
      tx.list('usage_buckets', { where: { owner_id: `p-${counter}` } }),
    );
    for (const { counters, entries, leased } of await audited(world.store.tables)) {
      expect(entries).toEqual(counters);
      expect(leased).toBe(counters.reserved);
    }
    return Object.fromEntries(
      rows.map(({ type, used, reserved, unpriced }) => [
        type,
        type === 'cost' ? [used, reserved, unpriced] : [used, reserved],
      ]),
    );
  };
  const callWith = (specs: readonly LimitSpec[], body: object): ObjectCall => ({
    ...world.call({ body }),
    limits: async () => ({ specs, metadata: { team: 'search' } }),
  });

  const services = (): UsageServices => ({
    ...world.services,
    recordOnce: async (key, draft) => {
      journaled += 1;
      if (!records.has(key)) records.set(key, draft);
    },
  });
  const rowOf = async (id: string): Promise<UsageRow> => {
    const row = await world.store.tables.systemRead((tx) => tx.find('object_usage', { id }));
    if (row === undefined) throw new Error('no such row');
    return row;
  };
  let claims = 0;

  /** Turns of one worker until the row is let go of. `fuse`: writes and records until it is killed, before or after. */
  async function work(id: string, fuse = Number.POSITIVE_INFINITY): Promise<'done' | number> {
    let left = fuse;
    const burn = () => {
      if (left <= 0) throw new Killed();
      left -= 1;
    };
    const token = `usage-${++claims}`;
    const { tables } = world.store;
    await tables.systemWrite((tx) => tx.update('object_usage', { id }, { holder: token }));
    const given = services();
    for (;;) {
      let row = await rowOf(id);
      if (row.step === 'done') return 'done';
      const turn = await runUsageTurn(
        {
          get row() {
            return row;
          },
          signal: new AbortController().signal,
          async write(change) {
            burn();
            row = await tables.systemWrite(async (tx) => {
              const now = await tx.find('object_usage', { id });
              if (now === undefined || now.holder !== token) throw new Error('the claim was lost');
              const patch = await change(tx, now, world.clock.now());
              await tx.update('object_usage', { id, holder: token }, patch);
              return { ...now, ...patch };
            });
            burn();
            return row;
          },
        },
        {
          ...given,
          async recordOnce(key, draft) {
            burn();
            await given.recordOnce(key, draft);
            burn();
          },
        },
      );
      if (turn === 'done') {
        await tables.systemWrite((tx) => tx.update('object_usage', { id, holder: token }, { step: 'done' }));
        return 'done';
      }
      if (turn.again > 0) return turn.again;
    }
  }

  describe('a batch of Sluice that a provider runs', () => {
    const made = async (specs: readonly LimitSpec[], lines = 3, more: object = {}) => {
      const input = await world.input(
        Array.from({ length: lines }, (_, i) => chatLine(`l-${i}`, `line ${i}`, { max_tokens: 50 })).join('\n'),
      );
      const body = {
        input_file_id: input,
        endpoint: '/v1/chat/completions',
        completion_window: '24h',
        model: 'echo',
        gateway_options: { 'x-gateway-virtual-key': 'sb' },
        ...more,
      };
      return read(await world.batches.create(callWith(specs, body)));
    };

    it('its lines are reserved before it is uploaded, and booked and recorded when it has ended', async () => {
      const specs = await limits(
        { type: 'cost', limit: 10_000_000 },
        { type: 'tokens', limit: 10_000 },
        { type: 'requests', limit: 100 },
      );
      const batch = await made(specs);
      await world.turn(batch.id);
      const reserved = await counted();
      expect(reserved.requests).toEqual([0, 3]);
      expect(reserved.tokens?.[1]).toBeGreaterThan(150);
      expect(reserved.cost?.[1]).toBeGreaterThan(0);
      const done = await world.drive(batch.id);
      expect(done.status).toBe('completed');
      const usages = (await world.output(batch.id)).map(
        (line) => (line.response?.body as { usage?: { total_tokens: number } } | undefined)?.usage?.total_tokens ?? 0,
      );
      const tokens = usages.reduce((sum, one) => sum + one, 0);
      expect(tokens).toBeGreaterThan(0);
      expect(await counted()).toMatchObject({ tokens: [tokens, 0], requests: [3, 0] });
      expect(await work(batch.id)).toBe('done');
      const [record] = [...records.values()];
      expect(record).toMatchObject({
        operation: 'batch_create',
        path: `/v1/batches/${batch.id}`,
        trace_id: batch.id,
        api_key_id: 'key-w1',
        provider: 'sandbox',
        provider_slug: 'sb',
        model_requested: 'echo',
        error_code: null,
        metadata: { team: 'search', _batch_id: batch.id },
      });
      expect((record?.usage?.input ?? 0) + (record?.usage?.output ?? 0)).toBe(tokens);
      // To the micro-dollar that rounding leaves out in one of the two.
      expect(Math.abs(Number(record?.cost_micros) - Number((await counted()).cost?.[0]))).toBeLessThanOrEqual(1);
      expect(records.size).toBe(1);
    });

    it('killed anywhere, it is booked once', async () => {
      const specs = await limits({ type: 'requests', limit: 1_000_000 });
      let sum = 0;
      for (let fuse = 1; fuse < 60; fuse++) {
        const batch = await made(specs, 2);
        world.fuse = fuse;
        await world.drive(batch.id);
        const survived = world.fuse !== null;
        world.fuse = null;
        sum += 2;
        expect((await counted()).requests, `killed at ${fuse}`).toEqual([sum, 0]);
        if (survived) break;
      }
      expect(sum).toBeGreaterThan(16);
    });

    it('a limit that is used up before it is uploaded ends it, and the provider never hears of it', async () => {
      const specs = await limits({ type: 'tokens', limit: 10 });
      const first = await made(specs);
      await world.turn(first.id);
      const second = await made(specs);
      const done = await world.drive(second.id);
      expect(done).toMatchObject({ status: 'failed', errors: { data: [{ code: 'usage_limit_exceeded' }] } });
      expect((await world.row(second.id)).upstream_id).toBeNull();
      await world.drive(first.id);
      expect((await counted()).tokens?.[1]).toBe(0);
    });

    it('a cancelled one counts what it had answered, one that never reached the provider nothing', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000_000 });
      const batch = await made(specs);
      await world.batches.cancel(world.call({ params: { batch_id: batch.id } }));
      expect(await world.drive(batch.id)).toMatchObject({ status: 'cancelled' });
      expect(await counted()).toEqual({ cost: [0, 0, 0] });
    });

    it('an output that nobody can read is marked unpriced, and told in the record', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000_000 });
      const own = world.local;
      world.local = (tenant) => {
        const adapter = own(tenant) as Required<TrainingAdapter>;
        const retrieve: BatchesAdapter['retrieve'] = async (id, context) => ({
          ...(await adapter.batches.retrieve(id, context)),
          status: 'expired',
          request_counts: { total: 3, completed: 2, failed: 0 },
        });
        const output = () => Promise.reject(new SluiceError('invalid_request', 'no output'));
        return { ...adapter, batches: { ...adapter.batches, retrieve, output } };
      };
      const batch = await made(specs);
      expect(await world.drive(batch.id)).toMatchObject({ status: 'expired' });
      expect(await counted()).toEqual({ cost: [0, 0, 1] });
      await work(batch.id);
      expect([...records.values()]).toMatchObject([{ cost_micros: null, error_code: 'usage_unknown' }]);
    });
  });

  describe('an object of a provider', () => {
    /** A provider whose batch ends when told. */
    const state = {
      status: 'in_progress' as Batch['status'],
      lines: [] as object[],
      usage: null as object | null,
      looks: 0,
      job: {} as Partial<FineTuningJob>,
    };
    const adapter = (): TrainingAdapter => ({
      batches: {
        async retrieve(id: string) {
          state.looks += 1;
          if (state.status === 'failed') throw new SluiceError('out_of_service', 'away');
          return {
            id,
            object: 'batch',
            endpoint: '/v1/chat/completions',
            input_file_id: 'f',
            completion_window: '24h',
            status: state.status,
            created_at: 1,
            usage: state.usage,
          };
        },
        async output() {
          return Readable.from([Buffer.from(state.lines.map((line) => `${JSON.stringify(line)}\n`).join(''))], {
            objectMode: false,
          });
        },
      } as unknown as BatchesAdapter,
      jobs: {
        retrieve: async (id: string) => ({ id, model: 'echo', status: 'running', trained_tokens: null, ...state.job }),
      } as unknown as JobsAdapter,
    });
    beforeEach(() => {
      Object.assign(state, { status: 'in_progress', lines: [], usage: null, looks: 0, job: {} });
      world.local = adapter;
    });
    const line = (input: number, output: number, more: object = {}) => ({
      id: 'x',
      custom_id: 'y',
      response: {
        status_code: 200,
        request_id: null,
        body: { model: 'echo', usage: { prompt_tokens: input, completion_tokens: output } },
      },
      error: null,
      ...more,
    });
    async function follow(
      specs: readonly LimitSpec[],
      kind: 'batch' | 'job' = 'batch',
      id = `up-${++claims}`,
    ): Promise<string> {
      const call = callWith(specs, {});
      const account = await call.accountOf('sb');
      const endpoint = kind === 'batch' ? '/v1/chat/completions' : null;
      await begun(world.services, call, { account }, { kind, model: 'echo', endpoint }, async () => ({ id }));
      const [row] = await world.store.tables.systemRead((tx) => tx.list('object_usage', { where: { object_id: id } }));
      return row?.id ?? '';
    }

    it('is looked at less and less often until it ends, then read, booked and recorded, though nobody asks', async () => {
      const specs = await limits(
        { type: 'cost', limit: 10_000_000 },
        { type: 'tokens', limit: 10_000 },
        { type: 'requests', limit: 100 },
      );
      const id = await follow(specs);
      expect(await work(id)).toBe(30_000);
      world.clock.jump(2 * 3_600_000);
      expect(await work(id)).toBe(10 * 60_000);
      state.status = 'completed';
      state.lines = [
        line(1_000_000, 500_000),
        line(2, 3),
        line(9, 9, { response: { status_code: 400, request_id: null, body: {} } }),
      ];
      expect(await work(id)).toBe('done');
      // 0.15 and 0.60 dollars a million.
      expect(await counted()).toEqual({ cost: [450_002, 0, 0], tokens: [1_500_005, 0], requests: [2, 0] });
      expect([...records.values()]).toMatchObject([
        { cost_micros: 450_002, usage: { input: 1_000_002, output: 500_003 }, model_answered: 'echo' },
      ]);
    });

    it('killed before or after each write, it is booked once and its record has one key', async () => {
      const specs = await limits({ type: 'tokens', limit: 10_000 });
      state.status = 'completed';
      state.lines = [line(3, 4)];
      let sum = 0;
      for (let fuse = 0; fuse < 6; fuse++) {
        const id = await follow(specs);
        const ended = await work(id, fuse).catch((error: unknown) => {
          if (!(error instanceof Killed)) throw error;
          return work(id);
        });
        expect(ended).toBe('done');
        sum += 7;
        expect((await counted()).tokens, `killed at ${fuse}`).toEqual([sum, 0]);
        expect(records.has(`usage-${id}`)).toBe(true);
      }
      expect(records.size).toBe(6);
      expect(journaled).toBeGreaterThan(6);
    });

    it('two workers that find its end together book it once', async () => {
      const specs = await limits({ type: 'tokens', limit: 10_000 });
      state.status = 'completed';
      state.lines = [line(3, 4)];
      const id = await follow(specs);
      const both = await Promise.allSettled([work(id), work(id), work(id)]);
      expect(both.some((one) => one.status === 'fulfilled')).toBe(true);
      expect((await counted()).tokens).toEqual([7, 0]);
      expect(records.size).toBe(1);
    });

    it('a provider that is away is waited for, then given up: unpriced and told', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000 });
      const id = await follow(specs);
      state.status = 'failed';
      await expect(work(id)).rejects.toThrow('away');
      world.clock.jump(4 * DAY);
      expect(await work(id)).toBe('done');
      expect(await counted()).toEqual({ cost: [0, 0, 1] });
      expect([...records.values()]).toMatchObject([{ cost_micros: null, error_code: 'usage_unknown' }]);
    });

    it('answers without usage are marked one by one; what has a price is booked', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000_000 });
      state.status = 'completed';
      state.lines = [line(1_000_000, 0), { ...line(0, 0), response: { status_code: 200, request_id: null, body: {} } }];
      await work(await follow(specs));
      expect(await counted()).toEqual({ cost: [150_000, 0, 1] });
      expect([...records.values()]).toMatchObject([{ cost_micros: 150_000, error_code: 'usage_unknown' }]);
    });

    it('a creation that was refused leaves nothing; one without an answer is told as unknown', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000 });
      const call = callWith(specs, {});
      const about = { kind: 'batch', model: 'echo', endpoint: '/v1/chat/completions' } as const;
      const account = await call.accountOf('sb');
      const before = await world.store.tables.systemRead((tx) => tx.count('object_usage'));
      const failing = (error: SluiceError) =>
        begun(world.services, call, { account }, about, () => Promise.reject(error));
      await expect(failing(new SluiceError('invalid_request', 'no'))).rejects.toThrow('no');
      expect(await world.store.tables.systemRead((tx) => tx.count('object_usage'))).toBe(before);
      await expect(failing(new SluiceError('timeout', 'late'))).rejects.toThrow('late');
      const [row] = await world.store.tables.systemRead((tx) => tx.list('object_usage', { where: { object_id: '' } }));
      await work(row?.id ?? '');
      expect(await counted()).toEqual({ cost: [0, 0, 1] });
    });

    it('what a provider answers twice is followed once', async () => {
      const specs = await limits({ type: 'tokens', limit: 10_000 });
      const first = await follow(specs, 'batch', 'again');
      expect(await follow(specs, 'batch', 'again')).toBe(first);
      expect(
        await world.store.tables.systemRead((tx) => tx.count('object_usage', { where: { object_id: 'again' } })),
      ).toBe(1);
    });

    it('a job is booked by the tokens it trained, whatever became of it', async () => {
      const specs = await limits({ type: 'cost', limit: 10_000_000 }, { type: 'tokens', limit: 10_000 });
      for (const job of [
        { status: 'succeeded', trained_tokens: 1_000_000 },
        { status: 'cancelled', trained_tokens: 200_000 },
        { status: 'failed', trained_tokens: null },
      ] as const) {
        state.job = job;
        await work(await follow(specs, 'job'));
      }
      expect(await counted()).toEqual({ cost: [180_000, 0, 0], tokens: [1_200_000, 0] });
      state.job = { status: 'cancelled', trained_tokens: null };
      await work(await follow(specs, 'job'));
      expect(await counted()).toEqual({ cost: [180_000, 0, 1], tokens: [1_200_000, 0] });
      expect([...records.values()].map((record) => record.cost_micros)).toEqual([150_000, 30_000, 0, null]);
    });
  });
});
