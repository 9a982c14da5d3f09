/** One upstream answer through the relay itself, with its framing and its conversions, to the bytes its caller is sent. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { BodyBudget } from '../../src/http/body-budget.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import type { Services } from '../../src/llm/exchange.ts';
import { Exchange } from '../../src/llm/exchange.ts';
import { Relay } from '../../src/llm/relay/relay.ts';
import { respondError } from '../../src/llm/respond-error.ts';
import type { AttemptResult } from '../../src/llm/state/attempt-result.ts';
import type { RequestHead } from '../../src/llm/state/request.ts';
import { Target } from '../../src/llm/target.ts';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { type Bound, bindingFor } from '../../src/providers/binding.ts';
import type { CallContext, Provider } from '../../src/providers/provider.ts';
import { contextOf } from '../support/provider-fixtures.ts';

export const CALLERS = ['chat', 'messages', 'responses'] as const;
export type Caller = (typeof CALLERS)[number];

export interface Way {
  readonly caller: Caller;
  readonly provider: Provider;
  /** The caller's own body. */
  readonly asked: JsonObject;
  /** Default true. */
  readonly strict?: boolean;
}

/** How the caller is served; null where there is no such conversion. */
export function boundOf({ caller, provider, asked }: Way): Bound | null {
  return bindingFor(provider, caller, String(asked.model), { key: null, settings: {} });
}

export function contextFor({ caller, asked, strict }: Way, stream = asked.stream === true): CallContext {
  return contextOf(caller, { body: asked }, { stream, strict: strict ?? true, requestId: 'request-1' });
}

/** Content types of streams, by framing. */
export const SSE = 'text/event-stream; charset=utf-8';
export const AWS = 'application/vnd.amazon.eventstream';
export const JSON_TYPE = 'application/json';

const HOUR = 3_600_000;
const WIRE = { headersMs: HOUR, idleMs: HOUR, connectMs: HOUR, totalMs: HOUR };
const LIMITS = { stream: WIRE, whole: WIRE, firstTokenMs: HOUR, quietMs: HOUR } as unknown as Target['limits'];
/** Guesses what answers used that do not say it. */
const PRICER = { estimateTokens: () => 10 };
const NO_LOG = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

function targetOf({ provider, strict }: Way): Target {
  return new Target({
    path: 'config',
    provider,
    stored: null,
    credentials: { key: null, settings: {} },
    url: new URL('https://provider.test/v1'),
    customHeaders: [],
    shaping: null,
    forwardHeaders: [],
    timeoutMs: null,
    limits: LIMITS,
    onBreak: null,
    hedge: null,
    retry: null,
    cache: null,
    strict: strict ?? true,
  });
}

export interface Told {
  readonly status: number;
  /** Body as the caller gets it, the whole of it. */
  readonly text: string;
  /** As the record tells it. */
  readonly outcome: Exchange['outcome']['result'];
  readonly usage: Exchange['outcome']['usage'];
  readonly model: string | null;
}

/**
 * Runs many answers of one way through relays of their own. Everything else of the server is left out: what a relay is
 * given arrives in `chunks`, and ends (`end`) or breaks with an error.
 */
export class Relayed {
  readonly #way: Way;
  readonly #bound: Bound;
  readonly #target: Target;
  readonly #services: Services;

  constructor(way: Way) {
    const bound = boundOf(way);
    if (bound === null) throw new Error(`${way.provider.id} does not serve ${way.caller}`);
    this.#way = way;
    this.#bound = bound;
    this.#target = targetOf(way);
    const services = {
      // Its time goes into the record, which nothing here reads.
      storeClock: { now: () => 0 },
      clock: new TestClock(1_700_000_000_000),
      bodies: new BodyBudget(1 << 30),
      log: NO_LOG,
      pricer: PRICER,
    };
    this.#services = services as unknown as Services;
  }

  answer(chunks: readonly Buffer[], contentType: string, broken?: SluiceError): Told {
    const parts: Buffer[] = [];
    const request = { headers: {}, method: 'POST', url: `/v1/${this.#way.caller}`, complete: true };
    const response = {
      writeHead: () => undefined,
      once: () => undefined,
      write: (part: Buffer) => parts.push(part) > 0,
    };
    const x = new Exchange(
      this.#services,
      OPERATIONS[this.#way.caller],
      request as unknown as IncomingMessage,
      response as unknown as ServerResponse,
      {},
    );
    (x as { readonly request: RequestHead }).request.model = String(this.#way.asked.model);
    x.attempt.stream = this.#way.asked.stream === true;
    x.attempt.target = this.#target;
    x.outcome.attemptCount = 1;
    const results: AttemptResult[] = [];
    const relay = new Relay({
      x,
      target: this.#target,
      bound: this.#bound,
      context: contextFor(this.#way),
      stripUsage: false,
      started: 0,
      firstData: () => undefined,
      settle: (result) => results.push(result),
    });
    const control = { pause: () => undefined, resume: () => undefined, abort: () => undefined };
    relay.onHead(200, ['content-type', contentType], control as never);
    for (const chunk of chunks) if (results.length === 0) relay.onData(chunk);
    if (broken !== undefined) relay.onError(broken);
    else if (results.length === 0) relay.onEnd();
    const [result, ...more] = results;
    if (result === undefined || more.length > 0) throw new Error(`the relay settled ${results.length} times`);
    if (result.kind === 'failed') respondError(x, result.error);
    if (result.kind === 'answered') {
      return {
        status: result.status,
        text: result.body,
        outcome: 'failed',
        usage: x.outcome.usage,
        model: x.outcome.modelAnswered,
      };
    }
    const {
      outcome: { ending },
    } = x;
    if (ending !== null && ending.kind !== 'destroy') parts.push(...ending.body);
    const text = Buffer.concat(parts).toString('utf8');
    return {
      status: x.outcome.status,
      text,
      outcome: x.outcome.result,
      usage: x.outcome.usage,
      model: x.outcome.modelAnswered,
    };
  }
}

/** What was refused, by its name; null when `run` refuses nothing. */
export function refusalOf(run: () => unknown): { readonly kind: string; readonly param: string | null } | null {
  try {
    run();
    return null;
  } catch (error) {
    if (error instanceof SluiceError) return { kind: error.kind, param: error.param };
    throw error;
  }
}
