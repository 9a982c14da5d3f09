/**
 * One pass over the bytes of a JSONL data set, whatever the size of the pieces they come in: lines, checks, conversion,
 * token counts. Synchronous and without clock; runs in the worker thread (`worker.ts`). Memory is bounded by the
 * longest line, the report and the row set.
 */
import type { JsonObject } from '../../kernel/json.ts';
import type { Tokenizer } from '../../operations/tokens.ts';
import { type Format, formatOf } from './formats.ts';
import { parseRow } from './parse-row.ts';
import {
  type DatasetReport,
  MAX_EXCERPT,
  MAX_PROBLEMS,
  RowFault,
  type RowKind,
  type RowProblem,
  type RowReason,
  type ScanOptions,
} from './report.ts';
import { RowSet } from './row-set.ts';
import { checkRow, fault, kindOf } from './rows.ts';
import { rowTokens } from './tokens.ts';

/** Longest line: room for an image of 20 MB in base64. */
export const MAX_LINE = 32 * 1024 * 1024;
const LF = 0x0a;
const CR = 0x0d;
const NEWLINE = Buffer.from('\n');

export class DatasetScan {
  readonly #options: ScanOptions;
  readonly #tokenizer: Tokenizer | null;
  readonly #format: Format | null;
  readonly #seen = new RowSet();
  /** Ids of batch lines. */
  readonly #ids = new RowSet();
  /** Beginning of a line whose end has not come; empty when it grew too long. */
  #held: Buffer[] = [];
  #heldBytes = 0;
  #line = 0;
  #rows = 0;
  #bytes = 0;
  #bad = 0;
  /** Whether anything is wrong: from then on nothing is written. */
  #failed = false;
  #duplicates = 0;
  #tokens = 0;
  #kind: RowKind | null = null;
  /** Blank lines that are only allowed when nothing follows. */
  #blank = 0;
  #problems: RowProblem[] = [];
  #totals: Partial<Record<RowReason, number>> = {};
  #out: Buffer[] = [];

  /** `tokenizer` when tokens are to be counted. */
  constructor(options: ScanOptions, tokenizer: Tokenizer | null) {
    this.#options = options;
    this.#tokenizer = tokenizer;
    this.#format = options.format === null ? null : formatOf(options.format);
  }

  get rows(): number {
    return this.#rows;
  }

  /** True when enough bad rows were found: the rest need not be read. */
  get done(): boolean {
    return this.#bad >= this.#options.badRows;
  }

  push(chunk: Buffer): void {
    this.#bytes += chunk.length;
    let from = 0;
    while (from < chunk.length && !this.done) {
      const end = chunk.indexOf(LF, from);
      if (end < 0) {
        this.#hold(chunk.subarray(from));
        return;
      }
      if (this.#heldBytes === 0) this.#ended(chunk.subarray(from, end));
      else this.#endHeld(chunk.subarray(from, end));
      from = end + 1;
    }
  }

  end(): void {
    if (this.#heldBytes > 0 && !this.done) this.#endHeld(Buffer.alloc(0));
    const { minimumRows } = this.#options;
    if (this.#rows < minimumRows && !this.done)
      this.#problem(null, 'too_few_rows', `the data set has ${this.#rows} rows and needs at least ${minimumRows}`);
    const most = this.#format?.maximumRows;
    if (most !== undefined && this.#rows > most)
      this.#problem(null, 'too_many_rows', `the data set has ${this.#rows} rows; the provider takes ${most}`);
  }

  /** Converted bytes since the last call; null when there are none. */
  take(): Buffer | null {
    if (this.#out.length === 0) return null;
    const out = Buffer.concat(this.#out);
    this.#out = [];
    return out;
  }

  report(): DatasetReport {
    return {
      rows: this.#rows,
      valid: this.#rows - this.#bad,
      kind: this.#kind,
      bytes: this.#bytes,
      problems: this.#problems,
      totals: this.#totals,
      tokens: this.#tokenizer === null ? null : this.#tokens,
      duplicates: this.#duplicates,
      duplicates_complete: this.#seen.complete,
    };
  }

  #hold(piece: Buffer): void {
    this.#heldBytes += piece.length;
    // The bytes of a piece belong to a batch that is gone soon.
    if (this.#heldBytes <= MAX_LINE) this.#held.push(Buffer.from(piece));
    else this.#held = [];
  }

  #endHeld(rest: Buffer): void {
    const bytes = this.#heldBytes + rest.length;
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    if (bytes <= MAX_LINE) {
      this.#ended(Buffer.concat([...held, rest]));
      return;
    }
    this.#line += 1;
    this.#rows += 1;
    this.#bad += 1;
    this.#flushBlank();
    this.#problem(this.#line, 'line_too_long', `the line is longer than ${MAX_LINE} bytes`);
  }

  #ended(line: Buffer): void {
    this.#line += 1;
    let row = line;
    if (this.#line === 1 && row[0] === 0xef && row[1] === 0xbb && row[2] === 0xbf) row = row.subarray(3);
    if (row[row.length - 1] === CR) row = row.subarray(0, -1);
    if (isBlank(row)) {
      this.#blank += 1;
      return;
    }
    this.#flushBlank();
    this.#rows += 1;
    try {
      this.#row(row);
    } catch (error) {
      if (!(error instanceof RowFault)) throw error;
      this.#bad += 1;
      this.#problem(this.#line, error.code, error.message, row);
    }
  }

  /** Blank lines so far were not the last ones. */
  #flushBlank(): void {
    const first = this.#line - this.#blank;
    for (let i = 0; i < this.#blank; i++) this.#problem(first + i, 'empty_line', 'the line is empty');
    this.#blank = 0;
  }

  #row(bytes: Buffer): void {
    const row = parseRow(bytes);
    const kind = kindOf(row);
    if (!this.#options.kinds.includes(kind))
      fault('wrong_kind', `the row is a ${kind} row; this use takes ${this.#options.kinds.join(' or ')} rows`);
    if (this.#kind !== null && kind !== this.#kind)
      fault('mixed_kinds', `the row is a ${kind} row, the rows before it are ${this.#kind} rows`);
    checkRow(row, kind);
    if (kind === 'batch' && this.#ids.seen(row.custom_id as string))
      fault('custom_id', 'an earlier line has the same "custom_id"');
    if (this.#format !== null) this.#convert(row, kind, bytes);
    this.#kind ??= kind;
    if (this.#tokenizer !== null) this.#tokens += rowTokens(row, kind, this.#tokenizer);
    if (this.#seen.seen(bytes)) this.#duplicates += 1;
  }

  #convert(row: JsonObject, kind: RowKind, bytes: Buffer): void {
    const converted = this.#format?.convert(row, kind) ?? null;
    if (!this.#options.emit || this.#failed) return;
    this.#out.push(converted === null ? bytes : Buffer.from(JSON.stringify(converted)), NEWLINE);
  }

  #problem(line: number | null, code: RowReason, reason: string, row?: Buffer): void {
    this.#failed = true;
    this.#totals[code] = (this.#totals[code] ?? 0) + 1;
    if (this.#problems.length >= MAX_PROBLEMS) return;
    const excerpt = row !== undefined && this.#options.excerpts ? { excerpt: excerptOf(row) } : {};
    this.#problems.push({ line, code, reason, ...excerpt });
  }
}

function isBlank(line: Buffer): boolean {
  for (let i = 0; i < line.length; i++) {
    const byte = line[i] as number;
    if (byte !== 0x20 && byte !== 0x09 && byte !== CR) return false;
  }
  return true;
}

function excerptOf(row: Buffer): string {
  // Four bytes a character at the most; a character that the cut split is left out.
  const text = row.toString('utf8', 0, Math.min(row.length, MAX_EXCERPT * 4));
  return text.slice(0, MAX_EXCERPT).toWellFormed();
}
