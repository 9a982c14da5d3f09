import type { JsonObject } from '../../kernel/json.ts';
import type { WireRequest } from '../../kernel/wire.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext, Signer } from '../../providers/provider.ts';
import type { FanOutCall } from '../fan-out.ts';
import type { BodyOrder } from '../request-body.ts';

/** The request as it would go upstream, also for a dry run. */
export interface Prepared {
  readonly request: WireRequest;
  readonly bound: Bound;
  readonly context: CallContext;
  readonly stripUsage: boolean;
  /** Where among the headers the value of `traceparent` is, which each attempt writes; null: none is sent. */
  readonly traceAt: number | null;
  /** Signs each attempt; null for accounts whose headers are complete. */
  readonly signer: Signer | null;
  /** Headers of the caller that were looked at for it, `name, value`; null when there were none. */
  readonly seen: readonly string[] | null;
  /** The calls that the request is made in; null: one. */
  readonly fanOut: readonly FanOutCall[] | null;
  /** What a thread has made its body of, where that is asked for by its answer and not known in this thread. */
  readonly order: BodyOrder | null;
  /** The body is the caller's own, at most edited. */
  readonly edited: boolean;
  /** What the body says, where it was written in this thread for a target that has a cache; null otherwise. */
  readonly written: JsonObject | null;
}
