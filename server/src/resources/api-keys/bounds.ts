/**
 * What bounds a key: its limits, its end, the config it is pinned to. Only a caller who may make service keys loosens
 * them, because that caller could make a key without bounds anyway. A key with bounds from somebody else also keeps its
 * owner from making further keys: those would have none.
 */
import type { Principal } from '../../auth/principal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { RateLimit, UsageLimit } from '../../store/schema.ts';
import { actorId } from '../common.ts';
import type { KeyRow } from './secrets.ts';

type Bounds = Pick<KeyRow, 'usage_limits' | 'rate_limits' | 'expires_at' | 'defaults'>;
type Bound = 'usage_limits' | 'rate_limits' | 'expires_at' | 'defaults.config_id' | 'defaults.allow_config_override';

/** The scope without which nobody loosens the bounds of a key of this type. */
const LOOSENS = {
  'organisation-service': 'organisation_service_api_keys.create',
  'workspace-service': 'workspace_service_api_keys.create',
  'workspace-user': 'workspace_service_api_keys.create',
} as const satisfies Record<KeyRow['type'], string>;

export function mayLoosen(principal: Pick<Principal, 'scopes'>, type: KeyRow['type']): boolean {
  return principal.scopes.has(LOOSENS[type]);
}

/** The first bound that is looser afterwards, or null. */
export function loosened(before: Bounds, after: Bounds): Bound | null {
  if (isLooserUsage(before.usage_limits, after.usage_limits)) return 'usage_limits';
  if (isLooserRate(before.rate_limits, after.rate_limits)) return 'rate_limits';
  if (before.expires_at !== null && (after.expires_at ?? Infinity) > before.expires_at) return 'expires_at';
  const [was, is] = [before.defaults ?? {}, after.defaults ?? {}];
  const pinned = was.allow_config_override === false;
  if (pinned && is.allow_config_override !== false) return 'defaults.allow_config_override';
  // Of two configs none is the looser one: another one is refused.
  if ((pinned || was.config_id !== undefined) && is.config_id !== was.config_id) return 'defaults.config_id';
  return null;
}

/** Whether anything bounds such a key. */
function isBounded({ usage_limits, rate_limits, expires_at, defaults }: Bounds): boolean {
  if (usage_limits !== null || expires_at !== null || (rate_limits ?? []).length > 0) return true;
  return defaults?.config_id !== undefined || defaults?.allow_config_override === false;
}

/** Refuses with 403 to leave a key looser than it is, or with its usage at zero again, without the right to. */
export function checkTightens(
  principal: Pick<Principal, 'scopes'>,
  before: KeyRow,
  patch: Partial<Bounds>,
  resets: boolean,
): void {
  if (mayLoosen(principal, before.type)) return;
  const field = resets ? 'reset_usage' : loosened(before, { ...before, ...patch });
  if (field === null) return;
  const what = resets ? 'Setting the usage of a key back' : `Loosening ${field} of a key`;
  throw new SluiceError(
    'forbidden',
    `${what} needs the scope ${LOOSENS[before.type]}, which you do not have. Ask an administrator.`,
    { param: field },
  );
}

/** A body that may set bounds. */
interface Given {
  readonly usage_limits?: unknown;
  readonly rate_limits?: readonly unknown[] | null | undefined;
  readonly expires_at?: string | null | undefined;
  readonly defaults?: { readonly config_id?: unknown; readonly allow_config_override?: unknown } | null | undefined;
}

/** Who bounds a new key: its maker, unless the body sets no bounds or the maker is the owner. */
export function boundsNew(caller: Principal, userId: string | null, given: Given): string | null {
  if (userId === null || caller.userId === userId) return null;
  const { usage_limits, rate_limits, expires_at, defaults } = given;
  const bounded =
    usage_limits != null ||
    (rate_limits ?? []).length > 0 ||
    expires_at != null ||
    defaults?.config_id != null ||
    defaults?.allow_config_override === false;
  return bounded ? actorId(caller) : null;
}

/**
 * Who bounds a key that is changed: the caller, where the body names a bound and any is left; null where none is left.
 * The owner changes nothing about it.
 */
export function boundsChanged(caller: Principal, after: KeyRow, given: Given): string | null {
  const { usage_limits, rate_limits, expires_at, defaults } = given;
  const named = [usage_limits, rate_limits, expires_at, defaults?.config_id, defaults?.allow_config_override];
  const touched = defaults === null || named.some((value) => value !== undefined);
  if (!touched || after.user_id === null || caller.userId === after.user_id) return after.bounded_by;
  return isBounded(after) ? actorId(caller) : null;
}

/**
 * Refuses with 403 a further key of a user whose keys in this workspace somebody else has bounded, to callers that may
 * not loosen. Keys that the owner has revoked count, or revoking would be a way around.
 */
export async function checkMayAdd(
  tx: TenantTx,
  principal: Pick<Principal, 'scopes'>,
  workspaceId: string,
  userId: string,
): Promise<void> {
  if (mayLoosen(principal, 'workspace-user')) return;
  const where = { workspace_id: workspaceId, user_id: userId, bounded_by: { not: null } };
  if ((await tx.count('api_keys', { where })) === 0) return;
  throw new SluiceError(
    'forbidden',
    'An administrator has set limits on a key of this user here, and a further key would have none. Ask an administrator to make it, or rotate the key.',
    { param: 'user_id' },
  );
}

/** An administrator who gives a user a key without bounds ends those of the keys that the user has revoked. */
export async function liftBounds(tx: TenantTx, caller: Principal, key: KeyRow): Promise<void> {
  const { workspace_id, user_id, bounded_by } = key;
  if (user_id === null || caller.userId === user_id || bounded_by !== null || !mayLoosen(caller, key.type)) return;
  await tx.update(
    'api_keys',
    { workspace_id, user_id, status: 'archived', bounded_by: { not: null } },
    { bounded_by: null },
  );
}

function isLooserUsage(was: UsageLimit | null, is: UsageLimit | null): boolean {
  if (was === null) return false;
  if (is === null) return true;
  if ((is.credit_limit ?? Infinity) > (was.credit_limit ?? Infinity)) return true;
  // Another kind, rhythm or rule counts anew or by another measure.
  return (
    (is.type ?? 'cost') !== (was.type ?? 'cost') ||
    (is.periodic_reset ?? null) !== (was.periodic_reset ?? null) ||
    (is.periodic_reset_days ?? null) !== (was.periodic_reset_days ?? null) ||
    (is.next_usage_reset_at ?? null) !== (was.next_usage_reset_at ?? null) ||
    (is.unpriced ?? null) !== (was.unpriced ?? null) ||
    (is.on_outage ?? null) !== (was.on_outage ?? null)
  );
}

function isLooserRate(was: readonly RateLimit[] | null, is: readonly RateLimit[] | null): boolean {
  return (was ?? []).some(
    (limit) =>
      !(is ?? []).some(({ type, unit, value }) => type === limit.type && unit === limit.unit && value <= limit.value),
  );
}
