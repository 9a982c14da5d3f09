/** A store of rows in memory whose answers are compared with those of ClickHouse's engine (`npm run test:clickhouse`). */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { remoteReading } from '../../src/keeper/clickhouse/remote-logs.ts';
import { ClickHouse, type LogStoreAddress } from '../../src/keeper/clickhouse/store.ts';
import { TABLE } from '../../src/keeper/clickhouse/table.ts';
import { openEngine } from '../../src/keeper/engine.ts';
import { LogQueries } from '../../src/keeper/queries.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { LOG_COLUMNS } from '../../src/telemetry/log-columns.ts';
import type {
  LogGroupQuery,
  LogGroups,
  LogPage,
  LogPageQuery,
  LogRow,
  LogScope,
  LogSelection,
  LogStore,
} from '../../src/telemetry/log-query.ts';
import { type Between, sendRows } from './clickhouse-rows.ts';
import { sameAnswer } from './log-answers.ts';
import { NaiveLogStore } from './naive-log-store.ts';

/** A variable that names the engine, as JSON; its table is emptied. Only one test file may use it at a time. */
export const ENGINE = 'SLUICE_TEST_CLICKHOUSE';

const NAMES = LOG_COLUMNS.map(({ name }) => name);

export class ComparedLogStore extends NaiveLogStore {
  #between: Promise<Between> | null = null;
  #sent = '';
  #turn: Promise<unknown> = Promise.resolve();

  override page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    return this.#same((store) => store.page(selection, query), [selection, query]);
  }

  override groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    return this.#same((store) => store.groups(selection, query), [selection, query]);
  }

  override count(selection: LogSelection, most: number): Promise<number> {
    return this.#same((store) => store.count(selection, most), [selection, most]);
  }

  override find(scope: LogScope, id: string): Promise<LogRow | null> {
    return this.#same((store) => store.find(scope, id), [scope, id]);
  }

  async #same<T>(ask: (store: LogStore) => Promise<T>, about: unknown): Promise<T> {
    const work = async () => {
      this.#between ??= open();
      const between = await this.#between;
      const text = JSON.stringify(this.rows);
      if (text !== this.#sent) {
        await between.store.connect().run(`TRUNCATE TABLE ${TABLE}`);
        await sendRows(between, this.rows);
        this.#sent = text;
      }
      const settle = async () => this.coverage;
      const reading = remoteReading({ store: between.store, settle, log: silentLog });
      // A stored row has every column.
      const whole = this.rows.map((row) => Object.fromEntries(NAMES.map((name) => [name, row[name] ?? null])));
      const naive = new NaiveLogStore(whole, this.coverage);
      return sameAnswer(naive, new LogQueries({ ...reading, clock: systemClock }), ask, about);
    };
    const answer = this.#turn.then(work, work);
    this.#turn = answer.catch(() => undefined);
    return answer;
  }
}

async function open(): Promise<Between> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-compared-'));
  const address = JSON.parse(process.env[ENGINE] ?? '{}') as LogStoreAddress;
  const engine = await openEngine({ memory: '128MB', threads: 1, temporary: dir });
  return { engine, store: new ClickHouse(address, silentLog), dir };
}
