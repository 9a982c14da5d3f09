/** Answers questions of `telemetry/log-query.ts` over the files and tables that the keeper holds. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { Slots } from '../kernel/slots.ts';
import { LOG_COLUMNS } from '../telemetry/log-columns.ts';
import {
  type LogArrivalQuery,
  type LogArrivals,
  type LogCoverage,
  type LogGroup,
  type LogGroupQuery,
  type LogGroups,
  type LogPage,
  type LogPageQuery,
  type LogRow,
  type LogScope,
  type LogSelection,
  type LogStore,
  type LogValue,
  MOST_DAYS,
} from '../telemetry/log-query.ts';
import { type Connection, literal, NO_ROWS, rowsOf, rowWith } from './engine.ts';
import {
  arrivalsStatement,
  countStatement,
  type Dialect,
  duckDb,
  findStatement,
  groupsStatement,
  PROOF,
  pageStatement,
  rowsStatement,
} from './log-sql.ts';

export interface PinnedFile {
  readonly path: string;
  /** Milliseconds since the epoch; both belong to the range. */
  readonly minTime: number;
  readonly maxTime: number;
  readonly rows: number;
}

/** What one question reads: it stays until it is released. */
export interface Pinned extends LogCoverage {
  readonly files: readonly PinnedFile[];
  /** Tables of records that are in no file yet. */
  readonly tails: readonly string[];
  /** Records that there may be; absent: those of the files. */
  readonly records?: number;
  /** The files are those of all nodes. */
  readonly shared?: boolean;
  release(): void;
}

export interface QueryParts {
  /** Of the engine that `connect` reaches; absent: DuckDB's. */
  readonly dialect?: Dialect;
  readonly connect: () => Promise<Connection>;
  /** Everything with records from `from` before `to` (milliseconds since the epoch). */
  readonly pin: (from: number, to: number) => Promise<Pinned>;
  /** A file could not be read; true when it is set aside, so that the question may be asked again without it. */
  readonly damaged: (error: unknown) => Promise<boolean>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Of one organisation two, and only one beside others. */
const AT_ONCE = 4;
/** Of one organisation: a page of the console asks eight questions at once. */
const MOST_WAITING = 64;
/** A question has the deadline still before it when its turn comes. */
const MOST_WAIT_MS = 5_000;
const DEADLINE_MS = 5_000;
const MOST_ROWS = 10_000;
const DAY_MS = 86_400_000;
/** Above so many records quantiles are estimated. */
const MOST_EXACT = 2_000_000;
/** A time of a UUIDv7 and the time of its record differ by the parsing of a request; nodes' clocks by little more. */
const NEAR_MS = 60_000;

/** For so long a table stays after it was last asked for what has come to it. */
const FOLLOWED_MS = 10_000;

const ALL_COLUMNS = LOG_COLUMNS.map(({ name }) => name);

/** A record, where there is one, and what the files lack in which it was looked for. */
interface Found extends LogCoverage {
  readonly row: LogRow | null;
  readonly shared: boolean;
}

export class LogQueries implements LogStore {
  readonly #parts: QueryParts;
  readonly #dialect: Dialect;
  /** Connections that no question uses. */
  readonly #idle: Connection[] = [];
  readonly #slots = new Slots('questions about logs', AT_ONCE);
  /** Tables of the tail that wait for the next question about arrivals, and how many times. */
  readonly #followed = new Map<string, number>();
  /** Told apart from those of a keeper before. */
  readonly #id: string;
  #arriving: Promise<unknown> = Promise.resolve();

  constructor(parts: QueryParts) {
    this.#parts = parts;
    this.#dialect = parts.dialect ?? duckDb;
    this.#id = uuidv7(parts.clock);
  }

  /** Questions under way, without those that wait. */
  get running(): number {
    return this.#slots.shares.held;
  }

  page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    const limit = Math.min(query.limit, MOST_ROWS);
    const dialect = this.#dialect;
    const columns = dialect.pageInTwoSteps ? [] : query.columns;
    return this.#ask(selection, async (connection, pinned) => {
      // Newest days first: most pages are full before an old file is opened.
      for (const { relation, beyond } of steps(pinned, query.order)) {
        const rows = await rowsOf(
          connection,
          pageStatement(relation, selection, { ...query, columns, limit }, dialect),
        );
        const last = rows[Math.min(rows.length, limit) - 1];
        const full = rows.length > limit && last !== undefined;
        if (beyond !== null && !(full && isBefore(query.order, Number(rows[limit]?.time), beyond))) continue;
        this.#prove(selection.scope, rows);
        const shown = rows.slice(0, limit);
        const wide = dialect.pageInTwoSteps ? await this.#wide(connection, relation, selection, query, shown) : shown;
        return {
          rows: wide.map((row) => rowWith(query.columns, row)),
          next: full ? { time: Number(last.time), id: String(last.id) } : null,
          ...coverageOf(pinned),
        };
      }
      throw new Error('a page has at least one step');
    });
  }

  groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    if ((query.limit ?? 0) > MOST_ROWS) throw tooMany();
    return this.#ask(selection, async (connection, pinned) => {
      const source = relationOf(pinned.files, pinned.tails);
      const quantiles = query.measures.filter(({ of }) => of === 'quantile').map(({ as }) => as);
      const many = (pinned.records ?? pinned.files.reduce((sum, { rows }) => sum + rows, 0)) > MOST_EXACT;
      const approximate =
        quantiles.length > 0 && many && (await this.#counted(connection, source, selection, MOST_EXACT)) > MOST_EXACT;
      const bounded = { ...query, limit: query.limit ?? MOST_ROWS + 1 };
      const rows = await rowsOf(connection, groupsStatement(source, selection, bounded, approximate, this.#dialect));
      const [whole, ...rest] = rows;
      this.#proveCount(selection.scope, whole);
      const valuesOf = (row: Readonly<Record<string, LogValue>> | undefined) =>
        Object.fromEntries(query.measures.map(({ as }, i) => [as, numberOf(row?.[`m${i}`])]));
      const groups: LogGroup[] = rest.map((row) => ({
        keys: query.by.map((_, i) => (row[`k${i}`] ?? null) as string | number | null),
        values: valuesOf(row),
      }));
      if (groups.length > MOST_ROWS) throw tooMany();
      return {
        groups,
        total: Number(whole?.groups ?? 0),
        summary: valuesOf(whole),
        approximate: approximate ? quantiles : [],
        ...coverageOf(pinned),
      };
    });
  }

  count(selection: LogSelection, most: number): Promise<number> {
    return this.#ask(selection, (connection, { files, tails }) =>
      this.#counted(connection, relationOf(files, tails), selection, most),
    );
  }

  /** One after the other, beside the other questions: those who follow ask every second, and must not take their places. */
  arrived(selection: LogSelection, query: LogArrivalQuery): Promise<LogArrivals> {
    const answer = this.#arriving.then(() => this.#arrived(selection, query));
    this.#arriving = answer.catch(() => undefined);
    return answer;
  }

  /** The time in a UUIDv7 leads to a few files; where the record is not in those, all are asked. */
  async find(scope: LogScope, id: string): Promise<LogRow | null> {
    const time = timeOf(id);
    const near = time === null ? null : await this.#found(scope, id, time - NEAR_MS, time + NEAR_MS);
    if (near !== null && near.row !== null) return near.row;
    const all = await this.#found(scope, id, Math.max(0, scope.keptSince), Number.MAX_SAFE_INTEGER);
    if (all.row === null && near !== null && time !== null) mayBeElsewhere(near, time);
    return all.row;
  }

  close(): void {
    for (const connection of this.#idle.splice(0)) connection.closeSync();
  }

  async #arrived(selection: LogSelection, { columns, since, limit }: LogArrivalQuery): Promise<LogArrivals> {
    // No file: what was there when the last answer was made is in a table still, for it is followed.
    const pinned = await this.#parts.pin(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    const before = placesOf(this.#id, since);
    const seen = [...(before?.keys() ?? [])];
    const newest = Math.max(...seen.map(numberIn));
    const unseen = pinned.tails.map(numberIn).filter((number) => number > newest);
    const gone =
      before === null ||
      seen.some((name) => !this.#isThere(name, pinned.tails)) ||
      // Tables are numbered: one came and went meanwhile.
      (unseen.length > 0 && Math.min(...unseen) > newest + 1);
    const names = [...new Set([...seen, ...pinned.tails])]
      .filter((name) => this.#isThere(name, pinned.tails))
      .sort((one, other) => numberIn(one) - numberIn(other));
    const connection = this.#idle.pop() ?? (await this.#parts.connect());
    try {
      const rows: LogRow[] = [];
      const places: [string, number][] = [];
      let matches = 0;
      for (const name of names) {
        const [end] = await rowsOf(connection, {
          sql: `SELECT coalesce(max(rowid), -1) AS n FROM ${name}`,
          values: [],
        });
        const last = Number(end?.n ?? -1);
        if (pinned.tails.includes(name)) places.push([name, last]);
        if (before === null) continue;
        const after = before.get(name) ?? -1;
        if (after >= last) continue;
        const bounds = { after, last, limit };
        const found = await rowsOf(connection, arrivalsStatement(name, selection, columns, bounds));
        this.#prove(selection.scope, found);
        matches += Number(found[0]?.matches ?? 0);
        rows.push(...found.slice(0, limit - rows.length).map((row) => rowWith(columns, row)));
      }
      const next = JSON.stringify([this.#id, places]);
      return { rows, left: gone && since !== null ? null : matches - rows.length, next };
    } finally {
      this.#idle.push(connection);
      this.#follow(pinned);
    }
  }

  #isThere(name: string, tails: readonly string[]): boolean {
    return this.#followed.has(name) || tails.includes(name);
  }

  /** The tables stay until the next question, though their records go to files meanwhile. */
  #follow(pinned: Pinned): void {
    for (const name of pinned.tails) this.#followed.set(name, (this.#followed.get(name) ?? 0) + 1);
    this.#parts.clock.after(FOLLOWED_MS, () => {
      for (const name of pinned.tails) {
        const left = (this.#followed.get(name) ?? 1) - 1;
        if (left > 0) this.#followed.set(name, left);
        else this.#followed.delete(name);
      }
      pinned.release();
    });
  }

  async #wide(
    connection: Connection,
    relation: string,
    selection: LogSelection,
    query: LogPageQuery,
    rows: readonly Readonly<Record<string, LogValue>>[],
  ): Promise<readonly Record<string, LogValue>[]> {
    if (rows.length === 0) return [];
    const places = rows.map(({ time, id }) => ({ time: Number(time), id: String(id) }));
    const wide = await rowsOf(connection, rowsStatement(relation, selection, places, query, this.#dialect));
    this.#prove(selection.scope, wide);
    return wide;
  }

  async #found(scope: LogScope, id: string, from: number, to: number): Promise<Found> {
    return this.#admitted(
      scope,
      from,
      to,
      async (connection, { files, tails, shared = false, completeTo, incomplete }) => {
        const rows = await rowsOf(connection, findStatement(relationOf(files, tails), scope, id, this.#dialect));
        this.#prove(scope, rows);
        const [row] = rows;
        return { row: row === undefined ? null : rowWith(ALL_COLUMNS, row), shared, completeTo, incomplete };
      },
    );
  }

  async #counted(connection: Connection, source: string, selection: LogSelection, most: number): Promise<number> {
    const [row] = await rowsOf(connection, countStatement(source, selection, most, this.#dialect));
    this.#proveCount(selection.scope, row);
    return Number(row?.n ?? 0);
  }

  #ask<T>(selection: LogSelection, run: (connection: Connection, pinned: Pinned) => Promise<T>): Promise<T> {
    const { scope, to } = selection;
    const from = Math.max(selection.from, scope.keptSince);
    if (to - from > MOST_DAYS * DAY_MS) {
      throw new SluiceError('validation', `The range of time is above ${MOST_DAYS} days. Ask for a shorter one.`);
    }
    return this.#admitted(scope, from, to, run);
  }

  async #admitted<T>(
    { organisationId }: LogScope,
    from: number,
    to: number,
    run: (connection: Connection, pinned: Pinned) => Promise<T>,
  ): Promise<T> {
    if (this.#slots.waitingOf(organisationId) >= MOST_WAITING) throw busy();
    const late = new AbortController();
    const cancel = this.#parts.clock.after(MOST_WAIT_MS, () => late.abort(busy()));
    const leave = await this.#slots.take(organisationId, late.signal).finally(cancel);
    try {
      return await this.#read(from, to, run);
    } finally {
      leave();
    }
  }

  async #read<T>(from: number, to: number, run: (connection: Connection, pinned: Pinned) => Promise<T>): Promise<T> {
    const { clock, damaged } = this.#parts;
    for (let attempt = 1; ; attempt++) {
      const pinned = await this.#parts.pin(from, to);
      const connection = this.#idle.pop() ?? (await this.#parts.connect());
      let late = false;
      const cancel = clock.after(DEADLINE_MS, () => {
        late = true;
        connection.interrupt();
      });
      try {
        return await run(connection, pinned);
      } catch (error) {
        if (late) {
          throw new SluiceError(
            'unavailable',
            'The logs did not answer within five seconds. Ask for a shorter range of time.',
            { retryAfter: 5, cause: error },
          );
        }
        if (error instanceof SluiceError || error instanceof TypeError) throw error;
        if (attempt > 3 || !(await damaged(error))) throw error;
      } finally {
        cancel();
        pinned.release();
        this.#idle.push(connection);
      }
    }
  }

  #prove(scope: LogScope, rows: readonly Readonly<Record<string, LogValue>>[]): void {
    prove(scope, rows, this.#parts.log);
  }

  #proveCount(scope: LogScope, row: Readonly<Record<string, LogValue>> | undefined): void {
    const foreign = row?.[PROOF.foreign];
    if (foreign !== 0) throw refused(scope, Number(foreign ?? -1), this.#parts.log);
  }
}

/** Each row tells whose it is; a foreign one means a fault of ours, and nothing is answered: throws `internal`. */
export function prove(scope: LogScope, rows: readonly Readonly<Record<string, LogValue>>[], log: Log): void {
  const { organisationId, workspaceIds } = scope;
  const foreign = rows.filter(
    (row) =>
      row[PROOF.organisation] !== organisationId ||
      (workspaceIds !== null && !workspaceIds.some((id) => id === row[PROOF.workspace])),
  ).length;
  if (foreign > 0) throw refused(scope, foreign, log);
}

function refused({ organisationId }: LogScope, records: number, log: Log): SluiceError {
  log.error('an answer about logs was refused because it took in records of others', {
    organisation_id: organisationId,
    records,
  });
  return new SluiceError('internal', 'The logs could not be read. Tell the operator of this server.');
}

/**
 * A record of this time that was not found may be of another node.
 *
 * @throws `not_found` with the seconds after which its node has given it to all, `unavailable` where that node is away
 */
function mayBeElsewhere({ shared, completeTo, incomplete }: Found, time: number): void {
  if (!shared) return;
  if (incomplete.some(({ from, to }) => from <= time + NEAR_MS && to >= time - NEAR_MS)) {
    const names = [...new Set(incomplete.flatMap(({ node }) => (node === undefined ? [] : [node])))];
    const of = names.length === 0 ? 'the file store' : `node ${names.join(', ')}`;
    const message = `There is no such request here, and records of its time are missing: ${of} is away. Try again later.`;
    throw new SluiceError('unavailable', message, { retryAfter: 5 });
  }
  if (time > completeTo) {
    const message = 'There is no such request yet. A request of another node can be read after about five seconds.';
    throw new SluiceError('not_found', message, { retryAfter: 5 });
  }
}

/** Milliseconds since the epoch in a UUIDv7; null for any other text. */
function timeOf(id: string): number | null {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/.test(id)) return null;
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

/** The row of each table up to which a follower has seen what came; null where it follows from now on, or another keeper answered. */
function placesOf(id: string, since: string | null): ReadonlyMap<string, number> | null {
  if (since === null) return null;
  const [of, places] = JSON.parse(since) as [string, [string, number][]];
  return of === id ? new Map(places) : null;
}

const numberIn = (name: string): number => Number(name.slice(name.lastIndexOf('_') + 1));

/** One relation of all columns. */
export function relationOf(files: readonly Pick<PinnedFile, 'path'>[], tails: readonly string[]): string {
  const parts = tails.map((name) => `SELECT * FROM ${name}`);
  if (files.length > 0) {
    const paths = files.map(({ path }) => literal(path)).join(', ');
    // By name: a file of an older version lacks columns, which are null there.
    parts.push(`SELECT * FROM read_parquet([${paths}], union_by_name = true)`);
  }
  const [only] = tails;
  if (only !== undefined && tails.length === 1 && files.length === 0) return only;
  return `(${[NO_ROWS, ...parts].join(' UNION ALL BY NAME ')})`;
}

export interface Step {
  readonly relation: string;
  /** The time that no record outside of this step is beyond; null in the last step, which has them all. */
  readonly beyond: number | null;
}

/** The nearest file with the tail first, then five files, then all. */
export function steps({ files, tails }: Pinned, order: LogPageQuery['order']): Step[] {
  const down = order === 'newest';
  const sorted = [...files].sort((one, other) => (down ? other.maxTime - one.maxTime : one.minTime - other.minTime));
  return [1, 5, sorted.length]
    .filter((count, i) => i === 2 || count < sorted.length)
    .map((count) => {
      const next = sorted[count];
      return {
        relation: relationOf(sorted.slice(0, count), tails),
        beyond: next === undefined ? null : down ? next.maxTime : next.minTime,
      };
    });
}

/** Whether no unread record, the nearest of which is at `beyond`, comes before one at `time`. */
function isBefore(order: LogPageQuery['order'], time: number, beyond: number): boolean {
  return order === 'newest' ? time > beyond : time < beyond;
}

function coverageOf({ completeTo, incomplete }: LogCoverage): LogCoverage {
  return { completeTo, incomplete };
}

function numberOf(value: LogValue | undefined): number | null {
  return typeof value === 'number' ? value : null;
}

function busy(): SluiceError {
  return new SluiceError('throttled', 'Too many questions about logs at once. Try again in a second.', {
    retryAfter: 1,
  });
}

function tooMany(): SluiceError {
  return new SluiceError('validation', `The answer has more than ${MOST_ROWS} groups. Ask for fewer at once.`);
}
