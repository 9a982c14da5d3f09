/** Groups as users say them, where the installation wants it so (SCIM_MEMBERSHIP_USER_MODE). */
import { uuidv7 } from '../kernel/id.ts';
import { isUuid } from '../resources/fields.ts';
import { left, placed } from '../resources/scim/group-memberships.ts';
import type { ScimValue } from '../store/schema.ts';
import type { ScimCall } from './call.ts';
import { ScimError } from './errors.ts';
import { nameOf } from './groups.ts';
import { chunksOf } from './page.ts';

/**
 * Puts a user into the groups that are named, by id or by name, and takes it out of all others. A name that no group has
 * makes one, as a mapping does: directories may send users before groups. Throws `invalidValue` for an id of no group, but
 * not for a user who is not active: a stale group must not keep a leaver in.
 *
 * @param user with the state that the directory asks for
 * @param elements undefined: nothing was said, and nothing changes
 */
export async function settleGroups(
  call: ScimCall,
  { id: user_id, active }: { readonly id: string; readonly active: boolean },
  elements: readonly ScimValue[] | undefined,
): Promise<void> {
  if (elements === undefined) return;
  const { tx, clock } = call;
  const wanted = await groupIds(call, elements, active);
  const places = await tx.list('scim_group_members', { where: { user_id } });
  const there = new Set(places.map(({ group_id }) => group_id));
  const gone = [...there].filter((id) => !wanted.has(id));
  const fresh = [...wanted].filter((id) => !there.has(id));
  // The groups first: of two writers one meets the other here, where the transaction runs again.
  await touchGroups(call, [...gone, ...fresh]);
  for (const some of chunksOf(gone)) {
    await tx.remove('scim_group_members', { user_id, group_id: { in: some } });
  }
  for (const groupId of gone) await left({ tx, clock }, groupId, [user_id]);
  const own = { organisation_id: tx.tenant.organisationId, user_id, created_at: clock.now() };
  await tx.insertAll(
    'scim_group_members',
    fresh.map((group_id) => ({ ...own, group_id })),
  );
  for (const groupId of fresh) await placed({ tx, clock }, groupId, [user_id]);
}

/** Gives groups a new version, because their members have changed. */
export async function touchGroups({ tx, clock }: ScimCall, ids: readonly string[]): Promise<void> {
  for (const some of chunksOf(ids)) {
    for (const { id, version } of await tx.list('scim_groups', { where: { id: { in: some } } })) {
      await tx.update('scim_groups', { id }, { version: version + 1, last_updated_at: clock.now() });
    }
  }
}

async function groupIds(call: ScimCall, elements: readonly ScimValue[], strict: boolean): Promise<Set<string>> {
  const { tx } = call;
  const named = elements.map(({ value, display }) => value ?? display ?? '').filter((one) => one !== '');
  const ids = [...new Set(named.filter((one) => isUuid(one.toLowerCase())).map((one) => one.toLowerCase()))];
  const found = new Set<string>();
  for (const some of chunksOf(ids)) {
    for (const { id } of await tx.list('scim_groups', { where: { id: { in: some } } })) found.add(id);
  }
  if (strict && found.size < ids.length) {
    throw new ScimError('invalidValue', 'Each of groups must be the id or the name of a group of this organisation.');
  }
  const names = named.filter((one) => !isUuid(one.toLowerCase())).map((one) => nameOf(one));
  for (const [key, name] of new Map(names.map((one) => [one.toLowerCase(), one]))) {
    const known = await tx.find('scim_groups', { name_key: key });
    if (known !== undefined) found.add(known.id);
    else if (strict) found.add(await makeGroup(call, name));
  }
  return found;
}

async function makeGroup({ tx, clock }: ScimCall, name: string): Promise<string> {
  const now = clock.now();
  const id = uuidv7(clock);
  await tx.insert('scim_groups', {
    id,
    organisation_id: tx.tenant.organisationId,
    display_name: name,
    name_key: name.toLowerCase(),
    external_id: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  });
  return id;
}
