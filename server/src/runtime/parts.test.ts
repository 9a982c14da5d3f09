import { expect, it } from 'vitest';
import { plainVault } from '../../test/support/admin.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { systemTenant } from '../auth/tenant.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { loadPlace } from '../resources/runtime-rows.ts';
import { NO_MANAGERS } from '../resources/secret-references/manager.ts';
import { organisationRow, tenantRows, workspaceRow } from '../store/conformance/rows.ts';
import type { TenantTx } from '../store/ports.ts';
import { SCHEMA, type TableName } from '../store/schema.ts';
import { OpenedAccounts } from './compile.ts';
import { PART_NAMES, PARTS } from './parts.ts';

/** Tables whose changes are announced as changes of the object they belong to. */
const TOLD_BY: Partial<Record<TableName, TableName>> = {
  config_versions: 'configs',
  guardrail_versions: 'guardrails',
  integration_models: 'integrations',
  integration_workspaces: 'integrations',
};

/** What no snapshot is made from: who asks, what was used, and what runs in the background. */
const OF_NO_SNAPSHOT: readonly TableName[] = [
  'meta',
  'users',
  'workspace_members',
  'membership_sources',
  'scim_mappings',
  'invites',
  'api_keys',
  'api_key_secrets',
  'operator_keys',
  'data_keys',
  'audit_log',
  'audit_heads',
  'audit_anchors',
  'idempotency_keys',
  'changes',
  'console_sessions',
  'session_families',
  'session_tokens',
  'passkeys',
  'used_challenges',
  'oauth_clients',
  'oauth_requests',
  'oauth_codes',
  'oauth_families',
  'oauth_tokens',
  'oauth_devices',
  'sso_clients',
  'organisation_domains',
  'user_identities',
  'login_attempts',
  'used_logout_tokens',
  'object_owners',
  'files',
  'file_totals',
  'feedback',
  'training_jobs',
  'training_events',
  'batches',
  'batch_results',
  'object_usage',
  'sandbox_objects',
  'usage_buckets',
  'reservations',
  'ledger_entries',
  'usage_alerts',
  'alert_deliveries',
  'alert_watches',
  'guardrail_mcp_servers',
  'deployments',
  'scim_tokens',
  'scim_users',
  'scim_groups',
  'scim_group_members',
  'answer_vectors',
  'ledger_positions',
  'body_chunks',
  'log_files',
  'log_positions',
  'log_nodes',
  'log_hours',
  'log_destination_feeds',
  'log_destinations',
  'log_exports',
  'log_erasures',
  'leases',
];

it('every table is read by a part that hears of its changes, or is listed as read by none', () => {
  const named = new Set<TableName>(PART_NAMES.flatMap((name) => PARTS[name].topics));
  for (const [table, by] of Object.entries(TOLD_BY)) if (named.has(by)) named.add(table as TableName);
  const tables = Object.keys(SCHEMA) as TableName[];
  expect([...named, ...OF_NO_SNAPSHOT].sort()).toEqual(tables.sort());
});

/** Parents first. */
const ROWS = [
  'secret_references',
  'integrations',
  'integration_models',
  'integration_workspaces',
  'providers',
  'virtual_keys',
  'configs',
  'config_versions',
  'guardrails',
  'guardrail_versions',
  'guardrail_exclusions',
  'rate_policies',
  'usage_policies',
] as const;

it.each(PART_NAMES)('the part %s reads nothing whose changes it does not hear of', async (name) => {
  const tables = await temporaryTables();
  await tables.systemWrite(async (tx) => {
    await tx.insert('organisations', organisationRow('o1'));
    for (const id of ['w1', 'w2']) await tx.insert('workspaces', workspaceRow('o1', id));
    const rows = tenantRows('o1', 'w1');
    const mapped = [{ target_field: 'key', secret_reference_id: rows.secret_references.slug }];
    for (const table of ROWS) {
      const row: object = rows[table];
      await tx.insert(table, ('secret_mappings' in row ? { ...row, secret_mappings: mapped } : row) as never);
    }
  });
  const read = new Set<string>();
  const opened = new OpenedAccounts(NO_MANAGERS, systemClock, silentLog);
  await tables.read(systemTenant('o1'), async (tx) => {
    const place = await loadPlace(tx, 'w1');
    if (place === null) throw new Error('no such workspace');
    const noting = new Proxy(tx, {
      get(target, method) {
        const value: unknown = Reflect.get(target, method, target);
        if (typeof value !== 'function') return value;
        return (table: string, ...rest: unknown[]) => {
          if (table !== undefined) read.add(table);
          return value.call(target, table, ...rest);
        };
      },
    }) as TenantTx;
    await PARTS[name].read(
      { tx: noting, vault: plainVault, place, opened, log: silentLog, blockInlineConfig: false },
      null,
    );
  });
  const heard = PARTS[name].topics;
  // Which other workspaces there are is announced as a change of the integrations that they share.
  const announced = (table: string) => TOLD_BY[table as TableName] ?? (table === 'workspaces' ? 'integrations' : table);
  expect([...read].filter((table) => !heard.includes(announced(table) as TableName))).toEqual([]);
  await tables.close();
});
