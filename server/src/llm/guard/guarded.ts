/** The guardrails of one request and what they have said so far; an exchange without any has none of this. */
import type { Guardrail, GuardrailResult } from '../../guardrails/guardrail.ts';
import type { OutsideFactory } from '../../guardrails/run.ts';
import type { JsonObject } from '../../kernel/json.ts';

export interface Guarded {
  /** In the order in which they run, asynchronous ones among them. */
  readonly input: readonly Guardrail[];
  readonly output: readonly Guardrail[];
  /** Results of synchronous guardrails, as answers show them. */
  before: readonly GuardrailResult[];
  after: readonly GuardrailResult[];
  /** A guardrail has failed that does not deny: 246. */
  failed: boolean;
  /** The refusal is to be told as an ordinary answer. */
  soft: boolean;
  readonly outside: OutsideFactory;
  /** For the record. */
  readonly onAsync: (result: GuardrailResult) => void;
}

/** What answers show of guardrails (api §7.9). */
export function hookResults({ before, after }: Guarded): JsonObject {
  return { before_request_hooks: before, after_request_hooks: after } as unknown as JsonObject;
}
