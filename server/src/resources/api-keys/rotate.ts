/**
 * Rotation: a key gets a new secret, and the one before it stays valid until its transition ends
 * by the store's clock. Everything happens in the caller's one transaction, so that a process that dies leaves the old
 * state or the new one.
 */
import { maskKey } from '../../auth/key-format.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import { toIso, toIsoOrNull } from '../body-fields.ts';
import { afterRotation, checkTransition, policyColumns } from './rotation.ts';
import { MIN_TRANSITION_MS } from './schema.ts';
import { type KeyRow, type KeySecrets, mintSecret, secretsOf, UNCOLLECTED, uncollectedSecret } from './secrets.ts';

/** Where a key waits while it cannot be rotated: its organisation is suspended. */
const SUSPENDED_MS = 3_600_000;

/** What the audit log says of a rotation. */
export interface RotationFacts {
  readonly [name: string]: string | null;
  readonly api_key_id: string;
  readonly rotation_mode: 'manual' | 'auto';
  readonly old_key_masked: string | null;
  readonly transition_expires_at: string | null;
}

export interface Rotated {
  /** The whole new key. Shown once. */
  readonly key: string;
  /** When the secret before it ends; null when no such secret is valid any more. */
  readonly transitionExpiresAt: number | null;
  readonly facts: RotationFacts;
}

/**
 * Rotates a key for somebody who is given the new secret. What an automatic rotation has made room for is collected
 * instead: the transition that runs stays as it is, or becomes longer when `transitionMs` says so. Throws 409 while a
 * previous secret is in transition otherwise, and 400 for a transition as long as the rotation period.
 */
export async function rotateKey(tx: TenantTx, row: KeyRow, transitionMs: number | undefined): Promise<Rotated> {
  const policy = row.rotation_policy;
  if (transitionMs !== undefined && policy !== null) checkTransition(transitionMs, policy, 'key_transition_period_ms');
  const now = await tx.now();
  const { current, previous } = await validSecrets(tx, row.id, now);
  const collects = current?.digest === UNCOLLECTED;
  if (previous !== undefined && !collects) {
    throw new SluiceError(
      'conflict',
      `This key was rotated already, and its old secret is valid until ${toIso(previous.expires_at ?? now)}. Rotate it again after that.`,
    );
  }
  let endsAt: number | null = null;
  if (collects) {
    await tx.remove('api_key_secrets', { id: current.id });
    if (previous !== undefined) endsAt = await prolong(tx, previous, now + (transitionMs ?? 0));
  } else if (current !== undefined) {
    endsAt = now + (transitionMs ?? policy?.key_transition_period_ms ?? MIN_TRANSITION_MS);
    await tx.update('api_key_secrets', { id: current.id, expires_at: null }, { expires_at: endsAt });
  }
  const minted = mintSecret(row, now);
  await tx.insert('api_key_secrets', minted.row);
  await touch(tx, row, {
    // A key with a secret to collect was rotated before.
    ...(collects
      ? {}
      : { last_rotated_at: now, ...policyColumns(policy === null ? null : afterRotation(policy, now)) }),
    last_updated_at: now,
  });
  const facts = factsOf(row, collects ? 'auto' : 'manual', collects ? previous : current, endsAt);
  return { key: minted.key, transitionExpiresAt: endsAt, facts };
}

/** What became of a key whose rotation was due; `rotated` carries what the audit log says of it. */
export type DueOutcome = { readonly kind: 'rotated'; readonly facts: RotationFacts } | { readonly kind: 'put off' };

/**
 * Rotates a key that is due: its secret gets its end, and the place of the new one waits to be collected through the
 * rotate operation. Answers null when it is not due any more. Put off are keys that are still in a transition (a third
 * secret may not come to be), keys whose last one nobody has collected yet, and keys of suspended organisations.
 */
export async function rotateDueKey(tx: TenantTx, keyId: string): Promise<DueOutcome | null> {
  const now = await tx.now();
  const row = await tx.find('api_keys', { id: keyId, status: { in: ['active', 'exhausted'] } });
  if (row === undefined || row.rotation_due_at === null || row.rotation_due_at > now) return null;
  if (row.expires_at !== null && row.expires_at <= now) return null;
  const policy = row.rotation_policy;
  const { current, previous } = await validSecrets(tx, row.id, now);
  if (policy === null || current === undefined) return putOff(tx, row, null);
  if (previous !== undefined) return putOff(tx, row, previous.expires_at);
  if ((await tx.organisation()).status !== 'active') return putOff(tx, row, now + SUSPENDED_MS);
  const next = policyColumns(afterRotation(policy, now));
  if (current.digest === UNCOLLECTED) {
    await tx.update('api_keys', { id: row.id, version: row.version }, { ...next, version: row.version + 1 });
    return { kind: 'put off' };
  }
  const endsAt = now + policy.key_transition_period_ms;
  await tx.update('api_key_secrets', { id: current.id, expires_at: null }, { expires_at: endsAt });
  await tx.insert('api_key_secrets', uncollectedSecret(row, now));
  await touch(tx, row, { ...next, last_rotated_at: now, last_updated_at: now });
  return { kind: 'rotated', facts: factsOf(row, 'auto', current, endsAt) };
}

async function putOff(tx: TenantTx, row: KeyRow, until: number | null): Promise<DueOutcome> {
  await tx.update('api_keys', { id: row.id }, { rotation_due_at: until });
  return { kind: 'put off' };
}

/** The secrets that are valid now; one whose transition has ended goes with this transaction. */
async function validSecrets(tx: TenantTx, keyId: string, now: number): Promise<KeySecrets> {
  await tx.remove('api_key_secrets', { api_key_id: keyId, expires_at: { lte: now } });
  return (await secretsOf(tx, [keyId], now))(keyId);
}

/** Never shortens: others may count on what was promised. */
async function prolong(tx: TenantTx, secret: NonNullable<KeySecrets['previous']>, until: number): Promise<number> {
  const endsAt = Math.max(secret.expires_at ?? until, until);
  await tx.update('api_key_secrets', { id: secret.id }, { expires_at: endsAt });
  return endsAt;
}

async function touch(tx: TenantTx, row: KeyRow, patch: Partial<KeyRow>): Promise<void> {
  const where = { id: row.id, version: row.version };
  const changed = await tx.update('api_keys', where, { ...patch, version: row.version + 1 });
  if (changed !== 1) throw new SluiceError('conflict', 'The key was changed at the same moment. Try again.');
  tx.changed({ workspaceId: row.workspace_id, topic: 'api_keys', entityId: row.id });
}

function factsOf(
  row: KeyRow,
  mode: RotationFacts['rotation_mode'],
  old: KeySecrets['previous'],
  endsAt: number | null,
): RotationFacts {
  return {
    api_key_id: row.id,
    rotation_mode: mode,
    old_key_masked: old === undefined ? null : maskKey(old.id),
    transition_expires_at: toIsoOrNull(endsAt),
  };
}
