import { checkHttpClient } from '../gateway/check-http-client.ts';
import { createGuardedFetch } from '../gateway/guarded-fetch.ts';
import { openGuardrailFeedback } from '../gateway/guardrail-feedback.ts';
import { InFlight } from '../gateway/in-flight.ts';
import type { GatewayServices } from '../gateway/services.ts';
import { BodyBudget, bodyMemory, FREE_BYTES } from '../http/body-budget.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Clock } from '../kernel/clock.ts';
import { FairShares } from '../kernel/fair-shares.ts';
import { createLedger } from '../limits/ledger/ledger.ts';
import { createAdmission } from '../limits/rate-limits.ts';
import type { OpenOAuth } from '../oauth/routes.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Shared } from './shared.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';
import type { Training } from './training.ts';

/** Requests of all organisations together, on the smallest machine. */
const MIN_UNDER_WAY = 2_048;

/** Loaded with the first sign-in that comes to the data plane. */
const signIns = () => import('../admin/sign-in/data-plane.ts');

export interface GatewayParts {
  readonly stores: Stores;
  readonly shared: Shared;
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
  readonly egress: EgressGuard;
  readonly training: Training;
  readonly oauth: OpenOAuth;
  /** Tests give another one than the machine's. */
  readonly given: { readonly clock?: Clock };
}

/** What every plane of this process is given. */
export function gatewayServices(common: Common, parts: GatewayParts): GatewayServices {
  const { config, clock, log, notes, accessLog, lifecycle } = common;
  const { stores, shared, spools, kept, front, egress, training, oauth, given } = parts;
  const { tables, storeClock } = stores;
  const { counters, share } = shared;
  const { fetcher, tokens, ambient } = training.services;
  const bodies = new BodyBudget(Math.max(4 * config.maxBodyBytes, bodyMemory(config.workers)), clock);
  // As many as have room for a body that is not counted.
  const most = Math.max(MIN_UNDER_WAY, Math.floor(bodies.shares.max / FREE_BYTES));
  const journal = spools.settlements.open;
  return {
    authenticator: kept.authenticator,
    accessTokens: {
      authenticate: async (...asked) => (await oauth()).accessTokens.authenticate(...asked),
    },
    signIns: {
      find: async (...asked) => (await signIns()).findUser({ tables, sessions: kept.sessions }, ...asked),
      check: async (...asked) => (await signIns()).checkCookie({ sessions: kept.sessions }, ...asked),
    },
    runtime: kept.runtime,
    egress,
    fetcher,
    tokens,
    ambient: ambient ?? null,
    recorder: spools.recorder,
    admission: createAdmission({ counters, share, clock: storeClock, log }),
    ledger: lifecycle.own(
      'usage limits',
      createLedger({ tables, journal, clock: storeClock, log, node: stores.runId }),
    ),
    inFlight: new InFlight(),
    concurrency: new FairShares('requests under way', most),
    bodies,
    maxBodyBytes: config.maxBodyBytes,
    guardedFetch: (organisationId, options) => createGuardedFetch({ fetcher, egress, clock }, organisationId, options),
    guardrailFeedback: lifecycle.own(
      'feedback of guardrails',
      openGuardrailFeedback({ tables, clock: storeClock, log }),
    ),
    outside: (organisationId) => checkHttpClient({ fetcher, egress, clock, organisationId }),
    headersToMetadata: config.headersToMetadata,
    bodyLog: spools.bodyLog,
    unpriced: config.unpriced,
    unrecorded: config.unrecorded,
    clock: given.clock ?? clock,
    storeClock,
    log,
    notes,
    accessLog,
    paths: front.paths,
  };
}
