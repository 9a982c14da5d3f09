/**
 * `npm run bench:logs -- --records 1000000`: how fast records become files, what they take on disk, how long pages and graphs
 * take, and what memory the keeper holds. Prints a table of milliseconds.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { LogGroupQuery, LogPageQuery, LogSelection } from '../../src/telemetry/log-query.ts';
import { startKeeper } from '../support/log-keeper.ts';
import { logRecord } from '../support/log-record.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({ options: { records: { type: 'string', default: '100000' } } });
const watch = watchdog('logs');
const RECORDS = Number(values.records);
const DAYS = 30;
const DAY_MS = 86_400_000;
const end = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const start = end - DAYS * DAY_MS;
const MODELS = 60;
const uuid = (time: number, i: number) => {
  const hex = time.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${i.toString(16).padStart(12, '0')}`;
};

function record(i: number) {
  const time = start + Math.floor((i / RECORDS) * DAYS * DAY_MS);
  const failed = i % 50 === 0;
  const id = uuid(time, i);
  return logRecord(i + 1, {
    id,
    time,
    organisation_id: 'org-a',
    workspace_id: `ws-${Math.floor(((i * 7919) % 50) ** 2 / 50)}`,
    api_key_id: `key-${(i * 31) % 2000}`,
    user_id: null,
    trace_id: id,
    span_id: id.slice(-16),
    operation: 'chat',
    method: 'POST',
    path: '/v1/chat/completions',
    provider: 'openai',
    model_requested: `model-${(i * 17) % MODELS}`,
    model_answered: `model-${(i * 17) % MODELS}`,
    stream: i % 2 === 0,
    status: failed ? 500 : 200,
    outcome: failed ? 'failed' : 'ok',
    usage: {
      input: i % 4000,
      output: i % 700,
      cache_read: 0,
      cache_write: 0,
      reasoning: 0,
      audio_input: 0,
      audio_output: 0,
    },
    usage_estimated: false,
    cost_micros: i % 5000,
    latency_ms: (i * 37) % 20_000,
    ttft_ms: (i * 37) % 900,
    bytes_in: i % 9000,
    bytes_out: i % 3000,
    metadata: { _user: `user-${(i * 13) % 20_000}`, team: `team-${i % 40}` },
    cache_status: i % 10 === 0 ? 'HIT' : 'MISS',
    dry_run: false,
  });
}

const rssOf = (pid: number | null) => {
  const text = pid === null ? '' : readFileSync(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(text)?.[1] ?? 0) / 1024);
};

const under = await startKeeper({ memoryMb: 512, tickMs: 60_000 });
const { keeper } = under;
const print = (what: string, value: string) => process.stdout.write(`${what.padEnd(44)} ${value}\n`);
const median = async (run: () => Promise<unknown>) => {
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    const from = performance.now();
    await run();
    times.push(performance.now() - from);
  }
  return `${times.sort((a, b) => a - b)[2]?.toFixed(0)} ms`;
};

const scope = { organisationId: 'org-a', workspaceIds: ['ws-0'], userId: null, keptSince: 0 };
const all: LogSelection = { scope, from: start, to: end, where: [] };
await keeper.count(all, 0);
print('RSS of an idle keeper', `${rssOf(keeper.pid)} MB`);

// The journal holds 256 MB: written in pieces, each read before the next.
let reading = 0;
let most = 0;
for (let at = 0; at < RECORDS; at += 50_000) {
  for (let i = at; i < Math.min(at + 50_000, RECORDS); i += 1_000) {
    await under.write(...Array.from({ length: Math.min(1_000, RECORDS - i) }, (_, j) => record(i + j)));
  }
  const from = performance.now();
  await keeper.flush();
  reading += performance.now() - from;
  most = Math.max(most, rssOf(keeper.pid));
  watch.progress();
}
print('records to files', `${Math.round(RECORDS / (reading / 1_000))} records/s`);
const before = performance.now();
const dir = join(under.dir, 'logs');
await keeper.close();
const merged = await under.restart();
await merged.count(all, 0);
print('start of a keeper with its first answer', `${(performance.now() - before).toFixed(0)} ms`);
const bytes = readdirSync(dir)
  .filter((name) => name.endsWith('.parquet'))
  .reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
print('bytes a record', (bytes / RECORDS).toFixed(0));

const bounds = Array.from({ length: DAYS + 1 }, (_, day) => start + day * DAY_MS);
const graph = (measures: LogGroupQuery['measures']): LogGroupQuery => ({ by: [{ bounds }], measures });
const page: LogPageQuery = { columns: ['id', 'time', 'model', 'status'], order: 'newest', limit: 100, behind: null };
const w = await merged.count(all, RECORDS);
print('records of the largest workspace', String(w));
print('requests by day', await median(() => merged.groups(all, graph([{ as: 'n', of: 'count' }]))));
print('cost by day', await median(() => merged.groups(all, graph([{ as: 'c', of: 'sum', column: 'cost_micros' }]))));
const quantiles = [0.5, 0.9, 0.99].map((q) => ({ as: `p${q}`, of: 'quantile', column: 'latency_us', q }) as const);
print('latency p50, p90, p99 by day', await median(() => merged.groups(all, graph(quantiles))));
print(
  'distinct users by day',
  await median(() => merged.groups(all, graph([{ as: 'u', of: 'distinct', column: 'end_user' }]))),
);
const where = (filter: LogSelection['where'][number]) => ({ ...all, where: [filter] });
print(
  'cost by day, reserved metadata',
  await median(() => merged.groups(where({ metadata: '_user', in: ['user-13'] }), graph([]))),
);
print(
  'cost by day, other metadata',
  await median(() => merged.groups(where({ metadata: 'team', in: ['team-3'] }), graph([]))),
);
const byKey: LogGroupQuery = { by: [{ column: 'api_key_id' }], measures: quantiles, limit: 50 };
print('50 keys with their quantiles', await median(() => merged.groups(all, byKey)));
print('page, newest', await median(() => merged.page(all, page)));
print('page, by status', await median(() => merged.page(where({ column: 'status', in: ['500'] }), page)));
print('page, no match', await median(() => merged.page(where({ column: 'model', in: ['none'] }), page)));
const wide = { ...scope, workspaceIds: null };
print('one record by id', await median(() => merged.find(wide, String(record(Math.floor(RECORDS / 2)).id))));
print(
  'by a trace, without a time',
  await median(() =>
    merged.page({ ...all, scope: wide, where: [{ column: 'trace_id', in: [String(record(3).id)] }] }, page),
  ),
);
print('RSS of the keeper, most while it wrote', `${most} MB`);
print('RSS of the keeper after the questions', `${rssOf(merged.pid)} MB`);
await under.close();
