/**
 * `npm run bench:logs -- --records 1000000 [--export-rows 1000000] [--speeds shown]`: how fast records become files, what they
 * take on disk, how long every graph, page and single record takes, what memory the keeper holds, and how long exports take.
 *
 * Times that pass depend on what else the machine does, and the keeper runs at low priority. So each line has the processor
 * time of the keeper's process as well. With `--speeds shown` no time is judged; sizes and memory always are. Prints one line of
 * JSON for each promise, and ends with `logs: N passed, N failed`.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { KeeperExporter } from '../../src/keeper/exporter.ts';
import { KeptJournal } from '../../src/keeper/journal-trimmer.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { COLUMN_NAMES, measuresOf } from '../../src/resources/analytics/columns.ts';
import { GRAPHS, type Graph, SOURCES } from '../../src/resources/analytics/graphs.ts';
import { LIST_COLUMNS } from '../../src/resources/logs/rows.ts';
import { EXPORT_FORMATS, type ExportPlan } from '../../src/telemetry/log-export.ts';
import type { LogFilter, LogGroupQuery, LogPageQuery, LogSelection } from '../../src/telemetry/log-query.ts';
import { HISTORY_DAYS, logHistory } from '../support/log-history.ts';
import { startKeeper } from '../support/log-keeper.ts';
import { until, watchdog } from '../support/watchdog.ts';

const { values: options } = parseArgs({
  options: {
    records: { type: 'string', default: '100000' },
    'export-rows': { type: 'string', default: '100000' },
    speeds: { type: 'string', default: 'judged' },
  },
});
const RECORDS = Number(options.records);
const EXPORT_ROWS = Math.min(Number(options['export-rows']), RECORDS);
if (!(Number.isInteger(RECORDS) && RECORDS >= 10_000 && Number.isInteger(EXPORT_ROWS))) {
  process.stderr.write('--records must be a whole number of at least 10000, --export-rows a whole number\n');
  process.exit(2);
}
const DAY_MS = 86_400_000;
const BATCH = 50_000;
const ROUNDS = 5;
const MERGED_MS = 1_200_000;
const GOAL = { graphMs: 300, pageMs: 100, idMs: 50, bytes: 600, perSecond: 20_000, rssMb: 700 };

const watch = watchdog('logs');
const history = logHistory(RECORDS, Date.now());
const { start, end } = history;
const under = await startKeeper({ memoryMb: 512, tickMs: 60_000 });
const logsDir = join(under.dir, 'logs');
let mostRss = 0;
let passed = 0;
let failed = 0;

/** Milliseconds of processor time that the keeper's process has used, in all its threads. */
function cpuOf(pid: number | null): number {
  const text = pid === null ? '' : readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

function noteRss(): number {
  const { pid } = under.keeper;
  const text = pid === null ? '' : readFileSync(`/proc/${pid}/status`, 'utf8');
  const rss = Math.round(Number(/VmRSS:\s+(\d+)/.exec(text)?.[1] ?? 0) / 1_024);
  mostRss = Math.max(mostRss, rss);
  return rss;
}

function line(id: string, value: number, more: object, holds: boolean | null): void {
  if (holds === false) failed++;
  else if (holds) passed++;
  const told = { id, value: Number(value.toFixed(1)), ...more, ...(holds === null ? {} : { pass: holds }) };
  process.stdout.write(`${JSON.stringify(told)}\n`);
}

/** The most since the line before it. */
function memory(when: string): void {
  line(`memory of the keeper ${when}, most`, mostRss, { unit: 'MB', goal: GOAL.rssMb }, mostRss <= GOAL.rssMb);
  mostRss = 0;
}

const fast = (holds: boolean) => (options.speeds === 'shown' ? null : holds);

/** The middle one of five times. */
async function time(id: string, goal: number, run: () => Promise<unknown>): Promise<void> {
  const times: number[] = [];
  const cpu = cpuOf(under.keeper.pid);
  for (let i = 0; i < ROUNDS; i++) {
    const from = performance.now();
    await run();
    times.push(performance.now() - from);
  }
  watch.progress();
  noteRss();
  times.sort((one, other) => one - other);
  const middle = times[ROUNDS >> 1] ?? 0;
  const more = { unit: 'ms', goal, least: Math.round(times[0] ?? 0), cpu: (cpuOf(under.keeper.pid) - cpu) / ROUNDS };
  line(id, middle, more, fast(middle < goal));
}

const wide = { organisationId: 'org-a', workspaceIds: null, userId: null, keptSince: 0, erased: [] };
const whole: LogSelection = { scope: wide, from: start, to: end, where: [] };
const all: LogSelection = { ...whole, scope: { ...wide, workspaceIds: [history.largestWorkspace] } };
const only = (filter: LogFilter): LogSelection => ({ ...all, where: [filter] });

watch.phase('records to files');
await under.keeper.count(whole, 0);
const idle = noteRss();
const looks = new TestClock();
const kept = new KeptJournal({
  journal: under.journal,
  dir: join(under.dir, 'spool', 'journal'),
  keptTo: (journal) =>
    under.tables.systemRead(async (tx) => {
      const found = await tx.find('log_positions', { journal });
      return found === undefined ? null : { segment: found.segment, offset: found.position };
    }),
  wake: () => undefined,
  clock: looks,
  log: silentLog,
});
const begun = cpuOf(under.keeper.pid);
let reading = 0;
for (let at = 0; at < RECORDS; at += BATCH) {
  for (let i = at; i < Math.min(at + BATCH, RECORDS); i += 1_000) {
    const records = Array.from({ length: Math.min(1_000, RECORDS - i) }, (_, j) => history.record(i + j));
    await under.write(...records);
  }
  const from = performance.now();
  await under.keeper.flush();
  reading += performance.now() - from;
  // The process that writes a journal lets go of what is in files.
  await looks.advance(6_000);
  noteRss();
  watch.progress();
}
const perSecond = RECORDS / (reading / 1_000);
const converted = ((cpuOf(under.keeper.pid) - begun) * 1_000) / RECORDS;
line('records to files', perSecond, { unit: 'records/s', goal: GOAL.perSecond }, fast(perSecond >= GOAL.perSecond));
line('processor time of a record, without merges', converted, { unit: 'µs' }, null);

memory('while it wrote');
watch.phase('one file of each day', MERGED_MS);
const parquet = () => readdirSync(logsDir).filter((name) => name.endsWith('.parquet'));
const before = parquet().length;
await under.restart({ tickMs: 20 });
await under.keeper.count(whole, 0);
const start0 = cpuOf(under.keeper.pid);
await until(MERGED_MS, 'one file of each day', async () => {
  noteRss();
  // A keeper that has grown above its bound ends, and the next need starts another.
  under.keeper.wake();
  return parquet().length <= HISTORY_DAYS;
});
const merged = ((cpuOf(under.keeper.pid) - start0) * 1_000) / RECORDS;
line('processor time of a record, of merges', merged, { unit: 'µs', files: before }, null);
line('files of the history', parquet().length, { goal: HISTORY_DAYS }, parquet().length <= HISTORY_DAYS);
const bytes = parquet().reduce((sum, name) => sum + statSync(join(logsDir, name)).size, 0) / RECORDS;
line('bytes of a record', bytes, { goal: GOAL.bytes }, bytes <= GOAL.bytes);
const count = await under.keeper.count(whole, RECORDS);
line('records in the files', count, { goal: RECORDS }, count === RECORDS);

memory('while it merged');
watch.phase('questions');
const from = performance.now();
await under.restart({ tickMs: 60_000 });
const own = await under.keeper.count(all, RECORDS);
line('start of a keeper with its first answer', performance.now() - from, { unit: 'ms' }, null);
line('records of the largest workspace, which the questions are about', own, {}, null);

const bounds = Array.from({ length: HISTORY_DAYS + 1 }, (_, day) => start + day * DAY_MS);
/** As the route asks it, with the measures that are told by source. */
function questionOf({ shape, measures, bySource }: Graph): LogGroupQuery {
  const split = measures.filter(({ as }) => as === bySource?.of);
  const parted = SOURCES.flatMap((source) =>
    split.map((each) => ({
      ...each,
      as: `${each.as} ${source}`,
      where: [...(each.where ?? []), { column: 'source', in: [source] }],
    })),
  );
  const by = shape.as === 'values' ? [] : [{ bounds }];
  return { by: shape.as === 'points' ? by : [...by, { column: shape.by }], measures: [...measures, ...parted] };
}
const real: LogFilter = { column: 'dry_run', is: false };
for (const graph of GRAPHS) {
  const selection = { ...all, where: [real, ...(graph.where ?? [])] };
  await time(`graph ${graph.path}`, GOAL.graphMs, () => under.keeper.groups(selection, questionOf(graph)));
}
const cost: LogGroupQuery = { by: [{ bounds }], measures: [{ as: 'c', of: 'sum', column: 'cost_micros' }] };
const graphOf = (filter: LogFilter) => () => under.keeper.groups(only(filter), cost);
await time('graph cost, one end user', GOAL.graphMs, graphOf({ metadata: '_user', in: ['user-13'] }));
await time('graph cost, other metadata', GOAL.graphMs, graphOf({ metadata: 'team', in: ['team-3'] }));
const measures = measuresOf(COLUMN_NAMES);
for (const column of ['api_key_id', 'model', 'end_user']) {
  const order = { by: measures[0]?.as ?? '', descending: true };
  const query: LogGroupQuery = { by: [{ column }], measures, order, limit: 50 };
  await time(`group ${column}, every column`, GOAL.graphMs, () => under.keeper.groups(all, query));
}
const page: LogPageQuery = { columns: LIST_COLUMNS, order: 'newest', limit: 100, behind: null };
const pageOf = (filter: LogFilter, more: Partial<LogPageQuery> = {}) => {
  return () => under.keeper.page(only(filter), { ...page, ...more });
};
await time('page newest', GOAL.pageMs, pageOf(real));
await time('page oldest', GOAL.pageMs, pageOf(real, { order: 'oldest' }));
const middle = { time: start + (HISTORY_DAYS / 2) * DAY_MS, id: '' };
await time('page in the middle', GOAL.pageMs, pageOf(real, { behind: middle }));
await time('page by status', GOAL.pageMs, pageOf({ column: 'status', in: ['500'] }));
await time('page by key', GOAL.pageMs, pageOf({ column: 'api_key_id', in: ['key-31'] }));
await time('page by metadata', GOAL.pageMs, pageOf({ metadata: 'team', in: ['team-3'] }));
await time('page without a match', GOAL.pageMs, pageOf({ column: 'model', in: ['none'] }));
const { id, trace_id } = history.record(RECORDS >> 1);
await time('record by id', GOAL.idMs, () => under.keeper.find(wide, id));
const trace: LogSelection = { ...whole, where: [{ column: 'trace_id', in: [String(trace_id)] }] };
await time('page by a trace, without a time', GOAL.graphMs, () => under.keeper.page(trace, page));

memory('while it answered');
watch.phase('exports');
const plan: Omit<ExportPlan, 'format'> = {
  fields: ['id', 'trace_id', 'created_at', 'is_success', 'ai_model', 'req_units', 'res_units', 'cost', 'metadata'],
  origin: 'https://sluice.example',
  bom: false,
  behind: null,
  skip: 0,
  limit: 50_000,
  bodies: null,
};
const exporter = new KeeperExporter(under.keeper, logsDir, systemClock);
for (const format of EXPORT_FORMATS) {
  const cpu = cpuOf(under.keeper.pid);
  const since = performance.now();
  let rows = 0;
  let size = 0;
  for (let behind: ExportPlan['behind'] = null; rows < EXPORT_ROWS; ) {
    const part = await exporter.part(whole, { ...plan, format, behind });
    await part.remove();
    noteRss();
    watch.progress();
    rows += part.rows;
    size += part.bytes;
    behind = part.next;
    if (behind === null) break;
  }
  const used = { unit: 's', rows, mb: Math.round(size / 1e6), cpu: (cpuOf(under.keeper.pid) - cpu) / 1_000 };
  line(`export ${format}`, (performance.now() - since) / 1_000, used, null);
}

line('memory of an idle keeper', idle, { unit: 'MB' }, null);
memory('while it exported');
await kept.close();
await under.close();
process.stdout.write(`logs: ${passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;
