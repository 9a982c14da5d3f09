import type { Config } from '../config.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Lifecycle } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { Notes } from '../kernel/notes.ts';
import type { Counters, Feed } from '../store/ports.ts';
import type { AccessLog } from '../telemetry/access-log.ts';
import type { Metrics } from '../telemetry/metrics/metrics.ts';
import type { MetricsChannel } from '../telemetry/metrics/workers.ts';

/** One process among those that share the port. */
export interface WorkerRole {
  /** From 1; the first one makes the first run and adopts what processes that are no more have left behind. */
  readonly index: number;
  /** What the primary process holds for all; null when this process is alone. */
  readonly shared: { readonly counters: Counters; readonly feed: Feed } | null;
  /** To the primary process, for the metrics of all; null when this process is alone. */
  readonly primary: MetricsChannel | null;
}

/** What every part of the composition is given. */
export interface Common {
  readonly config: Config;
  readonly log: Log;
  readonly notes: Notes;
  /** The machine's time. */
  readonly clock: Clock;
  /** Closes what the parts open, newest first. */
  readonly lifecycle: Lifecycle;
  readonly worker: WorkerRole;
  /** Of Sluice, as in its package. */
  readonly version: string;
  /** Null: no request leaves a line. */
  readonly accessLog: AccessLog | null;
  readonly metrics: Metrics;
}
