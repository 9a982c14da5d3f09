import type { DatasetReport, ScanOptions } from './report.ts';

/** What the serving thread and the worker thread of a scan tell each other. Bytes are transferred, not copied. */

export interface WorkerOptions {
  readonly scan: ScanOptions;
}

/** The next bytes; null when there are no more. */
export type Input = Uint8Array<ArrayBuffer> | null;

/** One for each input. */
export interface Output {
  /** The memory of the input, to be used again; null for the last one. */
  readonly memory: ArrayBuffer | null;
  readonly rows: number;
  /** Enough bad rows were found: the rest need not be sent. */
  readonly done: boolean;
  /** Converted bytes. */
  readonly bytes: Uint8Array<ArrayBuffer> | null;
  /** With the answer to the last input. */
  readonly report: DatasetReport | null;
}
