/** API keys as they are answered. */
import { maskKey } from '../../auth/key-format.ts';
import type { TenantTx } from '../../store/ports.ts';
import { flagOf, toIso, toIsoOrNull } from '../body-fields.ts';
import { only } from '../common.ts';
import type { Call } from '../resource.ts';
import { latest, presentUsage, type UsageOf, usageOf } from '../usage-counters.ts';
import { keySettings } from './rules.ts';
import { type KeyRow, type KeySecrets, secretsOf, UNCOLLECTED } from './secrets.ts';

export function statusOf(row: KeyRow, now: number): KeyRow['status'] {
  return row.status !== 'archived' && row.expires_at !== null && row.expires_at <= now ? 'expired' : row.status;
}

/** Keys of a page, with a fixed number of queries. */
export async function presentKeys(rows: readonly KeyRow[], { tx, clock }: Pick<Call, 'tx' | 'clock'>) {
  const now = clock.now();
  const ids = rows.map((row) => row.id);
  const secrets = await secretsOf(tx, ids, now);
  const enforced = await expiryEnforced(tx, rows);
  const usage = await usageOf(tx, 'key', rows);
  return rows.map((row) => presentKey(row, secrets(row.id), now, enforced(row), usage));
}

/** One key, with what only details tell. */
export async function presentDetail(row: KeyRow, call: Pick<Call, 'tx' | 'clock'>) {
  const key = only(await presentKeys([row], call));
  return { ...key, guardrail_exclusions: await exclusionsOf(call.tx, row.workspace_id) };
}

async function exclusionsOf(tx: TenantTx, workspaceId: string | null) {
  const rows =
    workspaceId === null ? [] : await tx.list('guardrail_exclusions', { where: { workspace_id: workspaceId } });
  const excluded = (direction: 'input' | 'output') => rows.some((row) => row.direction === direction);
  return { input: excluded('input'), output: excluded('output') };
}

/** Whether a longest life of user keys rules a key. */
async function expiryEnforced(tx: TenantTx, rows: readonly KeyRow[]): Promise<(row: KeyRow) => boolean> {
  const ids = new Set<string>();
  for (const row of rows) if (row.type === 'workspace-user' && row.workspace_id !== null) ids.add(row.workspace_id);
  if (ids.size === 0) return () => false;
  const organisation = await tx.organisation();
  const workspaces = await tx.list('workspaces', { where: { id: { in: [...ids] } } });
  const enforced = new Set(
    workspaces.filter((workspace) => keySettings(organisation, workspace).maxTtlSeconds !== null).map(({ id }) => id),
  );
  return (row) => row.type === 'workspace-user' && row.workspace_id !== null && enforced.has(row.workspace_id);
}

function presentKey(row: KeyRow, secrets: KeySecrets, now: number, expiryEnforced: boolean, usage: UsageOf) {
  const { current, previous } = secrets;
  const counted = row.usage_limits === null ? undefined : usage(row.id, row.usage_limits);
  return {
    object: 'api-key' as const,
    id: row.id,
    key: maskKey(current?.id ?? previous?.id ?? ''),
    name: row.name,
    description: row.description,
    type: row.type,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    user_id: row.user_id,
    status: statusOf(row, now),
    creation_mode: row.creation_mode,
    scopes: row.scopes,
    rate_limits: row.rate_limits ?? [],
    usage_limits:
      row.usage_limits &&
      presentUsage(row.usage_limits, counted, {
        exhausted: row.status === 'exhausted',
        lastResetAt: row.last_reset_at,
      }),
    defaults: row.defaults === null ? null : { allow_config_override: true, ...row.defaults },
    alert_emails: row.alert_emails ?? [],
    expires_at: toIsoOrNull(row.expires_at),
    expiry_enforced: flagOf(expiryEnforced),
    rotation_policy: row.rotation_policy,
    last_rotated_at: toIsoOrNull(row.last_rotated_at),
    key_transition_expires_at: toIsoOrNull(previous?.expires_at ?? null),
    uncollected_key: current?.digest === UNCOLLECTED,
    last_reset_at: toIsoOrNull(latest(counted?.last_reset_at ?? null, row.last_reset_at)),
    next_usage_reset_at: toIsoOrNull(counted?.resets_at ?? null) ?? row.usage_limits?.next_usage_reset_at ?? null,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
  };
}
