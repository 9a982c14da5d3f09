import { checkHttpClient } from '../gateway/check-http-client.ts';
import { InFlight } from '../gateway/in-flight.ts';
import { BodyBudget, bodyMemory, FREE_BYTES } from '../http/body-budget.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Upstream } from '../http/upstream.ts';
import { cryptoRandom } from '../kernel/random.ts';
import { Shares } from '../kernel/shares.ts';
import { createAdmission } from '../limits/admission.ts';
import { createLedger } from '../limits/ledger/ledger.ts';
import { createOutputs } from '../limits/ledger/outputs.ts';
import { createAnswers } from '../llm/cache/answers.ts';
import { createSimilar } from '../llm/cache/similar.ts';
import { createInner } from '../llm/inner.ts';
import { LargeBodies } from '../llm/large/thread.ts';
import { run } from '../llm/pipeline.ts';
import { type DataPlane, registerDataPlane } from '../llm/routes.ts';
import { Breakers } from '../llm/routing/breaker.ts';
import type { Services } from '../llm/services.ts';
import type { Pricer } from '../pricing/price.ts';
import type { RunInner } from '../runtime/inner-call.ts';
import { createOwners } from '../runtime/owners.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Shared } from './shared.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';
import type { Training } from './training.ts';

/** Limits of calls where a config sets none: until the head of an answer, between two chunks of it. */
const HEADERS_MS = 60_000;
const IDLE_MS = 120_000;
/** Of a stream: from the call to its first content, and with nothing but signs of life. */
const FIRST_TOKEN_MS = 120_000;
const QUIET_MS = 600_000;
/** Requests of all organisations together, on the smallest machine. */
const MIN_UNDER_WAY = 2_048;

/** What tests put in the place of the data plane's own. */
export type GivenServices = Partial<Pick<Services, 'clock' | 'random'>>;

/** The data plane of this process: background work runs requests through it also where no route leads to it. */
export interface Gateway {
  readonly services: Services;
  readonly inFlight: InFlight;
  /** Null: the role is not `gateway`. */
  readonly plane: DataPlane | null;
  /** Runs the line of a batch. */
  readonly runLine: RunInner;
}

interface Parts {
  readonly stores: Stores;
  readonly shared: Shared;
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
  readonly guard: EgressGuard;
  readonly upstream: Upstream;
  readonly pricer: Pricer;
  readonly training: Training;
  readonly given: GivenServices;
}

/** Makes the services of its steps, and registers its routes where the role is `gateway`. */
export function openGateway(common: Common, parts: Parts): Gateway {
  const { tables, storeClock } = parts.stores;
  const { app, express } = parts.front;
  const inFlight = new InFlight();
  const runInner: Services['runInner'] = (x) => inFlight.run(x, run);
  const services = servicesOf(common, parts, runInner);
  return {
    services,
    inFlight,
    plane: common.config.roles.has('gateway') ? registerDataPlane(app, services, express, inFlight) : null,
    runLine: createInner({ services, tables, clock: storeClock, run: runInner }),
  };
}

function servicesOf(common: Common, parts: Parts, runInner: Services['runInner']): Services {
  const { config, clock, log, notes, accessLog, lifecycle } = common;
  const { stores, shared, spools, kept, front, guard, upstream, pricer, training, given } = parts;
  const { tables, storeClock } = stores;
  const { counters, share, cache } = shared;
  const { fetcher, tokens, ambient } = training.services;
  const bodies = new BodyBudget(Math.max(4 * config.maxBodyBytes, bodyMemory(config.workers)), clock);
  // As many as have room for a body that is not counted.
  const most = Math.max(MIN_UNDER_WAY, Math.floor(bodies.shares.max / FREE_BYTES));
  const journal = spools.settlements.open;
  return {
    authenticator: kept.authenticator,
    runtime: kept.runtime,
    guard,
    paths: front.paths,
    upstream,
    fetcher,
    tokens,
    ambient: ambient ?? null,
    recorder: spools.recorder,
    pricer,
    admission: createAdmission({ counters, share, clock: storeClock, log }),
    ledger: lifecycle.own(
      'usage limits',
      createLedger({ tables, journal, clock: storeClock, log, node: stores.runId }),
    ),
    outputs: createOutputs(),
    cache,
    breakers: new Breakers(given.clock ?? clock),
    answers: createAnswers({ cache, similar: createSimilar({ tables, clock: storeClock, log }), log }),
    runInner,
    unpriced: config.unpriced,
    unrecorded: config.unrecorded,
    owners: lifecycle.own('owners of objects', createOwners({ tables, clock: storeClock })),
    objects: training,
    outside: (organisationId) => checkHttpClient({ fetcher, guard, clock, organisationId }),
    clock,
    random: cryptoRandom,
    ...given,
    storeClock,
    log,
    notes,
    accessLog,
    maxBodyBytes: config.maxBodyBytes,
    bodies,
    large: lifecycle.own('thread for large bodies', new LargeBodies(clock, log)),
    underWay: new Shares('requests under way', most),
    blockInlineConfig: config.blockInlineConfig,
    timeouts: { headersMs: HEADERS_MS, idleMs: IDLE_MS, firstTokenMs: FIRST_TOKEN_MS, quietMs: QUIET_MS },
  };
}
