/** How far journals have been read, and the tables of the log keeper: of the installation, whatever organisation a row names. */
import { int, table, text, time } from './column.ts';

export const logTables = {
  /** How far each journal of settled requests has been applied. */
  ledger_positions: table(['journal'], 'none', { journal: text(), segment: text(), position: int() }),
  /** One Parquet file of records each. */
  log_files: table(['id'], 'none', {
    /** The name of the file, without its ending. */
    id: text(),
    /** The node on whose disk it is. */
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
};
