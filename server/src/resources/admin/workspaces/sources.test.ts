import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../../../test/support/admin.ts';
import { type Directory, directory } from '../../../../test/support/groups.ts';
import { addUser } from '../../../../test/support/people.ts';
import { systemClock as clock } from '../../../kernel/clock.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import { workspaceRow } from '../../../store/conformance/rows.ts';
import type { MembershipSource } from '../../../store/schema.ts';
import { sourceOf } from '../../scim/groups.ts';
import { isAbove, type WorkspaceRole } from '../rank.ts';
import { cutOff } from '../users/cut-off.ts';
import { endByHand, keepByHand, removeSources, setByHand, setSource, setSources } from './sources.ts';

const ROLES = ['member', 'manager', 'admin'] as const;
const SOURCES = ['invite', 'sso:client'] as const;

type Step =
  | {
      readonly do: 'set by hand' | 'end by hand' | 'map' | 'unmap';
      user: number;
      place: number;
      role: number;
      group: number;
    }
  | { readonly do: 'give' | 'take'; user: number; place: number; role: number; group: number }
  | { readonly do: 'enter' | 'leave' | 'dissolve'; user: number; place: number; role: number; group: number }
  | { readonly do: 'deactivate' | 'activate' | 'remove'; user: number; place: number; role: number; group: number };

const KINDS: readonly Step['do'][] = [
  ...(['set by hand', 'end by hand', 'map', 'map', 'unmap', 'give', 'take'] as const),
  ...(['enter', 'enter', 'leave', 'dissolve', 'deactivate', 'activate', 'activate', 'remove'] as const),
];

const step: fc.Arbitrary<Step> = fc.record({
  do: fc.constantFrom(...KINDS),
  user: fc.nat(1),
  place: fc.nat(1),
  role: fc.nat(2),
  group: fc.nat(1),
}) as fc.Arbitrary<Step>;

let admin: AdminHarness;
let scim: Directory;

beforeAll(async () => {
  admin = await startAdmin(await emptyTables('sqlite'));
  scim = directory(admin.tables, admin.a.organisation_id);
});

afterAll(async () => {
  await admin?.close();
});

/** What must hold, written without regard to how it is stored. */
class Model {
  readonly sources = new Map<string, Map<string, WorkspaceRole>>();
  readonly groups = [new Set<string>(), new Set<string>()];
  readonly mappings: Map<string, WorkspaceRole>[] = [new Map(), new Map()];
  readonly active = new Set<string>();

  of(place: string, user: string): Map<string, WorkspaceRole> {
    const key = `${place} ${user}`;
    const found = this.sources.get(key) ?? new Map<string, WorkspaceRole>();
    this.sources.set(key, found);
    return found;
  }

  expected(): string[] {
    return [...this.sources]
      .filter(([key, given]) => given.size > 0 && this.active.has(key.split(' ')[1] ?? ''))
      .map(([key, given]) => `${key} ${[...given.values()].reduce((a, b) => (isAbove(b, a) ? b : a))}`)
      .sort();
  }
}

async function play(steps: readonly Step[]): Promise<void> {
  const { tables, a } = admin;
  const organisation_id = a.organisation_id;
  const users = [await addUser(tables, organisation_id), await addUser(tables, organisation_id)].map(({ id }) => id);
  const places = [uuidv7(clock), uuidv7(clock)];
  for (const id of places) await tables.systemWrite((tx) => tx.insert('workspaces', workspaceRow(organisation_id, id)));
  const groups = [await scim.group(uuidv7(clock)), await scim.group(uuidv7(clock))];
  const model = new Model();
  for (const user of users) model.active.add(user);
  for (const one of steps) {
    const [user, place, group] = [users[one.user], places[one.place], groups[one.group]];
    const [members, mappings] = [model.groups[one.group], model.mappings[one.group]];
    if (user === undefined || place === undefined || group === undefined || !members || !mappings) continue;
    const role = ROLES[one.role] ?? 'member';
    const given = model.of(place, user);
    const own: MembershipSource = sourceOf(group);
    const byGroups = groups.flatMap((id) => given.get(sourceOf(id)) ?? []);
    const here = { clock, workspaceId: place, userId: user };
    switch (one.do) {
      case 'set by hand': {
        const refused = byGroups.some((other) => isAbove(other, role));
        const done = scim.write((tx) => setByHand({ tx, ...here }, role, null));
        if (refused) await expect(done).rejects.toMatchObject({ kind: 'conflict' });
        else {
          await done;
          for (const source of SOURCES) given.delete(source);
          given.set('manual', role);
        }
        break;
      }
      case 'end by hand': {
        const done = scim.write((tx) => endByHand({ tx, ...here }, null));
        if (byGroups.length > 0) await expect(done).rejects.toMatchObject({ kind: 'conflict' });
        else {
          await done;
          given.clear();
        }
        break;
      }
      case 'give':
      case 'take': {
        const source = SOURCES[one.group] ?? 'invite';
        if (one.do === 'give') {
          await scim.write((tx) => setSource({ tx, ...here, source, role }));
          given.set(source, role);
        } else {
          await scim.write((tx) => removeSources({ tx, clock, workspaceId: place, source, userIds: [user] }));
          given.delete(source);
        }
        break;
      }
      case 'map':
        if (mappings.has(place)) break;
        await scim.write(async (tx) => {
          const row = { organisation_id, workspace_id: place, group_id: group, role, created_at: clock.now() };
          await tx.insert('scim_mappings', { id: uuidv7(clock), ...row });
          await setSources({ tx, clock, workspaceId: place, source: own, role, userIds: [...members] });
        });
        mappings.set(place, role);
        for (const id of members) model.of(place, id).set(own, role);
        break;
      case 'unmap':
        if (!mappings.delete(place)) break;
        await scim.write(async (tx) => {
          await tx.remove('scim_mappings', { workspace_id: place, group_id: group });
          await keepByHand({ tx, clock, workspaceId: place, source: own });
        });
        for (const id of users) {
          const rows = model.of(place, id);
          const left = rows.get(own);
          const hand = rows.get('manual');
          rows.delete(own);
          if (left !== undefined && (hand === undefined || isAbove(left, hand))) rows.set('manual', left);
        }
        break;
      case 'enter':
        if (members.has(user)) break;
        await scim.enter(group, [user]);
        members.add(user);
        for (const [id, gives] of mappings) model.of(id, user).set(own, gives);
        break;
      case 'leave':
        await scim.leave(group, [user]);
        members.delete(user);
        for (const id of mappings.keys()) model.of(id, user).delete(own);
        break;
      case 'dissolve':
        // The group itself stays for later steps.
        await scim.leave(group, [...members]);
        for (const id of mappings.keys()) for (const one of users) model.of(id, one).delete(own);
        members.clear();
        break;
      case 'deactivate':
        if (!model.active.delete(user)) break;
        await scim.deactivate(user);
        break;
      case 'activate':
        if (model.active.has(user)) break;
        await scim.activate(user);
        model.active.add(user);
        for (const [n, all] of model.groups.entries()) {
          if (!all.has(user)) continue;
          for (const [id, gives] of model.mappings[n] ?? []) model.of(id, user).set(sourceOf(groups[n] ?? ''), gives);
        }
        break;
      case 'remove':
        await scim.write(async (tx) => {
          await tx.update('users', { id: user }, { status: 'archived' });
          await cutOff({ tx, clock }, user);
        });
        model.active.delete(user);
        for (const id of places) model.of(id, user).clear();
    }
    const rows = await tables.systemRead((tx) =>
      tx.list('workspace_members', { where: { workspace_id: { in: places }, status: 'active' } }),
    );
    const found = rows.map((row) => `${row.workspace_id} ${row.user_id} ${row.role}`).sort();
    expect(found, JSON.stringify(one)).toEqual(model.expected());
  }
}

describe('memberships', () => {
  it('are what hands, invites, claims and groups give at every moment: the highest role, and none with the last source', async () => {
    await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 30 }), play), { numRuns: 25 });
  });
});
