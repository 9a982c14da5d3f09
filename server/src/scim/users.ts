/** Users as a directory sees and writes them. The truth is in `users`; `scim_users` holds what only the directory says. */
import { hash } from 'node:crypto';
import { uuidv7 } from '../kernel/id.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { nextTurn } from '../kernel/turns.ts';
import { cancelInvites } from '../resources/admin/invites/cancel.ts';
import { changeAddress } from '../resources/admin/users/address.ts';
import { cutOff } from '../resources/admin/users/cut-off.ts';
import { isUuid, userEmail } from '../resources/fields.ts';
import { returned } from '../resources/scim/group-memberships.ts';
import type { TenantTx } from '../store/ports.ts';
import type { Row, ScimProfile, ScimValue } from '../store/schema.ts';
import { type UserDocument, userDocumentOf } from './attributes.ts';
import type { Answered, Conditions, ScimCall } from './call.ts';
import { checkDomain } from './domains.ts';
import { ScimError } from './errors.ts';
import { type Lookup, lookupsOf, matches, speaksOf } from './filter.ts';
import { chunksOf, type ListQuery, listResponse, type Projection, project, shows } from './page.ts';
import { operationsOf, patchUser } from './patch.ts';
import { checkVersion, times, USER_SCHEMA } from './resource.ts';
import { settleGroups, touchGroups } from './user-groups.ts';

type UserRow = Row<'users'>;

/** A user whom the directory sees: every active one, and those that it manages. */
interface Found {
  readonly user: UserRow;
  /** Null: the directory has not written this user yet. */
  readonly scim: Row<'scim_users'> | null;
}

export interface GroupName {
  readonly id: string;
  readonly name: string;
}

const noUser = () => new ScimError('noResource', 'There is no such user, or it is none of this organisation.');

async function findUser(tx: TenantTx, id: string): Promise<Found> {
  const key = id.toLowerCase();
  const user = isUuid(key) ? await tx.find('users', { id: key }) : undefined;
  const scim = user === undefined ? undefined : await tx.find('scim_users', { user_id: user.id });
  if (user === undefined || (user.status !== 'active' && scim === undefined)) throw noUser();
  return { user, scim: scim ?? null };
}

/** First and last name of a user by what a directory says. */
function namesOf(profile: Pick<ScimProfile, 'name' | 'displayName'>): Pick<UserRow, 'first_name' | 'last_name'> {
  const { givenName = '', familyName = '', formatted = '' } = profile.name ?? {};
  if (givenName !== '' || familyName !== '') return { first_name: givenName, last_name: familyName };
  return { first_name: profile.displayName ?? formatted, last_name: '' };
}

/** What can be written of a user, as it is now. */
function documentOf({ user, scim }: Found): Omit<UserDocument, 'groups'> & { userName: string; active: boolean } {
  const profile = scim?.profile ?? null;
  const names = namesOf(profile ?? {});
  // Somebody changed the name in Sluice since.
  const own = profile?.name !== undefined && names.first_name === user.first_name && names.last_name === user.last_name;
  const parts = { givenName: user.first_name, familyName: user.last_name };
  const name = own ? profile.name : Object.fromEntries(Object.entries(parts).filter(([, part]) => part !== ''));
  const displayName =
    profile?.displayName ?? (profile === null ? [user.first_name, user.last_name].join(' ').trim() : '');
  const emails = profile?.emails ?? [{ value: user.email, type: 'work', primary: true }];
  return {
    userName: profile?.userName.toLowerCase() === user.email ? profile.userName : user.email,
    ...(scim?.external_id == null ? {} : { externalId: scim.external_id }),
    ...(name === undefined || Object.keys(name).length === 0 ? {} : { name }),
    ...(displayName === '' ? {} : { displayName }),
    ...(emails.length === 0 ? {} : { emails }),
    active: user.status === 'active',
    roles: [{ value: user.role, primary: true }],
  };
}

function present(found: Found, groups: readonly GroupName[], base: string): JsonObject {
  const { user, scim } = found;
  const { name, emails, roles, ...plain } = documentOf(found);
  const formatted = [name?.givenName, name?.familyName].filter((part) => part !== undefined).join(' ');
  const resource = {
    schemas: [USER_SCHEMA],
    id: user.id,
    ...plain,
    ...(name === undefined ? {} : { name: { ...(formatted === '' ? {} : { formatted }), ...name } }),
    ...(emails === undefined ? {} : { emails: emails.map((one) => ({ ...one })) }),
    roles: (roles ?? []).map((one) => ({ ...one })),
    ...(groups.length === 0
      ? {}
      : { groups: groups.map(({ id, name: display }) => ({ value: id, display, $ref: `${base}/Groups/${id}` })) }),
  };
  const changed = Math.max(user.last_updated_at, scim?.last_updated_at ?? 0);
  const meta = { resourceType: 'User', ...times(user.created_at, changed), location: `${base}/Users/${user.id}` };
  const version = `W/"${hash('sha256', JSON.stringify([resource, meta.lastModified]), 'base64url').slice(0, 22)}"`;
  return { ...resource, meta: { ...meta, version } };
}

const versionOf = (resource: JsonObject): string => (isObject(resource.meta) ? String(resource.meta.version) : '');

/** Names of the groups of each user. Two reads, however many users. */
async function groupsOf(tx: TenantTx, userIds: readonly string[]): Promise<Map<string, GroupName[]>> {
  const found = new Map<string, GroupName[]>();
  if (userIds.length === 0) return found;
  const places = await tx.list('scim_group_members', { where: { user_id: { in: userIds } } });
  const ids = [...new Set(places.map(({ group_id }) => group_id))];
  const rows = (
    await Promise.all(chunksOf(ids).map((some) => tx.list('scim_groups', { where: { id: { in: some } } })))
  ).flat();
  const names = new Map(rows.map((row) => [row.id, row.display_name]));
  for (const { user_id, group_id } of places) {
    const list = found.get(user_id) ?? [];
    list.push({ id: group_id, name: names.get(group_id) ?? '' });
    found.set(user_id, list);
  }
  return found;
}

async function presentAll({ tx, base }: ScimCall, found: readonly Found[], withGroups: boolean): Promise<JsonObject[]> {
  const groups = withGroups
    ? await groupsOf(
        tx,
        found.map(({ user }) => user.id),
      )
    : new Map<string, GroupName[]>();
  return found.map((one) => present(one, groups.get(one.user.id) ?? [], base));
}

async function presentOne(call: ScimCall, found: Found): Promise<JsonObject> {
  const [resource = {}] = await presentAll(call, [found], true);
  return resource;
}

/** The resource as it is after a write. */
async function answerOf(call: ScimCall, id: string, status: 200 | 201): Promise<Answered> {
  const body = await presentOne(call, await findUser(call.tx, id));
  const location = `${call.base}/Users/${id}`;
  return { status, body, etag: versionOf(body), ...(status === 201 ? { location } : {}) };
}

export async function getUser(call: ScimCall, id: string, projection: Projection): Promise<Answered> {
  const resource = await presentOne(call, await findUser(call.tx, id));
  return { status: 200, body: project(resource, projection), etag: versionOf(resource) };
}

/** The attributes that an index finds. */
const INDEXED: ReadonlySet<string> = new Set(['id', 'username', 'externalid', 'groups.value']);
/** Users that are read at once. */
const STEP = 1_000;

export async function listUsers(call: ScimCall, query: ListQuery): Promise<Answered> {
  const { filter, startIndex, count, projection } = query;
  const { tx } = call;
  const answer = async (total: number, found: readonly Found[]): Promise<Answered> => {
    const resources = await presentAll(call, found, shows(projection, 'groups'));
    return {
      status: 200,
      body: listResponse(
        total,
        startIndex,
        resources.map((one) => project(one, projection)),
      ),
    };
  };
  if (filter === null) {
    const active = await tx.count('users', { where: ACTIVE });
    const inactive = await tx.count('scim_users', { where: { active: false } });
    return answer(active + inactive, await partOf(tx, startIndex - 1, count, active));
  }
  const lookups = lookupsOf(filter, INDEXED);
  const withGroups = speaksOf(filter, 'groups');
  const from = startIndex - 1;
  const found: Found[] = [];
  let total = 0;
  const judge = async (some: readonly Found[]) => {
    const resources = await presentAll(call, some, withGroups);
    for (const [index, one] of some.entries()) {
      const resource = resources[index];
      if (resource === undefined || !matches(filter, resource)) continue;
      if (total >= from && found.length < count) found.push(one);
      total += 1;
    }
  };
  if (lookups !== null) await judge(await lookUp(tx, lookups));
  else {
    const active = await tx.count('users', { where: ACTIVE });
    for (let at = 0; ; at += STEP) {
      const some = await partOf(tx, at, STEP, active);
      await judge(some);
      if (some.length < STEP) break;
      await nextTurn();
    }
  }
  return answer(total, found);
}

const ACTIVE = { status: 'active' } as const;

/** Users by their place in the order of all: the active ones by their creation, then those that are inactive. */
async function partOf(tx: TenantTx, from: number, limit: number, active: number): Promise<Found[]> {
  if (limit === 0) return [];
  const order = [['created_at', 'asc']] as const;
  const rows =
    from >= active
      ? []
      : await tx.list('users', { where: ACTIVE, orderBy: [...order, ['id', 'asc']], limit, offset: from });
  const found = await withRecords(tx, rows);
  const left = limit - rows.length;
  if (left === 0 || from + limit <= active) return found;
  const records = await tx.list('scim_users', {
    where: { active: false },
    orderBy: [...order, ['user_id', 'asc']],
    limit: left,
    offset: Math.max(0, from - active),
  });
  return [...found, ...(await ofRecords(tx, records))];
}

async function withRecords(tx: TenantTx, users: readonly UserRow[]): Promise<Found[]> {
  if (users.length === 0) return [];
  const records = await tx.list('scim_users', { where: { user_id: { in: users.map(({ id }) => id) } } });
  const byId = new Map(records.map((row) => [row.user_id, row]));
  return users.map((user) => ({ user, scim: byId.get(user.id) ?? null }));
}

async function ofRecords(tx: TenantTx, records: readonly Row<'scim_users'>[]): Promise<Found[]> {
  if (records.length === 0) return [];
  const users = await tx.list('users', { where: { id: { in: records.map((row) => row.user_id) } } });
  const byId = new Map(users.map((user) => [user.id, user]));
  return records.flatMap((scim) => {
    const user = byId.get(scim.user_id);
    return user === undefined ? [] : [{ user, scim }];
  });
}

/** What indexes find of the values that a filter names, in the order of lists. */
async function lookUp(tx: TenantTx, lookups: readonly Lookup[]): Promise<Found[]> {
  const named = (name: string) => lookups.filter((one) => one.name === name).map(({ value }) => value);
  const found = new Map<string, Found>();
  const keep = (some: readonly Found[]) => {
    for (const one of some) if (one.user.status === 'active' || one.scim !== null) found.set(one.user.id, one);
  };
  const members = named('groups.value');
  const inGroups =
    members.length === 0 ? [] : await tx.list('scim_group_members', { where: { group_id: { in: members } } });
  const ids = [...named('id').map((id) => id.toLowerCase()), ...inGroups.map(({ user_id }) => user_id)];
  for (const some of chunksOf(ids))
    keep(await withRecords(tx, await tx.list('users', { where: { id: { in: some } } })));
  const names = named('username').map((name) => name.toLowerCase());
  if (names.length > 0) {
    keep(await withRecords(tx, await tx.list('users', { where: { email: { in: names }, status: 'active' } })));
    keep(await ofRecords(tx, await tx.list('scim_users', { where: { user_name: { in: names } } })));
  }
  const external = named('externalid');
  if (external.length > 0) {
    keep(await ofRecords(tx, await tx.list('scim_users', { where: { external_id: { in: external } } })));
  }
  return [...found.values()].sort((a, b) => a.user.created_at - b.user.created_at || (a.user.id < b.user.id ? -1 : 1));
}

/** A new user, or the one with this address as it is: a create must not be a way to change a role. */
export async function createUser(call: ScimCall, body: JsonObject): Promise<Answered> {
  const { tx, clock } = call;
  const document = checked(userDocumentOf(body, null, call.membersByUser));
  const email = document.userName.toLowerCase();
  const existing = await ofAddress(tx, email);
  if (existing !== null) return adopt(call, existing, document);
  await checkDomain(tx, email);
  const now = clock.now();
  const active = document.active !== false;
  const profile = profileOf(document);
  const user: UserRow = {
    id: uuidv7(clock),
    organisation_id: tx.tenant.organisationId,
    email,
    ...namesOf(profile),
    role: roleOf(document.roles) ?? 'member',
    status: active ? 'active' : 'archived',
    created_at: now,
    last_updated_at: now,
  };
  // No node knows the user yet, so none has anything to forget.
  await tx.insert('users', user);
  await tx.insert('scim_users', { ...recordOf(user, document, profile), created_at: now });
  await settleGroups(call, { id: user.id, active }, document.groups);
  const answer = await answerOf(call, user.id, 201);
  call.audit(user.id, { before: null, after: answer.body });
  return answer;
}

/** The active user of an address, else the one whom the directory has deactivated. */
async function ofAddress(tx: TenantTx, email: string): Promise<Found | null> {
  const user = await tx.find('users', { email, status: 'active' });
  if (user !== undefined) return { user, scim: (await tx.find('scim_users', { user_id: user.id })) ?? null };
  const records = await tx.list('scim_users', { where: { user_name: email } });
  const found = await ofRecords(tx, records);
  return found.sort((a, b) => b.user.last_updated_at - a.user.last_updated_at)[0] ?? null;
}

async function adopt(call: ScimCall, found: Found, document: UserDocument): Promise<Answered> {
  const { user, scim } = found;
  const before = await presentOne(call, found);
  const external = document.externalId ?? null;
  const wakes = user.status !== 'active' && document.active === true;
  const named = external !== null && (scim?.external_id ?? null) === null;
  if (wakes || named) {
    const own = documentOf(found);
    const state = { ...own, active: own.active || wakes, ...(named ? { externalId: external } : {}) };
    await store(call, found, state, scim?.profile ?? { userName: own.userName });
  }
  const answer = await answerOf(call, user.id, 200);
  call.audit(user.id, { before, after: answer.body });
  return answer;
}

export async function replaceUser(
  call: ScimCall,
  id: string,
  body: JsonObject,
  conditions: Conditions,
): Promise<Answered> {
  const found = await findUser(call.tx, id);
  const document = userDocumentOf(body, found.user.id, call.membersByUser);
  return change(call, found, conditions, () => ({
    ...document,
    active: document.active ?? found.user.status === 'active',
  }));
}

export async function changeUser(
  call: ScimCall,
  id: string,
  body: JsonObject,
  conditions: Conditions,
): Promise<Answered> {
  const found = await findUser(call.tx, id);
  const operations = operationsOf(body);
  return change(call, found, conditions, (groups) =>
    patchUser({ ...documentOf(found), ...(call.membersByUser ? { groups } : {}) }, operations, found.user.id),
  );
}

async function change(
  call: ScimCall,
  found: Found,
  { ifMatch }: Conditions,
  make: (groups: ScimValue[]) => UserDocument,
): Promise<Answered> {
  const before = await presentOne(call, found);
  checkVersion(ifMatch, versionOf(before));
  const places = (await groupsOf(call.tx, [found.user.id])).get(found.user.id) ?? [];
  const { groups, ...document } = checked(make(places.map(({ id, name }) => ({ value: id, display: name }))));
  const own = documentOf(found);
  // Groups first: who comes back gets what they give.
  const active = document.active ?? found.user.status === 'active';
  await settleGroups(call, { id: found.user.id, active }, groups);
  if (JSON.stringify(sorted(document)) !== JSON.stringify(sorted(own))) {
    await store(call, found, document, profileOf(document));
  }
  const answer = await answerOf(call, found.user.id, 200);
  call.audit(found.user.id, { before, after: answer.body });
  return answer;
}

const sorted = (document: UserDocument) => Object.entries(document).sort(([a], [b]) => (a < b ? -1 : 1));

/** Brings a user to the state that a directory asks for. */
async function store(call: ScimCall, found: Found, document: UserDocument, profile: ScimProfile): Promise<void> {
  const { tx, clock } = call;
  const { scim } = found;
  let { user } = found;
  const email = (document.userName ?? user.email).toLowerCase();
  const was = user.status === 'active';
  const active = document.active ?? was;
  if (email !== user.email) {
    // Sign-in links go to the address, and an admin can make a SCIM token: the admin would become the owner.
    if (user.role === 'owner') throw new ScimError('mutability', OWNER_ADDRESS);
    await checkDomain(tx, email);
    const other = await ofAddress(tx, email);
    if (other !== null && other.user.id !== user.id) throw taken();
    // Links and sign-ins of the old address end with it.
    if (was) user = await changeAddress(tx, clock, user, email, null);
    else user = { ...user, email };
  }
  if (!active && was) await checkOwners(tx, user);
  if (active && !was && (await tx.find('users', { email, status: 'active' })) !== undefined) throw taken();
  const role = user.role === 'owner' ? 'owner' : (roleOf(document.roles) ?? user.role);
  const now = Math.max(clock.now(), user.last_updated_at + 1);
  const names = profile.name === undefined && profile.displayName === undefined ? {} : namesOf(profile);
  const next: UserRow = {
    ...user,
    email,
    ...names,
    role,
    status: active ? 'active' : 'archived',
    last_updated_at: now,
  };
  // Without the id: a statement that sets it looks for all that refers to the user.
  const { id, organisation_id: _own, ...columns } = next;
  await tx.update('users', { id }, columns);
  const record = { ...recordOf(next, document, profile), created_at: scim?.created_at ?? now };
  if (scim === null) await tx.insert('scim_users', record);
  else await tx.update('scim_users', { user_id: user.id }, record);
  tx.changed({ workspaceId: null, topic: 'users', entityId: user.id });
  if (role === 'member' && user.role === 'admin') await cancelInvites({ tx, clock }, user.id);
  if (was && !active) await cutOff({ tx, clock }, user.id, { keepsSources: true });
  if (active && !was) await returned(call, user.id);
}

/** Gone for the directory and for lists; the row stays for the records that name it. */
export async function deleteUser(call: ScimCall, id: string, { ifMatch }: Conditions): Promise<Answered> {
  const { tx, clock } = call;
  const found = await findUser(tx, id);
  const { user } = found;
  const before = await presentOne(call, found);
  checkVersion(ifMatch, versionOf(before));
  if (user.status === 'active') await checkOwners(tx, user);
  await tx.update('users', { id: user.id }, { status: 'archived', last_updated_at: clock.now() });
  const groups = await tx.list('scim_group_members', { where: { user_id: user.id } });
  await tx.remove('scim_group_members', { user_id: user.id });
  await touchGroups(
    call,
    groups.map(({ group_id }) => group_id),
  );
  await tx.remove('scim_users', { user_id: user.id });
  await cutOff({ tx, clock }, user.id);
  // Nothing of what was given comes back with an invite to the same address.
  await tx.remove('membership_sources', { user_id: user.id });
  call.audit(user.id, { before, after: null });
  return { status: 204, body: null };
}

async function checkOwners(tx: TenantTx, user: UserRow): Promise<void> {
  if (user.role !== 'owner' || (await tx.count('users', { where: { role: 'owner', status: 'active' } })) > 1) return;
  throw new ScimError(
    'mutability',
    'This user is the last owner of the organisation, who cannot be deactivated or deleted.',
  );
}

const OWNER_ADDRESS =
  'This user is the owner of the organisation, who alone changes the address: on the account page of the console.';

const taken = () => new ScimError('uniqueness', 'Another user of the organisation has this userName.');

function recordOf(user: UserRow, document: UserDocument, profile: ScimProfile): Omit<Row<'scim_users'>, 'created_at'> {
  return {
    user_id: user.id,
    organisation_id: user.organisation_id,
    external_id: document.externalId ?? null,
    user_name: user.email,
    profile,
    active: user.status === 'active',
    last_updated_at: user.last_updated_at,
  };
}

function profileOf({ userName, displayName, name, emails }: UserDocument): ScimProfile {
  return {
    userName: userName ?? '',
    ...(displayName === undefined ? {} : { displayName }),
    name: name ?? {},
    emails: emails ?? [],
  };
}

/** Nothing that is not seen: a mark that turns the direction of writing would rewrite the lines that show a name. */
const SEEN = /^(?:[\u200c\u200d]|[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}])*$/u;
const MAX_NAME = 255;

/** The document, whose address and names can be kept. Throws `invalidValue`. */
function checked(document: UserDocument): UserDocument & { userName: string } {
  const { userName } = document;
  if (userName === undefined || userName === '')
    throw new ScimError('invalidValue', 'The attribute userName is required.');
  if (!userEmail.safeParse(userName).success) {
    throw new ScimError('invalidValue', 'The attribute userName must be an e-mail address.');
  }
  for (const [part, value] of Object.entries({ ...document.name, displayName: document.displayName ?? '' })) {
    if (value.length <= MAX_NAME && SEEN.test(value)) continue;
    const must = `must be at most ${MAX_NAME} characters without control or format characters`;
    throw new ScimError('invalidValue', `The attribute ${part} ${must}.`);
  }
  if ((document.externalId?.length ?? 0) > MAX_NAME) {
    throw new ScimError('invalidValue', `The attribute externalId must be at most ${MAX_NAME} characters.`);
  }
  return { ...document, userName };
}

/** The role that was sent; null for none that a directory may give. Entra may send each role as JSON in a text. */
function roleOf(roles: readonly ScimValue[] | undefined): 'admin' | 'member' | null {
  const names = (roles ?? []).flatMap(({ value }) => (value === undefined ? [] : [roleName(value).toLowerCase()]));
  if (names.includes('admin')) return 'admin';
  return names.includes('member') ? 'member' : null;
}

function roleName(value: string): string {
  if (!value.startsWith('{')) return value;
  try {
    const said = parseJson(value);
    const name = isObject(said) && Object.hasOwn(said, 'value') ? said.value : null;
    return typeof name === 'string' ? name : '';
  } catch {
    return '';
  }
}
