/** A request that Sluice makes to itself: a line of a batch, which `training/` has and `llm/` runs. */
import type { Work } from '../auth/held-caller.ts';
import type { JsonObject } from '../kernel/json.ts';

/** Who created the batch: an API key, else a token or a user. The caller's present rights and limits count. */
export interface InternalCall extends Work {
  /** `/v1/chat/completions` … */
  readonly endpoint: string;
  /** Lower-case names, such as `x-gateway-*`; credentials have no place here. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: JsonObject;
  readonly signal: AbortSignal;
}

export interface InternalCallAnswer {
  /** 499 when `signal` ended the request before its answer was complete. */
  readonly status: number;
  /** Of its record. */
  readonly requestId: string;
  /** Parsed with big integers kept; a text when it is no JSON. */
  readonly body: unknown;
  /** Milliseconds the answer asks to wait; null when it does not say. */
  readonly retryAfterMs: number | null;
  /** A rate limit of Sluice itself refused the request: nothing was called. */
  readonly limited: boolean;
  /** Why the key may not call any more (revoked, expired, suspended): every other line would end the same way. */
  readonly keyRefused: string | null;
}

/**
 * Runs it through the whole data plane: limits, guardrails, accounting, one record. Never rejects for what a request may
 * meet: every refusal and failure is an answer with its status.
 */
export type RunInternalCall = (request: InternalCall) => Promise<InternalCallAnswer>;
