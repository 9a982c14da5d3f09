import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Blobs, Tables } from '../../store/ports.ts';

/** What the sandbox keeps its files and objects in. */
export interface SandboxParts {
  readonly tables: Tables;
  readonly blobs: Blobs;
  /** For the reading of data sets. */
  readonly clock: Clock;
  readonly log: Log;
}
