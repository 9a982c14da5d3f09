import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Indexes for every list and sweep: what they cost follows the page, not the number of tenants, objects or values. */
export const growth: Migration = { name: '0012-growth', statements };

/** Listed newest first, in one workspace and in the whole organisation. */
const LISTED = [
  'api_keys',
  'configs',
  'integrations',
  'providers',
  'virtual_keys',
  'guardrails',
  'rate_policies',
  'usage_policies',
] as const;

/** Work (`jobs/claim.ts`). */
const WORK = ['training_jobs', 'batches', 'object_usage'] as const;

/** What lists are narrowed by: they tell how many there are, which the index then answers alone. */
const counted = (of: string) => (of === 'api_keys' ? 'status, type' : 'status');

function statements(types: Types): string[] {
  const { index } = ddl(types);
  const living = "WHERE status <> 'archived'";
  const newest = 'created_at DESC, id';
  const value = 'usage_buckets (organisation_id, owner_kind, owner_id, workspace_id';
  return [
    ...['api_keys', 'configs', 'integrations', 'providers', 'virtual_keys'].map((of) => `DROP INDEX ${of}_workspace`),
    ...LISTED.flatMap((of) => [
      index(`${of}_workspace`, `${of} (organisation_id, workspace_id, ${newest}, ${counted(of)}) ${living}`),
      index(`${of}_organisation`, `${of} (organisation_id, ${newest}, ${counted(of)}) ${living}`),
    ]),
    index('users_organisation', `users (organisation_id, ${newest}, status) ${living}`),
    index('organisations_list', `organisations (${newest})`),
    index('workspaces_list', `workspaces (organisation_id, ${newest}, status)`),
    index('workspaces_names', `workspaces (organisation_id, is_default DESC, name, id) WHERE status = 'active'`),
    'DROP INDEX workspace_members_workspace',
    index('workspace_members_list', 'workspace_members (organisation_id, workspace_id, created_at DESC, user_id)'),
    // All monthly windows end at the same moment: without the id each page of them would sort them all.
    ...(
      [
        ['reservations_expiry', 'reservations', 'expires_at'],
        ['usage_buckets_due', 'usage_buckets', 'resets_at'],
        ['usage_policies_due', 'usage_policies', 'next_usage_reset_at'],
      ] as const
    ).flatMap(([name, of, column]) => [`DROP INDEX ${name}`, index(name, `${of} (${column}, id)`)]),
    index('usage_buckets_list', `${value}, created_at, id)`),
    index('usage_buckets_exhausted', `${value}, created_at, id) WHERE status = 'exhausted'`),
    index('usage_buckets_value', `${value}, value_key)`),
    // What never counted, to be found among all that did (`jobs/retention.ts`).
    index('usage_buckets_unused', 'usage_buckets (last_updated_at, id) WHERE period IS NULL AND used = 0'),
    index('usage_policies_archived', "usage_policies (id) WHERE status = 'archived'"),
    ...WORK.map((of) => index(`${of}_held`, `${of} (held_until) WHERE step <> 'done'`)),
    index('object_usage_workspace', 'object_usage (organisation_id, workspace_id)'),
    index('alert_deliveries_bucket', 'alert_deliveries (bucket_id)'),
    index('idempotency_keys_replay', 'idempotency_keys (replay_until) WHERE answer IS NOT NULL'),
    index('invites_inviter', "invites (organisation_id, invited_by) WHERE status = 'pending'"),
    index('guardrail_mcp_servers_guardrail', 'guardrail_mcp_servers (organisation_id, guardrail_id)'),
    index('guardrail_exclusions_workspace', 'guardrail_exclusions (organisation_id, workspace_id)'),
    // Slugs of what was archived are asked for too.
    index('configs_any_slug', 'configs (organisation_id, slug)'),
    index('workspaces_any_slug', 'workspaces (organisation_id, slug)'),
    index('files_unchecked', "files (created_at) WHERE status = 'uploaded'"),
  ];
}
