/** Log destinations as whoever feeds them knows them, and what that asks of the server. Targets hold secrets. */
import type { FeedMark, LogDestinationKind } from '../store/log-tables.ts';
import type { ConventionsVersion } from './conventions/conventions.ts';
import type { DestinationField } from './destination-fields.ts';
import type { LogBodies } from './log-export.ts';
import type { LogFilter, LogPlace } from './log-query.ts';
import type { LogRecord } from './record.ts';

export const DESTINATION_KINDS = ['otlp', 'webhook', 's3'] as const satisfies readonly LogDestinationKind[];

export interface OtlpTarget {
  readonly kind: 'otlp';
  /** Of the calls with spans, with its path. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly protocol: 'http/protobuf' | 'http/json';
  readonly conventions: ConventionsVersion;
  readonly resource: Readonly<Record<string, string>>;
}

export interface WebhookTarget {
  readonly kind: 'webhook';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface S3Target {
  readonly kind: 's3';
  /** Null: that of AWS in the region. */
  readonly endpoint: string | null;
  readonly pathStyle: boolean;
  readonly bucket: string;
  readonly region: string;
  /** What the names of objects begin with; empty, or with a slash at its end. */
  readonly prefix: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | null;
  readonly format: 'jsonl' | 'parquet';
  /** Of lines. Columns are compressed by zstd. */
  readonly compression: 'gzip' | 'zstd';
  readonly partition: 'day' | 'hour';
  /** An object has the records of so many seconds. */
  readonly intervalSeconds: number;
}

export type Target = OtlpTarget | WebhookTarget | S3Target;

/** A destination, ready to be fed. */
export interface DestinationPlan {
  readonly id: string;
  readonly organisationId: string;
  /** Null: all of the organisation. */
  readonly workspaceId: string | null;
  /** Null: it is switched off; its records wait. */
  readonly target: Target | null;
  readonly where: readonly LogFilter[];
  /** Null: all. */
  readonly fields: readonly DestinationField[] | null;
  readonly bodies: boolean;
  /** 0 to 1. */
  readonly sample: number;
  /** Milliseconds since the epoch: requests from this time on are sent, those before it was made included. */
  readonly startAt: number;
  /** Other nodes read the stored records of this one, and send in its place when it is away. */
  readonly shared: boolean;
  /** Another text for other settings. */
  readonly version: string;
}

/** What other nodes have sent in place of one that was away: its requests up to a place, those that end before a time. */
export interface HandedOver {
  readonly place: LogPlace;
  /** Milliseconds since the epoch. Others had not seen all requests that ended later. */
  readonly before: number;
}

/** Some of what a node that is away has left. */
export interface LeftRecords {
  readonly node: string;
  readonly records: readonly LogRecord[];
  /** Of the last record that was looked at; null: there are no more. */
  readonly next: LogPlace | null;
}

/** What holds of one batch, asked for when it is to be sent. Null: nothing may be sent any more. */
export interface BatchRules {
  /** Fields that the organisation or workspace denies. */
  readonly denied: readonly string[];
  /** What webhooks are signed with, the newest first. */
  readonly secrets: readonly Uint8Array[];
  /** What paths of requests are behind, `https://sluice.example`. */
  readonly origin: string;
  /** What others have sent for this node and it has still in its files; absent: nothing. */
  readonly handedOver?: HandedOver | null;
}

/** Records of the past, oldest first. */
export interface PastPage {
  readonly records: readonly LogRecord[];
  /** Null: there are no more. */
  readonly next: { readonly time: number; readonly id: string } | null;
}

/** What the process asks of the server. */
export interface DestinationHost {
  terms(id: string): Promise<BatchRules | null>;
  /** The kept bodies of these records, by their ids; `pending`: some are not there, or not yet. `noMetadata`: without what says who asks. */
  bodies(
    records: readonly LogRecord[],
    noMetadata: boolean,
  ): Promise<{ readonly found: ReadonlyMap<string, LogBodies>; readonly pending: boolean }>;
  /** Stored records of this node from the destination's `startAt` before `to`, behind a place. Rejects while they cannot be read. */
  past(id: string, to: number, behind: PastPage['next']): Promise<PastPage>;
  /** Notes how far it came, so that another node begins there. Asked where other nodes read the records of this one, as the last two. */
  settled(state: DestinationState): Promise<void>;
  /** Makes a Parquet file of one with JSON lines on this machine; answers its path. Both are removed by the process that asked. Rejects while that cannot be done. */
  parquet(lines: string, columns: readonly (readonly [string, string])[]): Promise<string>;
  /** What a node that is away has left for this destination, which this node sends then; null: nothing. Rejects while it cannot be read. */
  left(id: string): Promise<LeftRecords | null>;
  /** All of it was accepted or refused. */
  leftSettled(id: string, left: Pick<LeftRecords, 'node' | 'next'>): Promise<void>;
}

export interface DestinationState {
  readonly id: string;
  readonly delivered: number;
  /** Refused by the far side. */
  readonly failed: number;
  /** Given up because too many waited, or too long. */
  readonly lost: number;
  readonly waiting: number;
  /** Milliseconds since the epoch; null: never. */
  readonly deliveredAt: number | null;
  /** Milliseconds since the end of the oldest request that waits; 0: none waits. */
  readonly lagMs: number;
  /** Null: the last call was accepted. */
  readonly error: string | null;
  readonly backfilling: boolean;
  /** Null: not known, or no other node asks for it. */
  readonly mark: FeedMark | null;
}
