import { availableParallelism } from 'node:os';
import type { Readable } from 'node:stream';
import { Worker } from 'node:worker_threads';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import { reasonOf, Slots } from '../../kernel/slots.ts';
import { loadedTokenizer, type Tokenizer } from '../../operations/tokens.ts';
import type { Input, Output, WorkerOptions } from './protocol.ts';
import type { DatasetReport, ScanOptions } from './report.ts';

export interface ScanContext {
  readonly clock: Clock;
  readonly log: Log;
  /** Whose data set it is: an organisation. Each has its share of the threads. */
  readonly owner: string;
  /** Ends the scan; its reason is thrown when it is a SluiceError. */
  readonly signal?: AbortSignal | undefined;
  /** Names the data set in the log, for example a file id. */
  readonly name?: string;
  /** Called with each piece that was read. */
  readonly onProgress?: (progress: { readonly rows: number; readonly bytes: number }) => void;
}

/** Bytes of one message to the worker: large enough that messages cost nothing, small enough to copy unnoticed. */
const PIECE = 256 * 1024;
/** Messages on their way at a time. */
const WINDOW = 4;
/** Bytes that are read without a thread: a few milliseconds even when every row is bad. */
const HERE = 32 * 1024;
const EMPTY = new Uint8Array(0);
const LOG_EVERY_MS = 3_000;
/** Far above what any row within the limits needs. */
const LIMITS = { maxOldGenerationSizeMb: 512, maxYoungGenerationSizeMb: 32 };

/** A scan takes a core: one is left for the requests where there are enough. Two keep a long one from blocking the rest. */
const scans = new Slots('threads that read data sets', Math.min(4, Math.max(2, availableParallelism() - 1)));
/** A conversion moves at the pace of its upload and mostly waits, so that these do not stand in the way of scans. */
const conversions = new Slots('threads that convert data sets', 32);
export const datasetShares = [scans.shares, conversions.shares];

/** The scan of a small data set, at once: starting a thread would take longer. */
async function scanHere(
  bytes: Buffer,
  options: ScanOptions,
  tokenizer: Tokenizer | null,
): Promise<{ report: DatasetReport; out: Buffer | null }> {
  const { DatasetScan } = await import('./scan.ts');
  const { stackTraceLimit } = Error;
  // A stack for each bad row would cost more than the row.
  Error.stackTraceLimit = 0;
  try {
    const scan = new DatasetScan(options, tokenizer);
    scan.push(bytes);
    scan.end();
    return { report: scan.report(), out: scan.take() };
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Pieces of equal size in separate memory, whatever the stream delivers; `spare` is used before anything new. */
async function* pieces(input: Readable, spare: ArrayBuffer[]): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const fresh = () => new Uint8Array(spare.pop() ?? new ArrayBuffer(PIECE));
  let piece = fresh();
  let used = 0;
  for await (const chunk of input as AsyncIterable<Buffer | string>) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    for (let from = 0; from < bytes.length; ) {
      const n = Math.min(PIECE - used, bytes.length - from);
      piece.set(bytes.subarray(from, from + n), used);
      used += n;
      from += n;
      if (used < PIECE) continue;
      yield piece;
      piece = fresh();
      used = 0;
    }
  }
  if (used > 0) yield piece.subarray(0, used);
}

/**
 * Runs a scan in a worker thread: the serving thread only copies the bytes over. Reads `input` no faster than the worker
 * and `write` take it, and destroys it in the end. Rejects with the failure of `input` or `write`, or the reason of the
 * signal.
 */
export async function scanInThread(
  input: Readable,
  options: ScanOptions,
  context: ScanContext,
  write: ((bytes: Buffer) => Promise<void>) | null,
): Promise<DatasetReport> {
  const { clock, log, signal, name } = context;
  // A stream that fails before anybody listens would end the process.
  input.on('error', () => {});
  let release = () => {};
  let worker: Worker | null = null;
  let stopLog = () => {};
  /** Memory that the worker gave back. */
  const spare: ArrayBuffer[] = [];
  const reader = pieces(input, spare);
  const ended = new AbortController();
  try {
    if (signal?.aborted) throw reasonOf(signal);
    const leave = () => input.destroy(reasonOf(signal));
    signal?.addEventListener('abort', leave, { once: true, signal: ended.signal });
    const first = await reader.next();
    const bytes = first.done ? EMPTY : first.value;
    // A piece that is not full is the last one.
    // Loading the encoding would hold up requests.
    const tokenizer = options.countTokens ? loadedTokenizer() : null;
    if (bytes.length <= HERE && (tokenizer !== null || !options.countTokens)) {
      const { report, out } = await scanHere(
        Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length),
        options,
        tokenizer,
      );
      context.onProgress?.({ rows: report.rows, bytes: report.bytes });
      if (out !== null) await write?.(out);
      if (signal?.aborted) throw reasonOf(signal);
      return report;
    }
    release = await (write === null ? scans : conversions).take(context.owner, signal);
    const { worker: started, exchange } = start(options, write);
    worker = started;
    const abort = () => {
      input.destroy(reasonOf(signal));
      exchange.fail(reasonOf(signal));
    };
    signal?.addEventListener('abort', abort, { once: true, signal: ended.signal });
    if (signal?.aborted) abort();
    const progress = { rows: 0, bytes: 0 };
    const began = clock.monotonic();
    const tell = () => {
      log.info('reading a data set', { name, ...progress, seconds: Math.round((clock.monotonic() - began) / 1000) });
      stopLog = clock.after(LOG_EVERY_MS, tell);
    };
    stopLog = clock.after(LOG_EVERY_MS, tell);

    let done = false;
    const answered = (bytes: number) => (output: Output) => {
      if (output.memory !== null) spare.push(output.memory);
      progress.rows = output.rows;
      progress.bytes += bytes;
      done = output.done;
      context.onProgress?.({ ...progress });
    };
    for (let next = first; !next.done && !done; next = await reader.next())
      await exchange.send(next.value, answered(next.value.length));
    const report = await exchange.end();
    if (signal?.aborted) throw reasonOf(signal);
    return report;
  } catch (error) {
    throw signal?.aborted ? reasonOf(signal) : error;
  } finally {
    ended.abort();
    stopLog();
    input.destroy();
    await worker?.terminate();
    release();
  }
}

function errorCode(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : null;
}

/** The thread was ended for its memory: no limit of a single row says so in advance. */
function tooComplex(cause: unknown): SluiceError {
  return new SluiceError(
    'invalid_request',
    'A row of the data set takes too much memory to be read; make it smaller.',
    {
      reason: 'invalid_dataset_row',
      cause,
    },
  );
}

function start(options: ScanOptions, write: ((bytes: Buffer) => Promise<void>) | null) {
  const data: WorkerOptions = { scan: options };
  const worker = new Worker(new URL('./worker.ts', import.meta.url), {
    workerData: data,
    // Flags of the main script are not for this thread.
    execArgv: [],
    resourceLimits: LIMITS,
  });
  let failure: Error | null = null;
  /** Woken by every answer and by a failure. */
  let wake = () => {};
  let underway = 0;
  let report: DatasetReport | null = null;
  const handlers: ((output: Output) => void)[] = [];
  /** Writes happen one after the other, in the order of the answers. */
  let written = Promise.resolve();

  const fail = (error: unknown) => {
    failure ??= error instanceof Error ? error : new Error('the scan failed', { cause: error });
    wake();
  };
  worker.on('message', (output: Output) => {
    const settle = () => {
      handlers.shift()?.(output);
      underway -= 1;
      if (output.report !== null) report = output.report;
      wake();
    };
    const { bytes } = output;
    if (bytes === null || write === null) {
      written = written.then(settle);
    } else {
      written = written.then(() => write(Buffer.from(bytes.buffer))).then(settle);
    }
    written = written.catch(fail);
  });
  worker.on('error', (error) => {
    if (errorCode(error) === 'ERR_WORKER_OUT_OF_MEMORY') fail(tooComplex(error));
    fail(new SluiceError('internal', 'The data set could not be read.', { cause: error, detail: String(error) }));
  });
  worker.on('exit', () => {
    if (report === null) fail(new SluiceError('internal', 'The data set could not be read.'));
  });

  const until = async (ready: () => boolean) => {
    for (;;) {
      if (failure !== null) throw failure;
      if (ready()) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  const post = (input: Input, handler: (output: Output) => void) => {
    handlers.push(handler);
    underway += 1;
    worker.postMessage(input, input === null ? [] : [input.buffer]);
  };
  return {
    worker,
    exchange: {
      fail,
      async send(piece: Uint8Array<ArrayBuffer>, handler: (output: Output) => void): Promise<void> {
        await until(() => underway < WINDOW);
        post(piece, handler);
      },
      async end(): Promise<DatasetReport> {
        post(null, () => {});
        await until(() => report !== null);
        return report as unknown as DatasetReport;
      },
    },
  };
}
