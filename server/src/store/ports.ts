/**
 * What the product needs from the outside world to remember things. Adapters live in the folders beside this file and
 * are named only in `compose/`; each port has one suite in `conformance/` that every adapter passes.
 */
import type { Readable } from 'node:stream';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Row, TableName, TenantTable } from './schema.ts';

declare const tenantBrand: unique symbol;

/**
 * The tenant of a call. Every statement on a tenant table carries its organisation, and its workspace when bound.
 * Only `auth/tenant.ts` makes one, after authentication.
 */
export interface TenantContext {
  readonly organisationId: string;
  /** Bound to one workspace, or null for organisation-wide reach. */
  readonly workspaceId: string | null;
  readonly [tenantBrand]: true;
}

/** The one cast that makes a TenantContext; an architecture test lets only `auth/tenant.ts` import it. */
export function unsafeTenant(organisationId: string, workspaceId: string | null): TenantContext {
  return { organisationId, workspaceId } as TenantContext;
}

/** Conditions on one column; all given ones must hold. A bare value means equality, `null` IS NULL. */
export type Condition<T> =
  | T
  | {
      readonly in?: readonly T[];
      readonly not?: T;
      readonly gt?: T;
      readonly gte?: T;
      readonly lt?: T;
      readonly lte?: T;
      /** Case-sensitive substring; wildcards in the text are escaped. */
      readonly contains?: string;
    };

export type Where<N extends TableName> = { readonly [K in keyof Row<N>]?: Condition<Row<N>[K]> };

export interface Query<N extends TableName> {
  readonly where?: Where<N>;
  /** Alternatives: any one of them must hold, beside `where`. */
  readonly anyOf?: readonly Where<N>[];
  /**
   * Column and direction, most significant first; the primary key is always added last, so pages are stable. A list of at
   * most so many rows (`limit` above 1) must name its order, which is that of an index: else every page reads them all.
   */
  readonly orderBy?: readonly (readonly [keyof Row<N> & string, 'asc' | 'desc'])[];
  readonly limit?: number;
  readonly offset?: number;
}

/** What the rows of a query come to, added up by the store. */
export interface TotalsQuery<N extends TableName> extends Pick<Query<N>, 'where' | 'anyOf'> {
  /** Groups by these columns, texts or whole numbers. */
  readonly by?: readonly (keyof Row<N> & string)[];
  /** Groups by a time also: rows whose `floor(time / stepMs)` is the same are together. */
  readonly slot?: { readonly column: keyof Row<N> & string; readonly stepMs: number };
  /** Columns of whole numbers to add up. */
  readonly sums?: readonly (keyof Row<N> & string)[];
  /** Only so many groups, those of the most rows. */
  readonly most?: number;
}

/** One group of rows; without `by` and `slot` there is one group when there are rows, and none when there are none. */
export interface Totals {
  readonly count: number;
  /** `floor(time / stepMs)`; null when the query names no slot. */
  readonly slot: number | null;
  readonly by: Readonly<Record<string, string | number | null>>;
  readonly sums: Readonly<Record<string, number>>;
}

export interface Change {
  readonly organisationId: string;
  readonly workspaceId: string | null;
  /** The table that changed. A change of parts of an object is one of the object: of a config's versions, `configs`. */
  readonly topic: TableName;
  readonly entityId: string;
}

/**
 * Reads and writes inside one transaction, limited to a tenant's rows.
 *
 * A tenant bound to a workspace sees and writes that workspace's rows in every table with a `workspace_id`, and reads
 * (never writes) what `SHARED_TABLES` have of the whole organisation. Rows of tables without the column are the organisation's.
 *
 * A statement that failed ends the transaction: catching its error does not save it, and the write rejects with it. In a
 * condition of `find`, `update` and `remove` an undefined value throws `internal`; in a list it is as if absent. Text
 * with U+0000 throws `validation`. A reference to a row that does not exist throws `unknown_reference`; removing a row
 * that others refer to throws `conflict`, unless they are parts of it and go with it.
 */
export interface TenantTx {
  readonly tenant: TenantContext;
  find<N extends TenantTable>(table: N, where: Where<N>): Promise<Row<N> | undefined>;
  list<N extends TenantTable>(table: N, query?: Query<N>): Promise<Row<N>[]>;
  count<N extends TenantTable>(table: N, query?: Pick<Query<N>, 'where' | 'anyOf'>): Promise<number>;
  /** Counts and sums of groups of rows, in no order but that of `most`. It reads every row that it counts. */
  totals<N extends TenantTable>(table: N, query: TotalsQuery<N>): Promise<Totals[]>;
  /** `organisation_id` of the row must be the tenant's. A unique violation throws SluiceError('conflict'). */
  insert<N extends TenantTable>(table: N, row: Row<N>): Promise<void>;
  /** The same for any number of rows, in a few statements; all or none. */
  insertAll<N extends TenantTable>(table: N, rows: readonly Row<N>[]): Promise<void>;
  /** Number of rows changed. */
  update<N extends TenantTable>(table: N, where: Where<N>, patch: Partial<Row<N>>): Promise<number>;
  remove<N extends TenantTable>(table: N, where: Where<N>): Promise<number>;
  /** Row of the tenant's own organisation. */
  organisation(): Promise<Row<'organisations'>>;
  /** Changes the tenant's own organisation; a tenant bound to a workspace may not (`internal`). */
  updateOrganisation(patch: OrganisationPatch): Promise<void>;
  /** Appends to the change feed; delivered to every node after commit, in commit order. */
  changed(change: Omit<Change, 'organisationId'>): void;
  /** The store's own clock, as `Tables.now`. */
  now(): Promise<number>;
}

/** What an organisation may change of itself; its status belongs to whoever runs the installation. */
export type OrganisationPatch = Partial<Pick<Row<'organisations'>, 'name' | 'settings' | 'last_updated_at'>>;

/** The same over all tenants, for first run, the operator, start-up and jobs. Routes never get one. */
export interface SystemTx {
  find<N extends TableName>(table: N, where: Where<N>): Promise<Row<N> | undefined>;
  list<N extends TableName>(table: N, query?: Query<N>): Promise<Row<N>[]>;
  count<N extends TableName>(table: N, query?: Pick<Query<N>, 'where' | 'anyOf'>): Promise<number>;
  insert<N extends TableName>(table: N, row: Row<N>): Promise<void>;
  update<N extends TableName>(table: N, where: Where<N>, patch: Partial<Row<N>>): Promise<number>;
  remove<N extends TableName>(table: N, where: Where<N>): Promise<number>;
  changed(change: Change): void;
  /** The store's own clock, as `Tables.now`. */
  now(): Promise<number>;
}

export interface SequencedChange extends Change {
  readonly seq: number;
}

/**
 * Whether the database itself keeps tenants apart, beside the statements that Sluice sends: `enforced`; `none` where the
 * engine has no such thing; `bypassed` when the account that Sluice connects with is above row-level security and no role
 * could be made that is not.
 */
export type RowSecurity = 'enforced' | 'bypassed' | 'none';

export interface WriteOptions {
  /**
   * Writes of one queue run one after another in the whole cluster, in about the order they came, instead of undoing each
   * other where they all change the same row. Costs nothing where writes are one at a time anyway. The audited writes of an
   * organisation queue under its id. A write of several queues waits for its turn in all of them.
   */
  readonly queue?: string | readonly string[];
}

/** Control tables. A returned promise of a write means the commit is on disk. */
export interface Tables extends Closable {
  readonly engine: 'sqlite' | 'postgres';
  /** Known after `migrate()`. */
  readonly rowSecurity: RowSecurity;
  /** Runs migrations under a lock. Throws, and the process must not start, when a migration fails or the schema is newer than this build. */
  migrate(): Promise<void>;
  /**
   * Rewrites the files of the store, so that they hold nothing of these tables that was deleted or replaced before: all of an
   * embedded store, the tables on PostgreSQL. Backups and write-ahead logs of a server are the operator's. False when another
   * process or a missing right is in the way; call it again later.
   */
  eraseRemoved(tables: readonly TableName[]): Promise<boolean>;
  read<T>(tenant: TenantContext, run: (tx: TenantTx) => Promise<T>): Promise<T>;
  /**
   * Serialisable enough that a checked rule still holds at commit: one writer at a time on SQLite, SERIALIZABLE with retry
   * on PostgreSQL, so `run` may be called again and must do nothing but read, compute and write through its `tx`. It must
   * not open another write: on SQLite that would wait for itself, until the transaction is given up after 30 seconds.
   */
  write<T>(tenant: TenantContext, run: (tx: TenantTx) => Promise<T>, options?: WriteOptions): Promise<T>;
  systemRead<T>(run: (tx: SystemTx) => Promise<T>): Promise<T>;
  systemWrite<T>(run: (tx: SystemTx) => Promise<T>, options?: WriteOptions): Promise<T>;
  /** The hot-path look-up: secret row and key row by public key id, in one indexed read. */
  findKey(
    publicId: string,
  ): Promise<{ secret: Row<'api_key_secrets'>; key: Row<'api_keys'>; organisation: Row<'organisations'> } | undefined>;
  /** Changes after `seq`, in order, at most `limit`. */
  changesAfter(seq: number, limit: number): Promise<SequencedChange[]>;
  lastChange(): Promise<number>;
  /** Calls back soon after another node (or this one) commits a change: a hint to read `changesAfter`, never the data. */
  onChangeHint(hint: () => void): () => void;
  /** Milliseconds since the epoch by the store's own clock, for windows and expiry that several nodes share. */
  now(): Promise<number>;
  ping(): Promise<void>;
}

/** Wakes other nodes: a hint that carries no truth. Losing one costs latency only, because nodes also poll. */
export interface Feed extends Closable {
  publish(seq: number): void;
  subscribe(onHint: (seq: number) => void): () => void;
}

/** Messages to the processes that listen just then, those of other nodes too. None is kept, and none is repeated. */
export interface Bus {
  /** False: it was not sent, for the way is cut. Never rejects. */
  send(channel: string, text: string): Promise<boolean>;
  /** Each channel has one listener at most in a process. Answers what ends it. */
  listen(channel: string, onMessage: (text: string) => void): () => void;
}

export interface WindowHit {
  /** Cluster-safe: everything one request touches shares the `{…}` tag of its workspace. */
  readonly key: string;
  readonly amount: number;
  readonly limit: number;
  /** End of the window, milliseconds since the epoch by the clock that the counters were opened with. */
  readonly expiresAt: number;
}

export interface WindowResult {
  readonly allowed: boolean;
  /** Index of the first window that refused, or -1. */
  readonly refusedBy: number;
  /** Used amount per window after the call. */
  readonly used: readonly number[];
}

/**
 * Shared counters. `hit` is all or nothing: either every window takes its amount or none does. A window refuses when
 * what it holds and the amount exceed its limit together. Throws SluiceError('unavailable') when the store is away.
 */
export interface Counters extends Closable {
  hit(windows: readonly WindowHit[]): Promise<WindowResult>;
  /** Adds without a limit check (tokens known only after the answer); may be negative, but no counter falls below 0. */
  add(windows: readonly Omit<WindowHit, 'limit'>[]): Promise<void>;
  get(keys: readonly string[]): Promise<number[]>;
}

/** Bounded and forgetful; a failure is a miss. */
export interface Cache extends Closable {
  get(key: string): Promise<Buffer | null>;
  set(key: string, value: Buffer, ttlMs: number): Promise<void>;
  delete(key: string): Promise<void>;
}

export interface BlobStat {
  readonly bytes: number;
  readonly createdAt: number;
}

/** Files by opaque key. `put` is atomic: a reader sees the whole blob or none. */
export interface Blobs extends Closable {
  put(tenant: TenantContext, key: string, body: Readable): Promise<BlobStat>;
  /** Both ends of `range` are included, as in HTTP; what lies past the end of the blob is left out. */
  get(tenant: TenantContext, key: string, range?: { start: number; end?: number }): Promise<Readable | null>;
  stat(tenant: TenantContext, key: string): Promise<BlobStat | null>;
  delete(tenant: TenantContext, key: string): Promise<boolean>;
  /** Every whole blob of every organisation, in no order, for sweeps; one that comes or goes meanwhile may be missed. */
  all(): AsyncIterable<StoredBlob>;
}

export interface StoredBlob {
  readonly organisationId: string;
  readonly key: string;
  readonly createdAt: number;
}

/** Disk space for the length of one request: it is gone when it is closed, and when the process is killed. */
export interface Scratch {
  /** Keeps a stream until its end; rejects with its error, and keeps nothing then. */
  hold(body: Readable): Promise<Held>;
}

export interface Held {
  readonly bytes: number;
  /** From the first byte; may be read more than once. */
  read(): Readable;
  close(): Promise<void>;
}

/** Position of a journal reader: everything before it is in the sink. */
export interface JournalPosition {
  readonly segment: string;
  readonly offset: number;
}

/** A record as it was written by `telemetry/record.ts`, parsed. */
export type StoredLog = Record<string, unknown> & { id: string; node: string; seq: number; time: number };

export interface RecordWalk {
  /** Milliseconds since the epoch: from (included), to (excluded). */
  readonly from: number;
  readonly to: number;
  /** The last record that was read; null for the first page. */
  readonly after: Pick<StoredLog, 'time' | 'id'> | null;
  readonly limit: number;
}

/** Stored records as they were written, for what reads records and not columns (`telemetry/stored-records.ts`). */
export interface StoredRecords {
  find(tenant: TenantContext, id: string): Promise<StoredLog | null>;
  /** Those of these ids that are there, by their ids; at most 1,000. */
  findAll(tenant: TenantContext, ids: readonly string[]): Promise<ReadonlyMap<string, StoredLog>>;
  /** The newest record of each of these traces, of those since a time (milliseconds since the epoch); at most 1,000 traces. */
  lastOfTraces(
    tenant: TenantContext,
    traceIds: readonly string[],
    since: number,
  ): Promise<ReadonlyMap<string, StoredLog>>;
  /** The newest records of a trace, of those since a time (milliseconds since the epoch), newest first. */
  ofTrace(tenant: TenantContext, traceId: string, since: number, limit: number): Promise<StoredLog[]>;
  /** A page of records, oldest first; those of one millisecond by their ids. It has what limits go by, and no more. */
  walk(tenant: TenantContext, walk: RecordWalk): Promise<StoredLog[]>;
  /** Whether all records of a range of time can be read here. */
  isWhole(tenant: TenantContext, from: number, to: number): Promise<boolean>;
}

/** A record's place in its node's sequence; no two have the same. */
export type RecordKey = readonly [node: string, seq: number];

export interface OldRecord {
  readonly key: RecordKey;
  /** The record's text, one line of JSON. */
  readonly line: string;
}

/** Records as versions before the log keeper kept them: rows of a database, from which they move into log files once. */
export interface OldLogs extends Closable {
  /** How far a journal was stored; null: not at all. */
  position(journal: string): Promise<JournalPosition | null>;
  /** Some records in a fixed order, those behind a key; from the first one on for null. */
  read(behind: RecordKey | null, limit: number): Promise<OldRecord[]>;
  remove(keys: readonly RecordKey[]): Promise<void>;
  /** There are none any more. */
  end(): Promise<void>;
}
