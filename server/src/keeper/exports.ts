/** Parts of exports: rows in order of time, written to a file of this machine that the server takes away. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { SluiceError } from '../kernel/errors.ts';
import { BODY_FLAGS, type BodyPart } from '../telemetry/bodies/frame.ts';
import { presentPart } from '../telemetry/bodies/presented.ts';
import { hideMetadata } from '../telemetry/hidden-metadata.ts';
import {
  type ExportPart,
  type ExportPlan,
  exportColumns,
  exportHead,
  exportLine,
  type Given,
  parquetColumns,
} from '../telemetry/log-export.ts';
import type { LogPlace, LogRow, LogSelection } from '../telemetry/log-query.ts';
import { BODY_COLUMNS, type ChunkReader } from './chunk-reader.ts';
import { type Connection, type Engine, literal, openEngine, rowsOf, streamOf } from './engine.ts';
import { nthStatement, spanStatement } from './log-sql.ts';
import { type Pinned, prove, type QueryParts, steps } from './queries.ts';

export interface ExportParts extends Omit<QueryParts, 'clock'> {
  /** Where files are written; those with this ending go when a keeper starts. */
  readonly dir: string;
  readonly ending: string;
  readonly newId: () => string;
  /** A reader of kept bodies, with all that is written by now. */
  readonly bodies: () => Promise<ChunkReader>;
}

/** A written file, and where it is. */
export interface WrittenFile {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface WrittenPart extends WrittenFile, Pick<ExportPart, 'rows' | 'next' | 'incomplete'> {}

const AS_PARQUET = '(FORMAT parquet, COMPRESSION zstd)';
/** Beside the engine of questions, which sorts and reads in any order. */
const PARQUET_ENGINE = { memory: '256MB', threads: 1, ordered: true } as const;
const ATTEMPTS = 3;
/** Written at once. */
const WRITE_BYTES = 256 << 10;

export class LogExports {
  readonly #parts: ExportParts;
  #running = 0;

  constructor(parts: ExportParts) {
    this.#parts = parts;
  }

  /** Files under way. */
  get running(): number {
    return this.#running;
  }

  part(selection: LogSelection, plan: ExportPlan): Promise<WrittenPart> {
    return this.#counted(async () => {
      for (let attempt = 1; ; attempt++) {
        try {
          return await this.#part(selection, plan);
        } catch (error) {
          if (error instanceof SluiceError || error instanceof TypeError || attempt === ATTEMPTS) throw error;
          if (!(await this.#parts.damaged(error))) throw error;
        }
      }
    });
  }

  /** One Parquet file of several, in the order of the paths. */
  join(paths: readonly string[]): Promise<WrittenFile> {
    const from = paths.map(literal).join(', ');
    return this.#counted(() => this.#parquet(`SELECT * FROM read_parquet([${from}])`));
  }

  /** A Parquet file of a file with JSON lines, each an object. `columns`: names and types. */
  ofLines(path: string, columns: readonly (readonly [string, string])[]): Promise<WrittenFile> {
    return this.#counted(() => this.#parquet(rowsIn(path, columns)));
  }

  async #counted<T>(work: () => Promise<T>): Promise<T> {
    this.#running++;
    try {
      return await work();
    } finally {
      this.#running--;
    }
  }

  async #part(selection: LogSelection, plan: ExportPlan): Promise<WrittenPart> {
    const { pin, connect } = this.#parts;
    const from = Math.max(selection.from, selection.scope.keptSince, plan.behind?.time ?? 0);
    const pinned = await pin(from, selection.to);
    let connection: Connection | null = null;
    try {
      connection = await connect();
      const written = await this.#lines(connection, pinned, selection, plan);
      if (plan.format !== 'parquet') return written;
      const rows = rowsIn(written.path, parquetColumns(plan.fields));
      const file = await this.#parquet(rows).finally(() => unlink(written.path));
      return { ...written, ...file };
    } finally {
      connection?.closeSync();
      pinned.release();
    }
  }

  /** Writes the rows as lines. A part of a Parquet file has them in between, because its types are those of the fields. */
  async #lines(
    connection: Connection,
    pinned: Pinned,
    selection: LogSelection,
    plan: ExportPlan,
  ): Promise<WrittenPart> {
    const { fields, bom } = plan;
    const format = plan.format === 'csv' ? 'csv' : 'jsonl';
    const { dialect, log } = this.#parts;
    const file = await this.#create();
    try {
      if (plan.behind === null) await file.write(exportHead(format, fields, bom));
      let rows = 0;
      let last: LogPlace | null = null;
      let full = false;
      const begin = plan.skip === 0 ? plan.behind : await this.#nth(connection, pinned, selection, null, plan.skip - 1);
      const empty = plan.skip > 0 && begin === null;
      const end = empty ? null : await this.#nth(connection, pinned, selection, placeOf(begin), plan.limit);
      if (!empty) {
        const relation = end?.relation ?? wholeOf(pinned);
        const columns = [...exportColumns(fields), ...(plan.bodies === null ? [] : [...BODY_COLUMNS, 'metadata'])];
        const span = spanStatement(relation, selection, columns, placeOf(begin), placeOf(end), dialect);
        const given = await this.#givenFor(plan);
        for await (const some of streamOf(connection, span)) {
          prove(selection.scope, some, log);
          for (const row of some) {
            full = file.length >= (plan.bodies?.partBytes ?? Number.POSITIVE_INFINITY);
            if (full) break;
            await file.add(exportLine(format, fields, row, await given(row)));
            rows += 1;
            last = { time: Number(row.time), id: String(row.id) };
          }
          if (full) break;
        }
      }
      const { incomplete } = pinned;
      return { ...(await file.end()), rows, next: end === null && !full ? null : last, incomplete };
    } catch (error) {
      await file.remove();
      throw error;
    }
  }

  /** What rows are written with. Bodies are read one after the other: a chunk at a time is in memory. */
  async #givenFor({ origin, fields, bodies }: ExportPlan): Promise<(row: LogRow) => Given | Promise<Given>> {
    if (bodies === null) {
      const given = { origin, bodies: null };
      return () => given;
    }
    const reader = await this.#parts.bodies();
    const asked = { request: fields.includes('request'), response: fields.includes('response') };
    return async (row) => {
      const kept = await reader.find(row, bodies.since);
      if (typeof kept === 'string') return { origin, bodies: null, missing: kept };
      const body = (part: BodyPart) => {
        const shown = (presentPart(kept, part, bodies.noMetadata, origin)?.body ?? null) as object | null;
        return bodies.noMetadata ? hideMetadata(row.metadata, shown) : shown;
      };
      const request = asked.request ? body('request') : null;
      const response = asked.response ? body('answer') : null;
      // Of a request that failed its answer alone may be kept.
      const lacks = asked.request && (kept.end.flags & BODY_FLAGS.answerOnly) !== 0;
      return { origin, bodies: { request, response }, missing: lacks ? 'off' : null };
    };
  }

  /** The place of the n-th row behind another, counted from 0, and a relation that has every row before it. Null: there are fewer. */
  async #nth(
    connection: Connection,
    pinned: Pinned,
    selection: LogSelection,
    behind: LogPlace | null,
    n: number,
  ): Promise<(LogPlace & { readonly relation: string }) | null> {
    for (const { relation, beyond } of steps(pinned, 'oldest')) {
      const rows = await rowsOf(connection, nthStatement(relation, selection, behind, n, this.#parts.dialect));
      prove(selection.scope, rows, this.#parts.log);
      const [row] = rows;
      if (row === undefined) continue;
      const time = Number(row.time);
      if (beyond === null || time < beyond) return { time, id: String(row.id), relation };
    }
    return null;
  }

  async #parquet(rows: string): Promise<WrittenFile> {
    const path = this.#newPath();
    const temporary = `${path}.spill`;
    const engine: Engine = await openEngine({ ...PARQUET_ENGINE, temporary });
    try {
      const connection = await engine.connect();
      await connection.run(`COPY (${rows}) TO ${literal(path)} ${AS_PARQUET}`);
      connection.closeSync();
      const { size } = await stat(path);
      return { path, bytes: size, sha256: await digestOf(path) };
    } catch (error) {
      await unlink(path).catch(() => undefined);
      throw error;
    } finally {
      engine.closeSync();
    }
  }

  async #create(): Promise<LinesFile> {
    const path = this.#newPath();
    return new LinesFile(path, await open(path, 'wx', 0o600));
  }

  #newPath(): string {
    const { dir, newId, ending } = this.#parts;
    return join(dir, newId() + ending);
  }
}

function rowsIn(path: string, columns: readonly (readonly [string, string])[]): string {
  const types = columns.map(([name, type]) => `${literal(name)}: ${literal(type)}`).join(', ');
  return `SELECT * FROM read_json(${literal(path)}, format = 'newline_delimited', columns = {${types}}, maximum_object_size = 67108864)`;
}

/** A file that is written from its begin to its end. */
class LinesFile {
  readonly #path: string;
  readonly #handle: FileHandle;
  readonly #hash = createHash('sha256');
  #bytes = 0;
  readonly #lines: string[] = [];
  #unwritten = 0;

  constructor(path: string, handle: FileHandle) {
    this.#path = path;
    this.#handle = handle;
  }

  /** Bytes that were added by now. */
  get length(): number {
    return this.#bytes + this.#unwritten;
  }

  /** Writes a line, with others. */
  async add(line: string): Promise<void> {
    this.#lines.push(line);
    this.#unwritten += Buffer.byteLength(line);
    if (this.#unwritten >= WRITE_BYTES) await this.#flush();
  }

  async #flush(): Promise<void> {
    const lines = this.#lines.splice(0);
    this.#unwritten = 0;
    if (lines.length > 0) await this.write(lines.join(''));
  }

  async write(text: string): Promise<void> {
    const bytes = Buffer.from(text);
    this.#hash.update(bytes);
    this.#bytes += bytes.length;
    await this.#handle.writeFile(bytes);
  }

  async end(): Promise<WrittenFile> {
    await this.#flush();
    await this.#handle.close();
    return { path: this.#path, bytes: this.#bytes, sha256: this.#hash.digest('hex') };
  }

  async remove(): Promise<void> {
    await this.#handle.close().catch(() => undefined);
    await unlink(this.#path).catch(() => undefined);
  }
}

const placeOf = (found: LogPlace | null): LogPlace | null => found && { time: found.time, id: found.id };

function wholeOf(pinned: Pinned): string {
  const last = steps(pinned, 'oldest').at(-1);
  if (last === undefined) throw new Error('there is at least one step');
  return last.relation;
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
