/** Groups of a directory and their members, as the protocol would store them. */
import { systemTenant } from '../../src/auth/tenant.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { cutOff } from '../../src/resources/admin/users/cut-off.ts';
import { ended, entered, left, returned } from '../../src/resources/scim/group-memberships.ts';
import type { Tables, TenantTx } from '../../src/store/ports.ts';

/** What a directory does to an organisation. */
export function directory(tables: Tables, organisationId: string, clock: Clock = systemClock) {
  const tenant = systemTenant(organisationId);
  const write = <T>(run: (tx: TenantTx) => Promise<T>) => tables.write(tenant, run, { queue: organisationId });
  return {
    write,
    async group(name: string): Promise<string> {
      const id = uuidv7(clock);
      const at = { created_at: clock.now(), last_updated_at: clock.now() };
      const own = { id, organisation_id: organisationId, external_id: null, version: 1, ...at };
      await write((tx) => tx.insert('scim_groups', { ...own, display_name: name, name_key: name.toLowerCase() }));
      return id;
    },
    enter: (groupId: string, userIds: readonly string[]) =>
      write(async (tx) => {
        const own = { organisation_id: organisationId, group_id: groupId, created_at: clock.now() };
        await tx.insertAll(
          'scim_group_members',
          userIds.map((user_id) => ({ ...own, user_id })),
        );
        await entered({ tx, clock }, groupId, userIds);
      }),
    leave: (groupId: string, userIds: readonly string[]) =>
      write(async (tx) => {
        await tx.remove('scim_group_members', { group_id: groupId, user_id: { in: [...userIds] } });
        await left({ tx, clock }, groupId, userIds);
      }),
    dissolve: (groupId: string) =>
      write(async (tx) => {
        await ended({ tx, clock }, groupId);
        await tx.remove('scim_group_members', { group_id: groupId });
        await tx.remove('scim_groups', { id: groupId });
      }),
    deactivate: (userId: string) =>
      write(async (tx) => {
        await tx.update('users', { id: userId }, { status: 'archived' });
        await cutOff({ tx, clock }, userId, { keepsSources: true });
      }),
    activate: (userId: string) =>
      write(async (tx) => {
        await tx.update('users', { id: userId }, { status: 'active' });
        tx.changed({ workspaceId: null, topic: 'users', entityId: userId });
        await returned({ tx, clock }, userId);
      }),
  };
}

export type Directory = ReturnType<typeof directory>;
