import type { ScanResult } from '../../kernel/json-scan.ts';
import type { WireControl } from '../../kernel/wire.ts';
import type { Caching } from '../cache/cache-entry-writer.ts';
import type { Creation } from '../ownership/creation.ts';
import type { Retry } from '../relay/rules.ts';
import type { Target } from '../target.ts';

const EMPTY = Buffer.alloc(0);

/** One target that is tried, with its retries. */
export class Attempt {
  target: Target | null = null;
  /** What it is sent: the caller's body, or what guardrails have made of it. */
  body: Buffer = EMPTY;
  scan: ScanResult | null = null;
  /** The answer is a stream. */
  stream = false;
  /** The body is already what the config makes of it. */
  shaped = false;
  /** The body as it came, where guardrails have put another one in its place; null otherwise. */
  originalBody: Buffer | null = null;
  /** What the cache found, or keeps of the answer; null where no cache is asked. */
  caching: Caching | null = null;
  /** What the answer may tell to have been made at the provider; null where it makes nothing that is kept. */
  creation: Creation | null = null;
  /** Further calls of this target that may follow the one under way; null when none is left. */
  retriesLeft: Retry | null = null;
  /** Whether the next target would take over from an attempt that fails so; null when there is none. */
  wouldFallBack: ((status: number, code: string | null) => boolean) | null = null;
  /** Upstream call under way; aborted when the client leaves. */
  control: WireControl | null = null;

  /** The next target, which is sent the request as it came. */
  static after(former: Attempt, body: Buffer, scan: ScanResult | null, stream: boolean): Attempt {
    former.caching?.drop();
    const next = new Attempt();
    next.body = body;
    next.scan = scan;
    next.stream = stream;
    next.wouldFallBack = former.wouldFallBack;
    return next;
  }

  /** Another call, of this target or of the next one, may take the place of the one under way. */
  get mayBeFollowed(): boolean {
    return this.retriesLeft !== null || this.wouldFallBack !== null;
  }
}
