/** Records that are in no file yet: a table in memory, with the columns of the files. */
import { appendFile, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LogHour } from './catalog.ts';
import { type Connection, literal, recordsIn, rowsOf, tableOf } from './engine.ts';
import type { JournalChunk } from './journal-reader.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const LINE_FEED = 0x0a;
let made = 0;

export class LogTail {
  readonly name: string;
  readonly #connection: Connection;
  readonly #dir: string;
  #records = 0;
  #bytes = 0;
  #since: number | null = null;

  private constructor(connection: Connection, dir: string, name: string) {
    this.#connection = connection;
    this.#dir = dir;
    this.name = name;
  }

  static async make(connection: Connection, dir: string): Promise<LogTail> {
    const tail = new LogTail(connection, dir, `tail_${++made}`);
    await connection.run(tableOf(tail.name));
    return tail;
  }

  get records(): number {
    return this.#records;
  }

  /** Of the records as texts. */
  get bytes(): number {
    return this.#bytes;
  }

  /** When the first of its records came, milliseconds since the epoch; null when it has none. */
  get since(): number | null {
    return this.#since;
  }

  /** Adds records that neither it nor `known` (a relation of the files) has. Answers how many have not the form of one. */
  async add({ lines }: Pick<JournalChunk, 'lines'>, known: string, now: number): Promise<number> {
    const fresh = `fresh_${this.name}`;
    const file = join(this.#dir, `${this.name}.unfinished`);
    await this.#connection.run(tableOf(fresh));
    try {
      const rejected = await this.#load(fresh, file, lines);
      await this.#leaveOutKnown(fresh, known);
      await this.#connection.run(`INSERT INTO ${this.name} SELECT * FROM ${fresh}`);
      await this.#counted(now);
      this.#bytes += lines.length;
      return rejected;
    } finally {
      await this.#connection.run(`DROP TABLE ${fresh}`);
      await unlink(file).catch(() => undefined);
    }
  }

  /** Adds the records of another tail, which could not be written. */
  async takeBack(other: LogTail): Promise<void> {
    await this.#connection.run(`INSERT INTO ${this.name} SELECT * FROM ${other.name}`);
    this.#bytes += other.#bytes;
    await this.#counted(other.#since ?? 0);
    this.#since = other.#since;
  }

  /** Days since the epoch that its records are of. */
  async days(): Promise<number[]> {
    const sql = `SELECT DISTINCT "time" // ${DAY_MS} AS day FROM ${this.name} ORDER BY day`;
    return (await rowsOf(this.#connection, { sql, values: [] })).map(({ day }) => Number(day));
  }

  async hours(): Promise<LogHour[]> {
    const sql = `SELECT coalesce("organisation_id", '') AS organisation_id, coalesce("workspace_id", '') AS workspace_id,
      "time" // ${HOUR_MS} AS hour, "source", count(*) AS requests,
      count(*) FILTER (WHERE "outcome" = 'failed') AS errors, count(*) FILTER (WHERE "outcome" = 'refused') AS refused,
      count(*) FILTER (WHERE "cost_micros" IS NULL AND "outcome" = 'ok') AS unpriced,
      ${['cost_micros', 'saved_micros', 'tokens_in', 'tokens_out'].map((name) => `CAST(coalesce(sum("${name}"), 0) AS BIGINT) AS ${name}`).join(', ')},
      CAST(coalesce(sum("latency_us"), 0) AS BIGINT) AS latency_sum_us
      FROM ${this.name} WHERE "dry_run" IS NOT TRUE GROUP BY 1, 2, 3, 4`;
    return (await rowsOf(this.#connection, { sql, values: [] })) as unknown as LogHour[];
  }

  /** The first and the last number of each process's sequence, and how many there are. */
  async sequences(): Promise<{ node: string; first: number; last: number; records: number }[]> {
    const sql = `SELECT "node", min("seq") AS first, max("seq") AS last, count(*) AS records FROM ${this.name} GROUP BY 1`;
    const rows = await rowsOf(this.#connection, { sql, values: [] });
    return rows as unknown as { node: string; first: number; last: number; records: number }[];
  }

  async drop(): Promise<void> {
    await this.#connection.run(`DROP TABLE ${this.name}`);
  }

  async #counted(now: number): Promise<void> {
    const [row] = await rowsOf(this.#connection, { sql: `SELECT count(*) AS n FROM ${this.name}`, values: [] });
    this.#records = Number(row?.n);
    if (this.#records > 0) this.#since ??= now;
  }

  /** A batch with a record that does not fit is tried in halves, until that record is alone. */
  async #load(fresh: string, file: string, lines: Buffer): Promise<number> {
    if (lines.length === 0) return 0;
    await writeFile(file, lines, { mode: 0o600 });
    try {
      // The statement is whole or nothing.
      await this.#connection.run(`INSERT INTO ${fresh} ${valid(recordsIn(file))}`);
      return 0;
    } catch (error) {
      const middle = lines.indexOf(LINE_FEED, lines.length >> 1) + 1;
      const cut = middle === lines.length ? lines.lastIndexOf(LINE_FEED, lines.length - 2) + 1 : middle;
      if (cut > 0) {
        return (
          (await this.#load(fresh, file, lines.subarray(0, cut))) + (await this.#load(fresh, file, lines.subarray(cut)))
        );
      }
      if (isOurs(error)) throw error;
      await appendFile(join(this.#dir, 'rejected.ndjson'), lines, { mode: 0o600 });
      return 1;
    }
  }

  /** A worker may record a deed again that it was killed after: such a record is the first of its sequence. */
  async #leaveOutKnown(fresh: string, known: string): Promise<void> {
    const counted = `SELECT count(*) AS n, count(DISTINCT ("node", "seq")) AS single, count(*) FILTER (WHERE "seq" = 1) AS first FROM ${fresh}`;
    const [row] = await rowsOf(this.#connection, { sql: counted, values: [] });
    if (Number(row?.n) !== Number(row?.single)) {
      await this.#connection.run(
        `DELETE FROM ${fresh} WHERE rowid NOT IN (SELECT min(rowid) FROM ${fresh} GROUP BY "node", "seq")`,
      );
    }
    if (Number(row?.first) === 0) return;
    const nodes = `SELECT "node" FROM ${fresh} WHERE "seq" = 1`;
    const there = [this.name, known].map(
      (from) => `SELECT "node" FROM ${from} WHERE "seq" = 1 AND "node" IN (${nodes})`,
    );
    await this.#connection.run(`DELETE FROM ${fresh} WHERE "seq" = 1 AND "node" IN (${there.join(' UNION ALL ')})`);
  }
}

/** Fails where a record lacks what every one has. */
function valid(rows: string): string {
  const needed = ['id', 'node', 'seq', 'time'].map((name) => `"${name}" IS NULL`).join(' OR ');
  return `SELECT * FROM (${rows}) WHERE CASE WHEN ${needed} THEN error(${literal('not a record')}) ELSE TRUE END`;
}

/** No room or no file: the record is not at fault. */
function isOurs(error: unknown): boolean {
  return /Out of Memory|IO Error|No space/i.test(String(error));
}
