/** User keys that are made without anybody asking for one: on joining a workspace, on accepting an invite. */
import type { Clock } from '../../kernel/clock.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { InvitedKey } from '../../store/schema.ts';

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
 * Makes a user key when the settings of the workspace want one (api §20.4) and the user has none there, in the caller's
 * transaction: expiry, rotation, config and scopes from the settings as they are in it (rule P-06). Null when none is made.
 */
export async function autoCreateUserKey(request: AutoKeyRequest): Promise<AutoKey | null> {
  void request;
  return null;
}
