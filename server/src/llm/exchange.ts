import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GuardrailState } from '../gateway/guardrail-state.ts';
import type { GatewayServices } from '../gateway/services.ts';
import type { Upstream } from '../http/upstream.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { Random } from '../kernel/random.ts';
import type { OutputEstimator } from '../limits/ledger/output-estimator.ts';
import type { Operation } from '../operations/operation.ts';
import type { Pricer } from '../pricing/price.ts';
import type { AmbientIdentity } from '../providers/training.ts';
import type { ObjectHandler } from '../runtime/object-call.ts';
import type { Owners } from '../runtime/owners.ts';
import type { Cache } from '../store/ports.ts';
import type { BodyCapture } from './bodies/capture.ts';
import type { CacheEntryWriter } from './cache/cache-entry-writer.ts';
import type { CachePolicy } from './cache/policy.ts';
import type { GuardrailThread } from './guard/apart/thread.ts';
import type { LargeBodies } from './large/thread.ts';
import type { Features } from './plan.ts';
import type { BegunAnswer, Judging } from './relay/begun-answer.ts';
import type { DefaultLimits } from './relay/retry-rules.ts';
import type { Breakers } from './routing/breaker.ts';
import { Attempt } from './state/attempt.ts';
import { LlmLimits } from './state/limits.ts';
import { LlmOutcome } from './state/outcome.ts';
import type { Prepared } from './state/prepared.ts';
import { LlmRequest, type RequestHead } from './state/request.ts';
import type { RouteExecution } from './state/route-execution.ts';
import type { Target } from './target.ts';

const NO_STEPS: readonly AnswerStep[] = [];

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
  execution: RouteExecution | null;
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
  /** Gives lent memory of the answer back; called when all of it is written. */
  endAnswer: (() => void) | null;
  /** Ends whatever the request is waiting for: the client left, or the server has to stop. */
  cancel: ((error: SluiceError) => void) | null;
  clientGone: boolean;
  /** What is kept of its bodies; null where they are not. */
  capture: BodyCapture | null;
  /** What is done with an answer of the target under way before any of it is sent. */
  answerSteps: readonly AnswerStep[];

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
    this.execution = null;
    this.guard = null;
    this.place = 0;
    this.entered = false;
    this.bodyHeld = 0;
    this.answerHeld = 0;
    this.endAnswer = null;
    this.cancel = null;
    this.clientGone = false;
    this.capture = null;
    this.answerSteps = NO_STEPS;
  }
}

/**
 * A row of the table in `pipeline.ts`. Returns nothing when it finished synchronously, so a warm request awaits only what
 * really waits.
 */
export type Step = (x: Exchange, runTarget: RunTarget) => void | Promise<void>;

/** A row of the table for answers. */
export type AnswerStep = (x: Exchange, answer: BegunAnswer) => Judging;

/** Runs the rows for one target that these features need, until one of them gives the target's result. */
export type RunTarget = (x: Exchange, features: Features) => void | Promise<void>;

/** Of an exchange the parts that a function uses, and of the services those that it uses. */
export type Uses<Parts extends keyof Exchange, Used extends keyof Services = never> = Pick<Exchange, Parts> & {
  readonly services: Pick<Services, Used>;
};

/** As `Uses`, for the steps of the head: what is known of the request they may write. */
export type HeadUses<Parts extends keyof Exchange, Used extends keyof Services = never> = Uses<
  Parts | 'request',
  Used
> & { readonly request: RequestHead };

/** The cache of answers, as steps use it. */
export interface ResponseCache {
  /** Answers the request from the cache (true), or has its answer kept when it is complete. */
  look(x: Exchange, target: Target, prepared: Prepared, policy: CachePolicy): Promise<boolean>;
  /** At the end of a request whose answer was to be kept. */
  keep(x: Exchange, caching: CacheEntryWriter): void;
}

/** What the steps of the data plane may use beside what every plane has. Made once in `compose/data-plane.ts`. */
export interface Services extends GatewayServices {
  readonly upstream: Upstream;
  readonly ambient: AmbientIdentity | null;
  readonly pricer: Pricer;
  readonly outputEstimator: OutputEstimator;
  /** Answers that are given again. */
  readonly responseCache: ResponseCache;
  /** Which target a session goes to. */
  readonly cache: Cache;
  readonly breakers: Breakers;
  /** Runs a request that Sluice makes itself, from an exchange made for it. */
  readonly runInternal: (x: Exchange) => Promise<void>;
  /** Whose objects at shared accounts are. */
  readonly owners: Owners;
  /** Files, batches and fine-tuning jobs. */
  readonly objects: ObjectHandler;
  readonly random: Random;
  /** The thread that reads and converts what is large. */
  readonly large: LargeBodies;
  /** The thread in which guardrails judge what is large. */
  readonly guardrails: GuardrailThread;
  /** Forced for every organisation by the environment. */
  readonly blockInlineConfig: boolean;
  /** How long attempts may take whose config does not say. */
  readonly timeouts: DefaultLimits;
}
