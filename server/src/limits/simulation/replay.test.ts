/** Random traffic through the engines that enforce limits, and the same traffic replayed from its records. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { booksStore, ledgerNode, WORKSPACE } from '../../../test/support/ledger-node.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import type { LimitFacts } from '../../store/limit-types.ts';
import { memoryCounters } from '../../store/memory/counters.ts';
import type { StoredLog } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { LimitSpec } from '../ledger/limit-spec.ts';
import { LimitRefused } from '../limit-refused.ts';
import { orderingTimestamp } from '../ordering-timestamp.ts';
import { type PolicyFacts, requestFacts } from '../policies/conditions.ts';
import { addRateLimits, compileRatePolicies } from '../policies/rates.ts';
import { addUsageLimits, compileUsagePolicies } from '../policies/usage.ts';
import { createAdmission, type LimitedEntity, type Reservation } from '../rate-limits.ts';
import { ratesEngine } from './rates.ts';
import { type Engine, type ReplayOptions, replay } from './replay.ts';
import { createSimulationRunner } from './simulation-runner.ts';
import { usageEngine } from './usage.ts';

const ORGANISATION = 'org-1';
const place = { workspaceId: WORKSPACE, workspaceSlug: 'ws', organisationId: ORGANISATION };
const START = Date.UTC(2026, 0, 20);
const YEAR = 366 * 86_400_000;

/** A user comes, or one of the requests that run ends. */
const ops = fc.array(
  fc.record({
    wait: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 3_000 }), fc.integer({ min: 1, max: 4 * 86_400_000 })),
    user: fc.integer({ min: 0, max: 2 }),
    ends: fc.option(fc.nat(5), { freq: 2 }),
    estimate: fc.integer({ min: 0, max: 40 }),
    bounded: fc.boolean(),
    used: fc.integer({ min: 0, max: 60 }),
  }),
  { minLength: 10, maxLength: 60 },
);

const factsOf = (user: number): PolicyFacts =>
  requestFacts({
    workspaceId: WORKSPACE,
    organisationId: ORGANISATION,
    keyId: 'key',
    provider: 'openai',
    slug: null,
    config: null,
    model: 'm',
    requestType: 'chatComplete',
    metadata: { user: String(user) },
  });

function recordOf(n: number, time: number, user: number, used: number, limits: LimitFacts): StoredLog {
  return {
    id: `r${String(n).padStart(4, '0')}`,
    node: 'n',
    seq: n,
    time,
    organisation_id: ORGANISATION,
    workspace_id: WORKSPACE,
    api_key_id: 'key',
    trace_id: `t${n}`,
    operation: 'chat',
    provider: 'openai',
    provider_slug: null,
    config_slug: null,
    model_requested: 'm',
    outcome: limits.refused === undefined ? 'ok' : 'refused',
    usage: limits.refused === undefined ? { input: used, output: 0 } : null,
    cost_micros: used,
    latency_ms: 1,
    attempts: limits.refused === undefined ? [{}] : [],
    metadata: { user: String(user) },
    dry_run: false,
    limits,
  };
}

const over = (records: readonly StoredLog[], more: Partial<ReplayOptions> = {}): ReplayOptions => ({
  kind: 'usage',
  policyId: 'policy-1',
  type: 'tokens',
  from: START,
  to: START + YEAR,
  stepMs: 86_400_000,
  signal: new AbortController().signal,
  maxRecords: 1000,
  page: async (after) => {
    const at = after === null ? 0 : records.indexOf(after) + 1;
    return records.slice(at, at + 7);
  },
  ...more,
});

const blockedBy = async <M, H>(engine: Engine<M, H>, records: readonly StoredLog[], more: Partial<ReplayOptions>) =>
  (await replay(engine, over(records, more))).samples.map(({ id }) => id).sort();

const idsOf = (records: readonly StoredLog[]) =>
  records.filter((record) => (record.limits as LimitFacts).refused !== undefined).map(({ id }) => id);

const usagePolicy = (more: Partial<Row<'usage_policies'>>): Row<'usage_policies'> => ({
  id: 'policy-1',
  organisation_id: ORGANISATION,
  workspace_id: WORKSPACE,
  name: null,
  description: null,
  conditions: [{ key: 'metadata.user', value: ['0', '1'] }],
  group_by: [{ key: 'metadata.user' }],
  type: 'tokens',
  credit_limit: 100,
  alert_threshold: null,
  periodic_reset: null,
  periodic_reset_days: null,
  next_usage_reset_at: null,
  last_reset_at: null,
  unpriced: null,
  on_outage: 'refuse',
  alert_emails: null,
  alert_webhook_url: null,
  status: 'active',
  created_at: START,
  last_updated_at: START,
  ...more,
});

describe('a replay decides as it was decided', () => {
  it('by the ledger, for each type and period, from the rule alone', async () => {
    await fc.assert(
      fc.asyncProperty(
        ops,
        fc.constantFrom('cost', 'tokens', 'requests'),
        fc.constantFrom('monthly', 'weekly', null),
        fc.integer({ min: 1, max: 200 }),
        async (steps, type, period, limit) => {
          const clock = new TestClock(START);
          const tables = await booksStore('sqlite', clock);
          const node = await ledgerNode(tables, { clock });
          const credit = type === 'cost' ? limit / 1e6 : type === 'requests' ? Math.ceil(limit / 20) : limit;
          const policy = usagePolicy({ type, credit_limit: credit, periodic_reset: period });
          const index = compileUsagePolicies([policy], place);
          const running: { end: (used: number) => Promise<void> }[] = [];
          const records: StoredLog[] = [];
          try {
            for (const step of steps) {
              clock.jump(step.wait);
              if (step.ends !== null) {
                const [ending] = running.splice(step.ends % Math.max(1, running.length), 1);
                await ending?.end(step.used);
                continue;
              }
              const specs: LimitSpec[] = [];
              if (index !== null) addUsageLimits(index, factsOf(step.user), specs);
              // As a request whom no limit concerns: nothing is asked.
              if (specs.length === 0) continue;
              const { estimate: amount, bounded } = step;
              const limits: LimitFacts = {
                usage_at: orderingTimestamp(clock.now()),
                estimate: { cost: amount, tokens: amount, bounded },
              };
              const n = records.length;
              const time = clock.now();
              records.push(recordOf(n, time, step.user, 0, limits));
              try {
                const charges = specs.map((one) =>
                  type === 'requests' ? { spec: one, amount: 1, bounded: true } : { spec: one, amount, bounded },
                );
                const settle = await node.reserve(charges);
                running.push({
                  async end(value) {
                    const used = { cost: value, carry: 0, tokens: value, requests: 1, unpriced: 0 };
                    limits.ended_at = orderingTimestamp(clock.now());
                    limits.used = used;
                    await settle(used);
                    await node.drain();
                  },
                });
              } catch (error) {
                if (!(error instanceof LimitRefused)) throw error;
                const { committed: _committed, ...by } = error.by;
                limits.refused = by;
                records[n] = recordOf(n, time, step.user, 0, limits);
              }
            }
            clock.jump(1);
            while (running.length > 0) await running.pop()?.end(1);
          } finally {
            await node.close();
            await tables.close();
          }
          const engine = usageEngine(policy, policy, null, place);
          expect(await blockedBy(engine, records, { type })).toEqual(idsOf(records));
        },
      ),
      { numRuns: 12 },
    );
  }, 60_000);

  it('by the admission of rate limits, for requests and tokens in every unit', async () => {
    await fc.assert(
      fc.asyncProperty(
        ops,
        fc.constantFrom('requests', 'tokens'),
        fc.constantFrom('rpm', 'rph', 'rpd', 'rpw'),
        fc.integer({ min: 1, max: 100 }),
        async (steps, type, unit, limit) => {
          const clock = new TestClock(START);
          const policy: Row<'rate_policies'> = {
            ...usagePolicy({}),
            target: 'llm',
            type,
            unit,
            value: type === 'requests' ? Math.ceil(limit / 20) : limit,
          };
          const counters = memoryCounters({ clock });
          const admission = createAdmission({ counters, share: null, clock, log: silentLog });
          const index = compileRatePolicies([policy], place).llm;
          const running: ((used: number) => void)[] = [];
          const records: StoredLog[] = [];
          const end = (n: number, user: number, limits: LimitFacts, held: Reservation) => (used: number) => {
            held.settle(used);
            limits.ended_at = orderingTimestamp(clock.now());
            records[n] = recordOf(n, records[n]?.time ?? 0, user, used, limits);
          };
          for (const step of steps) {
            clock.jump(step.wait);
            if (step.ends !== null) {
              running.splice(step.ends % Math.max(1, running.length), 1)[0]?.(step.used);
              continue;
            }
            const entities: LimitedEntity[] = [];
            if (index !== null) addRateLimits(index, factsOf(step.user), entities);
            const held = await admission.admit(WORKSPACE, entities);
            const limits: LimitFacts = { rates_at: held.at };
            if (held.refusal instanceof LimitRefused) limits.refused = held.refusal.by;
            const n = records.length;
            records.push(recordOf(n, clock.now(), step.user, 0, limits));
            if (held.refusal === null) running.push(end(n, step.user, limits, held));
          }
          clock.jump(1);
          for (const one of running) one(1);
          const engine = ratesEngine(policy, place, (time) => memoryCounters({ clock: time }));
          expect(await blockedBy(engine, records, { kind: 'rate', type })).toEqual(idsOf(records));
        },
      ),
      { numRuns: 150 },
    );
  }, 60_000);
});

describe('a simulation', () => {
  it('ends when the client has gone, and says where it stopped when there is too much', async () => {
    const records = Array.from({ length: 30 }, (_, n) => recordOf(n, START + n, 0, 1, { usage_at: START + n }));
    const engine = () => usageEngine(usagePolicy({}), null, null, place);
    const gone = new AbortController();
    gone.abort();
    await expect(replay(engine(), over(records, { signal: gone.signal }))).rejects.toMatchObject({
      kind: 'client_closed',
    });
    const part = await replay(engine(), over(records, { maxRecords: 20 }));
    expect(part).toMatchObject({ complete: false, records: 20, matched: 20, until: START + 20 });
    expect(await replay(engine(), over(records))).toMatchObject({ complete: true, records: 30, matched: 30 });
  });

  it('of which an organisation runs two already is refused until one has ended, and keeps no other from its own', async () => {
    const desk = createSimulationRunner({
      records: { walk: async () => [], isWhole: async () => true },
      countersFor: (time) => memoryCounters({ clock: time }),
    });
    const ends: (() => void)[] = [];
    const runs = (organisation: string) =>
      desk.run(organisation, () => new Promise<void>((resolve) => void ends.push(resolve)));
    const refused = { kind: 'throttled', retryAfter: 5 };
    const first = runs('one');
    const second = desk.run('one', () => Promise.reject(new SluiceError('internal', 'failed')));
    await expect(desk.run('one', async () => 1)).rejects.toMatchObject(refused);
    expect(await desk.run('two', async () => 2)).toBe(2);
    await expect(second).rejects.toMatchObject({ kind: 'internal' });
    expect(await desk.run('one', async () => 3)).toBe(3);
    const others = [runs('two'), runs('two'), runs('three')];
    await expect(desk.run('four', async () => 4)).rejects.toMatchObject(refused);
    for (const end of ends) end();
    await Promise.all([first, ...others]);
    expect(await desk.run('four', async () => 4)).toBe(4);
  });
});
