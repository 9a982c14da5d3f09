/** What must hold between a key, its creator, its owner and its workspace (api §2.2, §11; rule P-01). */
import type { Principal } from '../../auth/principal.ts';
import { grantable, scopesOf } from '../../auth/scopes.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { KeyDefaults, Row, UsageLimit } from '../../store/schema.ts';
import { isUuid, utcMidnight } from '../fields.ts';
import type { Call } from '../resource.ts';
import { checkUsageLimit } from '../shapes.ts';
import { cadenceDays, completeRotation, type RotationInput, type RotationPolicy } from './rotation.ts';
import type { CreateBody } from './schema.ts';

export type KeyRow = Row<'api_keys'>;

function invalid(param: string, problem: string): SluiceError {
  return new SluiceError('validation', `${param} ${problem}.`, { param });
}

/** The scopes to store: known for the type (else 400) and held by the caller (else 403, rule P-01). */
export function checkScopes(principal: Principal, type: KeyRow['type'], scopes: readonly string[]): string[] {
  const known = scopesOf(type);
  const own = grantable(principal);
  for (const [index, scope] of scopes.entries()) {
    const param = `scopes[${index}]`;
    if (!known.has(scope)) throw invalid(param, `is not a scope of ${type} keys`);
  }
  for (const [index, scope] of scopes.entries()) {
    if (!own.has(scope)) {
      throw new SluiceError('forbidden', `You cannot grant the scope ${scope}, because your own credential lacks it.`, {
        param: `scopes[${index}]`,
      });
    }
  }
  return [...new Set(scopes)];
}

/** The owner of a user key: an active member of the workspace, or an owner or admin of the organisation. */
export async function checkOwner(call: Call, workspaceId: string, userId: string | undefined): Promise<string> {
  if (userId === undefined) throw invalid('user_id', 'is required for a user key');
  const { principal, tx } = call;
  // Managers hold the scope that makes service keys; whoever lacks it may make user keys for himself only.
  const others = principal.kind !== 'user' || principal.scopes.has('workspace_service_api_keys.create');
  if (!others && userId !== principal.userId) {
    throw new SluiceError('forbidden', 'You can create user keys for yourself only.', { param: 'user_id' });
  }
  const user = await tx.find('users', { id: userId, status: 'active' });
  const member = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
  if (!user || (user.role === 'member' && !member)) {
    throw new SluiceError('unknown_reference', 'user_id names no member of the workspace.', { param: 'user_id' });
  }
  return userId;
}

/** Sets defaults as given over those that stand: an omitted field stays, null clears it. The config must be visible. */
export async function checkDefaults(
  tx: TenantTx,
  current: KeyDefaults | null,
  given: CreateBody['defaults'],
): Promise<KeyDefaults | null> {
  if (given === undefined) return current;
  if (given === null) return null;
  const out: KeyDefaults = { ...current };
  if (given.metadata === null) delete out.metadata;
  else if (given.metadata !== undefined) out.metadata = given.metadata;
  if (given.allow_config_override !== undefined) out.allow_config_override = given.allow_config_override;
  if (given.config_id === null) delete out.config_id;
  else if (given.config_id !== undefined) out.config_id = await configSlug(tx, given.config_id);
  return out;
}

/** The slug is what is stored and answered; id and slug of a config both never change. */
async function configSlug(tx: TenantTx, name: string): Promise<string> {
  const byId = isUuid(name) ? await tx.find('configs', { id: name.toLowerCase(), status: 'active' }) : undefined;
  const config = byId ?? (await tx.find('configs', { slug: name, status: 'active' }));
  if (config) return config.slug;
  throw new SluiceError('unknown_reference', 'defaults.config_id names no config that the key may see.', {
    param: 'defaults.config_id',
  });
}

/** `next_usage_reset_at` in the future, at UTC midnight. */
export function checkUsage(limit: CreateBody['usage_limits'], now: number): UsageLimit | null {
  if (limit == null) return null;
  checkUsageLimit(limit, now, 'usage_limits');
  const at = limit.next_usage_reset_at;
  return at == null ? limit : { ...limit, next_usage_reset_at: new Date(utcMidnight(Date.parse(at))).toISOString() };
}

/** Settings of api §20.4 that rule user keys; a workspace value replaces the organisation's. */
export async function userKeySettings(tx: TenantTx, workspaceId: string) {
  const organisation = await tx.organisation();
  const workspace = await tx.find('workspaces', { id: workspaceId });
  const number = (key: string): number | null => {
    const value = workspace?.settings[key] ?? organisation.settings[key];
    return typeof value === 'number' && value > 0 ? value : null;
  };
  const config = workspace?.defaults?.user_api_key_config;
  return {
    rotationDays: number('user_api_key_rotation_period'),
    ttlSeconds: number('user_api_key_ttl'),
    maxTtlSeconds: number('user_api_key_max_ttl'),
    maxKeys: number('user_api_key_count'),
    config: typeof config === 'string' ? config : null,
  };
}

export type UserKeySettings = Awaited<ReturnType<typeof userKeySettings>>;

/** The expiry to store, milliseconds since the epoch. `created` is when the key was made: a maximum life counts from it. */
export function checkExpiry(
  given: string | null | undefined,
  settings: UserKeySettings | null,
  created: number,
  now: number,
): number | null {
  const max = settings?.maxTtlSeconds == null ? null : created + settings.maxTtlSeconds * 1000;
  if (given == null) {
    const ttl = settings?.ttlSeconds == null ? null : created + settings.ttlSeconds * 1000;
    return ttl === null ? max : Math.min(ttl, max ?? ttl);
  }
  const at = Date.parse(given);
  if (at <= now) throw invalid('expires_at', 'must lie in the future');
  if (max !== null && at > max) {
    throw invalid(
      'expires_at',
      `must not be later than ${new Date(max).toISOString()}, the longest life of a user key`,
    );
  }
  return at;
}

/** The policy to store. An enforced cadence is filled in and never replaced by another one. */
export function checkRotation(
  given: RotationInput | null | undefined,
  settings: UserKeySettings | null,
  base: number,
  now: number,
): RotationPolicy | null {
  const enforced = settings?.rotationDays ?? null;
  if (given == null) {
    return enforced === null ? null : completeRotation({ rotation_period_days: enforced }, base, now);
  }
  const policy = completeRotation(given, base, now);
  if (enforced !== null && (cadenceDays(policy) !== enforced || given.next_rotation_at != null)) {
    throw invalid('rotation_policy', `must keep the cadence that the organisation enforces: every ${enforced} days`);
  }
  return policy;
}
