/** What the server tells the process that sends telemetry, once, over the channel between them: it holds secrets. */
import type { ConventionsVersion } from '../telemetry/conventions/conventions.ts';
import type { DestinationState } from '../telemetry/log-destination.ts';
import type { FeedState } from './feed.ts';
import type { OtlpProtocol } from './otlp/requests.ts';
import type { Sampler } from './sampler.ts';

/** A collector, as the operator's settings say. */
export interface CollectorSettings {
  /** With the path of the signal. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly protocol: OtlpProtocol;
  readonly conventions: ConventionsVersion;
}

export interface TraceSettings extends CollectorSettings {
  readonly sampler: Sampler;
  /** 0 to 1. */
  readonly ratio: number;
}

export interface ExporterSettings {
  /** Directory below which the journals are. */
  readonly spool: string;
  /** Of the files that say how far the feeds came. */
  readonly dir: string;
  /** Bytes of records that may wait. */
  readonly maxBytes: number;
  /** Free bytes of the disk below which fewer may. */
  readonly reserveBytes: number;
  readonly resource: Readonly<Record<string, string>>;
  readonly version: string;
  readonly traces: TraceSettings | null;
  readonly metrics: CollectorSettings | null;
  /** Absent: of no tenant. */
  readonly destinations?: DestinationSettings;
}

/** What log destinations of tenants have in common. */
export interface DestinationSettings {
  /** Hosts that the operator trusts. */
  readonly trustedHosts: readonly string[];
  /** Milliseconds that a record may wait; 0: without end. */
  readonly keepMs: number;
}

export interface ExporterState {
  /** Bytes of records that wait, those that were sent and whose segment is not through among them. */
  readonly waitingBytes: number;
  readonly traces: FeedState | null;
  /** Null: there are no log destinations. */
  readonly destinations: { readonly states: readonly DestinationState[]; readonly waitingBytes: number } | null;
}
