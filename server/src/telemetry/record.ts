import type { JsonValue } from '../kernel/json.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { LimitFacts } from '../store/limit-types.ts';
import type { DecisionFacts } from './decision-facts.ts';
import type { GuardrailFacts } from './guardrail-facts.ts';

/**
 * The record of one data-plane request: exactly one per request, also for refused, aborted and failed ones. Written to
 * the journal as one line of JSON before the answer completes, then kept by the log keeper. Never holds bodies or
 * secrets. Times are milliseconds since the epoch, and money integer micro-dollars.
 *
 * Durations that end in `_us` are integer microseconds. Those that end in `_ms` were there first: milliseconds with three decimals,
 * which are microseconds, too. They keep their names, so that records of all versions are read alike. Whatever is not known is absent or
 * null, and never 0.
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
  /** Whether the caller's `traceparent` says that its span is sampled; absent without one. */
  readonly parent_sampled?: boolean | undefined;
  /** As the caller names the span; absent where nobody does. */
  readonly span_name?: string | undefined;
  /** The plane it came through: `llm` for requests of models. Records of earlier versions lack it, and are of `llm`. */
  readonly source: RecordSource;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  /** Base provider id (`openai`), and the slug of the stored provider or virtual key if one was used. */
  readonly provider: string | null;
  readonly provider_slug: string | null;
  readonly config_slug: string | null;
  /** The version of the saved config; absent without one. Earlier versions have it in `decision` only. */
  readonly config_version?: string | undefined;
  /** Absent until prompts are stored. */
  readonly prompt_slug?: string | undefined;
  readonly prompt_version?: string | undefined;
  /** What the config does with its targets at its root; absent where the request was refused before it was known. */
  readonly mode?: RouteMode | undefined;
  /** The place in the config of the target used, `config.targets[0]`; `config` without several. Absent without a target. */
  readonly option?: string | undefined;
  /** Further calls of that target after its first; absent of other planes. */
  readonly retries?: number | undefined;
  /** A target before that one has failed; absent of other planes. */
  readonly fallback?: boolean | undefined;
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
  /**
   * What attempts waited for upstreams, from their begin, signing in included, to the last byte of the answer. A client that reads
   * slowly makes it longer.
   */
  readonly upstream_us: number;
  /** The rest of the whole: what guardrails, the cache and the waits between attempts took is in it. */
  readonly gateway_us: number;
  /** Reading the body and finding in it what is looked for; absent where it was not read. */
  readonly parse_us?: number | undefined;
  /** Before the first attempt, or the end where there was none: less `parse_us` and `cache_us`. */
  readonly pre_us: number;
  /** Looking into the cache of answers; absent where none was asked. */
  readonly cache_us?: number | undefined;
  /** From the last byte of the upstream, or the answer of the cache, to this record; absent where nothing came. */
  readonly post_us?: number | undefined;
  readonly attempts: readonly AttemptRecord[];
  readonly bytes_in: number;
  readonly bytes_out: number;
  readonly upstream_bytes_out: number;
  readonly upstream_bytes_in: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly cache_status: string;
  /** Of the cache that was asked; absent where none was. */
  readonly cache_type?: 'simple' | 'semantic' | undefined;
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
  /** The program that sent it; absent where it tells nothing of itself. */
  readonly client?: ClientFacts | undefined;
  /** What only this source has to say; absent where that is nothing. */
  readonly detail?: Readonly<Record<string, JsonValue>> | undefined;
  /** Where its bodies are kept: the chunk and the place in it; absent where they are not. */
  readonly body_chunk?: string | undefined;
  readonly body_slot?: number | undefined;
  /** `BODY_FLAGS`; absent where nothing was to be kept. */
  readonly body_flags?: number | undefined;
  /** True when the caller asked what would happen and nothing was called or charged. */
  readonly dry_run: boolean;
}

/** `custom`: made by its caller. Suites add planes with names of others. */
export type RecordSource = 'llm' | 'mcp' | 'a2a' | 'custom' | (string & {});

export type RouteMode = 'single' | 'loadbalance' | 'fallback' | 'conditional';

/** What a request says of the program that sent it, in its usual headers, and what its address says. Members are absent where they are not known. */
export interface ClientFacts {
  /** Name in lower case: `openai-python`, `curl`, `browser`. */
  readonly sdk?: string | undefined;
  readonly sdk_version?: string | undefined;
  /** `node`, `CPython`. */
  readonly runtime?: string | undefined;
  readonly runtime_version?: string | undefined;
  /** Class of the client's address, behind trusted proxies. */
  readonly address?: 'loopback' | 'private' | 'public' | undefined;
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

/** Kinds of causes by which nothing was sent. */
export const NOT_SENT: ReadonlySet<AttemptCause['kind']> = new Set(['limit', 'guardrail', 'target', 'gateway']);

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
