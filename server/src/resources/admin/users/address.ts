/** The address of a user: the one place that changes it, and the link that a user confirms a new one with. */

import { timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import type { Macs } from '../../../store/vault.ts';
import type { Call } from '../../resource.ts';
import { MAILS } from '../mails.ts';

/** Throws 409 when another user of the organisation has this address, or an open invite is for it. */
async function checkFree(tx: TenantTx, clock: Clock, email: string, param: string | null = null): Promise<void> {
  if (await tx.find('users', { email, status: 'active' }))
    throw new SluiceError('conflict', `A user of this organisation has the address ${email} already.`, { param });
  const invite = await tx.find('invites', { email, status: 'pending' });
  if (invite === undefined || invite.expires_at <= clock.now()) return;
  const message = `An open invite is for the address ${email}. Cancel the invite first.`;
  throw new SluiceError('conflict', message, { param });
}

/**
 * Gives an active user another address. Sign-in links that were made before may be in the old mailbox, and other
 * sign-ins may be of its reader: both end, but for the session `keep` (its digest). Throws 409 as `checkFree`; of two
 * users who take one address at the same moment the unique index refuses one.
 */
export async function changeAddress(
  tx: TenantTx,
  clock: Clock,
  user: Row<'users'>,
  email: string,
  keep: string | null,
): Promise<Row<'users'>> {
  await checkFree(tx, clock, email);
  const changed = { ...user, email, last_updated_at: laterThan(user, clock) };
  await tx.update('users', { id: user.id }, { email, last_updated_at: changed.last_updated_at });
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  const signIns = await tx.list('console_sessions', { where: { user_id: user.id } });
  const ended = signIns.filter(({ digest }) => digest !== keep).map(({ digest }) => digest);
  if (ended.length > 0) {
    await tx.remove('console_sessions', { digest: { in: ended } });
    tx.changed({ workspaceId: null, topic: 'console_sessions', entityId: user.id });
  }
  return changed;
}

/** A time that this row has not had yet: links name the state of the user that they were made for. */
const laterThan = (user: Row<'users'>, clock: Clock): number => Math.max(clock.now(), user.last_updated_at + 1);

/** How long a link to a new address may be opened, milliseconds. */
const CONFIRM_TTL_MS = 60 * 60_000;
const USE = 'address of a user 1';
const TOKEN = /^([0-9A-Za-z_-]{1,800})\.([0-9A-Za-z_-]{1,64})\.([0-9A-Za-z_-]{43})$/;

const confirmation = z.strictObject({
  organisation_id: z.string(),
  user_id: z.string(),
  email: z.string(),
  /** `last_updated_at` of the user that the link was made for: any later change of the user ends the link. */
  as_of: z.number(),
  expires_at: z.number(),
});

/** What a link to a new address says. */
export type Confirmation = z.output<typeof confirmation>;

/**
 * Sends a link to the address that a user asks for. The user's `last_updated_at` must become what this answers, in the same
 * transaction. Throws 403 for another user's address, 400 without a mail server, and 409 as `checkFree`.
 */
export async function askForAddress(
  call: Pick<Call, 'principal' | 'tx' | 'clock' | 'vault' | 'service' | 'publicUrl' | 'onCommit'>,
  user: Row<'users'>,
  email: string,
): Promise<number> {
  const { principal, tx, clock, vault, publicUrl } = call;
  const mails = call.service(MAILS);
  const command = `npm run sluice -- user-email ${user.email} ${email}`;
  const param = 'email';
  if (principal.kind !== 'user' || principal.userId !== user.id) {
    const message = `Only the user changes the address, signed in. On the server’s shell it is: ${command}`;
    throw new SluiceError('forbidden', message, { param });
  }
  if (mails === null) {
    const message = `This Sluice has no mail server to confirm an address with. Use the server’s shell: ${command}`;
    throw new SluiceError('validation', message, { param });
  }
  await checkFree(tx, clock, email, param);
  const asOf = laterThan(user, clock);
  const said: Confirmation = {
    organisation_id: user.organisation_id,
    user_id: user.id,
    email,
    as_of: asOf,
    expires_at: clock.now() + CONFIRM_TTL_MS,
  };
  const payload = Buffer.from(JSON.stringify(said)).toString('base64url');
  const { keyId, digest } = vault.mac(USE, Buffer.from(payload));
  const text = [
    'Open this link to confirm the new address of your Sluice user, in a browser in which you are signed in:',
    `${publicUrl}/console/email#${payload}.${keyId}.${digest.toString('base64url')}`,
    'The link works once, for an hour. If you did not ask for it, do nothing.\n',
  ].join('\n\n');
  call.onCommit(() => mails.post({ to: email, subject: 'Confirm your address for Sluice', text }));
  return asOf;
}

/** What a token says that this installation made and that has not expired. Throws 400 otherwise. */
export function readConfirmation(macs: Macs, token: string, now: number): Confirmation {
  const [, payload = '', keyId = '', digest = ''] = TOKEN.exec(token) ?? [];
  const made = payload === '' ? null : macs.mac(USE, Buffer.from(payload), keyId);
  const given = Buffer.from(digest, 'base64url');
  if (made === null || given.length !== made.digest.length || !timingSafeEqual(given, made.digest)) {
    throw new SluiceError('validation', `This link is not valid: it is incomplete or of another Sluice. ${AGAIN}`);
  }
  const said = confirmation.parse(JSON.parse(Buffer.from(payload, 'base64url').toString()));
  if (said.expires_at <= now) throw new SluiceError('validation', `This link has expired. ${AGAIN}`);
  return said;
}

const AGAIN = 'Ask for the new address again.';

/** Throws 409 unless the user is as the link was made for. */
export function checkUnchanged(user: Row<'users'> | undefined, said: Confirmation): asserts user is Row<'users'> {
  if (user?.last_updated_at === said.as_of) return;
  throw new SluiceError('conflict', `This link was used, or your user has changed since it was sent. ${AGAIN}`);
}
