/** Rows of policies, for tests that need very many. */
import type { PolicyCondition, Row } from '../../src/store/schema.ts';

interface Place {
  readonly organisation_id: string;
  readonly workspace_id: string;
}

const common = ({ organisation_id, workspace_id }: Place, id: string, conditions: readonly PolicyCondition[]) => ({
  id,
  organisation_id,
  workspace_id,
  name: null,
  description: null,
  conditions: [...conditions],
  group_by: [{ key: 'metadata._user' }],
  status: 'active' as const,
  created_at: 1,
  last_updated_at: 1,
});

export function ratePolicyRow(place: Place, id: string, conditions: readonly PolicyCondition[]): Row<'rate_policies'> {
  return { ...common(place, id, conditions), target: 'llm', type: 'requests', unit: 'rpm', value: 100 };
}

export function usagePolicyRow(
  place: Place,
  id: string,
  conditions: readonly PolicyCondition[],
): Row<'usage_policies'> {
  return {
    ...common(place, id, conditions),
    type: 'tokens',
    credit_limit: 100,
    alert_threshold: null,
    periodic_reset: null,
    periodic_reset_days: null,
    next_usage_reset_at: null,
    last_reset_at: null,
    unpriced: null,
    on_outage: 'refuse',
    alert_emails: null,
    alert_webhook_url: null,
  };
}
