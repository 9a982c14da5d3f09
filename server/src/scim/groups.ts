/** Groups as a directory sees and writes them. */
import { uuidv7 } from '../kernel/id.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { nextTurn } from '../kernel/turns.ts';
import { isUuid } from '../resources/fields.ts';
import { ended, entered, left } from '../resources/scim/group-memberships.ts';
import type { TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { attributesOf, checkId, textOf } from './attributes.ts';
import type { Answered, Conditions, ScimCall } from './call.ts';
import { ScimError } from './errors.ts';
import { type Lookup, lookupsOf, matches, speaksOf } from './filter.ts';
import { chunksOf, type ListQuery, listResponse, type Projection, project, shows } from './page.ts';
import { type GroupPatch, memberIds, operationsOf, patchGroup } from './patch.ts';
import { checkVersion, GROUP_SCHEMA, times } from './resource.ts';

type GroupRow = Row<'scim_groups'>;

interface GroupDocument {
  displayName?: string;
  externalId?: string;
  members?: string[];
}

interface Member {
  readonly id: string;
  readonly name: string;
}

const noGroup = () => new ScimError('noResource', 'There is no such group, or it is none of this organisation.');

async function findGroup(tx: TenantTx, id: string): Promise<GroupRow> {
  const key = id.toLowerCase();
  const row = isUuid(key) ? await tx.find('scim_groups', { id: key }) : undefined;
  if (row === undefined) throw noGroup();
  return row;
}

const versionOf = ({ version }: GroupRow): string => `W/"${version}"`;

/** Members of groups with the addresses of their users. */
async function membersOf(tx: TenantTx, groupIds: readonly string[]): Promise<Map<string, Member[]>> {
  const found = new Map<string, Member[]>();
  if (groupIds.length === 0) return found;
  const places = await tx.list('scim_group_members', { where: { group_id: { in: groupIds } } });
  const names = new Map<string, string>();
  for (const ids of chunksOf([...new Set(places.map(({ user_id }) => user_id))])) {
    for (const { id, email } of await tx.list('users', { where: { id: { in: ids } } })) names.set(id, email);
  }
  for (const { group_id, user_id } of places) {
    const list = found.get(group_id) ?? [];
    list.push({ id: user_id, name: names.get(user_id) ?? '' });
    found.set(group_id, list);
  }
  return found;
}

/** @param members null: they were not asked for */
function present(row: GroupRow, members: readonly Member[] | null, base: string): JsonObject {
  const location = `${base}/Groups/${row.id}`;
  return {
    schemas: [GROUP_SCHEMA],
    id: row.id,
    ...(row.external_id === null ? {} : { externalId: row.external_id }),
    displayName: row.display_name,
    ...(members === null
      ? {}
      : {
          members: members.map(({ id, name }) => ({
            value: id,
            display: name,
            type: 'User',
            $ref: `${base}/Users/${id}`,
          })),
        }),
    meta: {
      resourceType: 'Group',
      ...times(row.created_at, row.last_updated_at),
      location,
      version: versionOf(row),
    },
  };
}

async function presentAll(
  { tx, base }: ScimCall,
  rows: readonly GroupRow[],
  withMembers: boolean,
): Promise<JsonObject[]> {
  const members = withMembers
    ? await membersOf(
        tx,
        rows.map(({ id }) => id),
      )
    : null;
  return rows.map((row) => present(row, members === null ? null : (members.get(row.id) ?? []), base));
}

async function answerOf(call: ScimCall, id: string, status: 200 | 201, projection: Projection): Promise<Answered> {
  const row = await findGroup(call.tx, id);
  const [resource = {}] = await presentAll(call, [row], shows(projection, 'members'));
  const location = `${call.base}/Groups/${id}`;
  return { status, body: project(resource, projection), etag: versionOf(row), ...(status === 201 ? { location } : {}) };
}

export const getGroup = (call: ScimCall, id: string, projection: Projection): Promise<Answered> =>
  answerOf(call, id, 200, projection);

const INDEXED: ReadonlySet<string> = new Set(['id', 'displayname', 'externalid', 'members.value']);
/** Groups that are read at once. */
const STEP = 1_000;
const ORDER = [
  ['created_at', 'asc'],
  ['id', 'asc'],
] as const;

export async function listGroups(call: ScimCall, query: ListQuery): Promise<Answered> {
  const { filter, startIndex, count, projection } = query;
  const { tx } = call;
  const from = startIndex - 1;
  const answer = async (total: number, rows: readonly GroupRow[]): Promise<Answered> => {
    const resources = await presentAll(call, rows, shows(projection, 'members'));
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
    const total = await tx.count('scim_groups', {});
    return answer(
      total,
      count === 0 ? [] : await tx.list('scim_groups', { orderBy: ORDER, limit: count, offset: from }),
    );
  }
  const withMembers = speaksOf(filter, 'members');
  const found: GroupRow[] = [];
  let total = 0;
  const judge = async (rows: readonly GroupRow[]) => {
    const resources = await presentAll(call, rows, withMembers);
    for (const [index, row] of rows.entries()) {
      const resource = resources[index];
      if (resource === undefined || !matches(filter, resource)) continue;
      if (total >= from && found.length < count) found.push(row);
      total += 1;
    }
  };
  const lookups = lookupsOf(filter, INDEXED);
  if (lookups !== null) await judge(await lookUp(tx, lookups));
  else {
    for (let offset = 0; ; offset += STEP) {
      const rows = await tx.list('scim_groups', { orderBy: ORDER, limit: STEP, offset });
      await judge(rows);
      if (rows.length < STEP) break;
      await nextTurn();
    }
  }
  return answer(total, found);
}

async function lookUp(tx: TenantTx, lookups: readonly Lookup[]): Promise<GroupRow[]> {
  const named = (name: string) => lookups.filter((one) => one.name === name).map(({ value }) => value);
  const found = new Map<string, GroupRow>();
  const keep = (rows: readonly GroupRow[]) => {
    for (const row of rows) found.set(row.id, row);
  };
  const users = named('members.value').map((id) => id.toLowerCase());
  const places = users.length === 0 ? [] : await tx.list('scim_group_members', { where: { user_id: { in: users } } });
  const ids = [...named('id').map((id) => id.toLowerCase()), ...places.map(({ group_id }) => group_id)];
  for (const some of chunksOf([...new Set(ids)])) keep(await tx.list('scim_groups', { where: { id: { in: some } } }));
  const names = named('displayname').map((name) => name.toLowerCase());
  if (names.length > 0) keep(await tx.list('scim_groups', { where: { name_key: { in: names } } }));
  const external = named('externalid');
  if (external.length > 0) keep(await tx.list('scim_groups', { where: { external_id: { in: external } } }));
  return [...found.values()].sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
}

/** A group as POST and PUT send it. */
function documentOf(
  { membersByUser }: ScimCall,
  body: JsonObject,
  id: string | null,
): GroupDocument & { displayName: string } {
  const document: GroupDocument = {};
  for (const [path, value] of attributesOf(body)) {
    if (path.foreign || path.sub !== null) continue;
    if (path.name === 'id') checkId(value, id);
    if (value === null) continue;
    if (path.name === 'displayname') document.displayName = nameOf(value);
    else if (path.name === 'externalid') document.externalId = externalOf(value);
    else if (path.name === 'members' && !membersByUser) document.members = memberIds(value);
  }
  return { ...document, displayName: document.displayName ?? nameOf('') };
}

const MAX_NAME = 255;
const CONTROLS = /[\p{Cc}\p{Zl}\p{Zp}]/u;

/** The name of a group. Throws `invalidValue`. */
export function nameOf(value: JsonValue): string {
  const name = textOf('displayName', value).trim();
  if (name !== '' && name.length <= MAX_NAME && !CONTROLS.test(name)) return name;
  throw new ScimError(
    'invalidValue',
    `The attribute displayName must be 1 to ${MAX_NAME} characters without controls.`,
  );
}

function externalOf(value: JsonValue): string {
  const id = textOf('externalId', value);
  if (id.length <= MAX_NAME) return id;
  throw new ScimError('invalidValue', `The attribute externalId must be at most ${MAX_NAME} characters.`);
}

/** A new group, or the one of this name with the members that were sent added to it. */
export async function createGroup(call: ScimCall, body: JsonObject, projection: Projection): Promise<Answered> {
  const { tx, clock } = call;
  const document = documentOf(call, body, null);
  const existing = await tx.find('scim_groups', { name_key: document.displayName.toLowerCase() });
  if (existing !== undefined) {
    const externalId = existing.external_id === null ? document.externalId : undefined;
    await store(call, existing, {
      ...(externalId === undefined ? {} : { externalId }),
      clear: false,
      add: new Set(document.members),
      remove: new Set(),
    });
    return answerOf(call, existing.id, 200, projection);
  }
  const now = clock.now();
  const row: GroupRow = {
    id: uuidv7(clock),
    organisation_id: tx.tenant.organisationId,
    display_name: document.displayName,
    name_key: document.displayName.toLowerCase(),
    external_id: document.externalId ?? null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
  await tx.insert('scim_groups', row);
  const members = new Set(document.members);
  await checkMembers(tx, members);
  await insertMembers(call, row.id, [...members]);
  call.audit(row.id, { before: null, after: { ...told(row), members_added: members.size } });
  return answerOf(call, row.id, 201, projection);
}

export async function replaceGroup(
  call: ScimCall,
  id: string,
  body: JsonObject,
  projection: Projection,
  { ifMatch }: Conditions,
): Promise<Answered> {
  const row = await findGroup(call.tx, id);
  checkVersion(ifMatch, versionOf(row));
  const document = documentOf(call, body, row.id);
  await store(call, row, {
    displayName: document.displayName,
    externalId: document.externalId ?? null,
    clear: !call.membersByUser,
    add: new Set(document.members),
    remove: new Set(),
  });
  return answerOf(call, row.id, 200, projection);
}

/** What is said of the members of a group where users say which groups they are in: nothing. */
const NO_MEMBERS = { clear: false, add: new Set<string>(), remove: new Set<string>() };

/** 204: Entra asks for no body, and a group may be large. */
export async function changeGroup(
  call: ScimCall,
  id: string,
  body: JsonObject,
  { ifMatch }: Conditions,
): Promise<Answered> {
  const row = await findGroup(call.tx, id);
  checkVersion(ifMatch, versionOf(row));
  const said = patchGroup(operationsOf(body), row.id);
  const patch = call.membersByUser ? { ...said, ...NO_MEMBERS } : said;
  if (patch.displayName !== undefined) nameOf(patch.displayName);
  if (patch.externalId != null) externalOf(patch.externalId);
  const next = await store(call, row, patch);
  return { status: 204, body: null, etag: versionOf(next) };
}

/** Memberships that the group gave end with it; its members stay users of the organisation. */
export async function deleteGroup(call: ScimCall, id: string, { ifMatch }: Conditions): Promise<Answered> {
  const { tx } = call;
  const row = await findGroup(tx, id);
  checkVersion(ifMatch, versionOf(row));
  await ended(call, row.id);
  await tx.remove('scim_group_members', { group_id: row.id });
  await tx.remove('scim_groups', { id: row.id });
  call.audit(row.id, { before: told(row), after: null });
  return { status: 204, body: null };
}

const told = ({ display_name, external_id, version }: GroupRow) => ({ display_name, external_id, version });

/** Brings a group to the state that a patch asks for, in statements whose number does not grow with its members. */
async function store(call: ScimCall, row: GroupRow, patch: GroupPatch): Promise<GroupRow> {
  const { tx, clock } = call;
  const display_name = patch.displayName?.trim() ?? row.display_name;
  const name_key = display_name.toLowerCase();
  if (name_key !== row.name_key && (await tx.find('scim_groups', { name_key })) !== undefined) {
    throw new ScimError('uniqueness', 'Another group of the organisation has this displayName.');
  }
  await checkMembers(tx, patch.add);
  const { gone, fresh } = await difference(tx, row.id, patch);
  const external_id = patch.externalId === undefined ? row.external_id : patch.externalId;
  const same = display_name === row.display_name && external_id === row.external_id;
  if (same && gone.length === 0 && fresh.length === 0) {
    call.audit(row.id, { before: told(row), after: told(row) });
    return row;
  }
  const changes = { display_name, name_key, external_id, version: row.version + 1, last_updated_at: clock.now() };
  // The row first: of two writers one meets the other here, where the transaction runs again.
  await tx.update('scim_groups', { id: row.id }, changes);
  for (const some of chunksOf(gone)) await tx.remove('scim_group_members', { group_id: row.id, user_id: { in: some } });
  if (gone.length > 0) await left(call, row.id, gone);
  await insertMembers(call, row.id, fresh);
  const next = { ...row, ...changes };
  call.audit(row.id, {
    before: told(row),
    after: { ...told(next), members_added: fresh.length, members_removed: gone.length },
  });
  return next;
}

/** Who leaves and who comes in. */
async function difference(
  tx: TenantTx,
  groupId: string,
  { clear, add, remove }: Pick<GroupPatch, 'clear' | 'add' | 'remove'>,
): Promise<{ gone: string[]; fresh: string[] }> {
  const there = new Set<string>();
  const read = async (where: { user_id?: { in: string[] } }) => {
    const rows = await tx.list('scim_group_members', { where: { group_id: groupId, ...where } });
    for (const { user_id } of rows) there.add(user_id);
  };
  if (clear) await read({});
  else for (const some of chunksOf([...add, ...remove])) await read({ user_id: { in: some } });
  const gone = [...there].filter((id) => (clear ? !add.has(id) : remove.has(id)));
  return { gone, fresh: [...add].filter((id) => !there.has(id)) };
}

async function insertMembers(call: ScimCall, groupId: string, userIds: readonly string[]): Promise<void> {
  if (userIds.length === 0) return;
  const own = { organisation_id: call.tx.tenant.organisationId, group_id: groupId, created_at: call.clock.now() };
  await call.tx.insertAll(
    'scim_group_members',
    userIds.map((user_id) => ({ ...own, user_id })),
  );
  await entered(call, groupId, userIds);
}

/** One text for ids of other organisations, of groups and of nothing. */
async function checkMembers(tx: TenantTx, ids: ReadonlySet<string>): Promise<void> {
  let seen = 0;
  for (const some of chunksOf([...ids])) {
    const users = await tx.list('users', { where: { id: { in: some } } });
    const away = users.filter(({ status }) => status !== 'active').map(({ id }) => id);
    seen += users.length - away.length;
    if (away.length > 0) seen += await tx.count('scim_users', { where: { user_id: { in: away } } });
  }
  if (seen === ids.size) return;
  throw new ScimError(
    'invalidValue',
    'Each member must be the id of a user of this organisation. Groups cannot be members.',
  );
}
