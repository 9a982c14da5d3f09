import type { IncomingMessage } from 'node:http';
import type { Authenticator } from '../auth/authenticator.ts';
import type { Principal } from '../auth/principal.ts';
import type { CheckHttpClientFactory } from '../guardrails/run.ts';
import type { BodyBudget } from '../http/body-budget.ts';
import type { KnownPaths } from '../http/known-paths.ts';
import type { Clock } from '../kernel/clock.ts';
import type { FairShares } from '../kernel/fair-shares.ts';
import type { Log } from '../kernel/log.ts';
import type { Notes } from '../kernel/notes.ts';
import type { Ledger } from '../limits/ledger/ledger.ts';
import type { Admission } from '../limits/rate-limits.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { UnpricedRule } from '../store/schema.ts';
import type { AccessLog } from '../telemetry/access-log.ts';
import type { Recorder } from '../telemetry/recorder.ts';
import type { AccountServices } from './account-access.ts';
import type { BodyLog } from './body-log.ts';
import type { GuardedFetch, GuardedFetchOptions } from './guarded-fetch.ts';
import type { GuardrailFeedback } from './guardrail-feedback.ts';
import type { InFlight } from './in-flight.ts';

/** Access tokens of the OAuth server. */
export interface AccessTokens {
  /**
   * The user who gave a client the token, in one workspace. Throws `unauthenticated` for a token that is not valid, or is for another
   * resource than the path.
   */
  authenticate(token: string, path: string, address: string): Promise<Principal>;
}

/** Users who are signed in, on the operations of the data plane that are open to them. */
export interface SignIns {
  /**
   * The user of a sign-in, in the workspace that the request names; `url` loses the parameter that names it. Null: there is no
   * live sign-in. Throws `validation` (several workspaces and none named; another user's cookie), `unknown_reference` (no workspace of the
   * user's) or `forbidden` (of a write with the cookie: Origin or CSRF token).
   *
   * @param token of the sign-in; null: the cookie counts
   */
  find(incoming: IncomingMessage, token: string | null): Promise<Principal | null>;
  /** Throws `validation` where the cookie is another caller's than this key or token. */
  check(incoming: IncomingMessage, token: string, principal: Principal): Promise<void>;
}

/** What every plane is given. Made once in `compose/gateway.ts`. */
export interface GatewayServices extends AccountServices {
  readonly authenticator: Authenticator;
  readonly accessTokens: AccessTokens;
  readonly signIns: SignIns;
  readonly runtime: Runtime;
  readonly admission: Admission;
  readonly ledger: Ledger;
  readonly recorder: Recorder;
  /** Requests of all planes that are under way on this node. */
  readonly inFlight: InFlight;
  /** How many of them each organisation has. */
  readonly concurrency: FairShares;
  /** Bytes of large bodies held by all requests together. */
  readonly bodies: BodyBudget;
  /** Largest body, bytes. */
  readonly maxBodyBytes: number;
  /** The fetch of an organisation, for libraries that take one. */
  readonly guardedFetch: (organisationId: string, options: GuardedFetchOptions) => GuardedFetch;
  /** How guardrails of an organisation call others. */
  readonly outside: (organisationId: string) => CheckHttpClientFactory;
  /** Where the feedback goes that guardrails give by their verdicts. */
  readonly guardrailFeedback: Pick<GuardrailFeedback, 'note'>;
  /** Headers of requests that are copied into their metadata; lower case, no credentials. */
  readonly headersToMetadata: readonly string[];
  /** What limits on cost do with what has no known price, where a limit has no rule itself. */
  readonly unpriced: Readonly<UnpricedRule>;
  /** What becomes of requests while their records cannot be written. */
  readonly unrecorded: 'refuse' | 'serve';
  /** The store's time, by which limits go. */
  readonly storeClock: Clock;
  readonly log: Log;
  /** What was refused, and why, for who runs the server. */
  readonly notes: Notes;
  /** Where bodies of requests go that are kept. */
  readonly bodyLog: BodyLog;
  /** Null: no request leaves a line. */
  readonly accessLog: AccessLog | null;
  /** What a path was meant to be, for errors. */
  readonly paths: KnownPaths;
}
