import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/**
 * Alerts of traffic: what is watched, and deliveries that belong to no usage limit. SQLite cannot change a CHECK, so the table of
 * deliveries is made anew; the application names the kinds.
 */
export const trafficAlerts: Migration = { name: '0025-traffic-alerts', statements };

const COLUMNS =
  'id, organisation_id, workspace_id, owner_kind, owner_id, bucket_id, window_no, kind, channel, recipient, body, tries, next_at, delivered_at, last_error, created_at';

function statements(types: Types): string[] {
  const { text, int } = types;
  const { T, I, part, organisation, table, one, refers, index } = ddl(types);
  return [
    table(
      'deliveries_of_alerts',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        owner_kind: T,
        owner_id: T,
        bucket_id: text,
        window_no: int,
        kind: T,
        channel: one('webhook', 'email'),
        recipient: T,
        body: T,
        tries: I,
        next_at: int,
        delivered_at: int,
        last_error: text,
        created_at: I,
      },
      organisation,
      refers('bucket_id', 'usage_buckets', part),
    ),
    `INSERT INTO deliveries_of_alerts (${COLUMNS}) SELECT ${COLUMNS} FROM alert_deliveries`,
    'DROP TABLE alert_deliveries',
    'ALTER TABLE deliveries_of_alerts RENAME TO alert_deliveries',
    index('alert_deliveries_owner', 'alert_deliveries (owner_kind, owner_id, created_at)'),
    index('alert_deliveries_due', 'alert_deliveries (next_at)'),
    index('alert_deliveries_age', 'alert_deliveries (created_at)'),
    index('alert_deliveries_bucket', 'alert_deliveries (bucket_id)'),
    table(
      'alert_watches',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        budgets: T,
        raised: T,
        created_at: I,
        last_updated_at: I,
      },
      organisation,
    ),
    index('log_hours_organisation', 'log_hours (organisation_id, hour, workspace_id, source)'),
  ];
}
