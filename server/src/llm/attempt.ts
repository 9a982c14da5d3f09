/** One upstream call: send the prepared request, bound its time, and hand the answer to a relay. */

import type { Access } from '../gateway/account-access.ts';
import { SluiceError } from '../kernel/errors.ts';
import { childSpanId, spanIdOf, traceIdOf, traceparentOf } from '../kernel/trace-context.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import { recordedAs } from '../operations/dialects/errors.ts';
import { refusesCredential } from '../operations/dialects/provider-error.ts';
import type { Signer } from '../providers/provider.ts';
import { accessOf } from './access.ts';
import { causeOf, rounded } from './attempt-cause.ts';
import type { Exchange, Uses } from './exchange.ts';
import { dispatchFanOut } from './fan-out.ts';
import { usageOfParts } from './fan-out-usage.ts';
import { HedgedCall } from './hedge.ts';
import { callLocal } from './local-call.ts';
import { Relay } from './relay/relay.ts';
import { modelUnder } from './shaping.ts';
import type { AttemptResult } from './state/attempt-result.ts';
import type { Prepared } from './state/prepared.ts';
import type { Target } from './target.ts';

/** The trace of the request, and the span that is made of its next attempt. */
function traceOf({ request, outcome }: Uses<'outcome' | 'request'>): string {
  const span = childSpanId(spanIdOf(request.spanId), outcome.attempts.length + 1);
  return traceparentOf(traceIdOf(request.traceId), span, request.parentSampled ?? true);
}

/** What an attempt failed with, unless its status says all there is to say. */
function errorOf(result: AttemptResult, status: number | null): string | null {
  if (result.kind === 'done') return null;
  if (result.kind === 'failed') return recordedAs(result.error);
  const hidden = status !== null && status < 300;
  return hidden ? (result.error.code ?? result.error.type).slice(0, 100) : null;
}

/** The answer of the target is not given: another call gives one. */
export function passAnswerOver({
  outcome,
  attempt: { target },
  request,
}: Uses<'attempt' | 'outcome' | 'request'>): void {
  outcome.passOver(target, modelUnder(target?.shaping ?? null, request.model));
}

/**
 * Sends a prepared request and resolves when its answer is complete, refused or lost. Never rejects. An account that
 * signs in does so first, within the same time; a token that the provider refuses is replaced once.
 */
export function attempt(x: Exchange, target: Target, prepared: Prepared): Promise<AttemptResult> {
  x.outcome.attemptCount += 1;
  if (prepared.traceAt !== null) prepared.request.headers[prepared.traceAt] = traceOf(x);
  return prepared.signer === null
    ? send(x, target, prepared, null, target.timeoutMs)
    : signedAttempt(x, target, prepared, prepared.signer);
}

async function signedAttempt(x: Exchange, target: Target, prepared: Prepared, signer: Signer): Promise<AttemptResult> {
  const { clock } = x.services;
  const started = clock.monotonic();
  const access = accessOf(x, target);
  const first = await send(x, target, prepared, { signer, access }, target.timeoutMs);
  const refused = first.kind === 'answered' && refusesCredential(first.status, first.error);
  if (!refused || x.outcome.headSent || x.clientGone || !access.drop()) return first;
  const left = target.timeoutMs === null ? null : target.timeoutMs - (clock.monotonic() - started);
  if (left !== null && left < 1) return first;
  return send(x, target, prepared, { signer, access: accessOf(x, target) }, left);
}

interface SignIn {
  readonly signer: Signer;
  readonly access: Access;
}

/** One call. `timeoutMs` is the time for all of it, signing in included. */
function send(
  x: Exchange,
  given: Target,
  prepared: Prepared,
  signIn: SignIn | null,
  timeoutMs: number | null,
): Promise<AttemptResult> {
  const { services } = x;
  const started = services.clock.monotonic();
  const { times } = x.outcome;
  const { started: arrived } = x.request;
  times.call(started - arrived);
  // An attempt that was broken off has used what it has used, whatever the next one answers.
  if (x.outcome.answer.called) passAnswerOver(x);
  x.outcome.answer.called = true;
  x.capture?.begin(given);
  // What guardrails said of an answer that nobody gets is not told with the next one.
  if (x.guard !== null) x.guard.after = [];
  return new Promise((resolve) => {
    let cancelTimer: (() => void) | null = null;
    let control: WireControl | null = null;
    let settled = false;
    let hedged: HedgedCall | null = null;
    const sent: string[] = signIn === null ? [] : [...given.sent];
    const target = signIn === null ? given : given.sending(sent);
    const relay = new Relay({
      x,
      target,
      bound: prepared.bound,
      context: prepared.context,
      order: prepared.order,
      stripUsage: prepared.stripUsage,
      started,
      firstData: () => cancelTimer?.(),
      settle: (result) => {
        settled = true;
        cancelTimer?.();
        x.cancel = null;
        hedged?.settle();
        const ended = services.clock.monotonic();
        times.callEnded(started - arrived, (relay.times.endedAt || ended) - arrived);
        x.outcome.attempts.push({
          target: target.path,
          provider: target.provider.id,
          status: relay.status,
          error: errorOf(result, relay.status),
          cause: causeOf(x.outcome, result, relay.status),
          began_ms: rounded(started - arrived),
          ...relay.times.since(started),
          duration_ms: rounded(ended - started),
        });
        resolve(result);
      },
    });
    const cancel = (error: SluiceError) => {
      control?.abort();
      relay.cancel(error);
    };
    const fail = (error: unknown) =>
      relay.cancel(
        error instanceof SluiceError
          ? error
          : new SluiceError('upstream_unreachable', 'The provider could not be called.', { cause: error }),
      );
    x.cancel = cancel;
    if (timeoutMs !== null) {
      cancelTimer = services.clock.after(timeoutMs, () =>
        cancel(
          new SluiceError(
            'timeout',
            `The provider did not answer within the request timeout of ${given.timeoutMs} ms.`,
          ),
        ),
      );
    }
    const start = (request: WireRequest) => {
      const call = (handler: WireHandler): WireControl => {
        if (request.body !== null) for (const part of request.body) x.outcome.upstreamBytesOut += part.length;
        const limits = x.attempt.stream ? target.limits.stream : target.limits.whole;
        const { local } = target.provider;
        return local === undefined
          ? services.upstream.dispatch(request, handler, limits)
          : callLocal(local, request, handler, { clock: services.clock, headersMs: limits.headersMs });
      };
      try {
        if (target.hedge !== null) hedged = new HedgedCall(x, target, target.hedge, relay, call);
        control = hedged === null ? call(relay) : hedged.race;
        x.attempt.control = control;
      } catch (error) {
        fail(error);
      }
      if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
    };
    if (signIn === null && prepared.fanOut === null) {
      start(prepared.request);
      return;
    }
    const sign = async (request: WireRequest): Promise<void> => {
      if (signIn !== null) sent.unshift(...(await signIn.signer(request, signIn.access.context)));
    };
    if (prepared.fanOut !== null) {
      for (const { body } of prepared.fanOut) x.outcome.upstreamBytesOut += body?.length ?? 0;
      const limits = target.limits.whole;
      const dispatch = (request: WireRequest, handler: WireHandler) =>
        services.upstream.dispatch(request, handler, limits);
      control = dispatchFanOut(
        {
          request: prepared.request,
          calls: prepared.fanOut,
          binding: prepared.bound.binding,
          sign: signIn === null ? null : sign,
          dispatch,
          lost: (answers) => {
            x.outcome.answer.usage = usageOfParts(x, prepared.bound, prepared.context, answers);
          },
        },
        relay,
      );
      x.attempt.control = control;
      if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
      return;
    }
    // Each attempt signs the request as it was prepared: signatures hold for a moment only.
    const request = { ...prepared.request, headers: [...prepared.request.headers] };
    sign(request).then(() => {
      if (!settled) start(request);
    }, fail);
    if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
  });
}
