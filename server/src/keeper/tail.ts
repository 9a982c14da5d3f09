/** Records that are in no file yet: a table in memory, with the columns of the files. */
import { appendFile, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LogValue } from '../telemetry/log-query.ts';
import type { LogHour } from './catalog.ts';
import { type Connection, literal, recordsIn, rowsOf, tableOf } from './engine.ts';
import type { JournalChunk } from './journal-reader.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const LINE_FEED = 0x0a;
/** Lines that have not the form of a record. */
export const REJECTED = 'rejected.ndjson';
let made = 0;

/** Bodies of a record that was left out, because another one of the same deed is kept. */
export interface RepeatedBodies {
  readonly organisationId: string;
  readonly chunk: string;
  /** Of the record. */
  readonly id: string;
}

export class LogTail {
  readonly name: string;
  readonly #connection: Connection;
  readonly #dir: string;
  #records = 0;
  #bytes = 0;
  #since: number | null = null;
  #repeated: RepeatedBodies[] = [];

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

  /** Bodies that no record names any more, since this was last asked. */
  takeRepeated(): readonly RepeatedBodies[] {
    return this.#repeated.splice(0);
  }

  /** Adds records that neither it nor `known` (a relation of the files) has: all or none. Answers how many have not the form of one. */
  async add({ lines }: Pick<JournalChunk, 'lines'>, known: () => Promise<string>, now: number): Promise<number> {
    const file = join(this.#dir, `${this.name}.unfinished`);
    try {
      let rejected = 0;
      try {
        await this.#insert(file, lines, known);
      } catch (error) {
        if (isOurs(error)) throw error;
        const { good, bad } = await this.#sift(file, lines);
        await appendFile(join(this.#dir, REJECTED), Buffer.concat(bad), { mode: 0o600 });
        await this.#insert(file, Buffer.concat(good), known);
        rejected = bad.length;
      }
      await this.#counted(now);
      this.#bytes += lines.length;
      return rejected;
    } finally {
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

  async #insert(file: string, lines: Buffer, known: () => Promise<string>): Promise<void> {
    const sql = `SELECT coalesce(max(rowid), -1) AS last FROM ${this.name}`;
    const [row] = await rowsOf(this.#connection, { sql, values: [] });
    let repeated: readonly RepeatedBodies[] = [];
    await this.#transaction('COMMIT', async () => {
      await this.#load(file, lines);
      repeated = await this.#leaveOutKnown(Number(row?.last), known);
    });
    this.#repeated.push(...repeated);
  }

  /** A batch with a record that does not fit is tried in halves, until that record is alone. */
  async #sift(file: string, lines: Buffer): Promise<{ readonly good: Buffer[]; readonly bad: Buffer[] }> {
    try {
      await this.#transaction('ROLLBACK', () => this.#load(file, lines));
      return { good: [lines], bad: [] };
    } catch (error) {
      if (isOurs(error)) throw error;
    }
    const middle = lines.indexOf(LINE_FEED, lines.length >> 1) + 1;
    const cut = middle === lines.length ? lines.lastIndexOf(LINE_FEED, lines.length - 2) + 1 : middle;
    if (cut === 0) return { good: [], bad: [lines] };
    const [one, other] = [await this.#sift(file, lines.subarray(0, cut)), await this.#sift(file, lines.subarray(cut))];
    return { good: [...one.good, ...other.good], bad: [...one.bad, ...other.bad] };
  }

  async #load(file: string, lines: Buffer): Promise<void> {
    await writeFile(file, lines, { mode: 0o600 });
    await this.#connection.run(`INSERT INTO ${this.name} ${valid(recordsIn(file))}`);
  }

  /** Others see all that was done, or nothing of it. */
  async #transaction(end: 'COMMIT' | 'ROLLBACK', run: () => Promise<void>): Promise<void> {
    await this.#connection.run('BEGIN TRANSACTION');
    try {
      await run();
      await this.#connection.run(end);
    } catch (error) {
      await this.#connection.run('ROLLBACK').catch(() => undefined);
      throw error;
    }
  }

  /**
   * A worker may record a deed again that it was killed after: such a record is the first of its sequence.
   *
   * @param last the last row before those that are being added
   */
  async #leaveOutKnown(last: number, known: () => Promise<string>): Promise<readonly RepeatedBodies[]> {
    const fresh = `${this.name} WHERE rowid > ${last}`;
    const counted = `SELECT count(*) AS n, count(DISTINCT ("node", "seq")) AS single, count(*) FILTER (WHERE "seq" = 1) AS first FROM ${fresh}`;
    const [row] = await rowsOf(this.#connection, { sql: counted, values: [] });
    const gone: Record<string, LogValue>[] = [];
    const remove = async (where: string) => {
      const sql = `DELETE FROM ${fresh} AND ${where} RETURNING "node", "seq", "organisation_id", "body_chunk", "body_slot", "id"`;
      gone.push(...(await rowsOf(this.#connection, { sql, values: [] })));
    };
    if (Number(row?.n) !== Number(row?.single)) {
      await remove(`rowid NOT IN (SELECT min(rowid) FROM ${fresh} GROUP BY "node", "seq")`);
    }
    if (Number(row?.first) === 0) return [];
    const nodes = `SELECT "node" FROM ${fresh} AND "seq" = 1`;
    const there = [`${this.name} WHERE rowid <= ${last} AND`, `${await known()} WHERE`].map(
      (from) => `SELECT "node" FROM ${from} "seq" = 1 AND "node" IN (${nodes})`,
    );
    await remove(`"seq" = 1 AND "node" IN (${there.join(' UNION ALL ')})`);
    return this.#unnamed(gone, known);
  }

  /** A record that is read again names the bodies that it named before; another one of the same deed has others. */
  async #unnamed(
    gone: readonly Readonly<Record<string, LogValue>>[],
    known: () => Promise<string>,
  ): Promise<readonly RepeatedBodies[]> {
    const out: RepeatedBodies[] = [];
    for (const { node, seq, organisation_id: organisationId, body_chunk: chunk, body_slot: slot, id } of gone) {
      if (seq !== 1 || typeof chunk !== 'string') continue;
      const same = '"seq" = 1 AND "node" = $1 AND "body_chunk" = $2 AND "body_slot" = $3';
      const from = [this.name, await known()].map((table) => `SELECT 1 FROM ${table} WHERE ${same}`);
      const values = [String(node), chunk, BigInt(Number(slot))];
      const named = await rowsOf(this.#connection, { sql: from.join(' UNION ALL '), values });
      if (named.length === 0) out.push({ organisationId: String(organisationId), chunk, id: String(id) });
    }
    return out;
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
