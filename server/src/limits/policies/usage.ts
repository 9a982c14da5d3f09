/** Usage-limits policies as requests meet them: found by an index, counted in the ledger. */
import { createHash } from 'node:crypto';
import type { Row } from '../../store/schema.ts';
import { amountOf, type LimitSpec, periodOf } from '../ledger/limit-spec.ts';
import {
  compilePolicies,
  type PolicyFacts,
  type PolicyIndex,
  type PolicyPlace,
  type PolicyScope,
  type PolicySelector,
} from './conditions.ts';

export interface UsagePolicy extends PolicySelector {
  readonly spec: Omit<LimitSpec, 'bucketKey' | 'valueKey'>;
}

/** Keys of buckets longer than this are digests: a caller chooses the values, and an index takes no text of any length. */
const MAX_KEY = 200;
const MAX_SHOWN = 512;

export function usagePolicySpec(row: Row<'usage_policies'>): UsagePolicy['spec'] {
  return {
    ownerKind: 'policy',
    ownerId: row.id,
    label: row.name ?? row.id,
    type: row.type,
    limit: amountOf(row.type, row.credit_limit),
    alert: row.alert_threshold === null ? null : amountOf(row.type, row.alert_threshold),
    period: periodOf({ periodic_reset: row.periodic_reset, periodic_reset_days: row.periodic_reset_days }),
    resetsAt: row.next_usage_reset_at,
    unpriced: row.unpriced,
    onOutage: row.on_outage,
    at: row.last_updated_at,
  };
}

export function compileUsagePolicies(
  rows: readonly Row<'usage_policies'>[],
  place: PolicyPlace,
): PolicyIndex<UsagePolicy> | null {
  const policies = rows.map((row) => ({
    conditions: row.conditions,
    group_by: row.group_by,
    spec: usagePolicySpec(row),
  }));
  return compilePolicies<UsagePolicy>(policies, place);
}

/** Adds the limit of every policy that a request belongs to. */
export function addUsageLimits(
  policies: PolicyIndex<UsagePolicy>,
  facts: PolicyFacts,
  into: LimitSpec[],
  scope: PolicyScope = 'all',
): void {
  for (const { policy, bucket, valueKey } of policies.match(facts, scope)) {
    into.push({ ...policy.spec, bucketKey: keyOf(bucket), valueKey: shownKey(valueKey) });
  }
}

/** What a caller writes may also be what PostgreSQL does not store, and would fail the grants of others with it. */
const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes('\u0000');

function keyOf(bucket: string): string {
  if (bucket.length <= MAX_KEY && isStorable(bucket)) return bucket;
  // As JSON, which tells halves of characters apart.
  return createHash('sha256')
    .update(isStorable(bucket) ? bucket : JSON.stringify(bucket))
    .digest('hex');
}

function shownKey(valueKey: string): string {
  const shown = valueKey.slice(0, MAX_SHOWN);
  return isStorable(shown) ? shown : shown.toWellFormed().replaceAll('\u0000', '\ufffd');
}
