/** What must hold between a key, its creator, its owner and its workspace. */
import type { Principal } from '../../auth/principal.ts';
import { grantable, scopesOf } from '../../auth/scopes.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { KeyDefaults, RotationPolicy, Row } from '../../store/schema.ts';
import { findNamed, refuse } from '../common.ts';
import { utcMidnight } from '../fields.ts';
import type { Call } from '../resource.ts';
import { applyMetadataSchema } from '../settings/metadata.ts';
import { effectiveSetting, metadataSchemaOf } from '../settings/settings.ts';
import { unknownScopes } from '../unknown-scopes.ts';
import { checkOutranks } from './rank.ts';
import { cadenceDays, completeRotation, nextRotation, type RotationInput } from './rotation.ts';
import type { CreateBody } from './schema.ts';
import type { KeyRow } from './secrets.ts';

/** Scope prefix of each type. */
export const PREFIXES = {
  'organisation-service': 'organisation_service_api_keys',
  'workspace-service': 'workspace_service_api_keys',
  'workspace-user': 'workspace_user_api_keys',
} as const;

/**
 * The scopes to store: known for the type (else 400) and held by the caller (else 403).
 *
 * @param path where the body holds the scopes
 */
export function checkScopes(
  principal: Principal,
  type: KeyRow['type'],
  scopes: readonly string[],
  path = 'scopes',
): string[] {
  const known = scopesOf(type);
  const unknown = unknownScopes(scopes, known, path, `${type} keys`);
  if (unknown !== null) throw unknown;
  const own = grantable(principal);
  const above = scopes.findIndex((scope) => !own.has(scope));
  if (above >= 0) {
    throw new SluiceError(
      'forbidden',
      `You cannot grant the scope ${scopes[above]}, because your own credential lacks it.`,
      { param: `${path}[${above}]` },
    );
  }
  return [...new Set(scopes)];
}

/**
 * Whoever hands out a key's authority again, by rotating it, prolonging it or bringing it back, must hold every scope of
 * it: else 403.
 */
export function checkHolds(principal: Principal, key: KeyRow, what: string, param: string | null = null): void {
  const own = grantable(principal);
  const lacking = key.scopes.find((scope) => !own.has(scope));
  if (lacking === undefined) return;
  throw new SluiceError(
    'forbidden',
    `You cannot ${what} this key, because it has the scope ${lacking} and your own credential lacks it.`,
    { param },
  );
}

/** The owner of a user key: an active member of the workspace, or an owner or admin of the organisation. */
export async function checkOwner(call: Call, workspaceId: string, userId: string | undefined): Promise<string> {
  if (userId === undefined) throw refuse('user_id', 'is required for a user key');
  const { principal, tx } = call;
  // Managers hold the scope that makes service keys; callers without it may only make user keys for themselves.
  const others = principal.kind !== 'user' || principal.scopes.has('workspace_service_api_keys.create');
  if (!others && userId !== principal.userId) {
    throw new SluiceError('forbidden', 'You can create user keys for yourself only.', { param: 'user_id' });
  }
  const user = await tx.find('users', { id: userId, status: 'active' });
  const member = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
  if (!user || (user.role === 'member' && !member)) {
    throw new SluiceError(
      'unknown_reference',
      'user_id names no member of the workspace; GET /v1/admin/workspaces/{workspaceId}/users lists them.',
      { param: 'user_id' },
    );
  }
  await checkOutranks(call, workspaceId, userId, 'user_id');
  return userId;
}

/**
 * Sets defaults as given over those that stand: an omitted field stays, null clears it. The config must be one of the
 * key's workspace, and the metadata satisfies the organisation's schema, whose defaults are filled in.
 */
export async function checkDefaults(
  tx: TenantTx,
  workspaceId: string | null,
  current: KeyDefaults | null,
  given: CreateBody['defaults'],
): Promise<KeyDefaults | null> {
  const out: KeyDefaults = given === null ? {} : { ...current };
  if (given?.metadata === null) delete out.metadata;
  else if (given?.metadata !== undefined) out.metadata = given.metadata;
  if (given?.allow_config_override !== undefined) out.allow_config_override = given.allow_config_override;
  if (given?.debug_log === null) delete out.debug_log;
  else if (given?.debug_log !== undefined) out.debug_log = given.debug_log;
  if (given?.config_id === null) delete out.config_id;
  else if (given?.config_id !== undefined) {
    const slug = await configSlug(tx, workspaceId, given.config_id);
    if (slug === null) {
      throw new SluiceError(
        'unknown_reference',
        'defaults.config_id names no config that the key may see; GET /v1/configs lists those of a workspace.',
        {
          param: 'defaults.config_id',
        },
      );
    }
    out.config_id = slug;
  }
  const metadata = applyMetadataSchema(metadataSchemaOf(await tx.organisation(), 'api_key'), out.metadata);
  if (metadata !== undefined) out.metadata = metadata;
  return Object.keys(out).length === 0 && given == null ? null : out;
}

/** The slug is what is stored and answered; id and slug of a config both never change. */
async function configSlug(tx: TenantTx, workspaceId: string | null, name: string): Promise<string | null> {
  const where = { status: 'active' as const, ...(workspaceId === null ? {} : { workspace_id: workspaceId }) };
  return (await findNamed(tx, 'configs', name, where))?.slug ?? null;
}

/** Settings that rule user keys; a workspace value replaces the organisation's. */
export async function userKeySettings(tx: TenantTx, workspaceId: string) {
  const workspace = await tx.find('workspaces', { id: workspaceId });
  const settings = keySettings(await tx.organisation(), workspace ?? null);
  const config = workspace?.defaults?.user_api_key_config;
  return { ...settings, config: typeof config === 'string' ? await configSlug(tx, workspaceId, config) : null };
}

export type UserKeySettings = ReturnType<typeof keySettings>;

/** The numbers among them; null for what is not limited. */
export function keySettings(
  organisation: Pick<Row<'organisations'>, 'settings'>,
  workspace: Pick<Row<'workspaces'>, 'settings'> | null,
) {
  const number = (
    key: 'user_api_key_rotation_period' | 'user_api_key_ttl' | 'user_api_key_max_ttl' | 'user_api_key_count',
  ) => {
    const value = effectiveSetting(organisation, workspace, key);
    return value !== null && value > 0 ? value : null;
  };
  return {
    rotationDays: number('user_api_key_rotation_period'),
    ttlSeconds: number('user_api_key_ttl'),
    maxTtlSeconds: number('user_api_key_max_ttl'),
    maxKeys: number('user_api_key_count'),
  };
}

/** The expiry of a new key, milliseconds since the epoch. */
export function newExpiry(
  given: string | null | undefined,
  settings: UserKeySettings | null,
  now: number,
): number | null {
  const max = settings?.maxTtlSeconds == null ? null : now + settings.maxTtlSeconds * 1000;
  if (given != null) return checkExpiry(given, max, now);
  const ttl = settings?.ttlSeconds == null ? null : now + settings.ttlSeconds * 1000;
  return ttl === null ? max : Math.min(ttl, max ?? ttl);
}

/** The expiry that an update sets; null means none, or the longest life where there is one, counted from the creation. */
export function changedExpiry(
  given: string | null,
  settings: UserKeySettings | null,
  created: number,
  now: number,
): number | null {
  const max = settings?.maxTtlSeconds == null ? null : created + settings.maxTtlSeconds * 1000;
  if (given !== null) return checkExpiry(given, max, now);
  if (max !== null && max <= now)
    throw refuse('expires_at', 'cannot be cleared: the longest life of a user key is over');
  return max;
}

function checkExpiry(given: string, max: number | null, now: number): number {
  const at = Date.parse(given);
  if (at <= now) throw refuse('expires_at', 'must lie in the future');
  if (max !== null && at > max) {
    throw refuse('expires_at', `must not be later than ${new Date(max).toISOString()}, the longest life of a user key`);
  }
  return at;
}

/**
 * The policy to store. An enforced cadence is filled in and never replaced by another one; once a key has it, the day of
 * its next rotation cannot be chosen, and on a new key only an earlier one than the cadence gives.
 *
 * @param current of the key that is updated; null for a new one or one without
 * @param base creation or last rotation, milliseconds since the epoch
 */
export function checkRotation(
  given: RotationInput | null | undefined,
  current: RotationPolicy | null,
  settings: UserKeySettings | null,
  base: number,
  now: number,
): RotationPolicy | null {
  const enforced = settings?.rotationDays ?? null;
  if (enforced === null) return given == null ? null : completeRotation(given, base, now);
  const kept = current !== null && cadenceDays(current) === enforced ? current : null;
  if (given == null) return kept ?? completeRotation({ rotation_period_days: enforced }, base, now);
  const { rotation_period = null, rotation_period_days = null, next_rotation_at: next } = given;
  if (cadenceDays({ rotation_period, rotation_period_days }) !== enforced) {
    throw refuse('rotation_policy', `must keep the cadence that the organisation enforces: every ${enforced} days`);
  }
  if (kept !== null) {
    if (next != null && utcMidnight(Date.parse(next)) !== Date.parse(kept.next_rotation_at)) {
      throw refuse('rotation_policy.next_rotation_at', 'cannot be changed: the organisation enforces the cadence');
    }
    // Due or not, the planned day stays: else naming the policy again would put the rotation off.
    const policy = completeRotation({ ...given, next_rotation_at: null }, base, now);
    return { ...policy, next_rotation_at: kept.next_rotation_at };
  }
  const policy = completeRotation(given, base, now);
  const latest = nextRotation(Math.max(base, now), rotation_period, rotation_period_days);
  if (Date.parse(policy.next_rotation_at) > latest) {
    throw refuse('rotation_policy.next_rotation_at', 'is later than the cadence that the organisation enforces');
  }
  return policy;
}
