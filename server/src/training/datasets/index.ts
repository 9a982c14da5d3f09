/**
 * Data sets for fine-tuning, and inputs of batches: checked, counted and converted as they stream by, in a worker
 * thread. Nothing is buffered whole, and no row is left out: what is wrong is named by its line.
 */
import { Readable } from 'node:stream';
import type { RowFormat } from '../../operations/training.ts';
import { type DatasetReport, datasetError, isValid, NAMED_LINES, type RowKind, TRAINING_KINDS } from './report.ts';
import { type ScanContext, scanInThread } from './thread.ts';

export {
  type DatasetReport,
  datasetError,
  isValid,
  problemsText,
  type RowKind,
  type RowProblem,
  type RowReason,
  TRAINING_KINDS,
} from './report.ts';
export type { ScanContext } from './thread.ts';

export interface ValidateOptions extends ScanContext {
  /** Row kinds that are allowed; default every training kind. `['preference']` for DPO, `['batch']` for batch inputs. */
  readonly kinds?: readonly RowKind[];
  /** Target format, whose own limits then count too; default: canonical rules only. */
  readonly format?: RowFormat | null;
  /** Fewest rows; default 1. */
  readonly minimumRows?: number;
  /** Adds up to 200 characters of each row at fault to the report. */
  readonly excerpts?: boolean;
  /** Counts tokens in the same pass, at the tokeniser's speed. */
  readonly countTokens?: boolean;
}

export interface ConvertOptions extends ScanContext {
  readonly format: RowFormat;
  readonly kinds?: readonly RowKind[];
  readonly minimumRows?: number;
  /** Field of the request that names the file, for the error; default `file`. */
  readonly param?: string;
}

/**
 * Reads the whole of `input` (JSONL) and reports on it. Rejects only when the input fails or the signal aborts, never
 * for what the rows hold: see `isValid` and `datasetError`.
 */
export function validateDataset(input: Readable, options: ValidateOptions): Promise<DatasetReport> {
  return scanInThread(
    input,
    {
      kinds: options.kinds ?? TRAINING_KINDS,
      format: options.format ?? null,
      emit: false,
      countTokens: options.countTokens ?? false,
      excerpts: options.excerpts ?? false,
      minimumRows: options.minimumRows ?? 1,
      badRows: Number.POSITIVE_INFINITY,
    },
    options,
    null,
  );
}

/** Rows and tokens of a data set; rows that are not valid count no tokens. */
export async function countDataset(
  input: Readable,
  options: Omit<ValidateOptions, 'countTokens' | 'excerpts'>,
): Promise<{ readonly rows: number; readonly tokens: number }> {
  const { rows, tokens } = await validateDataset(input, { ...options, countTokens: true });
  return { rows, tokens: tokens ?? 0 };
}

/**
 * `input` in the format of a provider. With the first row that cannot be converted nothing more is written; the rest is
 * read until ten such lines are known, then `stream` fails with 400 `invalid_dataset_row` naming them, so that the upload
 * it feeds ends unfinished. `report` settles when the stream has ended or failed; it rejects like `validateDataset`.
 */
export function convertDataset(
  input: Readable,
  options: ConvertOptions,
): { readonly stream: Readable; readonly report: Promise<DatasetReport> } {
  const given = new AbortController();
  const signal = options.signal === undefined ? given.signal : AbortSignal.any([options.signal, given.signal]);
  let wanted = () => {};
  const stream = new Readable({
    read() {
      wanted();
    },
    destroy(error, done) {
      // The reader went away, or the conversion failed and said so here.
      given.abort();
      done(error);
    },
  });
  // It may fail before its reader comes, which opens a file or a connection first: without a listener that ends the process.
  stream.on('error', () => {});
  const write = async (bytes: Buffer): Promise<void> => {
    if (stream.push(bytes) || stream.destroyed) return;
    await new Promise<void>((resolve) => {
      wanted = resolve;
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
  };
  const report = scanInThread(
    input,
    {
      kinds: options.kinds ?? TRAINING_KINDS,
      format: options.format,
      emit: true,
      countTokens: false,
      excerpts: false,
      minimumRows: options.minimumRows ?? 1,
      badRows: NAMED_LINES,
    },
    { ...options, signal },
    write,
  );
  report.then(
    (found) => {
      if (isValid(found)) stream.push(null);
      else stream.destroy(datasetError(found, options.param ?? 'file'));
    },
    (error: Error) => stream.destroy(error),
  );
  return { stream, report };
}
