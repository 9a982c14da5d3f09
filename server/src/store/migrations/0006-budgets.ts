import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Usage limits: policies, and the books of what is reserved and used. */
export const budgets: Migration = { name: '0006-budgets', statements };

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, B, audit, inOrganisation, part, table, one, refers, index, unique } = ddl(types);
  const inside = { id: `${T} PRIMARY KEY`, organisation_id: T, workspace_id: T };
  const workspace = refers('workspace_id', 'workspaces');
  const bucket = refers('bucket_id', 'usage_buckets', part);
  const owner = one('key', 'workspace', 'provider', 'virtual-key', 'integration', 'policy', 'token');
  const account = one('open', 'reserved', 'used');

  return [
    table(
      'usage_policies',
      {
        ...inside,
        name: text,
        description: text,
        conditions: T,
        group_by: T,
        type: one('cost', 'tokens', 'requests'),
        credit_limit: T,
        alert_threshold: text,
        periodic_reset: text,
        periodic_reset_days: int,
        next_usage_reset_at: int,
        last_reset_at: int,
        unpriced: text,
        on_outage: one('refuse', 'serve'),
        alert_emails: text,
        alert_webhook_url: text,
        status: one('active', 'archived'),
        ...audit,
      },
      inOrganisation,
      workspace,
    ),
    index('usage_policies_list', 'usage_policies (workspace_id, status, created_at)'),
    index('usage_policies_due', 'usage_policies (next_usage_reset_at)'),
    table(
      'usage_buckets',
      {
        ...inside,
        owner_kind: owner,
        owner_id: T,
        bucket_key: T,
        value_key: T,
        label: T,
        type: one('cost', 'tokens', 'requests'),
        credit_limit: I,
        alert_threshold: int,
        terms_at: I,
        period: text,
        window_no: I,
        used: I,
        carry: I,
        reserved: I,
        unpriced: I,
        resets_at: int,
        last_reset_at: int,
        status: one('active', 'exhausted'),
        threshold_alerted: B,
        exhausted_alerted: B,
        unpriced_alerted: B,
        ...audit,
      },
      inOrganisation,
      workspace,
      'CHECK (reserved >= 0)',
      'CHECK (used >= 0)',
    ),
    unique('usage_buckets_owner', 'usage_buckets (workspace_id, owner_kind, owner_id, bucket_key)'),
    index('usage_buckets_due', 'usage_buckets (resets_at)'),
    table(
      'reservations',
      { ...inside, bucket_id: T, window_no: I, node: T, amount: `${I} CHECK (%s >= 0)`, expires_at: I, created_at: I },
      bucket,
    ),
    index('reservations_bucket', 'reservations (bucket_id)'),
    index('reservations_expiry', 'reservations (expires_at)'),
    table(
      'ledger_entries',
      {
        ...inside,
        bucket_id: T,
        window_no: I,
        kind: one('grant', 'settle', 'release', 'expiry'),
        from_account: account,
        to_account: account,
        amount: I,
        carry: I,
        requests: I,
        unpriced: I,
        created_at: I,
      },
      bucket,
    ),
    index('ledger_entries_window', 'ledger_entries (bucket_id, window_no)'),
    table(
      'usage_alerts',
      {
        organisation_id: T,
        workspace_id: T,
        bucket_id: T,
        window_no: I,
        kind: one('threshold', 'exhausted', 'unpriced'),
        used: I,
        created_at: I,
        done_at: int,
      },
      'PRIMARY KEY (bucket_id, window_no, kind)',
      bucket,
    ),
    index('usage_alerts_waiting', 'usage_alerts (done_at, created_at)'),
    table(
      'alert_deliveries',
      {
        ...inside,
        owner_kind: owner,
        owner_id: T,
        bucket_id: T,
        window_no: I,
        kind: one('threshold', 'exhausted', 'unpriced'),
        channel: one('webhook', 'email'),
        recipient: T,
        body: T,
        tries: I,
        next_at: int,
        delivered_at: int,
        last_error: text,
        created_at: I,
      },
      bucket,
    ),
    index('alert_deliveries_owner', 'alert_deliveries (owner_kind, owner_id, created_at)'),
    index('alert_deliveries_due', 'alert_deliveries (next_at)'),
    index('alert_deliveries_age', 'alert_deliveries (created_at)'),
    table('ledger_positions', { journal: `${T} PRIMARY KEY`, segment: T, position: I }),
  ];
}
