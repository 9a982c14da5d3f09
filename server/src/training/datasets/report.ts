import { SluiceError } from '../../kernel/errors.ts';
import type { RowFormat } from '../../operations/training.ts';

/** What one line of a data set may be. */
export type RowKind = 'chat' | 'preference' | 'text' | 'batch';

/** Kinds a fine-tuning file may hold. */
export const TRAINING_KINDS: readonly RowKind[] = ['chat', 'preference', 'text'];

/** Why a line, or the whole data set, was refused. */
export type RowReason =
  | 'not_utf8'
  | 'empty_line'
  | 'line_too_long'
  | 'invalid_json'
  | 'duplicate_key'
  | 'not_object'
  | 'unknown_kind'
  | 'wrong_kind'
  | 'mixed_kinds'
  | 'messages'
  | 'role'
  | 'content'
  | 'empty_turn'
  | 'last_message'
  | 'weight'
  | 'tools'
  | 'tool_calls'
  | 'tool_pairing'
  | 'outputs'
  | 'text'
  | 'batch_line'
  | 'custom_id'
  | 'unsupported'
  | 'alternation'
  | 'columns'
  | 'too_few_rows'
  | 'too_many_rows';

/** One thing that is wrong with a row. `message` is for the caller and never repeats anything the row holds. */
export class RowFault extends Error {
  readonly code: RowReason;

  constructor(code: RowReason, message: string) {
    super(message);
    this.name = 'RowFault';
    this.code = code;
  }
}

export interface RowProblem {
  /** From 1; null when the whole data set is at fault. */
  readonly line: number | null;
  readonly code: RowReason;
  /** What is wrong, without content of the row. */
  readonly reason: string;
  /** The first 200 characters of the line; only when excerpts were asked for. */
  readonly excerpt?: string;
}

export interface DatasetReport {
  /** Lines that are not blank. */
  readonly rows: number;
  /** Rows without a problem. */
  readonly valid: number;
  /** Null for an empty data set. */
  readonly kind: RowKind | null;
  /** Bytes read. */
  readonly bytes: number;
  /** The first 100. */
  readonly problems: readonly RowProblem[];
  /** Problems by code, all of them counted. */
  readonly totals: Readonly<Partial<Record<RowReason, number>>>;
  /**
   * Tokens of the valid rows, with the overhead of chat turns (`tokens.ts`); null when they were not counted.
   */
  readonly tokens: number | null;
  /** Rows whose bytes repeat an earlier row. They are valid. */
  readonly duplicates: number;
  /** False when the data set has more different rows than are remembered: then `duplicates` is the least there are. */
  readonly duplicates_complete: boolean;
}

export const MAX_PROBLEMS = 100;
export const MAX_EXCERPT = 200;
/** Lines an error message names. */
export const NAMED_LINES = 10;

/** What a scan is asked for; plain data, sent to the worker thread as it is. */
export interface ScanOptions {
  /** Row kinds that are allowed; the first valid row settles which one the data set is. */
  readonly kinds: readonly RowKind[];
  /** Target of a conversion; each row is converted, so that what it cannot hold is found. Null: canonical rules only. */
  readonly format: RowFormat | null;
  /** Whether converted rows are wanted as bytes. Nothing more is written after the first bad row. */
  readonly emit: boolean;
  readonly countTokens: boolean;
  readonly excerpts: boolean;
  readonly minimumRows: number;
  /** Ends the scan after so many bad rows; Infinity for a full report. */
  readonly badRows: number;
}

const dotted = (text: string): string => (/[.!?]$/.test(text) ? text.slice(0, -1) : text);

/** `line 3: …; line 9: … and 4 more problems`: at most ten lines are named, and nothing of their content. */
export function problemsText(report: DatasetReport): string {
  const total = Object.values(report.totals).reduce((sum, count) => sum + count, 0);
  const named = report.problems.slice(0, NAMED_LINES);
  const text = named
    .map(({ line, reason }) => (line === null ? dotted(reason) : `line ${line}: ${dotted(reason)}`))
    .join('; ');
  const more = total - named.length;
  return more > 0 ? `${text}; and ${more} more problem${more === 1 ? '' : 's'}` : text;
}

export function isValid(report: DatasetReport): boolean {
  return Object.keys(report.totals).length === 0;
}

/** 400 `invalid_dataset_row` for a data set that is not valid. `param` is `file` for an upload. */
export function datasetError(report: DatasetReport, param: string): SluiceError {
  return new SluiceError(
    'invalid_request',
    `The data set cannot be used: ${problemsText(report)}. Correct these lines and send the file again.`,
    { param, reason: 'invalid_dataset_row' },
  );
}
