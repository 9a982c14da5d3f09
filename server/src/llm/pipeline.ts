/**
 * THE TABLE: the order of the data plane, written once. Each step is a verb in `steps/`; a row says for which families
 * of operations it runs and when a plan needs it. A feature that is not configured adds no step.
 */

import type { ServerResponse } from 'node:http';
import { giveBack } from '../http/body-slabs.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Family } from '../operations/operation.ts';
import type { Exchange, Uses } from './exchange.ts';
import type { Features } from './plan.ts';
import { respondError } from './respond-error.ts';
import { admit } from './steps/admit.ts';
import { authenticate } from './steps/authenticate.ts';
import { dispatch } from './steps/dispatch.ts';
import { enter, leave } from './steps/enter.ts';
import { guard } from './steps/guard.ts';
import { noteOwner } from './steps/note-owner.ts';
import { pinSnapshot } from './steps/pin-snapshot.ts';
import { readRequestBody } from './steps/read-body.ts';
import { record } from './steps/record.ts';
import { savedOnly } from './steps/require-saved-config.ts';
import { reserve } from './steps/reserve.ts';
import { resolve } from './steps/resolve.ts';
import { choose, route } from './steps/route.ts';
import { settle } from './steps/settle.ts';
import { keepAnswer } from './steps/store-in-cache.ts';
import { answerObject } from './steps/training-objects.ts';

/** Returns nothing when it finished synchronously, so a warm request awaits only what really waits. */
export type Step = (x: Exchange) => void | Promise<void>;

interface StepRow {
  readonly step: Step;
  readonly when: (features: Features) => boolean;
  readonly families: ReadonlySet<Family>;
}

const row = (step: Step, when: StepRow['when'], ...families: Family[]): StepRow => ({
  step,
  when,
  families: new Set(families),
});
const always = () => true;
const CALLS: readonly Family[] = ['chat', 'text', 'binary', 'read', 'proxy'];
const ALL: readonly Family[] = [...CALLS, 'job'];

/** Nothing can be planned before caller, body and model are known; what the headers alone forbid is refused before the body is read. */
export const HEAD: readonly Step[] = [authenticate, enter, pinSnapshot, savedOnly, readRequestBody, resolve];

export const TABLE: readonly StepRow[] = [
  row(choose, (features) => features.route, ...CALLS),
  row(admit, (features) => features.limits, ...ALL),
  row(reserve, (features) => features.budgets, ...ALL),
  row(guard, (features) => features.guardrails, ...ALL),
  row(dispatch, (features) => !features.route, ...CALLS),
  row(route, (features) => features.route, ...CALLS),
  row(answerObject, always, 'job'),
];

/** Run in `finally`, also after a refusal, a failure and a client abort, in this order. */
export const TAIL: readonly Step[] = [settle, keepAnswer, noteOwner, record];

/** By family, then by the bits of `features`. */
const memo = new Map<Family, (readonly Step[] | undefined)[]>();

/** The optional and the usual steps between head and tail, in their order. */
export function stepsFor(family: Family, features: Features): readonly Step[] {
  const { limits, budgets, guardrails, route: routed } = features;
  const bits = (limits ? 1 : 0) | (budgets ? 2 : 0) | (guardrails ? 4 : 0) | (routed ? 8 : 0);
  let known = memo.get(family);
  if (known === undefined) {
    known = new Array<undefined>(16);
    memo.set(family, known);
  }
  let steps = known[bits];
  if (steps === undefined) {
    steps = TABLE.filter((entry) => entry.families.has(family) && entry.when(features)).map((entry) => entry.step);
    known[bits] = steps;
  }
  return steps;
}

const NO_BODY = Buffer.alloc(0);
const NO_STEPS: readonly Step[] = [];

/** The exchange an answer belongs to, kept on the response: one listener for all instead of a closure for each. */
const EXCHANGE = Symbol('exchange');
type Watched = ServerResponse & { [EXCHANGE]?: Exchange | undefined };

function onClose(this: Watched): void {
  const x = this[EXCHANGE];
  if (x === undefined || this.writableFinished || x.clientGone) return;
  x.clientGone = true;
  x.cancel?.(new SluiceError('client_closed', 'The client closed the connection.'));
}

function watchClient(x: Exchange): void {
  const response: Watched = x.response;
  response[EXCHANGE] = x;
  response.on('close', onClose);
}

function unwatchClient(x: Uses<'response'>): void {
  const response: Watched = x.response;
  response[EXCHANGE] = undefined;
}

/** Runs one request through the table. Never throws: every failure becomes an answer and a record. */
export async function run(x: Exchange): Promise<void> {
  watchClient(x);
  try {
    // Counted loops: an iterator for each would be garbage of every request.
    for (let i = 0; i < HEAD.length; i++) {
      const pending = HEAD[i]?.(x);
      if (pending) await pending;
    }
    const { plan, operation } = x.request;
    const steps = plan === null ? NO_STEPS : stepsFor(operation.family, plan.features);
    for (let i = 0; i < steps.length; i++) {
      const pending = steps[i]?.(x);
      if (pending) await pending;
    }
  } catch (error) {
    respondError(x, error);
  } finally {
    for (let i = 0; i < TAIL.length; i++) {
      try {
        const pending = TAIL[i]?.(x);
        if (pending) await pending;
      } catch (error) {
        x.services.log.error('a final step failed', { request_id: x.request.id, error: String(error) });
      }
    }
    unwatchClient(x);
    // A local provider may still read what it was handed; a socket keeps what it has not sent.
    if (x.attempt.target?.provider.local === undefined && x.walk?.local !== true) giveBack(x.attempt.body);
    x.attempt.body = NO_BODY;
    leave(x);
    if (x.bodyHeld > 0) x.services.bodies.release(x.request.organisationId, x.bodyHeld);
    if (x.answerHeld > 0) x.services.bodies.release(x.request.organisationId, x.answerHeld);
  }
}
