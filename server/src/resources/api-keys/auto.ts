/** User keys that are made without anybody asking for one: on joining a workspace, on accepting an invite. */
import { intersect, roleScopes, scopesOf } from '../../auth/scopes.ts';
import { securityOf } from '../../auth/security-settings.ts';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { InvitedKey, KeyDefaults } from '../../store/schema.ts';
import { autoCreatesUserKeys, effectiveSetting } from '../settings/settings.ts';
import { countUserKeys, insertKey } from './create.ts';
import { policyColumns } from './rotation.ts';
import { checkDefaults, checkRotation, newExpiry, userKeySettings } from './rules.ts';

const NAME = 'Auto-created key';

export interface AutoKeyRequest {
  readonly tx: TenantTx;
  readonly clock: Clock;
  readonly workspaceId: string;
  readonly userId: string;
  /** User or key that caused it. */
  readonly actorId: string;
  /** What an invite asked for; a key is then made whatever `user_api_key_auto_create` says. */
  readonly asked?: InvitedKey | null;
}

/** A key that was made; `key` is the whole key and can be shown this once only. */
export interface AutoKey {
  readonly id: string;
  readonly key: string;
}

/**
 * Makes a user key when the settings of the workspace want one and the user has none there, in the caller's
 * transaction: expiry, rotation, config and scopes from the settings as they are in it. Null when none is
 * made: the settings want none, the user has one, or has as many as are allowed.
 */
export async function autoCreateUserKey(request: AutoKeyRequest): Promise<AutoKey | null> {
  const { tx, clock, workspaceId, userId, actorId } = request;
  const asked = request.asked ?? null;
  const organisation = await tx.organisation();
  const workspace = await tx.find('workspaces', { id: workspaceId, status: 'active' });
  const user = await tx.find('users', { id: userId, status: 'active' });
  if (workspace === undefined || user === undefined) return null;
  if (asked === null && !autoCreatesUserKeys(organisation, workspace)) return null;
  const member = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
  const settings = await userKeySettings(tx, workspaceId);
  const count = await countUserKeys(tx, workspaceId, userId);
  if ((asked === null && count > 0) || count >= (settings.maxKeys ?? Infinity)) return null;
  const now = clock.now();
  const allowed = effectiveSetting(organisation, workspace, 'user_api_key_auto_create_scopes');
  const held = intersect(
    scopesOf('workspace-user'),
    roleScopes(user.role, member?.role ?? null, securityOf(organisation, workspace)),
  );
  const limit = allowed === null ? held : intersect(allowed, held);
  const row = {
    id: uuidv7(clock),
    organisation_id: organisation.id,
    workspace_id: workspaceId,
    user_id: userId,
    type: 'workspace-user' as const,
    name: asked?.name ?? NAME,
    description: null,
    status: 'active' as const,
    scopes: [...(asked === null ? limit : intersect(asked.scopes, limit))],
    rate_limits: null,
    usage_limits: null,
    defaults: await defaultsOf(tx, workspaceId, settings.config, asked),
    alert_emails: null,
    expires_at: newExpiry(undefined, settings, now),
    ...policyColumns(checkRotation(undefined, null, settings, now, now)),
    creation_mode: 'auto' as const,
    created_by: actorId,
    bounded_by: null,
    last_rotated_at: null,
    last_reset_at: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
  return { id: row.id, key: await insertKey(tx, row) };
}

/**
 * Metadata that the organisation's schema does not accept must not keep somebody from joining: no person is there who could
 * mend it. The key is then made without, and the first update of its defaults asks for it.
 */
async function defaultsOf(
  tx: TenantTx,
  workspaceId: string,
  config: string | null,
  asked: InvitedKey | null,
): Promise<KeyDefaults | null> {
  const given = { ...asked?.defaults, ...(config === null ? {} : { config_id: config }) };
  const wanted = Object.keys(given).length === 0 ? undefined : given;
  try {
    return await checkDefaults(tx, workspaceId, null, wanted);
  } catch (error) {
    if (!(error instanceof SluiceError) || error.kind !== 'validation') throw error;
    return config === null ? null : { config_id: config };
  }
}
