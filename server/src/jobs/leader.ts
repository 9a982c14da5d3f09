/** One leader among all nodes for work that only one may do: a row in `leases`, renewed while it is held. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Tables } from '../store/ports.ts';

export interface LeaderOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  readonly node: string;
  /** What is led, `key-rotation`. */
  readonly name: string;
  /**
   * Called each time this process becomes leader; the signal is aborted when it is no more. When it resolves, the
   * leadership is given up and taken again after `everyMs` by whoever comes first.
   */
  readonly lead: (signal: AbortSignal) => Promise<void>;
  readonly everyMs: number;
  readonly leaseMs?: number;
}

/** Takes the lease when it is free, has ended or is ours already. */
export async function takeLease(tables: Tables, name: string, holder: string, leaseMs: number): Promise<boolean> {
  const now = await tables.now();
  try {
    return await tables.systemWrite(async (tx) => {
      const lease = await tx.find('leases', { name });
      if (lease === undefined) {
        await tx.insert('leases', { name, holder, expires_at: now + leaseMs });
        return true;
      }
      if (lease.holder !== holder && lease.expires_at > now) return false;
      const patch = { holder, expires_at: now + leaseMs };
      return (await tx.update('leases', { name, holder: lease.holder, expires_at: lease.expires_at }, patch)) === 1;
    });
  } catch (error) {
    if (error instanceof SluiceError && error.kind === 'conflict') return false;
    throw error;
  }
}

async function giveLease(tables: Tables, name: string, holder: string): Promise<void> {
  await tables.systemWrite((tx) => tx.update('leases', { name, holder }, { expires_at: 0 }));
}

export function startLeader(options: LeaderOptions): Closable {
  const { tables, clock, log, name, lead, everyMs } = options;
  const leaseMs = options.leaseMs ?? 30_000;
  const holder = `${options.node}/${base62(12)}`;
  let closed = false;
  let timer: (() => void) | null = null;
  let renewal: (() => void) | null = null;
  let stop: AbortController | null = null;
  let turn: Promise<void> = Promise.resolve();

  async function renew(heldUntil: number): Promise<void> {
    const began = clock.monotonic();
    let until = heldUntil;
    try {
      if (!(await takeLease(tables, name, holder, leaseMs))) return stop?.abort(new Error('the lease was lost'));
      until = began + leaseMs;
    } catch (error) {
      log.warn('a lease could not be renewed', { name, error: String(error) });
      if (clock.monotonic() >= heldUntil) return stop?.abort(error);
    }
    if (stop !== null && !stop.signal.aborted) renewal = clock.after(leaseMs / 3, () => void renew(until));
  }

  async function once(): Promise<void> {
    const began = clock.monotonic();
    if (!(await takeLease(tables, name, holder, leaseMs)) || closed) return;
    stop = new AbortController();
    renewal = clock.after(leaseMs / 3, () => void renew(began + leaseMs));
    try {
      await lead(stop.signal);
    } finally {
      renewal?.();
      stop.abort(new Error('the leader has finished'));
      stop = null;
      await giveLease(tables, name, holder);
    }
  }

  function begin(): void {
    turn = once()
      .catch((error: unknown) =>
        log.error('work of a leader failed; it is tried again', { name, error: String(error) }),
      )
      .finally(() => {
        if (!closed) timer = clock.after(everyMs, begin);
      });
  }

  begin();
  return {
    async close() {
      closed = true;
      timer?.();
      stop?.abort(new Error('the process is stopping'));
      await turn;
      if (stop !== null) await giveLease(tables, name, holder);
    },
  };
}
