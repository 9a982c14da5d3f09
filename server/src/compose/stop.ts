import type { GatewayServices } from '../gateway/services.ts';
import type { Scheduler } from '../jobs/scheduler.ts';
import { type Clock, holdFor } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Common } from './common.ts';
import type { Gateway } from './data-plane.ts';
import type { Front } from './front.ts';
import type { Spools } from './spools.ts';

/** While draining, how often connections that became idle are closed. */
const SWEEP_MS = 50;
/** How long what was cut may take to write its record. */
const CUT_MS = 2_000;
/** How often that is looked for. */
const LOOK_MS = 10;
/** At the end, how long the usage may take to reach the store. */
const SHIP_MS = 5_000;

/** How a process ends: `Running.stop` and `Running.hurry`. */
export interface Stop {
  stop(options: { readonly noticeMs: number; readonly drainMs: number }): Promise<void>;
  hurry(ms: number): void;
}

interface Parts {
  readonly front: Front;
  readonly gateway: Gateway;
  readonly spools: Spools;
  /** Null: the role is not `jobs`. */
  readonly scheduler: Scheduler | null;
}

/** Ends requests first, then background work, then the journals, then all that is open. */
export function stopOf({ clock, lifecycle }: Common, { front, gateway, spools, scheduler }: Parts): Stop {
  const { journal, settlements } = spools;
  const { promise: expired, resolve: expire } = Promise.withResolvers<void>();
  return {
    hurry(ms) {
      clock.after(ms, expire);
    },
    async stop({ noticeMs, drainMs }) {
      front.drain();
      // Others take the work over while requests still run here.
      const workEnded = scheduler?.close();
      if (noticeMs > 0) await pause(clock, noticeMs);
      const closed = closeFront(front, clock);
      clock.after(Math.max(0, drainMs - noticeMs), expire);
      await Promise.race([closed, expired]);
      await cut(gateway.services, clock);
      front.app.server.closeAllConnections();
      await closed;
      await workEnded;
      await Promise.all([journal.sync(), settlements.sync()]);
      // The next start ships the lines that are not in the store by then. Records stay in their journal.
      await Promise.race([settlements.drain(), new Promise<void>((resolve) => clock.after(SHIP_MS, resolve))]);
      await spools.logs.leave();
      await lifecycle.close();
    },
  };
}

const pause = (clock: Clock, ms: number) => new Promise<void>((resolve) => holdFor(clock, ms, resolve));

/** Takes no connection more; resolves when the last one has ended. */
async function closeFront({ app }: Front, clock: Clock): Promise<void> {
  const state = { open: true };
  // A kept-alive connection whose last request has ended would hold the server open for its idle time.
  const sweep = () => {
    app.server.closeIdleConnections();
    if (state.open) holdFor(clock, SWEEP_MS, sweep);
  };
  const closed = app.close();
  sweep();
  await closed;
  state.open = false;
}

/** Ends what still runs, and waits a moment for the records of it. */
async function cut({ inFlight }: GatewayServices, clock: Clock): Promise<void> {
  inFlight.cut(new SluiceError('out_of_service', 'Sluice is shutting down; send the request again.'));
  const until = clock.monotonic() + CUT_MS;
  while (inFlight.count > 0 && clock.monotonic() < until) await pause(clock, LOOK_MS);
}
