/**
 * A query without a tenant does not compile. Each `@ts-expect-error` is checked by `npm run check`: where the line below it
 * compiled after all, the check would fail.
 */
import { expect, it } from 'vitest';
import type { Call, OperatorCall } from '../src/resources/resource.ts';
import { configRow } from '../src/store/conformance/rows.ts';
import type { Tables, TenantContext, TenantTx } from '../src/store/ports.ts';

/** Never run. */
function outsideOfTransactions(tables: Tables): void {
  const count = (tx: TenantTx) => tx.count('configs');
  // @ts-expect-error a transaction has a tenant
  void tables.read(count);
  // @ts-expect-error and not none
  void tables.write(null, count);
  // @ts-expect-error ids are no tenant: only auth/tenant.ts makes one, after authentication
  void tables.read({ organisationId: 'a', workspaceId: null }, count);
  // @ts-expect-error what is for one tenant is not called over all
  void tables.systemRead(count);
  // @ts-expect-error there are no rows outside a transaction
  void tables.find('configs', { id: 'x' });
}

/** Never run. */
function inActions(call: Call, operator: OperatorCall): void {
  // @ts-expect-error an action has the transaction of its caller, and no way to open another
  void call.tables;
  // @ts-expect-error nor one over all organisations
  void call.systemRead;
  // @ts-expect-error the operator's actions are nobody's tenant
  void operator.tenant;
  // @ts-expect-error and what works for a tenant cannot be called with their transaction
  const tx: TenantTx = operator.tx;
  const own: TenantContext = call.tx.tenant;
  void [tx, own];
}

/** Never run. */
function inTransactions(tx: TenantTx): void {
  for (const where of [{}]) {
    // @ts-expect-error installation-wide
    void tx.find('organisations', where);
    // @ts-expect-error installation-wide
    void tx.list('operator_keys', { where });
    // @ts-expect-error installation-wide
    void tx.count('changes', { where });
    // @ts-expect-error installation-wide
    void tx.update('leases', where, {});
    // @ts-expect-error installation-wide
    void tx.remove('meta', where);
  }
  const { organisation_id: _, ...nobodys } = configRow('a', 'w', 'c');
  // @ts-expect-error a row is somebody's
  void tx.insert('configs', nobodys);
  // @ts-expect-error whether an organisation is suspended is not its own business
  void tx.updateOrganisation({ status: 'active' });
  // @ts-expect-error a change is announced for the own organisation
  tx.changed({ organisationId: 'other', workspaceId: null, topic: 'configs', entityId: 'x' });
}

it('what must not compile stands in functions that nobody calls, for the compiler alone', () => {
  expect([outsideOfTransactions, inActions, inTransactions].map((one) => one.length)).toEqual([1, 2, 1]);
});
