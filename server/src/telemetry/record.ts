import type { JsonValue } from '../kernel/json.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { LimitFacts } from '../store/limit-types.ts';
import type { DecisionFacts } from './decision-facts.ts';
import type { GuardrailFacts } from './guardrail-facts.ts';

/**
 * The record of one data-plane request: exactly one per request, also for refused, aborted and failed ones. Written to
 * the journal as one line of JSON before the answer completes, then stored by a `LogSink`. Never holds bodies or
 * secrets. Times are milliseconds since the epoch, durations milliseconds, money integer micro-dollars.
 */
export interface LogRecord {
  readonly id: string;
  readonly node: string;
  /** Rises by one per record of a node; (node, seq) is unique for ever. */
  readonly seq: number;
  readonly time: number;
  readonly organisation_id: string | null;
  readonly workspace_id: string | null;
  readonly api_key_id: string | null;
  readonly user_id: string | null;
  readonly trace_id: string;
  readonly span_id: string;
  readonly parent_span_id: string | null;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  /** Base provider id (`openai`), and the slug of the stored provider or virtual key if one was used. */
  readonly provider: string | null;
  readonly provider_slug: string | null;
  readonly config_slug: string | null;
  readonly model_requested: string | null;
  /** The model that a config put in the place of the requested one, which is what policies see; absent where it did not. */
  readonly model_sent?: string | undefined;
  readonly model_answered: string | null;
  readonly stream: boolean;
  readonly status: number;
  /** `ok`, `refused` (by Sluice), `failed` (upstream or gateway), `aborted` (client went away). */
  readonly outcome: 'ok' | 'refused' | 'failed' | 'aborted';
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly usage: TokenUsage | null;
  /** True when the provider reported no usage and the counts are Sluice's own estimate. */
  readonly usage_estimated: boolean;
  /** Integer micro-dollars; null when the model has no known price. */
  readonly cost_micros: number | null;
  /** Dollars per million units that were applied, and where they came from. */
  readonly price: { readonly source: string; readonly rates: Readonly<Record<string, number>> } | null;
  readonly latency_ms: number;
  readonly ttft_ms: number | null;
  readonly attempts: readonly AttemptRecord[];
  readonly bytes_in: number;
  readonly bytes_out: number;
  readonly upstream_bytes_out: number;
  readonly upstream_bytes_in: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly cache_status: string;
  /** Absent when the answer did not come from the cache. */
  readonly cache?: CacheFacts | undefined;
  /** How it was decided; absent without a config. */
  readonly decision?: DecisionFacts | undefined;
  /** Absent when no limit was asked. */
  readonly limits?: LimitFacts | undefined;
  /** The guardrails that judge it, by phase, whether or not they were asked; absent without any. */
  readonly guards?: { readonly input: readonly string[]; readonly output: readonly string[] } | undefined;
  /** What guardrails said; absent when none was asked. */
  readonly guardrails?: readonly GuardrailFacts[] | undefined;
  /** The plane it came through: `mcp`; absent for requests of models. */
  readonly source?: string | undefined;
  /** What only this source has to say; absent where that is nothing. */
  readonly detail?: Readonly<Record<string, JsonValue>> | undefined;
  /** True when the caller asked what would happen and nothing was called or charged. */
  readonly dry_run: boolean;
}

export interface AttemptRecord {
  readonly target: string;
  readonly provider: string;
  readonly status: number | null;
  readonly error: string | null;
  /** Why it failed; absent where it did not. */
  readonly cause?: AttemptCause | undefined;
  /** From the arrival of the request to the begin of the attempt. */
  readonly began_ms?: number | undefined;
  /** Until a connection was free or began to be made, signing in included; absent where none was used. */
  readonly queued_ms?: number | undefined;
  /** 0 where a connection was open. */
  readonly connect_ms?: number | undefined;
  /** From the begin of the attempt, as `duration_ms`. */
  readonly first_byte_ms?: number | undefined;
  /** Of streams. */
  readonly first_content_ms?: number | undefined;
  readonly duration_ms: number;
}

/** Why an attempt failed; the message is one that the caller may see. */
export interface AttemptCause {
  readonly kind:
    | 'status'
    | 'answer_error'
    | 'connection'
    | 'invalid_answer'
    | 'timeout'
    | 'limit'
    | 'guardrail'
    | 'target'
    | 'hedge_lost'
    | 'caller_left'
    | 'gateway';
  readonly code: string | null;
  readonly message: string;
}

/** What an answer from the cache did not need again. */
export interface CacheFacts {
  /** When the answer was made. */
  readonly made_at: number;
  /** What it cost then; null when that was not known. */
  readonly saved_micros: number | null;
  readonly saved_ms: number;
  /** Cosine similarity of the questions; null for the same request. */
  readonly similarity: number | null;
}
