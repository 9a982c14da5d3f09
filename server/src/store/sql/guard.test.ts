import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { aloneConformance, filtersConformance } from '../conformance/filters.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import { unsafeTenant } from '../ports.ts';
import { SqliteEngine } from '../sqlite/engine.ts';
import { compilerFor } from './engine.ts';
import { guardRows, guardStatement } from './guard.ts';

const db = compilerFor('sqlite');
const internal = expect.objectContaining({ name: 'SluiceError', kind: 'internal' });

const A = unsafeTenant('org-a', null);
const A1 = unsafeTenant('org-a', 'ws-1');

describe('the guard of tenant statements', () => {
  interface Compiles {
    compile(): { query: Parameters<typeof guardStatement>[0]; sql: string };
  }
  const passes = (query: Compiles, table = 'configs', tenant = A) =>
    guardStatement(query.compile().query, table, tenant);
  const refuses = (query: Compiles, table = 'configs', tenant = A) =>
    expect(() => passes(query, table, tenant), query.compile().sql).toThrow(internal);
  const configs = db.selectFrom('configs').selectAll();
  const own = configs.where('organisation_id', '=', 'org-a');

  it('lets through what is bound to the organisation', () => {
    passes(own);
    passes(configs.where('id', '=', 'x').where('organisation_id', '=', 'org-a'));
    passes(
      db
        .deleteFrom('configs')
        .where((eb) => eb.and([eb('organisation_id', '=', 'org-a'), eb.or([eb('id', '=', 'x'), eb('id', '=', 'y')])])),
    );
    passes(db.updateTable('configs').set({ name: 'x' }).where('organisation_id', '=', 'org-a'));
    passes(db.updateTable('configs').set({ organisation_id: 'org-a' }).where('organisation_id', '=', 'org-a'));
    passes(db.insertInto('configs').values({ id: 'x', organisation_id: 'org-a' }));
  });

  it('refuses a statement without the predicate, or with one that does not bind', () => {
    const refused = [
      configs,
      configs.where('id', '=', 'x'),
      configs.where('organisation_id', '=', 'org-b'),
      configs.where('organisation_id', '!=', 'org-a'),
      configs.where('organisation_id', 'in', ['org-a', 'org-b']),
      configs.where((eb) => eb.or([eb('organisation_id', '=', 'org-a'), eb('id', '=', 'x')])),
      configs.where((eb) => eb.not(eb('organisation_id', '=', 'org-a'))),
      configs.where('workspace_id', '=', 'org-a'),
      db.deleteFrom('configs'),
      db.updateTable('configs').set({ organisation_id: 'org-a' }),
      db.updateTable('configs').set({ organisation_id: 'org-b' }).where('organisation_id', '=', 'org-a'),
      db.insertInto('configs').values({ id: 'x' }),
      db.insertInto('configs').values({ id: 'x', organisation_id: 'org-b' }),
      db.insertInto('configs').values([
        { id: 'x', organisation_id: 'org-a' },
        { id: 'y', organisation_id: 'org-b' },
      ]),
      db
        .insertInto('configs')
        .columns(['organisation_id'])
        .expression(db.selectFrom('configs').select('organisation_id')),
    ];
    for (const query of refused) refuses(query);
  });

  it('refuses every statement on more than its one table: a condition binds the rows of one', () => {
    const mine = ['configs.organisation_id', '=', 'org-a'] as const;
    const counted = db.selectFrom('configs').select((eb) => eb.fn.countAll().as('count'));
    passes(counted.where('organisation_id', '=', 'org-a'));
    const refused = [
      own.innerJoin('users', 'users.id', 'configs.owner_id'),
      db
        .selectFrom(['configs', 'users'])
        .selectAll()
        .where(...mine),
      counted.innerJoin('users', 'users.id', 'configs.owner_id').where(...mine),
      own.where(({ exists, selectFrom }) => exists(selectFrom('users').select('id'))),
      own.where('id', 'in', db.selectFrom('users').select('id')),
      own.select(({ selectFrom }) => selectFrom('users').select('email').as('email')),
      own.union(configs),
      db
        .with('other', (eb) => eb.selectFrom('users').selectAll())
        .selectFrom('configs')
        .selectAll()
        .where(...mine),
      db.selectFrom('configs as c').selectAll().where('organisation_id', '=', 'org-a'),
      db.selectFrom('other.configs').selectAll().where('organisation_id', '=', 'org-a'),
      db
        .updateTable('configs')
        .from('users')
        .set({ name: 'x' })
        .where(...mine),
      db
        .updateTable('configs')
        .set((eb) => ({ name: eb.selectFrom('users').select('email') }))
        .where(...mine),
      db
        .deleteFrom('configs')
        .using('users')
        .where(...mine),
      db
        .insertInto('configs')
        .values({ organisation_id: 'org-a' })
        .onConflict((oc) => oc.doUpdateSet({ name: 'x' })),
    ];
    for (const query of refused) refuses(query);
    refuses(db.selectFrom('users').selectAll().where('organisation_id', '=', 'org-a'));
  });

  it('a tenant bound to a workspace is bound to it in every table that has workspaces', () => {
    const inside = own.where('workspace_id', '=', 'ws-1');
    passes(inside, 'configs', A1);
    passes(db.selectFrom('users').selectAll().where('organisation_id', '=', 'org-a'), 'users', A1);
    passes(db.insertInto('configs').values({ organisation_id: 'org-a', workspace_id: 'ws-1' }), 'configs', A1);
    refuses(own, 'configs', A1);
    refuses(own.where('workspace_id', '=', 'ws-2'), 'configs', A1);
    refuses(
      own.where((eb) => eb.or([eb('workspace_id', '=', 'ws-1'), eb('workspace_id', 'is', null)])),
      'configs',
      A1,
    );
    refuses(db.insertInto('configs').values({ organisation_id: 'org-a', workspace_id: 'ws-2' }), 'configs', A1);
    refuses(db.insertInto('configs').values({ organisation_id: 'org-a' }), 'configs', A1);
    const update = db.updateTable('configs').where('organisation_id', '=', 'org-a').where('workspace_id', '=', 'ws-1');
    passes(update.set({ name: 'x' }), 'configs', A1);
    refuses(update.set({ workspace_id: 'ws-2' }), 'configs', A1);
    refuses(update.set({ workspace_id: null }), 'configs', A1);
  });

  it('the integrations of the organisation are read by its workspaces, and never written by one', () => {
    const shared = db
      .selectFrom('integrations')
      .selectAll()
      .where('organisation_id', '=', 'org-a')
      .where((eb) => eb.or([eb('workspace_id', '=', 'ws-1'), eb('workspace_id', 'is', null)]));
    passes(shared, 'integrations', A1);
    refuses(
      db
        .selectFrom('integrations')
        .selectAll()
        .where('organisation_id', '=', 'org-a')
        .where((eb) => eb.or([eb('workspace_id', '=', 'ws-2'), eb('workspace_id', 'is', null)])),
      'integrations',
      A1,
    );
    const removed = db
      .deleteFrom('integrations')
      .where('organisation_id', '=', 'org-a')
      .where((eb) => eb.or([eb('workspace_id', '=', 'ws-1'), eb('workspace_id', 'is', null)]));
    refuses(removed, 'integrations', A1);
  });

  it('of organisations a tenant reaches its own, and a workspace changes nothing of it', () => {
    const all = db.selectFrom('organisations').selectAll();
    const update = db.updateTable('organisations').set({ name: 'x' });
    for (const tenant of [A, A1]) {
      passes(all.where('id', '=', 'org-a'), 'organisations', tenant);
      refuses(all, 'organisations', tenant);
      refuses(all.where('id', '=', 'org-b'), 'organisations', tenant);
      refuses(update, 'organisations', tenant);
      refuses(update.where('id', '=', 'org-b'), 'organisations', tenant);
      refuses(db.insertInto('organisations').values({ id: 'org-a' }), 'organisations', tenant);
    }
    passes(update.where('id', '=', 'org-a'), 'organisations', A);
    refuses(update.where('id', '=', 'org-a'), 'organisations', A1);
    refuses(db.updateTable('organisations').set({ id: 'org-c' }).where('id', '=', 'org-a'), 'organisations', A);
  });

  it('refuses rows of another tenant, and rows that do not say whose they are', () => {
    const row = (organisation_id: string, workspace_id: string | null) => ({ organisation_id, workspace_id });
    guardRows([], 'configs', A);
    guardRows([row('org-a', 'ws-2')], 'configs', A);
    guardRows([row('org-a', 'ws-1')], 'configs', A1);
    guardRows([row('org-a', null)], 'integrations', A1);
    const refused = [
      [[row('org-a', 'ws-1'), row('org-b', 'ws-1')], 'configs', A],
      [[{}], 'configs', A],
      [[row('org-a', 'ws-2')], 'configs', A1],
      [[row('org-a', null)], 'api_keys', A1],
      [[row('org-a', 'ws-2')], 'integrations', A1],
    ] as const;
    for (const [rows, table, tenant] of refused) expect(() => guardRows(rows, table, tenant)).toThrow(internal);
  });
});

const open = async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-guard-'));
  const shared = { log: silentLog, clock: systemClock, migrations: MIGRATIONS };
  const engine = await SqliteEngine.open({ ...shared, file: join(dir, 'control.db') });
  await engine.migrate();
  return {
    engine,
    close: async () => {
      await engine.close();
      rmSync(dir, { recursive: true });
    },
  };
};
filtersConformance('sqlite', false, open);
aloneConformance('sqlite', 'predicate', open);
