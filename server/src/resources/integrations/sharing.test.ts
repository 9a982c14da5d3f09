/** Whether an account is shared, where more workspaces have an entry of their own than are looked at. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { temporaryTables } from '../../../test/support/tables.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { integrationRow, organisationRow, tenantRows, workspaceRow } from '../../store/conformance/rows.ts';
import type { Tables } from '../../store/ports.ts';
import { sharedIntegrations, tellSharing } from './sharing.ts';

const ORGANISATION = 'org-1';
const OWN = 'ws-own';
const tenant = systemTenant(ORGANISATION);
const nameOf = (i: number) => `ws-${String(i).padStart(4, '0')}`;

let tables: Tables;
beforeAll(async () => {
  tables = await temporaryTables();
  await tables.systemWrite(async (tx) => {
    await tx.insert('organisations', organisationRow(ORGANISATION));
    await tx.insert('workspaces', workspaceRow(ORGANISATION, OWN));
    // 110 that were archived come first in the order of their ids; 110 are active.
    for (let i = 0; i < 220; i++) {
      await tx.insert('workspaces', workspaceRow(ORGANISATION, nameOf(i), { status: i < 110 ? 'archived' : 'active' }));
    }
  });
});
afterAll(() => tables.close());

/** An integration that is open to all or to none, but for what the workspaces from `first` to before `end` have. */
async function withExceptions(id: string, open: boolean, first: number, end: number) {
  const integration = integrationRow(ORGANISATION, id, {
    global_workspace_access: { enabled: open, usage_limits: null, rate_limits: null },
  });
  await tables.systemWrite(async (tx) => {
    await tx.insert('integrations', integration);
    const { integration_workspaces: entry } = tenantRows(ORGANISATION, OWN);
    for (let i = first; i < end; i++) {
      const row = { ...entry, integration_id: id, workspace_id: nameOf(i), enabled: !open };
      await tx.insert('integration_workspaces', row);
    }
  });
  return {
    shared: async () =>
      (await tables.read(tenant, (tx) => sharedIntegrations(tx, OWN, [integration]))).has(integration.id),
    told: async () => {
      const before = await tables.lastChange();
      await tables.write(tenant, (tx) => tellSharing(tx, OWN));
      return (await tables.changesAfter(before, 1000)).some(({ entityId }) => entityId === id);
    },
  };
}

it('an account that an active workspace may use counts as shared, also behind a hundred archived ones with an entry', async () => {
  const { shared } = await withExceptions('closed', false, 0, 111);
  expect(await shared()).toBe(true);
});

it('an account that is closed to all others but archived ones is not shared', async () => {
  const { shared } = await withExceptions('alone', false, 0, 99);
  expect(await shared()).toBe(false);
});

it('an open account stays shared when a hundred workspaces are excepted, whatever the others are', async () => {
  const { shared } = await withExceptions('open', true, 110, 210);
  expect(await shared()).toBe(true);
  const { shared: all } = await withExceptions('open-to-none', true, 110, 220);
  expect(await all()).toBe(true);
});

it('an open account of which every other workspace is excepted, fewer than a hundred, is not shared', async () => {
  await tables.systemWrite((tx) =>
    tx.update('workspaces', { id: { gt: nameOf(150), lt: nameOf(220) } }, { status: 'archived' }),
  );
  const { shared } = await withExceptions('few', true, 110, 151);
  expect(await shared()).toBe(false);
});

it('nodes are not told of a workspace that comes or goes where a hundred others keep their entry', async () => {
  const one = await withExceptions('told', true, 110, 151);
  const many = await withExceptions('not-told', true, 0, 100);
  expect([await one.told(), await many.told()]).toEqual([true, false]);
});
