/** One guardrail run directly, on what a caller sends: what is asked, and who can answer it. */

import type { JsonObject } from '../kernel/json.ts';
import type { Phase } from './check.ts';
import type { Guardrail, GuardrailResult } from './guardrail.ts';

/** What is put before a guardrail, in one of its forms. */
export type InvocationInput =
  | { readonly form: 'text'; readonly text: string }
  | { readonly form: 'messages'; readonly messages: readonly JsonObject[] }
  | { readonly form: 'request'; readonly request: JsonObject }
  | { readonly form: 'response'; readonly request: JsonObject | null; readonly response: JsonObject };

export interface GuardrailInvocation {
  readonly organisationId: string;
  readonly guardrail: Guardrail;
  readonly phase: Phase;
  readonly input: InvocationInput;
  readonly model: string | null;
  /** The operation's request type, such as `chatComplete`. */
  readonly requestType: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Of the request that the guardrail would see, names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

export interface GuardrailInvoker {
  /** The result, and what was tried as the guardrail has changed it; null where it is as before. Calls no model. */
  run(trial: GuardrailInvocation): Promise<{ readonly result: GuardrailResult; readonly changed: unknown }>;
}
