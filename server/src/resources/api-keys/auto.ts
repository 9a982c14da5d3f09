/** User keys that are made without anybody asking for one: on joining a workspace, on accepting an invite. */
import { intersect, roleScopes, scopesOf } from '../../auth/scopes.ts';
import { securityOf } from '../../auth/security-settings.ts';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { InvitedKey, KeyDefaults } from '../../store/schema.ts';
import { autoCreatesUserKeys, effectiveSetting } from '../settings/settings.ts';
import { countUserKeys, insertKeys } from './create.ts';
import { policyColumns } from './rotation.ts';
import { checkDefaults, checkRotation, newExpiry, userKeySettings } from './rules.ts';
import type { KeyRow } from './secrets.ts';

const NAME = 'Auto-created key';

export interface AutoKeyRequest {
  readonly tx: TenantTx;
  readonly clock: Clock;
  readonly workspaceId: string;
  /** Those who joined: at most a thousand. */
  readonly userIds: readonly string[];
  /** User or key that caused it; default each user themselves. */
  readonly actorId?: string;
  /** What an invite asked for; a key is then made whatever `user_api_key_auto_create` says. */
  readonly asked?: InvitedKey | null;
}

/** A key that was made; `key` is the whole key and can be shown this once only. */
export interface AutoKey {
  readonly id: string;
  readonly key: string;
}

/**
 * Makes a user key for each user who has none there, when the settings of the workspace want one, in the caller's
 * transaction: expiry, rotation, config and scopes from the settings as they are in it. None is made for a user who has one,
 * or has as many as are allowed. Statements do not grow with users.
 */
export async function autoCreateUserKeys(request: AutoKeyRequest): Promise<AutoKey[]> {
  const { tx, clock, workspaceId, actorId } = request;
  const asked = request.asked ?? null;
  const organisation = await tx.organisation();
  const workspace = await tx.find('workspaces', { id: workspaceId, status: 'active' });
  if (workspace === undefined) return [];
  if (asked === null && !autoCreatesUserKeys(organisation, workspace)) return [];
  const userIds = { in: [...request.userIds] };
  const users = await tx.list('users', { where: { id: userIds, status: 'active' } });
  if (users.length === 0) return [];
  const here = { workspace_id: workspaceId, user_id: userIds };
  const members = await tx.list('workspace_members', { where: { ...here, status: 'active' } });
  const roles = new Map(members.map((member) => [member.user_id, member.role]));
  const settings = await userKeySettings(tx, workspaceId);
  const counts = await countUserKeys(tx, workspaceId, request.userIds);
  const most = settings.maxKeys ?? Infinity;
  const now = clock.now();
  const allowed = effectiveSetting(organisation, workspace, 'user_api_key_auto_create_scopes');
  const security = securityOf(organisation, workspace);
  const defaults = await defaultsOf(tx, workspaceId, settings.config, asked);
  const rotation = policyColumns(checkRotation(undefined, null, settings, now, now));
  const rows = users
    .filter(({ id }) => {
      const count = counts.get(id) ?? 0;
      return (asked !== null || count === 0) && count < most;
    })
    .map((user): KeyRow => {
      const held = intersect(scopesOf('workspace-user'), roleScopes(user.role, roles.get(user.id) ?? null, security));
      const limit = allowed === null ? held : intersect(allowed, held);
      return {
        id: uuidv7(clock),
        organisation_id: organisation.id,
        workspace_id: workspaceId,
        user_id: user.id,
        type: 'workspace-user',
        name: asked?.name ?? NAME,
        description: null,
        status: 'active',
        scopes: [...(asked === null ? limit : intersect(asked.scopes, limit))],
        rate_limits: null,
        usage_limits: null,
        defaults,
        alert_emails: null,
        expires_at: newExpiry(undefined, settings, now),
        ...rotation,
        creation_mode: 'auto',
        created_by: actorId ?? user.id,
        bounded_by: null,
        last_rotated_at: null,
        last_reset_at: null,
        version: 1,
        created_at: now,
        last_updated_at: now,
      };
    });
  return insertKeys(tx, rows);
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
