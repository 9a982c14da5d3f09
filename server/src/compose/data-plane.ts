import { openPlanes, type Plane } from '../gateway/plane.ts';
import type { GatewayServices } from '../gateway/services.ts';
import type { Upstream } from '../http/upstream.ts';
import { cryptoRandom } from '../kernel/random.ts';
import { createOutputEstimator } from '../limits/ledger/output-estimator.ts';
import { createResponseCache } from '../llm/cache/response-cache.ts';
import { createSemanticCache } from '../llm/cache/semantic-cache.ts';
import type { Services } from '../llm/exchange.ts';
import { GuardrailThread } from '../llm/guard/apart/thread.ts';
import { createInternalCalls } from '../llm/internal-calls.ts';
import { LargeBodies } from '../llm/large/thread.ts';
import { run } from '../llm/pipeline.ts';
import { type DataPlane, llmPlane } from '../llm/routes.ts';
import { Breakers } from '../llm/routing/breaker.ts';
import type { Pricer } from '../pricing/price.ts';
import type { RunInternalCall } from '../runtime/internal-call.ts';
import { createOwners } from '../runtime/owners.ts';
import type { Common } from './common.ts';
import { type GatewayParts, gatewayServices } from './gateway.ts';

/** Limits of calls where a config sets none: until the head of an answer, between two chunks of it. */
const HEADERS_MS = 60_000;
const IDLE_MS = 120_000;
/** Of a stream: from the call to its first content, and with nothing but signs of life. */
const FIRST_TOKEN_MS = 120_000;
const QUIET_MS = 600_000;

/** What tests put in the place of the planes' own, and the planes that they add. */
export interface GivenServices extends Partial<Pick<Services, 'clock' | 'random'>> {
  readonly planes?: readonly ((gateway: GatewayServices) => Plane)[];
}

/** The planes of this process: background work runs requests through them also where no route leads to them. */
export interface Gateway {
  readonly services: Services;
  /** Null: the role is not `gateway`. */
  readonly plane: DataPlane | null;
  /** Runs the line of a batch. */
  readonly runLine: RunInternalCall;
}

interface Parts extends GatewayParts {
  readonly upstream: Upstream;
  readonly pricer: Pricer;
  readonly given: GivenServices;
}

/** Makes what planes work with, and registers their routes where the role is `gateway`. */
export function openGateway(common: Common, parts: Parts): Gateway {
  const { tables, storeClock } = parts.stores;
  const gateway = gatewayServices(common, parts);
  const { inFlight } = gateway;
  const runInternal: Services['runInternal'] = (x) => inFlight.run(x, run);
  const services = llmServices(common, parts, gateway, runInternal);
  const llm = llmPlane(services, inFlight);
  const planes: readonly Plane[] = [llm, ...(parts.given.planes ?? []).map((plane) => plane(gateway))];
  const serves = common.config.roles.has('gateway');
  if (serves) openPlanes(parts.front, planes);
  return {
    services,
    plane: serves ? llm : null,
    runLine: createInternalCalls({ services, tables, clock: storeClock, run: runInternal }),
  };
}

function llmServices(
  common: Common,
  parts: Parts,
  gateway: GatewayServices,
  runInternal: Services['runInternal'],
): Services {
  const { config, clock, log, lifecycle } = common;
  const { stores, shared, upstream, pricer, training, given } = parts;
  const { tables, storeClock } = stores;
  const { cache } = shared;
  return {
    ...gateway,
    ambient: gateway.ambient ?? null,
    upstream,
    pricer,
    outputEstimator: createOutputEstimator(),
    cache,
    breakers: new Breakers(gateway.clock),
    responseCache: createResponseCache({
      cache,
      similar: createSemanticCache({ tables, clock: storeClock, log }),
      log,
    }),
    runInternal,
    owners: lifecycle.own('owners of objects', createOwners({ tables, clock: storeClock })),
    objects: training,
    random: given.random ?? cryptoRandom,
    large: lifecycle.own('thread for large bodies', new LargeBodies(clock, log)),
    guardrails: lifecycle.own('thread for guardrails', new GuardrailThread(clock, log)),
    blockInlineConfig: config.blockInlineConfig,
    timeouts: { headersMs: HEADERS_MS, idleMs: IDLE_MS, firstTokenMs: FIRST_TOKEN_MS, quietMs: QUIET_MS },
  };
}
