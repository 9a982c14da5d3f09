/**
 * A part of `npm run test:logs`: every answer about records equals that of a plain pass over the same records in memory. Random
 * records of a week, half of them in files and half in none, then all in files; random pages, groups, counts and look-ups of
 * random scopes and filters, every graph and every list of groups.
 */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { COLUMN_NAMES, DIMENSIONS, measuresOf } from '../../src/resources/analytics/columns.ts';
import { GRAPHS } from '../../src/resources/analytics/graphs.ts';
import type { StoredLog } from '../../src/store/ports.ts';
import { rowOf } from '../../src/telemetry/log-columns.ts';
import type { LogGroupKey, LogGroupQuery, LogSelection, LogStore } from '../../src/telemetry/log-query.ts';
import { recent, startKeeper } from '../support/log-keeper.ts';
import { comparable, groupings, numbered, pages, record, SPAN_MS, selections } from '../support/log-questions.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';
import { until, type Watchdog } from '../support/watchdog.ts';

/** One millisecond of the random records and questions is ten minutes here: they are of a week. */
const UNIT_MS = 600_000;
const DAY_MS = 86_400_000;
const LOADED_MS = 300_000;
const FILES = 10;
const FAULTS_SHOWN = 5;

export interface AnswersOptions {
  readonly records: number;
  /** Of each of the two states of the files. */
  readonly questions: number;
  readonly seed: number;
  readonly watch: Watchdog;
}

interface Question {
  readonly name: string;
  readonly ask: (store: LogStore) => Promise<unknown>;
  /** What is asked, to be read. */
  readonly of: unknown;
}

const begin = Math.floor(Date.now() / DAY_MS) * DAY_MS - SPAN_MS * UNIT_MS;
const at = (time: number): number => begin + time * UNIT_MS;

const stretched = ({ scope, from, to, where }: LogSelection): LogSelection => ({
  scope: {
    ...scope,
    keptSince: scope.keptSince === 0 ? 0 : at(scope.keptSince),
    erased: scope.erased.map((one) => ({ ...one, before: at(one.before) })),
  },
  from: at(from),
  to: at(to),
  where,
});
const stretchedKey = (key: LogGroupKey): LogGroupKey => ('bounds' in key ? { bounds: key.bounds.map(at) } : key);

const questions: fc.Arbitrary<Question> = fc.oneof(
  fc.tuple(selections, pages).map(([selection, page]) => {
    const behind = page.behind && { ...page.behind, time: at(page.behind.time) };
    const [asked, query] = [stretched(selection), { ...page, behind }];
    const ask = async (store: LogStore) => {
      const { rows, next } = await store.page(asked, query);
      return { rows, next };
    };
    return { name: 'page', ask, of: { asked, query } };
  }),
  fc
    .tuple(selections, groupings)
    .map(([selection, grouping]) =>
      grouped('groups', stretched(selection), { ...grouping, by: grouping.by.map(stretchedKey) }),
    ),
  fc.tuple(selections, fc.nat(2_000)).map(([selection, most]) => {
    const asked = stretched(selection);
    return { name: 'count', ask: (store: LogStore) => store.count(asked, most), of: { asked, most } };
  }),
  fc.tuple(selections, fc.nat(99)).map(([{ scope }, i]) => {
    const id = `${(i * 7) % 10}-${i}`;
    return { name: 'find', ask: (store: LogStore) => store.find(scope, id), of: { scope, id } };
  }),
);

function grouped(name: string, asked: LogSelection, query: LogGroupQuery): Question {
  const ask = async (store: LogStore) => {
    const { groups, total, summary, approximate } = await store.groups(asked, query);
    return { groups, total, summary, approximate };
  };
  return { name, ask, of: { asked, query } };
}

/** Every graph and every list of groups with every column, each of one of the selections. */
function fixed(given: readonly LogSelection[]): Question[] {
  const bounds = Array.from({ length: 8 }, (_, day) => begin + day * DAY_MS);
  const graphs = GRAPHS.map(({ path, shape, measures, where = [] }) => {
    const by =
      shape.as === 'points' ? [{ bounds }] : [...(shape.as === 'parts' ? [{ bounds }] : []), { column: shape.by }];
    return { name: `graph ${path}`, where, query: { by, measures } };
  });
  const measures = measuresOf(COLUMN_NAMES);
  const lists = Object.values(DIMENSIONS).map(({ column }) => ({
    name: `groups of ${column}`,
    where: [],
    query: { by: [{ column }], measures, order: { by: measures[0]?.as ?? '', descending: true }, limit: 50 },
  }));
  return [...graphs, ...lists].map(({ name, where, query }, i) => {
    const selection = stretched(given[i % given.length] as LogSelection);
    return grouped(name, { ...selection, where: [...selection.where, ...where] }, query);
  });
}

/** True when all answers were the same. */
export async function answers({ records, questions: count, seed, watch }: AnswersOptions): Promise<boolean> {
  const began = performance.now();
  watch.phase(`answers: ${records} records of seed ${seed}`, LOADED_MS);
  const all: readonly StoredLog[] = numbered(
    fc.sample(record, { numRuns: records, seed }).map((each) => ({ ...each, time: at(each.time) })),
  );
  const under = await startKeeper({ memoryMb: 512, flushMs: LOADED_MS * 10 });
  const naive = new NaiveLogStore(all.map((each) => rowOf(each)));
  const half = records >> 1;
  const write = async (from: number, to: number) => {
    for (let i = from; i < to; i += 1_000) await under.write(...all.slice(i, Math.min(i + 1_000, to)));
    watch.progress();
  };
  for (let i = 0; i < FILES; i++) {
    await write(Math.floor((half * i) / FILES), Math.floor((half * (i + 1)) / FILES));
    await under.keeper.flush();
  }
  await write(half, records);
  const tail = async () => (await under.keeper.health()).state?.tail;
  under.keeper.wake();
  await until(LOADED_MS, 'half of the records to be in no file', async () => (await tail()) === records - half);

  let asked = 0;
  const faults: string[] = [];
  const compare = async (some: readonly Question[]) => {
    for (const { name, ask, of } of some) {
      asked++;
      const [one, other] = [comparable(await ask(under.keeper)), comparable(await ask(naive))];
      if (!isDeepStrictEqual(one, other))
        faults.push(JSON.stringify({ name, of, kept: one, plain: other }).slice(0, 4_000));
      watch.progress();
    }
  };
  const state = async (name: string, ofSeed: number) => {
    watch.phase(`answers: ${name}`);
    const given = fc.sample(selections, { numRuns: 50, seed: ofSeed });
    await compare(fixed([stretchless, ...given]));
    await compare(fc.sample(questions, { numRuns: count, seed: ofSeed }));
  };
  await state('half of the records in no file', seed);
  await under.keeper.flush();
  await state('all records in files', seed + 1);
  const inFiles = await under.keeper.count({ ...recent(), from: begin, scope: { ...recent().scope } }, records);
  await under.close();

  const told = {
    id: 'answers that differ',
    value: faults.length,
    goal: 0,
    pass: faults.length === 0,
    asked,
    records,
    seed,
  };
  const seconds = Math.round((performance.now() - began) / 1_000);
  process.stdout.write(`${JSON.stringify({ ...told, of_org_a: inFiles, seconds })}\n`);
  for (const fault of faults.slice(0, FAULTS_SHOWN)) process.stdout.write(`${fault}\n`);
  return faults.length === 0 && inFiles > 0;
}

/** Everything of one organisation. */
const stretchless: LogSelection = {
  scope: { organisationId: 'org-a', workspaceIds: null, userId: null, keptSince: 0, erased: [] },
  from: 0,
  to: SPAN_MS,
  where: [],
};
