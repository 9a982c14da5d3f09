/**
 * What can be asked of the stored records, as data: the routes build it, the log store answers it. No text of a caller
 * is ever part of a statement: columns are names of `LOG_COLUMNS`, values are parameters.
 */

/** The longest range of one question, days. */
export const MOST_DAYS = 400;

/** Records that are being erased: each answer leaves them out at once, wherever they still are. */
export interface ErasedLogs {
  /** Null: in all workspaces. */
  readonly workspaceId: string | null;
  readonly column: 'id' | 'end_user' | 'api_key_id' | 'trace_id';
  readonly value: string;
  /** Milliseconds since the epoch: those of before it. */
  readonly before: number;
}

/** Whose records: part of each question, and never made of what a caller filters by. */
export interface LogScope {
  readonly organisationId: string;
  /** Null: all of the organisation, those without a workspace too. Empty: none. */
  readonly workspaceIds: readonly string[] | null;
  /** Only the requests of this user, where the visibility settings show no others. */
  readonly userId: string | null;
  /** Milliseconds since the epoch: what is older is past its retention, and answered as if it were gone. */
  readonly keptSince: number;
  readonly erased: readonly ErasedLogs[];
}

/** One condition; those of a list must all hold. A null value of a record meets none but `known: false`. */
export type LogFilter =
  /** The text is one of these. */
  | { readonly column: string; readonly in: readonly string[] }
  /** Both bounds belong to the range; one may be absent. */
  | { readonly column: string; readonly min?: number; readonly max?: number }
  | { readonly column: string; readonly is: boolean }
  | { readonly column: string; readonly known: boolean }
  /** The value of this key of the metadata is one of these. */
  | { readonly metadata: string; readonly in: readonly string[] }
  /** The metadata has this key, or has it not. */
  | { readonly metadata: string; readonly known: boolean }
  /** One of these lists of conditions holds. */
  | { readonly anyOf: readonly (readonly LogFilter[])[] };

export interface LogSelection {
  readonly scope: LogScope;
  /** Milliseconds since the epoch: from the first, before the second. */
  readonly from: number;
  readonly to: number;
  readonly where: readonly LogFilter[];
}

/** What the answer says of itself. */
export interface LogCoverage {
  /** Records up to this time (milliseconds since the epoch) are all in the answer. */
  readonly completeTo: number;
  /** Ranges of which files could not be read; empty as a rule. `node`: what is missing is of this node. */
  readonly incomplete: readonly { readonly from: number; readonly to: number; readonly node?: string }[];
}

/** A place between two records. Those of one millisecond are ordered by id. */
export interface LogPlace {
  readonly time: number;
  readonly id: string;
}

export interface LogPageQuery {
  readonly columns: readonly string[];
  readonly order: 'newest' | 'oldest';
  readonly limit: number;
  /** The page begins behind this record; null: at the begin. */
  readonly behind: LogPlace | null;
}

export type LogValue = string | number | boolean | null | Readonly<Record<string, string>>;
export type LogRow = Readonly<Record<string, LogValue>>;

export interface LogPage extends LogCoverage {
  readonly rows: readonly LogRow[];
  /** Null: there are no more. */
  readonly next: LogPlace | null;
}

/** Free text over the kept bodies of a selection. */
export interface LogSearchQuery extends LogPageQuery {
  readonly phrase: string;
  /** Milliseconds since the epoch: bodies of requests before it are past their days. */
  readonly since: number;
  /** Without what tells of the metadata of a request. */
  readonly noMetadata: boolean;
}

export interface LogFoundPage {
  readonly rows: readonly LogRow[];
  /** Where the next page begins; null: everything was searched. */
  readonly next: LogPlace | null;
  /** Requests whose bodies were looked at. */
  readonly searched: number;
  /** Of these, requests whose bodies could not be read. */
  readonly unread: number;
  /** Whether everything up to `next` that there is was searched; false: the time was over before the page was full. */
  readonly complete: boolean;
}

export type LogGroupKey =
  | { readonly column: string }
  | { readonly metadata: string }
  /** The index of the bucket that `time` falls in: bucket i is from `bounds[i]` before `bounds[i + 1]`. Ascending. */
  | { readonly bounds: readonly number[] };

/** One number of each group, under the name `as`. */
export interface LogMeasure {
  readonly as: string;
  readonly of: 'count' | 'sum' | 'avg' | 'min' | 'max' | 'distinct' | 'quantile';
  /** Of all but `count`. */
  readonly column?: string;
  /** Of a quantile: 0 to 1. Nearest rank: the smallest value that is not below this share of the values. */
  readonly q?: number;
  /** Only records that also meet these. */
  readonly where?: readonly LogFilter[];
}

export interface LogGroupQuery {
  /** None, or up to four. Records with no value of a key form one group, whose key is null. */
  readonly by: readonly LogGroupKey[];
  readonly measures: readonly LogMeasure[];
  /** By a measure's name, or by key `0` or `1`; ties are ordered by the keys. Absent: by the keys, ascending. */
  readonly order?: { readonly by: string | 0 | 1; readonly descending: boolean };
  readonly offset?: number;
  readonly limit?: number;
}

export interface LogGroup {
  readonly keys: readonly (string | number | null)[];
  /** By the measures' names. Null: no record had a value. */
  readonly values: Readonly<Record<string, number | null>>;
}

export interface LogGroups extends LogCoverage {
  readonly groups: readonly LogGroup[];
  /** Number of all groups. */
  readonly total: number;
  /** The same measures over all records of the selection. */
  readonly summary: Readonly<Record<string, number | null>>;
  /** Measures that are not exact because there are too many records. */
  readonly approximate: readonly string[];
}

export interface LogArrivalQuery {
  readonly columns: readonly string[];
  /** `next` of an answer before; null: from now on. */
  readonly since: string | null;
  readonly limit: number;
}

/** Records in the order in which they came, whatever their times. */
export interface LogArrivals {
  readonly rows: readonly LogRow[];
  /** How many more came since, which are in no answer; null: some, of unknown number. */
  readonly left: number | null;
  /** Nodes whose requests are missing; null: all others. Absent: the same as before, and none at first. */
  readonly incomplete?: readonly string[] | null;
  readonly next: string;
}

/** The records that are kept, as routes read them. A question that is too large or too long is a `SluiceError`. */
export interface LogStore {
  page(selection: LogSelection, query: LogPageQuery): Promise<LogPage>;
  groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups>;
  /** Records that have come since an earlier answer. Their times may be older: a request is recorded at its end. */
  arrived(selection: LogSelection, query: LogArrivalQuery): Promise<LogArrivals>;
  /** The number of records, counted to `most` + 1 at most. */
  count(selection: LogSelection, most: number): Promise<number>;
  /** Every column of one record; null when the scope has none of this id. */
  find(scope: LogScope, id: string): Promise<LogRow | null>;
}
