import type { GatewayServices } from '../gateway/services.ts';
import type { Upstream } from '../http/upstream.ts';
import type { Random } from '../kernel/random.ts';
import type { Outputs } from '../limits/ledger/outputs.ts';
import type { Pricer } from '../pricing/price.ts';
import type { AmbientIdentity } from '../providers/training.ts';
import type { ObjectHandler } from '../runtime/object-call.ts';
import type { Owners } from '../runtime/owners.ts';
import type { Cache } from '../store/ports.ts';
import type { Answers } from './cache/answers.ts';
import type { Exchange } from './exchange.ts';
import type { LargeBodies } from './large/thread.ts';
import type { DefaultLimits } from './relay/rules.ts';
import type { Breakers } from './routing/breaker.ts';

/** What the steps of the data plane may use beside what every plane has. Made once in `compose/data-plane.ts`. */
export interface Services extends GatewayServices {
  readonly upstream: Upstream;
  readonly ambient: AmbientIdentity | null;
  readonly pricer: Pricer;
  readonly outputs: Outputs;
  /** Answers that are given again. */
  readonly answers: Answers;
  /** Which target a session goes to. */
  readonly cache: Cache;
  readonly breakers: Breakers;
  /** Runs a request that Sluice makes itself, from an exchange made for it. */
  readonly runInner: (x: Exchange) => Promise<void>;
  /** Whose objects at shared accounts are. */
  readonly owners: Owners;
  /** Files, batches and fine-tuning jobs. */
  readonly objects: ObjectHandler;
  readonly random: Random;
  /** The thread that reads and converts what is large. */
  readonly large: LargeBodies;
  /** Forced for every organisation by the environment. */
  readonly blockInlineConfig: boolean;
  /** How long attempts may take whose config does not say. */
  readonly timeouts: DefaultLimits;
}
