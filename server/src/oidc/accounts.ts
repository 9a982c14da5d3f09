/**
 * Whose account a person of an identity provider has. A subject at an issuer is an account for good; an address only leads to
 * one that has no subject yet, and only where the provider vouches for it and its domain is the organisation's.
 */
import { authSettingsOf } from '../auth/auth-settings.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { mayStillInvite } from '../resources/admin/give.ts';
import { acceptOpenInvite } from '../resources/admin/invites/accept.ts';
import { isAbove } from '../resources/admin/rank.ts';
import { coveringDomains } from '../resources/settings/domains.ts';
import type { TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Person } from './claims.ts';

type SsoClient = Row<'sso_clients'>;
type User = Row<'users'>;

/** There is no account for the person. The message is for the audit log. */
export class NoAccount extends Error {}

export interface Account {
  readonly user: User;
  readonly how: 'known' | 'linked' | 'invited' | 'created';
  readonly identity: Row<'user_identities'>;
  /** The invite asked for API keys, and a sign-in has no answer that could show them: none were made. */
  readonly keysLeftOut?: boolean;
}

/** Finds, links or makes the account. Throws `NoAccount`. */
export async function accountOf(tx: TenantTx, clock: Clock, client: SsoClient, person: Person): Promise<Account> {
  const key = { issuer: client.issuer, subject: person.subject };
  const identity = await tx.find('user_identities', key);
  const now = clock.now();
  const seen = { last_seen_at: now, sso_client_id: client.id };
  if (identity !== undefined) {
    const user = await tx.find('users', { id: identity.user_id });
    if (user?.status !== 'active') {
      // A directory that deletes a user makes another one for the same person who comes back; an invite may, too.
      const next = await byAddress(tx, clock, client, person, false);
      const moved = { ...seen, user_id: next.user.id, given_role: null };
      await tx.update('user_identities', key, moved);
      return { ...next, identity: { ...identity, ...moved } };
    }
    checkVouched(client, user);
    await tx.update('user_identities', key, seen);
    return { user: await withNewEmail(tx, clock, user, person), how: 'known', identity: { ...identity, ...seen } };
  }
  const found = await byAddress(tx, clock, client, person, true);
  const fresh = {
    organisation_id: client.organisation_id,
    ...key,
    ...seen,
    user_id: found.user.id,
    given_role: null,
    created_at: now,
  };
  await tx.insert('user_identities', fresh);
  return { ...found, identity: fresh };
}

/** @param isNew whether nobody with this subject had an account: somebody who was removed makes no other one by signing in */
async function byAddress(
  tx: TenantTx,
  clock: Clock,
  client: SsoClient,
  person: Person,
  isNew: boolean,
): Promise<Omit<Account, 'identity'>> {
  const { email } = person;
  if (email === null) throw new NoAccount(person.emailProblem ?? 'there is no email');
  if ((await coveringDomains(tx, email)).length === 0) {
    throw new NoAccount('the domain of email is not among the verified domains of the organisation');
  }
  const user = await tx.find('users', { email, status: 'active' });
  if (user !== undefined) {
    if ((await tx.count('user_identities', { where: { user_id: user.id } })) > 0) {
      throw new NoAccount('the account with this email belongs to another subject');
    }
    checkVouched(client, user);
    return { user, how: 'linked' };
  }
  const invited = await invitedUser(tx, clock, client, person, email);
  if (invited !== null) return { ...invited, how: 'invited' };
  if (!isNew || (await tx.count('users', { where: { email, status: 'archived' } })) > 0) {
    throw new NoAccount('the account with this email was removed; an invite brings it back');
  }
  const organisation = await tx.organisation();
  if (authSettingsOf(organisation).disableAutoProvisionUser) {
    throw new NoAccount('there is no invite, and sign-ins make no users (disable_auto_provision_user)');
  }
  return { user: await newUser(tx, clock, person, email), how: 'created' };
}

/** Null without an open invite whose sender may still invite. */
async function invitedUser(
  tx: TenantTx,
  clock: Clock,
  client: SsoClient,
  person: Person,
  email: string,
): Promise<Pick<Account, 'user' | 'keysLeftOut'> | null> {
  const now = await tx.now();
  const invite = await tx.find('invites', { email, status: 'pending' });
  if (invite === undefined || invite.expires_at <= now) return null;
  if (!(await mayStillInvite(tx, await tx.organisation(), invite))) return null;
  checkVouched(client, invite);
  const { firstName, lastName } = person;
  const { user } = await acceptOpenInvite(tx, clock, invite, { firstName, lastName, asked: null });
  return invite.api_key_details === null ? { user } : { user, keysLeftOut: true };
}

async function newUser(tx: TenantTx, clock: Clock, person: Person, email: string): Promise<User> {
  const now = clock.now();
  const user: User = {
    id: uuidv7(clock),
    organisation_id: tx.tenant.organisationId,
    email,
    first_name: person.firstName,
    last_name: person.lastName,
    role: 'member',
    status: 'active',
    created_at: now,
    last_updated_at: now,
  };
  await tx.insert('users', user);
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  return user;
}

/** A provider that an admin chose says nothing about who an owner is: the admin would be one. */
function checkVouched(client: SsoClient, { role }: Pick<User, 'role'>): void {
  if (!isAbove(role, client.vouched_role)) return;
  throw new NoAccount(
    `the account has the role ${role}, and the issuer of this SSO client was last set by somebody below it: a user with this role saves the issuer once more`,
  );
}

/** An address that changed at the provider and that it vouches for, unless it is somebody else's here, or a directory's. */
async function withNewEmail(tx: TenantTx, clock: Clock, user: User, { email }: Person): Promise<User> {
  if (email === null || email === user.email) return user;
  if ((await tx.count('scim_users', { where: { user_id: user.id } })) > 0) return user;
  if ((await coveringDomains(tx, email)).length === 0) return user;
  if ((await tx.find('users', { email, status: 'active' })) !== undefined) return user;
  const patch = { email, last_updated_at: clock.now() };
  await tx.update('users', { id: user.id }, patch);
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  return { ...user, ...patch };
}
