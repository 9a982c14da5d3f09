/**
 * `npm run test:clickhouse -- --python <venv>/bin/python`: the log store on ClickHouse's own engine, compared with a plain pass
 * over the same records. `--questions` says how many. README.md beside `clickhouse/engine.py` says how to install the engine.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { remoteReading } from '../../src/keeper/clickhouse/remote-logs.ts';
import { ClickHouse } from '../../src/keeper/clickhouse/store.ts';
import { TABLE } from '../../src/keeper/clickhouse/table.ts';
import { openEngine } from '../../src/keeper/engine.ts';
import { LogQueries } from '../../src/keeper/queries.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { rowOf } from '../../src/telemetry/log-columns.ts';
import { hasEngine, startEngine } from '../support/clickhouse-engine.ts';
import { sendRecords } from '../support/clickhouse-rows.ts';
import { sameAnswer } from '../support/log-answers.ts';
import { groupings, pages, records, selections } from '../support/log-questions.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({
  options: { python: { type: 'string', default: 'python3' }, runs: { type: 'string', default: '20' } },
});
if (!hasEngine(values.python)) {
  process.stdout.write(
    `skipped: ${values.python} has no chdb. server/test/slow/clickhouse/README.md says how to install it.\n`,
  );
  process.exit(0);
}
const watch = watchdog('clickhouse');
const print = (what: string, value: string | number) => process.stdout.write(`${what.padEnd(60)} ${value}\n`);
const dir = await mkdtemp(join(tmpdir(), 'sluice-clickhouse-'));
const engine = await openEngine({ memory: '256MB', threads: 2, temporary: dir });
const server = await startEngine(values.python);
const store = new ClickHouse(server.address, { ...silentLog, warn: (line) => print('warned', line) });
const between = { engine, store, dir };

async function empty(): Promise<void> {
  await store.connect().run(`TRUNCATE TABLE ${TABLE}`);
}

const coverage = { completeTo: 5, incomplete: [] };
const queries = new LogQueries({
  ...remoteReading({ store, settle: async () => coverage, log: silentLog }),
  clock: systemClock,
});

let asked = 0;
await fc.assert(
  fc.asyncProperty(
    records(60),
    fc.array(fc.tuple(selections, pages, groupings), { minLength: 5, maxLength: 10 }),
    async (all, questions) => {
      await empty();
      await sendRecords(between, all);
      const naive = new NaiveLogStore(all.map(rowOf), coverage);
      for (const [selection, page, grouping] of questions) {
        await sameAnswer(queries, naive, (each) => each.page(selection, page), { selection, page });
        await sameAnswer(queries, naive, (each) => each.groups(selection, grouping), { selection, grouping });
        await sameAnswer(queries, naive, (each) => each.count(selection, 9), selection);
        const id = all[0]?.id ?? 'none';
        await sameAnswer(queries, naive, (each) => each.find(selection.scope, id), id);
        asked += 4;
      }
      watch.progress();
    },
  ),
  { numRuns: Number(values.runs), endOnFailure: true },
);
print('random questions with the answers of a plain pass', asked);

await store.close();
await server.stop();
engine.closeSync();
await rm(dir, { recursive: true });
process.exit(0);
