import { describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { nextTurn } from '../../kernel/turns.ts';
import type { FamilyValues } from './family-values.ts';
import { Metrics } from './metrics.ts';
import { type MetricsChannel, WorkerSums, workerMetrics } from './workers.ts';

/** The two ends of a channel between processes; messages arrive in a later turn, as JSON. */
function pair(delivers: () => boolean = () => true) {
  const receivers: ((message: unknown) => void)[][] = [[], []];
  const end = (of: number): MetricsChannel => ({
    send(message) {
      const text = JSON.stringify(message);
      setImmediate(() => {
        if (delivers()) for (const receive of receivers[1 - of] ?? []) receive(JSON.parse(text));
      });
    },
    onMessage: (receive) => void receivers[of]?.push(receive),
  });
  return { worker: end(0), primary: end(1) };
}

function machine() {
  const clock = new TestClock();
  const sums = new WorkerSums(clock);
  return {
    clock,
    sums,
    /** Starts a worker with these numbers. */
    start(index: number, numbers: { requests: number; inFlight: number; lag: number; started: number }) {
      let alive = true;
      const { worker, primary } = pair(() => alive);
      const metrics = new Metrics({ providers: new Set(), workspaces: false });
      let requests = numbers.requests;
      metrics.read('sluice_records_dropped_total', () => requests);
      metrics.read('sluice_inflight', () => numbers.inFlight);
      metrics.read('sluice_eventloop_lag_seconds', () => numbers.lag);
      metrics.read('process_start_time_seconds', () => numbers.started);
      sums.joined(index, primary);
      const ask = workerMetrics(worker, metrics, clock);
      return {
        ask,
        serve: (more: number) => {
          requests += more;
        },
        hang: (hangs: boolean) => {
          alive = !hangs;
        },
        end: () => {
          alive = false;
          sums.left(index);
        },
      };
    },
  };
}

const numberOf = (shown: readonly FamilyValues[], name: string) =>
  shown.find((family) => family.name === name)?.cells[0]?.values[0];

const numbers = { requests: 10, inFlight: 1, lag: 0.1, started: 1000 };

describe('metrics of several processes', () => {
  it('are the sum, the longest lag and the first start, whichever of them is asked', async () => {
    const { start } = machine();
    const one = start(1, numbers);
    const two = start(2, { requests: 32, inFlight: 2, lag: 0.5, started: 900 });
    for (const { ask } of [one, two]) {
      const shown = await ask();
      expect(numberOf(shown, 'sluice_records_dropped_total')).toBe(42);
      expect(numberOf(shown, 'sluice_inflight')).toBe(3);
      expect(numberOf(shown, 'sluice_eventloop_lag_seconds')).toBe(0.5);
      expect(numberOf(shown, 'process_start_time_seconds')).toBe(900);
      expect(numberOf(shown, 'sluice_workers_answered')).toBe(2);
    }
  });

  it('never fall: one that has ended goes on counting with what it told last, and holds nothing any more', async () => {
    const { start } = machine();
    const one = start(1, numbers);
    const two = start(2, numbers);
    await one.ask();
    two.end();
    const after = await one.ask();
    expect(numberOf(after, 'sluice_records_dropped_total')).toBe(20);
    expect(numberOf(after, 'sluice_inflight')).toBe(1);
    expect(numberOf(after, 'sluice_workers_answered')).toBe(1);
    // The one that is started in its place begins at zero.
    const again = start(2, { ...numbers, requests: 0 });
    again.serve(5);
    expect(numberOf(await one.ask(), 'sluice_records_dropped_total')).toBe(25);
    again.end();
    expect(numberOf(await one.ask(), 'sluice_records_dropped_total')).toBe(25);
  });

  it('wait a second for one that hangs, then count what it told last and say how many have answered', async () => {
    const { start, clock } = machine();
    const one = start(1, numbers);
    const two = start(2, numbers);
    await one.ask();
    one.serve(100);
    two.hang(true);
    const asked = one.ask();
    // The question has reached the primary, whose deadline begins then.
    for (let i = 0; i < 10; i++) await nextTurn();
    await clock.advance(1_000);
    const shown = await asked;
    expect(numberOf(shown, 'sluice_records_dropped_total')).toBe(120);
    expect(numberOf(shown, 'sluice_workers_answered')).toBe(1);
    two.hang(false);
    two.serve(1_000);
    const later = await one.ask();
    expect(numberOf(later, 'sluice_records_dropped_total')).toBe(1_120);
    expect(numberOf(later, 'sluice_workers_answered')).toBe(2);
  });

  it('are refused, not told in part, when the primary process does not answer', async () => {
    const clock = new TestClock();
    const { worker } = pair();
    const ask = workerMetrics(worker, new Metrics({ providers: new Set(), workspaces: false }), clock);
    const asked = ask().catch((error: Error) => error.message);
    await clock.advance(3_000);
    expect(await asked).toMatch(/do not answer/);
  });

  it('are made once for all that ask at the same time', async () => {
    const { start } = machine();
    const [one, two] = [start(1, numbers), start(2, numbers)];
    const all = await Promise.all([one.ask(), two.ask(), one.ask()]);
    expect(all.map((shown) => numberOf(shown, 'sluice_records_dropped_total'))).toEqual([20, 20, 20]);
  });
});
