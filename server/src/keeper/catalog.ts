/** The list of files, as the keeper asks for it: truth is in the control store, of which the keeper itself knows nothing. */

/** Ending of files that are being written, and of those that wait to be taken away: they go when a keeper starts. */
export const UNFINISHED = '.unfinished';

/** A Parquet file of records. */
export interface LogFile {
  /** Name without ending. */
  readonly id: string;
  /** Days since the epoch (UTC). */
  readonly day: number;
  readonly level: number;
  /** Milliseconds since the epoch; both belong to the range. */
  readonly minTime: number;
  readonly maxTime: number;
  readonly records: number;
  readonly bytes: number;
  readonly damaged: boolean;
}

/** A place in a journal. */
export interface LogPosition {
  readonly journal: string;
  readonly segment: string;
  readonly offset: number;
}

/** What one hour of a workspace's records adds up to. */
export interface LogHour {
  readonly organisation_id: string;
  readonly workspace_id: string;
  readonly hour: number;
  readonly source: string;
  readonly requests: number;
  readonly errors: number;
  readonly refused: number;
  readonly unpriced: number;
  readonly cost_micros: number;
  readonly saved_micros: number;
  readonly tokens_in: number;
  readonly tokens_out: number;
  readonly latency_sum_us: number;
}

export interface LogCatalogState {
  readonly files: readonly LogFile[];
  readonly positions: readonly LogPosition[];
}

/** One change, whole or not at all. */
export interface LogCatalogChange {
  readonly add: readonly LogFile[];
  readonly remove: readonly string[];
  readonly damaged: readonly string[];
  /** Where the journals were, and where they are now: refused when they are somewhere else by then. */
  readonly moved: readonly { readonly from: LogPosition | null; readonly to: LogPosition }[];
  readonly hours: readonly LogHour[];
}

export const NO_CHANGE: LogCatalogChange = { add: [], remove: [], damaged: [], moved: [], hours: [] };

export interface LogCatalog {
  load(): Promise<LogCatalogState>;
  /** Resolves when it would survive a power cut. Rejects when another keeper was here first: then load again. */
  commit(change: LogCatalogChange): Promise<void>;
}
