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
  /** The node that made it. */
  readonly node: string;
  /** `disk`: only its node has it. `store`: it is in the blob store, for all nodes. */
  readonly place: 'disk' | 'store';
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

/** How far the records of a node are in files that every node can read. Both are milliseconds since the epoch. */
export interface LogNode {
  readonly node: string;
  readonly completeTo: number;
  readonly seenAt: number;
}

/** What has changed in a list that several nodes share. */
export interface LogFileNews {
  /** False: what is named is all that there is. */
  readonly partial: boolean;
  readonly files: readonly LogFile[];
  /** Ids of files that are in the list no more. */
  readonly gone: readonly string[];
  readonly nodes: readonly LogNode[];
  /** What to ask with next. */
  readonly at: number;
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

/** The files of all nodes: a list in the control store, their bytes in the blob store. */
export interface SharedLogFiles {
  /** @param since `at` of an answer before; null: everything */
  news(since: number | null): Promise<LogFileNews>;
  /** Stores the bytes of a file that is in the list, and says so there. */
  upload(id: string, path: string): Promise<void>;
  /** Stores the bytes of a file that `commit` will put into the list: what never comes into it goes after an hour. */
  prepare(file: LogFile, path: string): Promise<void>;
  /** Writes the bytes of a file to the path; false when there are none. */
  download(id: string, path: string): Promise<boolean>;
  /** Whether this node may replace files of the list, for the next minute at least. */
  lead(): Promise<boolean>;
  /** This node lives, and all that it recorded before a time is in the blob store; null: no more than before. */
  announce(completeTo: number | null): Promise<void>;
}

export interface LogCatalog {
  load(): Promise<LogCatalogState>;
  /** Resolves when it would survive a power cut. Rejects when another keeper was here first: then load again. */
  commit(change: LogCatalogChange): Promise<void>;
}
