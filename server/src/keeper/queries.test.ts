import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { comparable, groupings, pages, records, selections } from '../../test/support/log-questions.ts';
import { logRecord } from '../../test/support/log-record.ts';
import { NaiveLogStore } from '../../test/support/naive-log-store.ts';
import { TestClock } from '../kernel/clock.ts';
import { type LogFields, silentLog } from '../kernel/log.ts';
import type { StoredLog } from '../store/ports.ts';
import { rowOf } from '../telemetry/log-columns.ts';
import type { LogScope, LogSelection, LogStore } from '../telemetry/log-query.ts';
import { type Connection, type Engine, literal, openEngine, recordsIn, tableOf } from './engine.ts';
import { LogQueries, type PinnedFile } from './queries.ts';

let dir: string;
let engine: Engine;
let connection: Connection;
let made = 0;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-queries-'));
  engine = await openEngine({ memory: '256MB', threads: 2, temporary: dir });
  connection = await engine.connect();
});
afterAll(async () => {
  connection.closeSync();
  engine.closeSync();
  await rm(dir, { recursive: true });
});

/** An engine over these records, of which some are in files and the rest in a table. */
async function storeOf(all: readonly StoredLog[], errors: LogFields[] = []) {
  const name = `tail_${++made}`;
  await connection.run(tableOf(name));
  const files: PinnedFile[] = [];
  const load = async (part: readonly StoredLog[]): Promise<string> => {
    const path = join(dir, `${made}-${files.length}.ndjson`);
    await writeFile(path, part.map((record) => `${JSON.stringify(record)}\n`).join(''));
    return path;
  };
  const sizes = [0, Math.floor(all.length / 3), Math.floor(all.length / 2)];
  for (let i = 0; i < 2; i++) {
    const part = all.slice(sizes[i], sizes[i + 1]);
    if (part.length === 0) continue;
    const path = join(dir, `${made}-${i}.parquet`);
    await connection.run(`COPY (${recordsIn(await load(part))}) TO ${literal(path)} (FORMAT parquet)`);
    const times = part.map(({ time }) => time);
    files.push({ path, rows: part.length, minTime: Math.min(...times), maxTime: Math.max(...times) });
  }
  const rest = all.slice(sizes[2]);
  if (rest.length > 0) await connection.run(`INSERT INTO ${name} ${recordsIn(await load(rest))}`);
  const clock = new TestClock();
  const queries = new LogQueries({
    connect: () => engine.connect(),
    pin: async () => ({ files, tails: [name], completeTo: 5, incomplete: [], release: () => undefined }),
    damaged: async () => false,
    clock,
    log: { debug() {}, info() {}, warn() {}, error: (message, fields) => errors.push({ message, ...fields }) },
  });
  return { queries, naive: new NaiveLogStore(all.map(rowOf), { completeTo: 5, incomplete: [] }), clock };
}

async function same<T>(one: LogStore, other: LogStore, ask: (store: LogStore) => Promise<T>): Promise<void> {
  expect(comparable(await ask(one))).toEqual(comparable(await ask(other)));
}

describe('questions about records', () => {
  it('are answered as a plain pass over the same records answers them, in files and outside', async () => {
    await fc.assert(
      fc.asyncProperty(
        records(60),
        fc.array(fc.tuple(selections, pages, groupings), { minLength: 5, maxLength: 10 }),
        async (all, questions) => {
          const { queries, naive } = await storeOf(all);
          for (const [selection, page, grouping] of questions) {
            await same(queries, naive, (store) => store.page(selection, page));
            await same(queries, naive, (store) => store.groups(selection, grouping));
            await same(queries, naive, (store) => store.count(selection, 9));
            const id = all[0]?.id ?? 'none';
            await same(queries, naive, (store) => store.find(selection.scope, id));
          }
          queries.close();
        },
      ),
      { numRuns: 8 },
    );
  });

  const scope: LogScope = { organisationId: 'org-a', workspaceIds: ['ws-a1'], userId: null, keptSince: 0, erased: [] };
  const all: LogSelection = { scope, from: 0, to: 10_000, where: [] };
  const page = { columns: ['id', 'status'], order: 'newest', limit: 2, behind: null } as const;

  it('a page is followed by the next one, until all records were shown once', async () => {
    const { queries } = await storeOf(Array.from({ length: 7 }, (_, i) => logRecord(i, { time: 500 })));
    const ids: unknown[] = [];
    for (let behind = null; ; ) {
      const { rows, next } = await queries.page(all, { ...page, behind });
      ids.push(...rows.map(({ id }) => id));
      behind = next as never;
      if (next === null) break;
    }
    expect(ids).toEqual([6, 5, 4, 3, 2, 1, 0].map((i) => `id-${i}`));
  });

  it('a column, a measure or an order that does not exist is refused before anything is asked', async () => {
    const { queries } = await storeOf([]);
    const bad = 'status" FROM x --';
    await expect(queries.page(all, { ...page, columns: [bad] })).rejects.toThrow(TypeError);
    await expect(queries.page({ ...all, where: [{ column: bad, known: true }] }, page)).rejects.toThrow(TypeError);
    const group = (query: object) => queries.groups(all, { by: [], measures: [], ...query });
    await expect(group({ by: [{ column: bad }] })).rejects.toThrow(TypeError);
    await expect(group({ measures: [{ as: 'x', of: 'sum', column: 'model' }] })).rejects.toThrow(TypeError);
    await expect(group({ by: [{ column: 'model' }], order: { by: 'x', descending: true } })).rejects.toThrow(TypeError);
  });

  /** Questions that end when they are let go; `running` has their organisations, in the order in which they began. */
  async function heldStore() {
    const { clock } = await storeOf([logRecord(1)]);
    const tails = [`tail_${made}`];
    const running: string[] = [];
    const goes: (() => void)[] = [];
    const queries = new LogQueries({
      connect: () => engine.connect(),
      pin: async (from) => {
        running.push(`org-${from}`);
        await new Promise<void>((resolve) => goes.push(resolve));
        return { files: [], tails, completeTo: 0, incomplete: [], release: () => undefined };
      },
      damaged: async () => false,
      clock,
      log: silentLog,
    });
    const ask = (organisation: number) =>
      queries.count({ ...all, from: organisation, scope: { ...scope, organisationId: `org-${organisation}` } }, 1);
    /** Lets those that have begun end, until none begins any more. */
    const letGo = async (asked: readonly Promise<unknown>[]) => {
      let ended = false;
      const all = Promise.allSettled(asked).then(() => {
        ended = true;
      });
      while (!ended) {
        for (const go of goes.splice(0)) go();
        await new Promise((resolve) => setImmediate(resolve));
      }
      await all;
    };
    return { queries, clock, running, ask, letGo };
  }

  it('of a page of the console, a list with its total and six graphs, are all answered, two at once', async () => {
    const { queries, running, ask, letGo } = await heldStore();
    const asked = Array.from({ length: 8 }, () => ask(1));
    await new Promise((resolve) => setImmediate(resolve));
    expect([running.length, queries.running]).toEqual([2, 2]);
    await letGo(asked);
    expect(await Promise.all(asked)).toEqual(Array(8).fill(0));
    expect([running.length, queries.running]).toEqual([8, 0]);
  });

  it('of one organisation never hold up those of another, however many it asks', async () => {
    const { queries, running, ask, letGo } = await heldStore();
    const many = Array.from({ length: 50 }, () => ask(1));
    const second = ask(2);
    const third = ask(3);
    const fourth = ask(4);
    await new Promise((resolve) => setImmediate(resolve));
    expect(running).toEqual(['org-1', 'org-1', 'org-2', 'org-3']);
    expect(queries.running).toBe(4);
    await letGo([...many, second, third, fourth]);
    expect(running.indexOf('org-4')).toBeLessThan(6);
    expect(running).toHaveLength(53);
  });

  it('that are too many, or wait too long, are sent away with a time to try again', async () => {
    const { clock, running, ask, letGo } = await heldStore();
    const began = [ask(1), ask(1)];
    const waiting = Array.from({ length: 64 }, () => ask(1));
    const late = expect(Promise.allSettled(waiting)).resolves.toEqual(
      Array(64).fill({ status: 'rejected', reason: expect.objectContaining({ kind: 'throttled', retryAfter: 1 }) }),
    );
    await expect(ask(1)).rejects.toMatchObject({ kind: 'throttled', retryAfter: 1 });
    await clock.advance(5_001);
    await late;
    expect(running).toHaveLength(2);
    await letGo(began);
    const next = ask(1);
    await letGo([next]);
    expect(running).toHaveLength(3);
  });

  it('a range above 400 days and more than 10,000 groups are refused', async () => {
    const { queries } = await storeOf([]);
    await expect(async () => queries.count({ ...all, to: 401 * 86_400_000 }, 1)).rejects.toMatchObject({
      kind: 'validation',
    });
  });

  it('a question that takes above five seconds ends with 503, and the next one is answered', async () => {
    const { clock } = await storeOf([logRecord(1)]);
    await connection.run(`CREATE VIEW slow AS SELECT t.* FROM tail_${made} t, range(1_000_000_000_000)`);
    const tails = ['slow'];
    const queries = new LogQueries({
      connect: () => engine.connect(),
      pin: async () => ({ files: [], tails, completeTo: 0, incomplete: [], release: () => undefined }),
      damaged: async () => false,
      clock,
      log: silentLog,
    });
    const slow = queries.groups(all, { by: [{ column: 'operation' }], measures: [] });
    const ended = expect(slow).rejects.toMatchObject({ kind: 'unavailable', retryAfter: 5 });
    await new Promise((resolve) => setTimeout(resolve, 20));
    await clock.advance(5_001);
    await ended;
    tails[0] = `tail_${made}`;
    expect(await queries.count(all, 9)).toBe(1);
  });

  it('an answer that took in a record of another organisation is refused and logged, whichever way it came', async () => {
    const errors: LogFields[] = [];
    const { queries } = await storeOf([logRecord(1)], errors);
    // The first condition of each statement, the tenant's own, is switched off.
    const open = await engine.connect();
    const leaky: Connection = {
      run: (sql, values) => open.run(sql, values),
      runAndReadAll: (sql, values) => open.runAndReadAll(sql.replaceAll('"organisation_id" = $', "'' <> $"), values),
      stream: (sql, values) => open.stream(sql, values),
      interrupt: () => open.interrupt(),
      closeSync: () => open.closeSync(),
    };
    await connection.run(`UPDATE tail_${made} SET organisation_id = 'org-x'`);
    const store = new LogQueries({
      connect: async () => leaky,
      pin: async () => ({
        files: [],
        tails: [`tail_${made}`],
        completeTo: 0,
        incomplete: [],
        release: () => undefined,
      }),
      damaged: async () => false,
      clock: new TestClock(),
      log: { debug() {}, info() {}, warn() {}, error: (message, fields) => errors.push({ message, ...fields }) },
    });
    const internal = { kind: 'internal' };
    await expect(store.page(all, page)).rejects.toMatchObject(internal);
    await expect(store.count(all, 9)).rejects.toMatchObject(internal);
    await expect(store.find(scope, 'id-1')).rejects.toMatchObject(internal);
    for (const by of [[], [{ column: 'model' }]]) {
      await expect(store.groups(all, { by, measures: [] })).rejects.toMatchObject(internal);
    }
    expect(errors.map(({ organisation_id, records: count }) => [organisation_id, count])).toEqual(
      Array(5).fill(['org-a', 1]),
    );
    expect(await queries.count(all, 9)).toBe(0);
  });
});
