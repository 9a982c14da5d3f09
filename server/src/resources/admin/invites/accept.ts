/** Accepting an invite: the holder of its link becomes a user, once. */
import type { Clock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import type { SystemTx, TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import type { AutoKey } from '../../api-keys/auto.ts';
import { returned } from '../../scim/group-memberships.ts';
import { mayStillInvite } from '../give.ts';
import { setSource } from '../workspaces/sources.ts';
import { inviteStatus } from './index.ts';
import { digestOfToken } from './link.ts';

type InviteRow = Row<'invites'>;

/** What the holder of a link may know before accepting. */
export interface OfferedInvite {
  readonly invite: InviteRow;
  readonly organisation: Row<'organisations'>;
  /** Those that are still there. */
  readonly workspaces: readonly {
    readonly slug: string;
    readonly name: string;
    readonly role: InviteRow['workspaces'][number]['role'];
  }[];
}

/**
 * The invite of a link. Throws 401 when the link is unknown, used, cancelled or expired, or its sender may no longer
 * invite, told apart in the message, and 403 when the organisation is suspended.
 */
export async function findInvite(tx: SystemTx, token: string): Promise<OfferedInvite> {
  const digest = digestOfToken(token);
  const invite = digest === null ? undefined : await tx.find('invites', { token_digest: digest });
  if (!invite) throw unknownLink();
  checkOpen(invite, await tx.now());
  const { organisation_id } = invite;
  const organisation = await tx.find('organisations', { id: organisation_id });
  if (!organisation) throw unknownLink();
  checkActive(organisation);
  await checkInviter(tx, organisation, invite);
  const ids = invite.workspaces.map((workspace) => workspace.workspace_id);
  const rows = await tx.list('workspaces', { where: { organisation_id, id: { in: ids }, status: 'active' } });
  const found = new Map(rows.map((row) => [row.id, row]));
  const workspaces = invite.workspaces.flatMap(({ workspace_id, role }) => {
    const workspace = found.get(workspace_id);
    return workspace ? [{ slug: workspace.slug, name: workspace.name, role }] : [];
  });
  return { invite, organisation, workspaces };
}

export interface Acceptance {
  readonly token: string;
  readonly firstName: string;
  readonly lastName: string;
}

export interface Accepted {
  readonly user: Row<'users'>;
  readonly inviteId: string;
  /** Keys that were made; each is shown this once. */
  readonly keys: readonly (AutoKey & { readonly workspace: Pick<Row<'workspaces'>, 'id' | 'slug' | 'name'> })[];
}

/**
 * Makes the user, or brings back the one who was removed, with the invite's role, workspaces and keys. Of any number of
 * simultaneous calls one succeeds. Throws as `findInvite`, and 409 when the address has become a user's meanwhile.
 */
export async function acceptInvite(tx: TenantTx, clock: Clock, acceptance: Acceptance): Promise<Accepted> {
  const digest = digestOfToken(acceptance.token);
  const invite = digest === null ? undefined : await tx.find('invites', { token_digest: digest });
  if (!invite) throw unknownLink();
  const now = await tx.now();
  checkOpen(invite, now);
  const organisation = await tx.organisation();
  checkActive(organisation);
  await checkInviter(tx, organisation, invite);
  return acceptOpenInvite(tx, clock, invite, acceptance);
}

interface OpenAcceptance extends Pick<Acceptance, 'firstName' | 'lastName'> {
  /** The keys to make; those of the invite by default. Null where no answer can show their secrets. */
  readonly asked?: InviteRow['api_key_details'];
}

/** The same for an invite that was found by its address, once it is clear that it is open and its sender may still invite. */
export async function acceptOpenInvite(
  tx: TenantTx,
  clock: Clock,
  invite: InviteRow,
  { asked = invite.api_key_details, ...acceptance }: OpenAcceptance,
): Promise<Accepted> {
  const now = await tx.now();
  await tx.update('invites', { id: invite.id }, { status: 'accepted', accepted_at: now, last_updated_at: now });
  tx.changed({ workspaceId: null, topic: 'invites', entityId: invite.id });
  const user = await welcome(tx, clock, invite, acceptance);
  const keys: Accepted['keys'][number][] = [];
  for (const { workspace_id: workspaceId, role } of invite.workspaces) {
    const workspace = await tx.find('workspaces', { id: workspaceId, status: 'active' });
    if (!workspace) continue;
    const place = { tx, clock, workspaceId, userId: user.id, role, actorId: invite.invited_by };
    const key = await setSource({ ...place, source: 'invite', asked });
    if (key) keys.push({ ...key, workspace: { id: workspace.id, slug: workspace.slug, name: workspace.name } });
  }
  const inGroups = await tx.count('scim_group_members', { where: { user_id: user.id } });
  if (inGroups > 0) await returned({ tx, clock }, user.id);
  return { user, inviteId: invite.id, keys };
}

async function welcome(
  tx: TenantTx,
  clock: Clock,
  invite: InviteRow,
  { firstName, lastName }: Pick<Acceptance, 'firstName' | 'lastName'>,
): Promise<Row<'users'>> {
  if (await tx.find('users', { email: invite.email, status: 'active' })) {
    throw new SluiceError('conflict', 'You are a user of this organisation already: sign in instead.');
  }
  const [former] = await tx.list('users', {
    where: { email: invite.email, status: 'archived' },
    orderBy: [['last_updated_at', 'desc']],
    limit: 1,
  });
  const now = clock.now();
  const user: Row<'users'> = {
    id: former?.id ?? uuidv7(clock),
    organisation_id: invite.organisation_id,
    email: invite.email,
    first_name: firstName,
    last_name: lastName,
    role: invite.role,
    status: 'active',
    created_at: former?.created_at ?? now,
    last_updated_at: now,
  };
  if (former) {
    await tx.update('users', { id: former.id }, user);
    await tx.update('scim_users', { user_id: former.id }, { active: true });
    // Places that were kept for a return by the directory: this one has those of the invite.
    await tx.remove('membership_sources', { user_id: former.id });
  } else await tx.insert('users', user);
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  return user;
}

function checkOpen(invite: InviteRow, now: number): void {
  const status = inviteStatus(invite, now);
  if (status === 'accepted') throw refused('This invite has been accepted. Each link works once: sign in instead.');
  if (status === 'cancelled') throw refused('This invite was cancelled. Ask who invited you for a new one.');
  if (status === 'expired') throw refused('This invite has expired. Ask who invited you for a new one.');
}

function checkActive(organisation: Row<'organisations'>): void {
  if (organisation.status === 'active') return;
  throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
}

/** An invite gives what its sender could give, for as long as the sender could. */
async function checkInviter(
  tx: TenantTx | SystemTx,
  organisation: Row<'organisations'>,
  invite: InviteRow,
): Promise<void> {
  if (await mayStillInvite(tx, organisation, invite)) return;
  throw refused('The sender of this invite may no longer invite. Ask an administrator for a new one.');
}

const refused = (message: string) => new SluiceError('unauthenticated', message);
const unknownLink = () =>
  refused('This invite link is not valid: it is incomplete, or a newer one was made. Ask who invited you.');
