/**
 * How far journals have been read, and the tables of the log keeper: of the installation, whatever organisation a row names.
 * Exports belong to their workspace, erasures to their organisation.
 */
import { bool, int, json, nullable, sealed, table, text, time } from './column.ts';

export type LogExportStatus = 'draft' | 'in_progress' | 'success' | 'failed' | 'stopped';

export type LogDestinationKind = 'otlp' | 'webhook' | 's3';

/** How far a node came with a destination. */
export interface FeedMark {
  /** Milliseconds since the epoch: its requests that were recorded before are settled. */
  readonly since: number;
  /** Of runs of its processes the highest sequence number that is settled: all below it are, too. */
  readonly runs: Readonly<Record<string, number>>;
}

/** What others do for a node that is away. */
export interface StoredHandOver {
  /** The last request that was looked at; null: none was. */
  readonly time: number | null;
  readonly id: string | null;
  /** Milliseconds since the epoch. Its requests that ended later may not all be known to others. */
  readonly before: number;
  /** There are no more. */
  readonly done: boolean;
}

/** A piece of an export's file, in the blob store. */
export interface LogExportPart {
  readonly rows: number;
  readonly bytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  /** It is so many parts in one. */
  readonly joined?: number;
}

/** What one node has erased of what is on its own disk. */
export interface ErasedOnNode {
  /** Requests whose records are gone, and those of them whose bodies are. */
  readonly records: number;
  readonly bodies: number;
  readonly feedback: number;
  /** Files that cannot be read, in which such records may be. */
  readonly damaged_files: number;
  /** Where all nodes have their records in one place: its journals have nothing of them that is not there. */
  readonly filed?: boolean;
  /** Nothing on its disk has them. */
  readonly done: boolean;
}

export const logTables = {
  /** How far each journal of settled requests has been applied. */
  ledger_positions: table(['journal'], 'none', { journal: text(), segment: text(), position: int() }),
  /** One Parquet file of records each. */
  log_files: table(['id'], 'none', {
    /** The name of the file, without its ending. */
    id: text(),
    /** The node that made it. */
    node: text(),
    /** Days since the epoch (UTC), of the time of its records. */
    day: int(),
    /** 0 as written from the journals, 1 once merged. */
    level: int(),
    min_time: time(),
    max_time: time(),
    records: int(),
    bytes: int(),
    /** Of the columns it was written with. */
    version: int(),
    status: text<'live' | 'damaged'>(),
    created_at: time(),
    /** `disk`: only its node has it. `store`: it is in the blob store, for all nodes. */
    place: text<'disk' | 'store'>(),
    /** 0: it is in the list. Else it is not, or not yet, and file and row go at this time. */
    remove_at: time(),
    /** When this row was changed, by the clock that all nodes share. */
    changed_at: time(),
  }),
  /** Nodes whose records are in one place, for all of them. */
  log_nodes: table(['node'], 'none', {
    node: text(),
    /** All that this node recorded before is in the blob store. */
    complete_to: time(),
    seen_at: time(),
  }),
  /** Everything of a journal before this place is in files. */
  log_positions: table(['journal'], 'none', { journal: text(), segment: text(), position: int() }),
  /** One blob of kept bodies each, of one workspace. */
  body_chunks: table(['id'], 'none', {
    /** UUID; the time in it is when the chunk was begun. */
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    /** Days since the epoch (UTC), of that time. */
    day: int(),
    records: int(),
    /** Of the blob. */
    bytes: int(),
    created_at: time(),
  }),
  /** Sums over one hour; empty texts where a record has no organisation or workspace. Dry runs do not count. */
  log_hours: table(['organisation_id', 'workspace_id', 'hour', 'source'], 'none', {
    organisation_id: text(),
    workspace_id: text(),
    /** Hours since the epoch. */
    hour: int(),
    source: text(),
    requests: int(),
    errors: int(),
    refused: int(),
    unpriced: int(),
    cost_micros: int(),
    saved_micros: int(),
    tokens_in: int(),
    tokens_out: int(),
    latency_sum_us: int(),
  }),
  /** Exports of request logs; `jobs/log-exports.ts` writes their files. */
  log_exports: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    /** Whose export it is: a user key sees no others. Null: a service key's. */
    user_id: nullable(text()),
    /** As the caller has written them. */
    filters: json<Record<string, unknown>>(),
    requested_data: json<string[]>(),
    format: text<'jsonl' | 'csv' | 'parquet'>(),
    /** Every row that meets the filters, in place of one page of them. */
    whole: bool(),
    bom: bool(),
    description: text(),
    status: text<LogExportStatus>(),
    error: nullable(json<{ code: string; message: string; param: string | null }>()),
    /** Rows that the filters chose when it was made or changed, and once it is whole those of its file. */
    total: int(),
    /** How often it was started: the names of its blobs have it. */
    runs: int(),
    /** 0: never. */
    started_at: time(),
    /** The range of this run: an open end is the time of the start. Null before it. */
    covers: nullable(json<{ from: number; to: number }>()),
    /** Whole parts, in their order. */
    parts: json<LogExportPart[]>(),
    /** The last row of the last part; null: at the begin, or at the end. */
    place: nullable(json<{ time: number; id: string }>()),
    /** Ranges whose records could not be read. */
    incomplete: json<{ from: number; to: number; node?: string }[]>(),
    /** When the file goes; null: there is none. */
    expires_at: nullable(time()),
    /** `done`: no worker has anything to do. */
    step: text<'begin' | 'parts' | 'done'>(),
    cancel_requested: bool(),
    failures: int(),
    due_at: time(),
    holder: nullable(text()),
    held_until: time(),
    created_by: nullable(text()),
    created_at: time(),
    last_updated_at: time(),
  }),
  /** Where records are sent as they come; `exporter/destinations/` sends them. */
  log_destinations: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    /** Null: of the whole organisation. */
    workspace_id: nullable(text()),
    name: text(),
    kind: text<LogDestinationKind>(),
    enabled: bool(),
    /** What is not secret of its settings, and the begin of its address. */
    settings: json<Record<string, unknown>>(),
    /** Its address, headers and keys as one JSON object. */
    secrets: sealed(),
    /** As the caller has written them. */
    filters: json<Record<string, unknown>>(),
    /** Null: all. */
    fields: nullable(json<string[]>()),
    bodies: bool(),
    /** Of a million traces. */
    sample: int(),
    /** Requests from this time on are sent. */
    start_at: time(),
    created_by: nullable(text()),
    updated_by: nullable(text()),
    created_at: time(),
    last_updated_at: time(),
  }),
  /** What a node says of a destination that it feeds. */
  log_destination_feeds: table(['destination_id', 'node'], 'organisation', {
    organisation_id: text(),
    destination_id: text(),
    node: text(),
    delivered: int(),
    failed: int(),
    lost: int(),
    waiting: int(),
    lag_ms: int(),
    backfilling: bool(),
    delivered_at: nullable(time()),
    error: nullable(text()),
    last_updated_at: time(),
    /** How far the node came: `FeedMark`. */
    mark: nullable(json<FeedMark>()),
    /** What others have sent in its place while it was away. */
    handed: nullable(json<StoredHandOver>()),
    /** The node that sends in its place, and until when it may without saying so again. */
    taken_by: nullable(text()),
    taken_until: nullable(time()),
  }),
  /** Requests to erase stored requests; `jobs/log-erasures.ts` carries them out. Answers leave out what a pending one selects. */
  log_erasures: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    /** Null: in all workspaces. */
    workspace_id: nullable(text()),
    /** The column of the records that is compared with the subject. */
    selects: text<'id' | 'end_user' | 'api_key_id' | 'trace_id'>(),
    /** Whom or what it is about; null once it is done, for the name of a person is to be gone as well. */
    subject: nullable(sealed()),
    /** Records of before this time. */
    before: time(),
    status: text<'pending' | 'done'>(),
    /** By node. */
    nodes: json<Record<string, ErasedOnNode>>(),
    /** Since when no record is left where all nodes have theirs; null: not yet, or each node has its own. */
    rewritten_at: nullable(time()),
    /** Exports of before, which may have such records and are not reached. */
    exports: json<string[]>(),
    /** Log destinations that may have been sent such records, and are not reached. */
    destinations: json<string[]>(),
    done_at: nullable(time()),
    created_by: nullable(text()),
    created_at: time(),
    last_updated_at: time(),
  }),
};
