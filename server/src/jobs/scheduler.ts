/**
 * Runs work that waits in tables: rows are claimed when they fall due, by at most one worker among all nodes, and the
 * rows themselves say what comes next, so a restart or a lost node only means that somebody else goes on. What a worker
 * does outside the store may happen twice when it is killed between doing and noting: work must be idempotent there.
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { cryptoRandom, type Random } from '../kernel/random.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { type BackOff, backOff } from './back-off.ts';
import {
  type Claim,
  ClaimEnded,
  dueRows,
  freeRows,
  NEVER,
  nextDue,
  renewRow,
  takeRow,
  type WorkTable,
  writeRow,
} from './claim.ts';

/** How a turn ended: the row is due again after so many milliseconds, or there is nothing left to do. */
export type Turn = { readonly again: number } | 'done';

export interface Work<N extends WorkTable> {
  readonly table: N;
  /** Rows this process works on at the same time. */
  readonly concurrency: number;
  /**
   * One turn at a claimed row. What it throws counts as a failure: the row comes back after a longer and longer wait,
   * which starts over after a turn that went well. `again: 0` goes on at once without letting go of the row.
   */
  run(claim: Claim<N>): Promise<Turn>;
  readonly retry?: BackOff;
}

export interface SchedulerOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  /**
   * Name of this process that a restart keeps and no other living process has: what it held when it was killed is taken
   * up again at once. Others wait for the end of the lease.
   */
  readonly node: string;
  readonly random?: Random;
  /** Milliseconds a row stays with a worker that does not renew. */
  readonly leaseMs?: number;
  /** Milliseconds between looks for work of other nodes. */
  readonly pollMs?: number;
  /** Milliseconds a close waits for workers to let go. */
  readonly closeMs?: number;
}

export interface Scheduler extends Closable {
  /** Adds work; before `start`. */
  add<N extends WorkTable>(work: Work<N>): void;
  start(): void;
  /** A hint that a row was added or changed: work starts at once, and whoever works on it here looks at it again. */
  wake(id?: string): void;
  /** Resolves when nothing is being looked for and nobody works; what is due later does not count. */
  idle(): Promise<void>;
}

const LEASE_MS = 30_000;
const POLL_MS = 5_000;
const CLOSE_MS = 5_000;
const RETRY: BackOff = { first: 1_000, most: 5 * 60_000, factor: 2 };
/** Soonest next look when the next row is due: rows of the same moment are claimed together. */
const SOON_MS = 5;

interface Running {
  readonly id: string;
  /** Looks at the row again: the claim may be lost, or somebody asked to cancel. */
  renew(): Promise<void>;
  end(why: 'lost' | 'closing'): void;
  done: Promise<void>;
}

interface Kind {
  readonly table: WorkTable;
  readonly running: Map<string, Running>;
  readonly concurrency: number;
  run(claim: Claim<WorkTable>): Promise<Turn>;
  readonly retry: BackOff;
}

export function createScheduler(options: SchedulerOptions): Scheduler {
  const { tables, clock, log, node } = options;
  const random = options.random ?? cryptoRandom;
  const leaseMs = options.leaseMs ?? LEASE_MS;
  const pollMs = options.pollMs ?? POLL_MS;
  const closeMs = options.closeMs ?? CLOSE_MS;
  const run = `${node}/${base62(12)}`;
  const kinds: Kind[] = [];
  let claims = 0;
  let started = false;
  let closed = false;
  let failing = false;
  let timer: (() => void) | null = null;
  let looking: Promise<void> | null = null;
  let lookAgain = false;

  function look(): void {
    if (closed || !started) return;
    if (looking !== null) {
      lookAgain = true;
      return;
    }
    timer?.();
    timer = null;
    looking = (async () => {
      let wait = pollMs;
      do {
        lookAgain = false;
        try {
          wait = await lookOnce();
          failing = false;
        } catch (error) {
          wait = pollMs;
          if (!failing && !closed) log.error('due work could not be read; trying again', { error: String(error) });
          failing = true;
        }
      } while (lookAgain && !closed);
      looking = null;
      if (!closed) timer = clock.after(wait, look);
    })();
  }

  /** Claims what is due. Returns the milliseconds until the next look. */
  async function lookOnce(): Promise<number> {
    let wait = pollMs;
    for (const kind of kinds) {
      const free = kind.concurrency - kind.running.size;
      // With all hands full the end of the next turn looks again.
      if (free <= 0) continue;
      const now = await tables.now();
      for (const found of await dueRows(tables, kind.table, now, free)) {
        if (closed) return pollMs;
        const token = `${run}/${++claims}`;
        const row = await takeRow(tables, kind.table, found, { token, until: now + leaseMs });
        if (row !== null) begin(kind, row, token);
      }
      if (kind.running.size >= kind.concurrency) continue;
      const next = await nextDue(tables, kind.table, now);
      if (next !== null) wait = Math.min(wait, Math.max(SOON_MS, next - now));
    }
    return wait;
  }

  function begin(kind: Kind, first: Row<WorkTable>, token: string): void {
    const stop = new AbortController();
    const cancel = new AbortController();
    const { id } = first;
    let row = first;
    let renewal: (() => void) | null = null;
    /** Ends the claim by our own clock, also when the store does not answer at all. */
    let expiry = clock.after(leaseMs, () => end('lost'));
    let renewing: Promise<void> | null = null;

    function end(why: 'lost' | 'closing'): void {
      if (!stop.signal.aborted) stop.abort(new ClaimEnded(why));
    }

    function seen(latest: Row<WorkTable>): void {
      const asked = latest.cancel_requested && !first.cancel_requested;
      row = latest;
      if (asked && !cancel.signal.aborted) {
        cancel.abort(new SluiceError('client_closed', 'The job was cancelled.'));
      }
    }

    async function renewOnce(): Promise<void> {
      renewal?.();
      const began = clock.monotonic();
      try {
        const latest = await renewRow(tables, kind.table, id, token, leaseMs);
        if (latest === null) return end('lost');
        expiry();
        expiry = clock.after(began + leaseMs - clock.monotonic(), () => end('lost'));
        seen(latest);
      } catch (error) {
        log.warn('a claim could not be renewed', { table: kind.table, id, error: String(error) });
      }
      if (!stop.signal.aborted) renewal = clock.after(leaseMs / 3, () => void renew());
    }

    function renew(): Promise<void> {
      renewing ??= renewOnce().finally(() => {
        renewing = null;
      });
      return renewing;
    }

    const claim: Claim<WorkTable> = {
      get row() {
        return row;
      },
      signal: stop.signal,
      cancelled: cancel.signal,
      async write(change) {
        if (stop.signal.aborted) throw stop.signal.reason;
        try {
          const latest = await writeRow(tables, kind.table, id, token, change as Parameters<typeof writeRow>[4]);
          seen(latest);
          return latest;
        } catch (error) {
          if (error instanceof ClaimEnded) end('lost');
          throw error;
        }
      },
    };

    async function turns(): Promise<void> {
      let patch: { readonly step?: string; readonly failures?: number };
      let wait = 0;
      const pause = (now: number, ms: number) => Math.round(now + ms);
      try {
        let turn = await kind.run(claim);
        while (turn !== 'done' && turn.again === 0 && !stop.signal.aborted && !cancel.signal.aborted) {
          // What failed before has gone well now.
          if (row.failures > 0) await claim.write(async () => ({ failures: 0 }));
          turn = await kind.run(claim);
        }
        if (turn === 'done') patch = { step: 'done', failures: 0 };
        else {
          wait = turn.again;
          patch = { failures: 0 };
        }
      } catch (error) {
        const reason = stop.signal.reason as ClaimEnded | undefined;
        if (reason?.why === 'lost' || (error instanceof ClaimEnded && error.why === 'lost')) {
          log.info('work was taken over by another worker', { table: kind.table, id });
          return;
        }
        if (reason !== undefined || cancel.signal.aborted) patch = {};
        else {
          const failures = row.failures + 1;
          wait = backOff(kind.retry, failures, random);
          if (error instanceof SluiceError && error.retryAfter !== null) {
            wait = Math.max(wait, Math.min(error.retryAfter * 1000, kind.retry.most));
          }
          log.warn('work failed; it is tried again', {
            table: kind.table,
            id,
            step: row.step,
            failures,
            waitMs: wait,
            error: String(error),
          });
          patch = { failures };
        }
      }
      await renewing;
      // Letting go is no work: a process that is stopping does it, too.
      await writeRow(tables, kind.table, id, token, async (_tx, latest, now) => {
        const due = pause(now, latest.cancel_requested && !first.cancel_requested ? 0 : wait);
        return { ...patch, holder: null, held_until: 0, due_at: patch.step === 'done' ? NEVER : due };
      });
    }

    renewal = clock.after(leaseMs / 3, () => void renew());
    const running: Running = { id, renew, end, done: Promise.resolve() };
    kind.running.set(id, running);
    running.done = turns()
      .catch((error: unknown) => {
        if (error instanceof ClaimEnded) return;
        // The row comes back when the lease ends.
        log.error('a claim could not be given back', { table: kind.table, id, error: String(error) });
      })
      .finally(() => {
        renewal?.();
        expiry();
        end('lost');
        kind.running.delete(id);
        look();
      });
  }

  const everyone = () => kinds.flatMap((kind) => [...kind.running.values()]);

  return {
    add(work) {
      kinds.push({
        table: work.table,
        running: new Map(),
        concurrency: work.concurrency,
        run: (claim) => work.run(claim as unknown as Parameters<typeof work.run>[0]),
        retry: work.retry ?? RETRY,
      });
    },
    start() {
      if (started || closed) return;
      looking = (async () => {
        await Promise.resolve();
        try {
          for (const { table } of kinds) {
            const mine = (holder: string) => holder.startsWith(`${node}/`) && !holder.startsWith(`${run}/`);
            const freed = await freeRows(tables, table, mine);
            if (freed > 0) log.info('work of an earlier run is taken up again', { table, rows: freed });
          }
        } catch (error) {
          log.error('work of an earlier run could not be freed; its leases will end', { error: String(error) });
        }
        looking = null;
        started = true;
        look();
      })();
    },
    wake(id) {
      if (id !== undefined) for (const one of everyone()) if (one.id === id) void one.renew();
      look();
    },
    async idle() {
      for (;;) {
        const open = everyone().map((one) => one.done);
        if (looking !== null) open.push(looking);
        if (open.length === 0) return;
        await Promise.all(open);
      }
    },
    async close() {
      closed = true;
      timer?.();
      await looking;
      const open = everyone();
      for (const one of open) one.end('closing');
      if (open.length === 0) return;
      let done = false;
      await Promise.race([
        Promise.all(open.map((one) => one.done)),
        new Promise<void>((resolve) => {
          const cancel = clock.after(closeMs, () => {
            if (!done) log.warn('work did not let go in time; its leases will end', { rows: everyone().length });
            resolve();
          });
          void Promise.all(open.map((one) => one.done)).then(cancel);
        }),
      ]);
      done = true;
    },
  };
}
