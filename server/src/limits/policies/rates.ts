/** Rate-limits policies as requests meet them: which ones count a request, and in which counter. */
import type { Row } from '../../store/schema.ts';
import type { LimitedEntity } from '../rate-limits.ts';
import {
  compilePolicies,
  type PolicyFacts,
  type PolicyIndex,
  type PolicyPlace,
  type PolicyScope,
} from './conditions.ts';

type RatePolicy = Row<'rate_policies'>;

/** The active policies of a workspace by target; null where there are none. */
export interface RatePolicies {
  readonly llm: PolicyIndex<RatePolicy> | null;
  /** Asked before every `tools/call`. */
  readonly mcpTools: PolicyIndex<RatePolicy> | null;
}

/** `rows` in the order in which they refuse. */
export function compileRatePolicies(rows: readonly RatePolicy[], place: PolicyPlace): RatePolicies {
  const of = (target: RatePolicy['target']) =>
    compilePolicies(
      rows.filter((row) => row.target === target && row.status === 'active'),
      place,
    );
  return { llm: of('llm'), mcpTools: of('mcp_tools') };
}

/** Adds what limits a request by policies to what limits it otherwise. */
export function addRateLimits(
  index: PolicyIndex<RatePolicy>,
  facts: PolicyFacts,
  into: LimitedEntity[],
  scope: PolicyScope = 'all',
): void {
  for (const { policy, valueKey, bucket } of index.match(facts, scope)) {
    const label = `${policy.name ?? policy.id} for ${valueKey}`;
    into.push({
      kind: 'policy',
      id: `${policy.id}:${bucket}`,
      label,
      policy: { id: policy.id, valueKey },
      limits: [policy],
    });
  }
}
