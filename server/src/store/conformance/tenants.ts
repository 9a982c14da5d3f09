import { beforeAll, describe, expect, it } from 'vitest';
import { type Tables, unsafeTenant } from '../ports.ts';
import { SCHEMA, type TableName } from '../schema.ts';
import { apiKeyRow, configRow, integrationRow, organisationRow, providerRow, userRow, workspaceRow } from './rows.ts';

const A = unsafeTenant('org-a', null);
const B = unsafeTenant('org-b', null);
const A1 = unsafeTenant('org-a', 'ws-a1');

const kind = (of: string) => expect.objectContaining({ name: 'SluiceError', kind: of });

/** Organisations, their workspaces and users, as the suites of this folder expect them. */
export async function seedTenants(tables: Tables): Promise<void> {
  await tables.systemWrite(async (tx) => {
    for (const org of ['org-a', 'org-b']) {
      await tx.insert('organisations', organisationRow(org));
      const letter = org.slice(-1);
      for (const n of [1, 2]) await tx.insert('workspaces', workspaceRow(org, `ws-${letter}${n}`));
      await tx.insert('users', userRow(org, `user-${letter}`));
    }
  });
}

/** Tenant isolation of `Tables`: a part of its suite. Expects what `seedTenants` makes. */
export function tenantsConformance(open: () => Tables): void {
  describe('tenants', () => {
    let tables: Tables;
    beforeAll(() => {
      tables = open();
    });
    beforeAll(async () => {
      await tables.write(B, async (tx) => {
        await tx.insert('configs', configRow('org-b', 'ws-b1', 'b-secret', { slug: 'shared-slug' }));
        await tx.insert('integrations', integrationRow('org-b', 'b-int'));
      });
      await tables.write(A, async (tx) => {
        await tx.insert('configs', configRow('org-a', 'ws-a1', 'a1-config', { slug: 'shared-slug' }));
        await tx.insert('configs', configRow('org-a', 'ws-a2', 'a2-config'));
        await tx.insert('integrations', integrationRow('org-a', 'a-shared'));
        await tx.insert('integrations', integrationRow('org-a', 'a1-int', { workspace_id: 'ws-a1' }));
        await tx.insert('integrations', integrationRow('org-a', 'a2-int', { workspace_id: 'ws-a2' }));
        await tx.insert('api_keys', apiKeyRow('org-a', 'a-org-key'));
        const scoped = { workspace_id: 'ws-a1', type: 'workspace-service' as const };
        await tx.insert('api_keys', apiKeyRow('org-a', 'a1-key', scoped));
      });
    });

    it('no condition reaches another organisation', async () => {
      await tables.write(A, async (tx) => {
        expect(await tx.find('configs', { id: 'b-secret' })).toBeUndefined();
        expect(await tx.find('configs', { id: 'b-secret', organisation_id: 'org-b' })).toBeUndefined();
        const anyOf = [{ organisation_id: 'org-b' }, { id: 'b-secret' }];
        expect(await tx.list('configs', { anyOf })).toEqual([]);
        expect(await tx.count('configs', { where: { organisation_id: { in: ['org-b'] } } })).toBe(0);
        expect(await tx.count('configs', { where: { organisation_id: { not: 'org-a' } } })).toBe(0);
        expect(await tx.update('configs', { organisation_id: 'org-b' }, { name: 'taken' })).toBe(0);
        expect(await tx.remove('configs', { id: 'b-secret' })).toBe(0);
      });
      expect((await tables.read(B, (tx) => tx.find('configs', { id: 'b-secret' })))?.name).toBe('b-secret');
    });

    it('a row of another organisation is neither inserted nor made by an update', async () => {
      const foreign = tables.write(A, (tx) => tx.insert('configs', configRow('org-b', 'ws-b1', 'intruder')));
      await expect(foreign).rejects.toEqual(kind('internal'));
      const moved = tables.write(A, (tx) => tx.update('configs', { id: 'a1-config' }, { organisation_id: 'org-b' }));
      await expect(moved).rejects.toEqual(kind('internal'));
      expect(await tables.read(B, (tx) => tx.find('configs', { id: 'intruder' }))).toBeUndefined();
    });

    it('a slug is looked up inside the organisation', async () => {
      const find = (tenant: typeof A) => tables.read(tenant, (tx) => tx.find('configs', { slug: 'shared-slug' }));
      expect((await find(A))?.id).toBe('a1-config');
      expect((await find(B))?.id).toBe('b-secret');
    });

    it('a reference to another organisation cannot be stored, not even by system code', async () => {
      const inserts = [
        () => tables.write(A, (tx) => tx.insert('configs', configRow('org-a', 'ws-b1', 'cross'))),
        () => tables.systemWrite((tx) => tx.insert('configs', configRow('org-a', 'ws-b1', 'cross'))),
        () => tables.write(A, (tx) => tx.insert('providers', providerRow('org-a', 'ws-a1', 'b-int', 'cross'))),
        () =>
          tables.write(A, (tx) => tx.insert('integrations', integrationRow('org-a', 'x', { workspace_id: 'ws-b1' }))),
        () => tables.write(A, (tx) => tx.insert('api_keys', apiKeyRow('org-a', 'x', { user_id: 'user-b' }))),
        () => tables.write(A, (tx) => tx.update('configs', { id: 'a1-config' }, { workspace_id: 'ws-b1' })),
      ];
      for (const insert of inserts) await expect(insert()).rejects.toEqual(kind('unknown_reference'));
    });

    it('a context bound to a workspace sees and changes that workspace only', async () => {
      await tables.write(A1, async (tx) => {
        const own = (await tx.list('configs', { where: { id: { contains: '-config' } } })).map((row) => row.id);
        expect(own).toEqual(['a1-config']);
        expect(await tx.find('configs', { id: 'a2-config', workspace_id: 'ws-a2' })).toBeUndefined();
        expect(await tx.update('configs', { id: 'a2-config' }, { name: 'taken' })).toBe(0);
        expect(await tx.remove('configs', { id: 'a2-config' })).toBe(0);
        expect((await tx.list('api_keys')).map((row) => row.id)).toEqual(['a1-key']);
      });
      const elsewhere = tables.write(A1, (tx) => tx.insert('configs', configRow('org-a', 'ws-a2', 'elsewhere')));
      await expect(elsewhere).rejects.toEqual(kind('internal'));
      const wide = tables.write(A1, (tx) => tx.insert('api_keys', apiKeyRow('org-a', 'wide')));
      await expect(wide).rejects.toEqual(kind('internal'));
      const moved = tables.write(A1, (tx) => tx.update('configs', { id: 'a1-config' }, { workspace_id: 'ws-a2' }));
      await expect(moved).rejects.toEqual(kind('internal'));
    });

    it('a workspace reads the integrations of the whole organisation and cannot change them', async () => {
      await tables.write(A1, async (tx) => {
        const visible = (await tx.list('integrations', { where: { id: { contains: 'a' } } })).map((row) => row.id);
        expect(visible.filter((id) => id !== 'int-big')).toEqual(['a-shared', 'a1-int']);
        expect(await tx.update('integrations', { id: 'a-shared' }, { name: 'x' })).toBe(0);
        expect(await tx.remove('integrations', { id: 'a-shared' })).toBe(0);
        expect(await tx.update('integrations', { id: 'a1-int' }, { name: 'x' })).toBe(1);
      });
    });

    it('a tenant reaches its own organisation row and no installation-wide table', async () => {
      expect((await tables.read(A1, (tx) => tx.organisation())).id).toBe('org-a');
      for (const table of Object.keys(SCHEMA) as TableName[]) {
        const read = tables.read(A, (tx) => tx.count(table as 'configs'));
        if (SCHEMA[table].tenant === 'organisation') await expect(read).resolves.toBeTypeOf('number');
        else await expect(read, table).rejects.toEqual(kind('internal'));
      }
    });

    it('a transaction is of no use after its end, and a read never writes', async () => {
      const kept = await tables.read(A, async (tx) => ({ tx }));
      await expect(kept.tx.count('configs')).rejects.toEqual(kind('internal'));
      const writing = tables.read(A, (tx) => tx.insert('configs', configRow('org-a', 'ws-a1', 'sneaky')));
      await expect(writing).rejects.toEqual(kind('internal'));
    });
  });
}
