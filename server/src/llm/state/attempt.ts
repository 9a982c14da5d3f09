import { SluiceError } from '../../kernel/errors.ts';
import type { JsonValue } from '../../kernel/json.ts';
import type { WireControl } from '../../kernel/wire.ts';
import type { CacheEntryWriter } from '../cache/cache-entry-writer.ts';
import type { GuardPlan } from '../guard/plan.ts';
import type { Media } from '../media-names.ts';
import type { Creation } from '../ownership/creation.ts';
import type { Retry } from '../relay/retry-rules.ts';
import type { Leaf } from '../routing/route.ts';
import type { Shaping } from '../shaping.ts';
import type { Target } from '../target.ts';
import type { AttemptResult } from './attempt-result.ts';
import { NO_BODY, type RequestBody } from './body.ts';
import type { Prepared } from './prepared.ts';
import type { LlmRequest } from './request.ts';

/** One target that is tried, with its retries. */
export class Attempt {
  target: Target | null = null;
  /** Its place in a config with several targets; null for the only one. */
  leaf: Leaf | null = null;
  /** Guardrails of one target of several; null without any. */
  guardPlan: GuardPlan | null = null;
  /** Calls of the request that were begun before it. */
  callsBefore = 0;
  /** What it is sent: the caller's body, or what guardrails have made of it. */
  body: RequestBody = NO_BODY;
  /** The answer is a stream. */
  stream = false;
  /** The body is already what the config makes of it. */
  shaped = false;
  /** The request as it is sent; null before it is made. */
  prepared: Prepared | null = null;
  /** What became of the target; null while steps of it are left to run. */
  result: AttemptResult | null = null;
  /** What the addresses of pictures and files in it lead to; null while nothing was fetched. The next target has it, too. */
  media: Media | null = null;
  /** Bytes of that. */
  mediaBytes = 0;
  /** What the cache found, or keeps of the answer; null where no cache is asked. */
  caching: CacheEntryWriter | null = null;
  /** What the answer may tell to have been made at the provider; null where it makes nothing that is kept. */
  creation: Creation | null = null;
  /** Further calls of this target that may follow the one under way; null when none is left. */
  retriesLeft: Retry | null = null;
  /** Whether the next target would take over from an attempt that fails so; null when there is none. */
  wouldFallBack: ((status: number, code: string | null) => boolean) | null = null;
  /** Upstream call under way; aborted when the client leaves. */
  control: WireControl | null = null;

  /** The next target, which is sent the request as it came. */
  static after(former: Attempt, { body, stream }: Pick<LlmRequest, 'body' | 'stream'>): Attempt {
    former.caching?.drop();
    const next = new Attempt();
    next.body = body;
    next.stream = stream;
    next.media = former.media;
    next.mediaBytes = former.mediaBytes;
    next.wouldFallBack = former.wouldFallBack;
    return next;
  }

  /** What the config of the target still has to make of the body; null: nothing. */
  get shaping(): Shaping | null {
    return this.shaped ? null : (this.target?.shaping ?? null);
  }

  /** The body as the target's config makes it. Throws SyntaxError where it is no JSON. */
  value(): JsonValue {
    return this.body.under(this.shaping);
  }

  /** The target. Throws `internal` before it is chosen: a row of the table has the wrong place. */
  requireTarget(): Target {
    if (this.target === null) throw new SluiceError('internal', 'The target of the request is not chosen yet.');
    return this.target;
  }

  /** The request as it is sent. Throws `internal` before it is made, as `requireTarget`. */
  requirePrepared(): Prepared {
    if (this.prepared === null) throw new SluiceError('internal', 'What the target is sent is not made yet.');
    return this.prepared;
  }

  /** Another call, of this target or of the next one, may take the place of the one under way. */
  get mayBeFollowed(): boolean {
    return this.retriesLeft !== null || this.wouldFallBack !== null;
  }
}
