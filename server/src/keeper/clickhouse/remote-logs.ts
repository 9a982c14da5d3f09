/** Questions where ClickHouse has the records: what is written by now goes there first, and what comes newly is followed here. */
import type {
  LogArrivalQuery,
  LogArrivals,
  LogCoverage,
  LogGroupQuery,
  LogGroups,
  LogPage,
  LogPageQuery,
  LogRow,
  LogScope,
  LogSelection,
  LogStore,
} from '../../telemetry/log-query.ts';
import { LogQueries, type QueryParts } from '../queries.ts';
import { clickHouse } from './dialect.ts';
import type { ClickHouse } from './store.ts';
import { TABLE } from './table.ts';

export interface RemoteLogsOptions extends Pick<QueryParts, 'clock' | 'log'> {
  readonly store: ClickHouse;
  /** Of the records of this machine that are not in ClickHouse. */
  readonly local: LogQueries;
  /** Sends what waits, for a moment; answers which records are in ClickHouse by then. */
  readonly settle: () => Promise<LogCoverage>;
}

/** What questions and exports read, instead of files. */
export function remoteReading({ store, settle, log }: Pick<RemoteLogsOptions, 'store' | 'settle' | 'log'>) {
  return {
    dialect: clickHouse,
    connect: async () => store.connect(),
    pin: async () => {
      await store.ready();
      const coverage = await settle();
      return {
        ...coverage,
        files: [],
        tails: [TABLE],
        records: Number.POSITIVE_INFINITY,
        release: () => undefined,
      };
    },
    damaged: async () => false,
    log,
  } satisfies Omit<QueryParts, 'clock'>;
}

export class RemoteLogs implements LogStore {
  readonly #local: LogQueries;
  readonly #remote: LogQueries;

  constructor({ clock, local, ...reading }: RemoteLogsOptions) {
    this.#local = local;
    this.#remote = new LogQueries({ ...remoteReading(reading), clock });
  }

  /** Questions under way. */
  get running(): number {
    return this.#local.running + this.#remote.running;
  }

  page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    return this.#remote.page(selection, query);
  }

  groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    return this.#remote.groups(selection, query);
  }

  count(selection: LogSelection, most: number): Promise<number> {
    return this.#remote.count(selection, most);
  }

  arrived(selection: LogSelection, query: LogArrivalQuery): Promise<LogArrivals> {
    return this.#local.arrived(selection, query);
  }

  /** A record that has just come is here, whether ClickHouse is there or not. */
  async find(scope: LogScope, id: string): Promise<LogRow | null> {
    return (await this.#local.find(scope, id)) ?? this.#remote.find(scope, id);
  }
}
