/** A usage-limits policy over what was: buckets in memory, by the arithmetic and the windows of the ledger. */
import { isDeepStrictEqual } from 'node:util';
import { costMicros } from '../../pricing/cost.ts';
import { setPrice } from '../../pricing/set-price.ts';
import type { LimitType, Row, UnpricedRule } from '../../store/schema.ts';
import { addUsed, admits, grantOf } from '../ledger/bucket-math.ts';
import { firstReset, type LimitSpec, nextReset } from '../ledger/limit-spec.ts';
import type { PolicyPlace } from '../policies/conditions.ts';
import { addUsageLimits, compileUsagePolicies, usagePolicySpec } from '../policies/usage.ts';
import type { Event } from './event.ts';
import { type Engine, refusedBy } from './replay.ts';

interface Count {
  used: number;
  carry: number;
  reserved: number;
}

interface Bucket {
  window: number;
  resetsAt: number | null;
  /** As the simulated policy counts, and as the one that was in force did. */
  mine: Count;
  real: Count;
}

/** What a request holds in both, null where it was refused. */
interface Held {
  readonly bucket: Bucket;
  readonly window: number;
  readonly mine: number | null;
  readonly real: number | null;
}

const nothing = (): Count => ({ used: 0, carry: 0, reserved: 0 });
const committedOf = ({ used, reserved }: Count): number => used + reserved;
const amountIn = (type: LimitType, of: { cost: number; tokens: number }, requests: number): number =>
  type === 'cost' ? of.cost : type === 'tokens' ? of.tokens : requests;

/** What it used, at the price that a policy sets for what has none. */
function priced({ used, usage }: Event, rule: UnpricedRule | null): Event['used'] {
  if (used.unpriced === 0 || usage === null || typeof rule !== 'object' || rule === null) return used;
  const price = setPrice(rule);
  if (price === null) return used;
  const { micros: cost, carry } = costMicros(price, usage);
  return { ...used, cost, carry };
}

/**
 * `active` is the policy that was in force where `policy` is that one or a change of it. What buckets said when a
 * request was decided is in its record; the simulated policy stands as far from that as its own decisions have led it,
 * so that the policy that was in force is found to have decided as it did.
 *
 * @param resetsAt the first reset after counting begins, where it is known
 */
export function usageEngine(
  policy: Row<'usage_policies'>,
  active: Row<'usage_policies'> | null,
  resetsAt: number | null,
  place: PolicyPlace,
): Engine<LimitSpec, Held> {
  const index = compileUsagePolicies([{ ...policy, next_usage_reset_at: resetsAt }], place);
  const buckets = new Map<string, Bucket>();
  const { type } = policy;
  const former = active === null ? null : usagePolicySpec(active);
  const wanted = usagePolicySpec(policy);
  const comparable =
    former !== null &&
    active !== null &&
    former.period === wanted.period &&
    isDeepStrictEqual(active.conditions, policy.conditions);

  function bucketOf(spec: LimitSpec, at: number): Bucket {
    let bucket = buckets.get(spec.bucketKey);
    if (bucket === undefined) {
      bucket = { window: 1, resetsAt: firstReset(spec, at), mine: nothing(), real: nothing() };
      buckets.set(spec.bucketKey, bucket);
    }
    if (bucket.resetsAt !== null && bucket.resetsAt <= at) {
      bucket.resetsAt = nextReset(spec.period, bucket.resetsAt, at);
      bucket.window += 1;
      bucket.mine = nothing();
      bucket.real = nothing();
    }
    return bucket;
  }

  return {
    match(event) {
      if (index === null) return null;
      const found: LimitSpec[] = [];
      addUsageLimits(index, event.facts, found);
      const [spec] = found;
      return spec === undefined ? null : { key: spec.bucketKey, valueKey: spec.valueKey, of: spec };
    },

    admit(event, spec) {
      const bucket = bucketOf(spec, event.at);
      const { bounded } = event.estimate;
      const charge = { amount: amountIn(type, event.estimate, 1), bounded: bounded || type === 'requests' };
      const was = committedOf(bucket.real);
      const own = refusedBy(event, policy.id);
      const known = own ? event.refused?.committed : event.committed?.[policy.id];
      const seen = comparable ? known : undefined;
      const committed = seen === undefined ? committedOf(bucket.mine) : seen + committedOf(bucket.mine) - was;
      // A refusal that says nothing of the bucket was for want of a price.
      const unpriced = event.used.unpriced > 0 || (event.refused !== null && event.refused.committed === undefined);
      const denied = type === 'cost' && spec.unpriced === 'deny' && unpriced;
      const admitted = !denied && admits(committed, spec.limit);
      const mine = admitted ? grantOf(charge, spec.limit, committed) : null;
      // By the same counts as `mine`: what the two hold differs only where they decide otherwise.
      const real = former === null || own ? null : grantOf(charge, former.limit, seen ?? was);
      bucket.mine.reserved += mine ?? 0;
      bucket.real.reserved += real ?? 0;
      return { admitted, used: Math.max(0, bucket.mine.used), held: { bucket, window: bucket.window, mine, real } };
    },

    settle(event, { bucket, window, mine, real }) {
      if (window !== bucket.window) return null;
      const spent = priced(event, policy.unpriced);
      const used = amountIn(type, spent, spent.requests);
      const carry = type === 'cost' ? spent.carry : 0;
      if (real !== null) {
        bucket.real.reserved -= real;
        addUsed(bucket.real, { used, carry });
      }
      if (mine !== null) {
        bucket.mine.reserved -= mine;
        // A request that was refused then would have used about its estimate.
        if (event.refused === null) addUsed(bucket.mine, { used, carry });
        else addUsed(bucket.mine, { used: amountIn(type, event.estimate, 1), carry: 0 });
      }
      return bucket.mine.used;
    },
  };
}
