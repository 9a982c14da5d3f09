/** What can be asked of the keeper of this machine, wherever its process was started from. */
import { SluiceError } from '../kernel/errors.ts';
import type { ErasedCounts, LogEraser } from '../telemetry/log-erasure.ts';
import type {
  ErasedLogs,
  LogArrivalQuery,
  LogArrivals,
  LogGroupQuery,
  LogGroups,
  LogPage,
  LogPageQuery,
  LogRow,
  LogScope,
  LogSelection,
  LogStore,
} from '../telemetry/log-query.ts';
import type { KeeperState } from './keeper-options.ts';

/** `resting`: not needed. `failing`: it died and is started again. `missing`: its engine does not load on this machine. */
export type LogKeeperStatus = 'resting' | 'running' | 'failing' | 'missing';

export interface KeeperProcessState extends KeeperState {
  readonly rssMb: number;
  /** Requests whose bodies wait for their chunk, and those that were given up. */
  readonly bodies: { readonly waiting: number; readonly lost: number };
  /** Why the store elsewhere takes and answers nothing, a line that says what to do; null: it does. Absent: there is none. */
  readonly away?: string | null;
}

export interface KeeperHealth {
  readonly status: LogKeeperStatus;
  /** How often it died since the start. */
  readonly restarts: number;
  /** Records that are missing between those it has read, since the start. */
  readonly gaps: number;
  /** Of its process; null unless it runs and answers. */
  readonly state: KeeperProcessState | null;
}

/** Each question is `unavailable` while the keeper is away. */
export abstract class KeeperClient implements LogStore, LogEraser {
  /** Asks the keeper's process; `name` is one of the calls that `process.ts` answers. */
  abstract ask(name: string, ...args: readonly unknown[]): Promise<unknown>;

  /** There are records for it: starts it where it does not run. */
  abstract wake(): void;

  /** Does not start it. */
  abstract health(): Promise<KeeperHealth>;

  async page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    return (await this.ask('page', selection, query)) as LogPage;
  }

  async groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    return (await this.ask('groups', selection, query)) as LogGroups;
  }

  async arrived(selection: LogSelection, query: LogArrivalQuery): Promise<LogArrivals> {
    return (await this.ask('arrived', selection, query)) as LogArrivals;
  }

  async count(selection: LogSelection, most: number): Promise<number> {
    return (await this.ask('count', selection, most)) as number;
  }

  async find(scope: LogScope, id: string): Promise<LogRow | null> {
    return (await this.ask('find', scope, id)) as LogRow | null;
  }

  /** Resolves when everything that is in the journals now is in files. */
  async flush(): Promise<void> {
    await this.ask('flush');
  }

  async erase(organisationId: string, erased: ErasedLogs): Promise<ErasedCounts> {
    return (await this.ask('erase', organisationId, erased)) as ErasedCounts;
  }

  async hand(erased: ErasedLogs): Promise<void> {
    await this.ask('hand', erased);
  }

  async eraseForAll(organisationId: string, erased: ErasedLogs): Promise<ErasedCounts> {
    return (await this.ask('eraseForAll', organisationId, erased)) as ErasedCounts;
  }

  async isClear(before: number): Promise<boolean> {
    return (await this.ask('isClear', before)) === true;
  }

  /** Removes files whose records are all from before a time (milliseconds since the epoch); answers how many records. */
  async forgetBefore(time: number): Promise<number> {
    return (await this.ask('forgetBefore', time)) as number;
  }
}

/** @param retryAfter seconds; null where waiting does not help */
export function keeperAway(retryAfter: number | null): SluiceError {
  return new SluiceError('unavailable', 'The logs cannot be read right now. Try again later.', { retryAfter });
}
