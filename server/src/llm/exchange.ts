import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GuardrailState } from '../gateway/guardrail-state.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { Operation } from '../operations/operation.ts';
import type { Walk } from './routing/walk.ts';
import type { Services } from './services.ts';
import { Attempt } from './state/attempt.ts';
import { LlmLimits } from './state/limits.ts';
import { LlmOutcome } from './state/outcome.ts';
import { LlmRequest } from './state/request.ts';

/**
 * One data-plane request from its head to its record: what is known of it, what limits hold of it, the target that is tried,
 * and what became of it. Steps fill these in the order of the table in `pipeline.ts`, and take of them what they use.
 */
export class Exchange {
  readonly services: Services;
  readonly response: ServerResponse;
  readonly request: LlmRequest;
  readonly limits: LlmLimits;
  readonly outcome: LlmOutcome;
  attempt: Attempt;
  /** A request with several targets: what is known of them so far. Null for all others. */
  walk: Walk | null;
  /** Its guardrails; null without any. */
  guard: GuardrailState | null;
  /** Index in the list of requests under way (`gateway/in-flight.ts`). */
  place: number;
  /** Counted among the requests under way. */
  entered: boolean;
  /** Bytes of the body that are counted in the budget of all bodies. */
  bodyHeld: number;
  /** Bytes of the answer that are kept as a whole, counted with those of bodies. */
  answerHeld: number;
  /** Ends whatever the request is waiting for: the client left, or the server has to stop. */
  cancel: ((error: SluiceError) => void) | null;
  clientGone: boolean;

  constructor(
    services: Services,
    operation: Operation,
    incoming: IncomingMessage,
    response: ServerResponse,
    params: Readonly<Record<string, string>>,
  ) {
    this.services = services;
    this.response = response;
    this.request = new LlmRequest(services, operation, incoming, params);
    this.limits = new LlmLimits();
    this.outcome = new LlmOutcome();
    this.attempt = new Attempt();
    this.walk = null;
    this.guard = null;
    this.place = 0;
    this.entered = false;
    this.bodyHeld = 0;
    this.answerHeld = 0;
    this.cancel = null;
    this.clientGone = false;
  }
}
