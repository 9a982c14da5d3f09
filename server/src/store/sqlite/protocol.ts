/** What passes between the serving thread and a worker thread: flat arrays, which are the cheapest to clone. */

export type Value = string | number | null;
/** Bytes pass to the worker only. */
export type Parameter = Value | Uint8Array;

export interface ConnectionOptions {
  readonly synchronous: 'FULL' | 'NORMAL';
  readonly readOnly: boolean;
  /** How long SQLite itself waits for a lock, blocking the worker, milliseconds. */
  readonly busyTimeoutMs: number;
  /** Page cache, kilobytes. */
  readonly cacheKb: number;
  /** Of a new file, bytes. */
  readonly pageSize: 4096 | 8192;
  /** Overwrites what is deleted or replaced, so that no secret stays in the file. */
  readonly secureDelete: boolean;
  /** Pages in the write-ahead log before they are moved to the file. */
  readonly checkpointPages: number;
}

export interface WorkerOptions {
  readonly file: string;
  readonly connections: readonly ConnectionOptions[];
}

export const QUERY = 0;
export const SCRIPT = 1;
/** Rolls back if a transaction is open. */
export const ROLLBACK = 2;
export const CLOSE = 3;

export type Operation = typeof QUERY | typeof SCRIPT | typeof ROLLBACK | typeof CLOSE;

export type Request = readonly [
  id: number,
  connection: number,
  operation: Operation,
  sql: string,
  parameters: readonly Parameter[],
];

/** Rows as arrays in the order of `columns`. */
export type Answer =
  | readonly [id: number, ok: true, columns: readonly string[], rows: readonly (readonly Value[])[], affected: number]
  | readonly [id: number, ok: false, message: string, code: number];

/** The first message of a worker: null when its connections are open. */
export interface Opened {
  readonly failure: string | null;
}
