/**
 * THE TABLE: all that happens to a request, in order, written once. A row names a step, a verb in `steps/`, the requests it
 * runs for, and when. A feature that is not configured adds no step. `docs/architecture.md` shows the table.
 */

import type { ServerResponse } from 'node:http';
import { SluiceError } from '../kernel/errors.ts';
import type { Family } from '../operations/operation.ts';
import type { AnswerStep, Exchange, Step, Uses } from './exchange.ts';
import { type Features, NONE } from './plan.ts';
import { respondError } from './respond-error.ts';
import { admit, admitTarget } from './steps/admit.ts';
import { answerDryRun } from './steps/answer-dry-run.ts';
import { authenticate } from './steps/authenticate.ts';
import { buildTargetRequest } from './steps/build-target-request.ts';
import { callTarget } from './steps/call-target.ts';
import { checkOwners } from './steps/check-owners.ts';
import { chooseAnswerGuarding } from './steps/choose-answer-guarding.ts';
import { fetchMedia } from './steps/fetch-media.ts';
import { guard, guardTarget, refuseToContinue } from './steps/guard.ts';
import { lookUpInCache } from './steps/look-up-in-cache.ts';
import { noteOwner } from './steps/note-owner.ts';
import { pinSnapshot } from './steps/pin-snapshot.ts';
import { readRequestBody } from './steps/read-body.ts';
import { record } from './steps/record.ts';
import { releaseBodies } from './steps/release-bodies.ts';
import { requireSavedConfig } from './steps/require-saved-config.ts';
import { reserve, reserveTarget } from './steps/reserve.ts';
import { resolve } from './steps/resolve.ts';
import { settle } from './steps/settle.ts';
import { storeInCache } from './steps/store-in-cache.ts';
import { freeSlot, takeSlot } from './steps/take-slot.ts';
import { answerObject } from './steps/training-objects.ts';
import { tryOnlyTarget } from './steps/try-only-target.ts';
import { checkTargets, choose, tryTargets } from './steps/try-targets.ts';

/** Which requests a row runs for. */
export const GROUPS = {
  all: (_family: Family) => true,
  /** Those that one provider answers. */
  calls: (family: Family) => family !== 'job',
  /** Files, batches and jobs. */
  objects: (family: Family) => family === 'job',
} as const;

interface Asked extends Features {
  readonly dryRun: boolean;
}

/** When a row runs. A row runs where all that it names holds. */
export const CONDITIONS = {
  'one target': ({ route }: Asked) => !route,
  'several targets': ({ route }: Asked) => route,
  'rate limits': ({ rateLimits }: Asked) => rateLimits,
  'usage limits': ({ usageLimits }: Asked) => usageLimits,
  guardrails: ({ guardrails }: Asked) => guardrails,
  media: ({ media }: Asked) => media,
  'owned objects': ({ owners }: Asked) => owners,
  cache: ({ cache }: Asked) => cache,
  'dry run': ({ dryRun }: Asked) => dryRun,
  'no dry run': ({ dryRun }: Asked) => !dryRun,
} as const;

export interface Row<Verb = Step> {
  readonly step: Verb;
  readonly group: keyof typeof GROUPS;
  readonly when: readonly (keyof typeof CONDITIONS)[];
}

const row = <Verb>(step: Verb, group: Row['group'], ...when: Row['when']): Row<Verb> => ({ step, group, when });

/** Nothing can be planned before caller, body and model are known; what the headers alone forbid is refused before the body is read. */
const HEAD: readonly Row[] = [
  row(authenticate, 'all'),
  row(takeSlot, 'all'),
  row(pinSnapshot, 'all'),
  row(requireSavedConfig, 'all'),
  row(readRequestBody, 'all'),
  row(resolve, 'all'),
];

const REQUEST: readonly Row[] = [
  row(choose, 'calls', 'several targets'),
  row(admit, 'all', 'rate limits'),
  row(reserve, 'all', 'usage limits'),
  row(tryOnlyTarget, 'all', 'one target'),
  row(tryTargets, 'calls', 'several targets'),
];

/** Run by `tryOnlyTarget` once, and by `tryTargets` for each target that is tried, until a step gives the target's result. */
const TARGET: readonly Row[] = [
  row(admitTarget, 'calls', 'several targets', 'rate limits'),
  row(reserveTarget, 'calls', 'several targets', 'usage limits'),
  row(guard, 'all', 'one target', 'guardrails'),
  row(guardTarget, 'calls', 'several targets', 'guardrails'),
  row(refuseToContinue, 'calls', 'several targets', 'guardrails'),
  row(fetchMedia, 'calls', 'media'),
  row(buildTargetRequest, 'calls'),
  row(checkOwners, 'calls', 'owned objects'),
  row(checkTargets, 'calls', 'several targets', 'dry run'),
  row(answerDryRun, 'calls', 'dry run'),
  row(lookUpInCache, 'calls', 'cache', 'no dry run'),
  row(callTarget, 'calls', 'no dry run'),
  row(answerObject, 'objects'),
];

/** Run for the answer of each attempt that `callTarget` makes, which then goes to the caller as it comes. */
const ANSWER: readonly Row<AnswerStep>[] = [row(chooseAnswerGuarding, 'calls', 'guardrails')];

/** Run in any case, also after a refusal, a failure and a client abort; a step that fails does not keep the next from running. */
const TAIL: readonly Row[] = [
  row(settle, 'all'),
  row(storeInCache, 'calls', 'cache'),
  row(noteOwner, 'calls', 'owned objects'),
  row(record, 'all'),
  row(releaseBodies, 'all'),
  row(freeSlot, 'all'),
];

export const TABLE = { head: HEAD, request: REQUEST, target: TARGET, answer: ANSWER, tail: TAIL } as const;

/** The steps of one plan. Those of the head are the same for all. */
type Steps = { readonly [Part in keyof typeof TABLE]: readonly (typeof TABLE)[Part][number]['step'][] };

/** By family, then by the bits of what is asked for. */
const memo = new Map<Family, (Steps | undefined)[]>();

/** The steps of a plan, in their order. Every plan that asks for the same has the very same lists. */
export function stepsFor(family: Family, features: Features, dryRun: boolean): Steps {
  const { rateLimits, usageLimits, guardrails, route: routed, cache, media, owners } = features;
  const bits =
    (rateLimits ? 1 : 0) |
    (usageLimits ? 2 : 0) |
    (guardrails ? 4 : 0) |
    (routed ? 8 : 0) |
    (cache ? 16 : 0) |
    (media ? 32 : 0) |
    (owners ? 64 : 0) |
    (dryRun ? 128 : 0);
  let known = memo.get(family);
  if (known === undefined) {
    known = new Array<undefined>(256);
    memo.set(family, known);
  }
  let steps = known[bits];
  if (steps === undefined) {
    const asked = { ...features, dryRun };
    const of = <Verb>(rows: readonly Row<Verb>[]) =>
      rows
        .filter(({ group, when }) => GROUPS[group](family) && when.every((name) => CONDITIONS[name](asked)))
        .map(({ step }) => step);
    steps = { head: of(HEAD), request: of(REQUEST), target: of(TARGET), answer: of(ANSWER), tail: of(TAIL) };
    known[bits] = steps;
  }
  return steps;
}

/** Of a request that was refused before it had a plan. */
const UNPLANNED: Features = { ...NONE, rateLimits: false, usageLimits: false, guardrails: false, route: false };

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
  const { operation } = x.request;
  let steps = stepsFor(operation.family, UNPLANNED, false);
  try {
    // Counted loops: an iterator for each would be garbage of every request.
    for (let i = 0; i < steps.head.length; i++) {
      const pending = steps.head[i]?.(x, runTarget);
      if (pending) await pending;
    }
    const { plan, dryRun } = x.request;
    if (plan !== null) {
      steps = stepsFor(operation.family, plan.features, dryRun);
      for (let i = 0; i < steps.request.length; i++) {
        const pending = steps.request[i]?.(x, runTarget);
        if (pending) await pending;
      }
    }
  } catch (error) {
    respondError(x, error);
  } finally {
    for (let i = 0; i < steps.tail.length; i++) {
      try {
        const pending = steps.tail[i]?.(x, runTarget);
        if (pending) await pending;
      } catch (error) {
        x.services.log.error('a final step failed', { request_id: x.request.id, error: String(error) });
      }
    }
    unwatchClient(x);
  }
}

function runTarget(x: Exchange, features: Features): void | Promise<void> {
  const { target, answer } = stepsFor(x.request.operation.family, features, x.request.dryRun);
  x.answerSteps = answer;
  return goOn(x, target, 0);
}

/** From a step on, until one gives the result. The promise of the last step is given as it is: one wait less for each request. */
function goOn(x: Exchange, steps: readonly Step[], from: number): void | Promise<void> {
  for (let i = from; i < steps.length && x.attempt.result === null; i++) {
    const pending = steps[i]?.(x, runTarget);
    if (pending) return i === steps.length - 1 ? pending : pending.then(() => goOn(x, steps, i + 1));
  }
}
