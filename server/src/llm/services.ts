import type { Authenticator } from '../auth/authenticator.ts';
import type { OutsideFactory } from '../guardrails/run.ts';
import type { BodyBudget } from '../http/body-budget.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Fetcher } from '../http/fetcher.ts';
import type { KnownPaths } from '../http/known-paths.ts';
import type { Upstream } from '../http/upstream.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { Notes } from '../kernel/notes.ts';
import type { Random } from '../kernel/random.ts';
import type { Shares } from '../kernel/shares.ts';
import type { Admission } from '../limits/admission.ts';
import type { Ledger } from '../limits/ledger/ledger.ts';
import type { Outputs } from '../limits/ledger/outputs.ts';
import type { Pricer } from '../pricing/price.ts';
import type { AmbientIdentity, TokenCache } from '../providers/training.ts';
import type { ObjectHandler } from '../runtime/object-call.ts';
import type { Owners } from '../runtime/owners.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Cache } from '../store/ports.ts';
import type { UnpricedRule } from '../store/schema.ts';
import type { AccessLog } from '../telemetry/access-log.ts';
import type { Recorder } from '../telemetry/recorder.ts';
import type { Answers } from './cache/answers.ts';
import type { Exchange } from './exchange.ts';
import type { LargeBodies } from './large/thread.ts';
import type { DefaultLimits } from './relay/rules.ts';
import type { Breakers } from './routing/breaker.ts';

/** What the steps of the data plane may use. Made once in `compose/data-plane.ts`. */
export interface Services {
  readonly authenticator: Authenticator;
  readonly runtime: Runtime;
  readonly guard: EgressGuard;
  /** What a path was meant to be, for errors. */
  readonly paths: KnownPaths;
  readonly upstream: Upstream;
  /** Calls off the hot path, as those of token endpoints. */
  readonly fetcher: Fetcher;
  /** Access tokens of accounts, shared with files, batches and jobs. */
  readonly tokens: TokenCache;
  /** The server's own cloud identity; null unless the operator lends it to stored accounts. */
  readonly ambient: AmbientIdentity | null;
  readonly recorder: Recorder;
  readonly pricer: Pricer;
  readonly admission: Admission;
  readonly ledger: Ledger;
  readonly outputs: Outputs;
  /** Answers that are given again. */
  readonly answers: Answers;
  /** Which target a session goes to. */
  readonly cache: Cache;
  readonly breakers: Breakers;
  /** What limits on cost do with models of unknown price, where a limit has no rule of its own. */
  readonly unpriced: Readonly<UnpricedRule>;
  /** What becomes of requests while their records cannot be written. */
  readonly unrecorded: 'refuse' | 'serve';
  /** Runs a request that Sluice makes itself, from an exchange made for it. */
  readonly runInner: (x: Exchange) => Promise<void>;
  /** Whose objects at shared accounts are. */
  readonly owners: Owners;
  /** Files, batches and fine-tuning jobs. */
  readonly objects: ObjectHandler;
  /** How guardrails of an organisation call others. */
  readonly outside: (organisationId: string) => OutsideFactory;
  readonly clock: Clock;
  readonly random: Random;
  /** The store's time, by which limits go. */
  readonly storeClock: Clock;
  readonly log: Log;
  /** What was refused, and why, for who runs the server. */
  readonly notes: Notes;
  /** Null: no request leaves a line. */
  readonly accessLog: AccessLog | null;
  /** Largest inference body, bytes. */
  readonly maxBodyBytes: number;
  /** Bytes of large bodies held by all requests together. */
  readonly bodies: BodyBudget;
  /** The thread that reads and converts what is large. */
  readonly large: LargeBodies;
  /** Requests of each organisation that are under way. */
  readonly underWay: Shares;
  /** Forced for every organisation by the environment. */
  readonly blockInlineConfig: boolean;
  /** How long attempts may take whose config does not say. */
  readonly timeouts: DefaultLimits;
}
