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
  let closed = false;
  let timer: (() => void) | null = null;
  let renewal: (() => void) | null = null;
  let lapse: (() => void) | null = null;
  let stop: AbortController | null = null;
  let turn: Promise<void> = Promise.resolve();
  let renewing: Promise<void> = Promise.resolve();

  /**
   * The lease is ours for as long as it was asked for, counted from before it was asked. Then another may have it, also while the
   * store has not answered a renewal yet.
   */
  function hold(leading: AbortController, began: number): void {
    lapse?.();
    const leftMs = Math.max(0, began + leaseMs - clock.monotonic());
    lapse = clock.after(leftMs, () => leading.abort(new Error('the lease has ended')));
  }

  function renewLater(leading: AbortController, holder: string): void {
    renewal = clock.after(leaseMs / 3, () => {
      renewing = renew(leading, holder);
    });
  }

  async function renew(leading: AbortController, holder: string): Promise<void> {
    const began = clock.monotonic();
    try {
      const ours = await takeLease(tables, name, holder, leaseMs);
      // It came too late: what it took is free for the next.
      if (leading.signal.aborted) return ours ? await giveLease(tables, name, holder) : undefined;
      if (!ours) return leading.abort(new Error('the lease was lost'));
      hold(leading, began);
    } catch (error) {
      log.warn('a lease could not be renewed', { name, error: String(error) });
    }
    if (!leading.signal.aborted) renewLater(leading, holder);
  }

  async function once(): Promise<void> {
    const began = clock.monotonic();
    // Of this turn alone, so that a late renewal of an earlier one touches nothing of it.
    const holder = `${options.node}/${base62(12)}`;
    if (!(await takeLease(tables, name, holder, leaseMs))) return;
    const leading = new AbortController();
    try {
      if (closed) return;
      stop = leading;
      hold(leading, began);
      renewLater(leading, holder);
      await lead(leading.signal);
    } finally {
      renewal?.();
      lapse?.();
      leading.abort(new Error('the leader has finished'));
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
      await renewing;
    },
  };
}
