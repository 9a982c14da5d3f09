/** Alerts of usage limits: each is in the audit log once for each window, and goes to whom it concerns. */
import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { MAX_ALERTS_PER_HOUR, raiseAlerts } from '../../src/jobs/alerts/raise.ts';
import { turnUsageWindows } from '../../src/jobs/turn-usage-windows.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { BucketTransaction } from '../../src/limits/ledger/bucket-transaction.ts';
import type { LimitSpec } from '../../src/limits/ledger/limit-spec.ts';
import { resourceType } from '../../src/resources/audit-logs/chain.ts';
import { organisationRow, tenantRows, workspaceRow } from '../../src/store/conformance/rows.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { LimitOwner } from '../../src/store/schema.ts';
import { booksStore, limitSpecWith, ORGANISATION, WORKSPACE } from '../support/ledger-node.ts';

const macs = await loadKeyring({ masterKey: randomBytes(32).toString('base64'), masterKeyFile: '', create: true });

let open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.reverse()) await one.close();
  open = [];
});
const own = <T extends { close(): Promise<void> }>(one: T): T => {
  open.push(one);
  return one;
};

const START = Date.UTC(2027, 2, 10, 12);
const PLACE = { organisationId: ORGANISATION, workspaceId: WORKSPACE };

interface World {
  readonly tables: Tables;
  readonly clock: TestClock;
  raise(): Promise<void>;
  /** Uses so much under the terms, as a settled request does. */
  use(spec: LimitSpec, amount: number, more?: { unpriced?: number }): Promise<void>;
  audits(): Promise<{ alert: string; window: number; current_usage: number; resource: string; id: string | null }[]>;
  deliveries(): Promise<{ kind: string; to: string; window: number | null }[]>;
}

async function world(engine: 'sqlite' | 'postgres'): Promise<World> {
  const clock = new TestClock(START);
  const tables = own(await booksStore(engine, clock));
  const options = { tables, clock, log: silentLog, macs, publicUrl: () => 'https://sluice.example' };
  return {
    tables,
    clock,
    raise: () => raiseAlerts(options),
    use: (spec, amount, more = {}) =>
      tables.systemWrite(async (tx) => {
        const book = await BucketTransaction.open(tx, PLACE, spec, clock, clock.now());
        const { window_no: window } = book.row;
        const done = {
          window,
          lease: 'none',
          reserved: 0,
          used: amount,
          carry: 0,
          requests: 1,
          unpriced: 0,
          giveBack: false,
        };
        await book.settle(tx, { ...done, ...more });
        await book.close(tx, clock.now());
      }),
    audits: () =>
      tables.read(systemTenant(ORGANISATION), async (tx) =>
        (await tx.list('audit_log', { orderBy: [['seq', 'asc']] })).map(({ after, resource_type, resource_id }) => {
          const { alert, window, current_usage } = JSON.parse(after ?? '{}');
          return { alert, window, current_usage, resource: resource_type, id: resource_id };
        }),
      ),
    deliveries: () =>
      tables.systemRead(async (tx) =>
        (await tx.list('alert_deliveries', { orderBy: [['created_at', 'asc']] }))
          .map(({ kind, recipient, window_no }) => ({ kind, to: recipient, window: window_no }))
          .sort((a, b) => a.to.localeCompare(b.to)),
      ),
  };
}

function settings(tables: Tables, organisation: object, workspace: object = {}): Promise<void> {
  return tables.systemWrite(async (tx) => {
    await tx.update(
      'organisations',
      { id: ORGANISATION },
      { settings: { block_inline_config: false, alerts: organisation } },
    );
    await tx.update('workspaces', { id: WORKSPACE }, { settings: { alerts: workspace } });
  });
}

const ONE = { window: 1, lease: '', reserved: 0, used: 10, carry: 0, requests: 1, unpriced: 0, giveBack: false };

/** Uses up the limits of so many values of one policy at once. */
function useAll(tables: Tables, clock: TestClock, name: string, count: number): Promise<void> {
  return tables.systemWrite(async (tx) => {
    for (let i = 0; i < count; i++) {
      const book = await BucketTransaction.open(
        tx,
        PLACE,
        limitSpecWith({ bucketKey: `${name} ${i}`, limit: 10 }),
        clock,
        clock.now(),
      );
      await book.settle(tx, ONE);
      await book.close(tx, clock.now());
    }
  });
}

describe.each(['sqlite', 'postgres'] as const)('alerts on %s', (engine) => {
  it('crossing the threshold, being used up and an unknown price are told once for each window', async () => {
    const { tables, clock, use, raise, audits, deliveries } = await world(engine);
    await settings(tables, { emails: ['ops@org.example'] });
    const spec = limitSpecWith({ limit: 10, alert: 8, period: 'days:1' });
    await use(spec, 7);
    await raise();
    expect(await audits()).toEqual([]);
    await use(spec, 1);
    await raise();
    await raise();
    await use(spec, 1, { unpriced: 1 });
    await use(spec, 1, { unpriced: 1 });
    await use(spec, 5);
    await raise();
    await raise();
    const told = (await audits()).map(({ alert, window }) => `${alert} ${window}`);
    expect(told.sort()).toEqual(['exhausted 1', 'threshold 1', 'unpriced 1']);
    expect(await deliveries()).toHaveLength(3);

    clock.jump(86_400_000);
    await use(spec, 20, { unpriced: 1 });
    await raise();
    await raise();
    expect(
      (await audits())
        .slice(3)
        .map(({ alert, window }) => `${alert} ${window}`)
        .sort(),
    ).toEqual(['exhausted 2', 'threshold 2', 'unpriced 2']);
    expect((await deliveries()).filter(({ window }) => window === 2)).toHaveLength(3);
  });

  it('a raised limit and a reset let alerts be raised again', async () => {
    const { tables, clock, use, raise, audits, deliveries } = await world(engine);
    await settings(tables, { emails: ['ops@org.example'] });
    await use(limitSpecWith({ limit: 10, alert: 8 }), 10);
    await raise();
    const raised = limitSpecWith({ limit: 20, alert: 18, at: 2 });
    await use(raised, 5);
    await raise();
    expect(await audits()).toHaveLength(2);
    await use(raised, 5);
    await raise();
    const again = (await audits()).map(({ alert, window, current_usage: used }) => `${alert} ${window} ${used}`);
    expect(again.sort()).toEqual(['exhausted 1 10', 'exhausted 1 20', 'threshold 1 10', 'threshold 1 20']);
    await tables.systemWrite(async (tx) => {
      const row = await tx.find('usage_buckets', { owner_id: 'policy-1' });
      if (row === undefined) throw new Error('no bucket');
      const book = BucketTransaction.of(row, clock);
      book.reset(clock.now());
      await book.close(tx, clock.now());
    });
    await use(raised, 20);
    await raise();
    expect((await audits()).filter(({ window }) => window === 2)).toHaveLength(2);
    expect(await deliveries()).toHaveLength(6);
  });

  it('two leaders at the same time raise each of 40 alerts once', async () => {
    const { tables, clock, use, audits, deliveries } = await world(engine);
    await settings(tables, { emails: ['ops@org.example'] });
    for (let i = 0; i < 20; i++) await use(limitSpecWith({ bucketKey: `b${i}`, limit: 10, alert: 5 }), 10);
    const options = { tables, clock, log: silentLog, macs, publicUrl: () => '' };
    await Promise.all([raiseAlerts(options), raiseAlerts(options), raiseAlerts(options)]);
    await raiseAlerts(options);
    expect(await audits()).toHaveLength(40);
    expect(await deliveries()).toHaveLength(40);
  });

  it('values that callers choose send no more than 100 mails an hour, and are all in the audit log', async () => {
    const { tables, clock, use, raise, audits, deliveries } = await world(engine);
    await settings(tables, { emails: ['ops@org.example', 'boss@org.example'] });
    const spend = async (name: string, count: number) => {
      await useAll(tables, clock, name, count);
      await raise();
    };
    await spend('first', MAX_ALERTS_PER_HOUR + 5);
    expect(await audits()).toHaveLength(MAX_ALERTS_PER_HOUR + 5);
    expect(await deliveries()).toHaveLength(2 * MAX_ALERTS_PER_HOUR);
    await use(limitSpecWith({ ownerId: 'policy-2', limit: 10 }), 10);
    await raise();
    expect(await deliveries()).toHaveLength(2 * MAX_ALERTS_PER_HOUR + 2);
    clock.jump(3_600_000);
    await spend('later', 1);
    expect(await deliveries()).toHaveLength(2 * MAX_ALERTS_PER_HOUR + 4);
  });

  it('an alert without recipients is kept once to be listed, and is never due', async () => {
    const { tables, clock, use, raise, audits } = await world(engine);
    await use(limitSpecWith({ limit: 10 }), 10);
    await raise();
    await raise();
    const kept = () => tables.systemRead((tx) => tx.list('alert_deliveries', {}));
    expect(await kept()).toMatchObject([{ kind: 'exhausted', recipient: '', next_at: null, delivered_at: null }]);
    await useAll(tables, clock, 'many', MAX_ALERTS_PER_HOUR + 5);
    await raise();
    expect(await audits()).toHaveLength(MAX_ALERTS_PER_HOUR + 6);
    expect(await kept()).toHaveLength(MAX_ALERTS_PER_HOUR);
  });

  it('an organisation with very many alerts lets those of others through after a hundred', async () => {
    const { tables, clock } = await world(engine);
    const other = { organisationId: 'org-2', workspaceId: 'ws-2' };
    await useAll(tables, clock, 'mine', 120);
    await tables.systemWrite(async (tx) => {
      await tx.insert('organisations', organisationRow(other.organisationId));
      await tx.insert('workspaces', workspaceRow(other.organisationId, other.workspaceId));
      const book = await BucketTransaction.open(tx, other, limitSpecWith({ limit: 1 }), clock, clock.now() + 1000);
      await book.settle(tx, ONE);
      await book.close(tx, clock.now() + 1000);
    });
    const order: string[] = [];
    const watched = Object.assign(Object.create(tables) as Tables, {
      systemRead: tables.systemRead,
      write: ((tenant, run, more) => {
        order.push(tenant.organisationId);
        return tables.write(tenant, run, more);
      }) satisfies Tables['write'],
    });
    await raiseAlerts({ tables: watched, clock, log: silentLog, macs, publicUrl: () => '' });
    expect(order).toHaveLength(121);
    expect(order.indexOf('org-2')).toBe(100);
  });

  it('a leader that is killed before the commit leaves nothing behind, and the next one does it all once', async () => {
    const { tables, clock, use, audits, deliveries } = await world(engine);
    await settings(tables, { emails: ['ops@org.example'], webhook_url: 'https://hook.example/a' });
    await use(limitSpecWith({ limit: 10, alert: 5 }), 10);
    const options = { tables, clock, log: silentLog, macs, publicUrl: () => '' };
    // Killed at each of its statements in turn: a transaction that does not reach its end is undone.
    for (let step = 0; step < 12; step++) {
      let left = step;
      const dying = Object.assign(Object.create(tables) as Tables, {
        read: tables.read,
        systemRead: tables.systemRead,
        write: ((tenant, run, more) =>
          tables.write(
            tenant,
            (tx) =>
              run(
                new Proxy(tx, {
                  get: (target, name, self) => {
                    const value = Reflect.get(target, name, self);
                    if (typeof value !== 'function') return value;
                    return (...args: unknown[]) => {
                      left -= 1;
                      if (left < 0) throw new Error('killed');
                      return (value as (...all: unknown[]) => unknown).apply(target, args);
                    };
                  },
                }),
              ),
            more,
          )) satisfies Tables['write'],
      });
      await raiseAlerts({ ...options, tables: dying });
      if (left >= 0) break;
      expect([(await audits()).length, (await deliveries()).length]).toEqual([0, 0]);
    }
    await raiseAlerts(options);
    await raiseAlerts(options);
    expect([(await audits()).length, (await deliveries()).length]).toEqual([2, 4]);
  });

  it('an alert that cannot be raised does not hold up those behind it', async () => {
    const { tables, clock, use, audits } = await world(engine);
    for (let i = 0; i < 3; i++) {
      await use(limitSpecWith({ bucketKey: `b${i}`, limit: 10 }), 10);
      clock.jump(1000);
    }
    const [first] = await tables.systemRead((tx) => tx.list('usage_buckets', { orderBy: [['created_at', 'asc']] }));
    const failing = Object.assign(Object.create(tables) as Tables, {
      systemRead: tables.systemRead,
      write: ((tenant, run, more) =>
        tables.write(
          tenant,
          (tx) =>
            run({
              ...tx,
              find: (async (table: 'usage_buckets', where: { id?: string }) => {
                if (table === 'usage_buckets' && where.id === first?.id) throw new Error('broken row');
                return tx.find(table, where);
              }) as typeof tx.find,
            }),
          more,
        )) satisfies Tables['write'],
    });
    const options = { clock, log: silentLog, macs, publicUrl: () => '' };
    await raiseAlerts({ ...options, tables: failing });
    expect(await audits()).toHaveLength(2);
    await raiseAlerts({ ...options, tables });
    expect(await audits()).toHaveLength(3);
  });
});

describe('whom an alert goes to', () => {
  const KINDS: Readonly<Record<LimitOwner, { resource: string; own: string[] }>> = {
    key: { resource: 'api-keys', own: ['Key@own.example'] },
    policy: { resource: 'policies.usage-limits', own: ['policy@own.example', 'https://policy.example/hook'] },
    workspace: { resource: 'workspaces', own: [] },
    provider: { resource: 'providers', own: [] },
    'virtual-key': { resource: 'virtual-keys', own: [] },
    integration: { resource: 'integrations', own: [] },
    token: { resource: 'workspaces', own: [] },
  };

  it.each(Object.keys(KINDS) as LimitOwner[])(
    'a limit of kind %s: its owner’s recipients and the organisation’s',
    async (kind) => {
      const { tables, use, raise, audits, deliveries } = await world('sqlite');
      await settings(tables, {
        emails: ['org@general.example', 'key@OWN.example'],
        webhook_url: 'https://org.example/hook',
      });
      await tables.systemWrite(async (tx) => {
        const rows = tenantRows(ORGANISATION, WORKSPACE, 'x');
        await tx.insert('users', rows.users);
        await tx.insert('api_keys', { ...rows.api_keys, id: 'owner', alert_emails: ['Key@own.example'] });
        const policy = { alert_emails: ['policy@own.example'], alert_webhook_url: 'https://policy.example/hook' };
        await tx.insert('usage_policies', { ...rows.usage_policies, id: 'owner', ...policy });
      });
      await use(limitSpecWith({ ownerKind: kind, ownerId: 'owner', limit: 10 }), 10);
      await raise();
      expect(await audits()).toMatchObject([
        { alert: 'exhausted', resource: resourceType(KINDS[kind].resource), id: 'owner' },
      ]);
      const general = ['https://org.example/hook', 'org@general.example'];
      const expected = [...general, ...KINDS[kind].own, ...(kind === 'key' ? [] : ['key@OWN.example'])];
      expect((await deliveries()).map(({ to }) => to)).toEqual(expected.sort((a, b) => a.localeCompare(b)));
    },
  );

  it('what a workspace sets replaces the organisation’s, each channel for itself', async () => {
    const { tables, use, raise, deliveries } = await world('sqlite');
    await settings(
      tables,
      { emails: ['org@a.example'], webhook_url: 'https://org.example/' },
      { emails: ['team@a.example'] },
    );
    await use(limitSpecWith({ limit: 1 }), 1);
    await raise();
    expect((await deliveries()).map(({ to }) => to)).toEqual(['https://org.example/', 'team@a.example']);
  });

  it('nobody of another organisation or workspace is told, and what is told names only its own', async () => {
    const { tables, use, raise } = await world('sqlite');
    await settings(tables, { emails: ['own@a.example'] });
    await tables.systemWrite(async (tx) => {
      const other = {
        block_inline_config: false,
        alerts: { emails: ['foreign@b.example'], webhook_url: 'https://foreign.example/' },
      };
      await tx.insert('organisations', { ...organisationRow('org-2'), settings: other });
      await tx.insert('workspaces', { ...workspaceRow('org-2', 'ws-2'), settings: other });
      await tx.insert('workspaces', { ...workspaceRow(ORGANISATION, 'ws-3'), settings: other });
      // A foreign policy of the very id that the bucket names.
      const { usage_policies: policy } = tenantRows('org-2', 'ws-2', 'foreign');
      await tx.insert('usage_policies', { ...policy, id: 'policy-1', alert_emails: ['policy@b.example'] });
    });
    await use(limitSpecWith({ limit: 1 }), 1);
    await raise();
    const rows = await tables.systemRead((tx) => tx.list('alert_deliveries'));
    expect(rows.map(({ recipient }) => recipient)).toEqual(['own@a.example']);
    expect(JSON.stringify(rows)).not.toMatch(/foreign|org-2|ws-2|ws-3|b\.example/);
  });
});

it('the leader raises alerts by itself, and gives way when it is closed', async () => {
  const tables = own(await booksStore('sqlite'));
  const options = { tables, clock: systemClock, log: silentLog, macs, publicUrl: () => '' };
  const jobs = own(turnUsageWindows({ ...options, node: 'a' }));
  await tables.systemWrite(async (tx) => {
    const book = await BucketTransaction.open(tx, PLACE, limitSpecWith({ limit: 1 }), systemClock, systemClock.now());
    const done = { window: 1, lease: '', reserved: 0, used: 1, carry: 0, requests: 1, unpriced: 0, giveBack: false };
    await book.settle(tx, done);
    await book.close(tx, systemClock.now());
  });
  const rows = () => tables.read(systemTenant(ORGANISATION), (tx) => tx.count('audit_log'));
  for (let i = 0; i < 400 && (await rows()) === 0; i++) {
    await new Promise((resolve) => systemClock.after(10, () => resolve(undefined)));
  }
  expect(await rows()).toBe(1);
  await jobs.close();
});
