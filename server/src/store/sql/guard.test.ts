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
import { guardRows, guardStatement } from './guard.ts';
import {
  all,
  any,
  type Condition,
  equals,
  type Insert,
  type Remove,
  type Select,
  type Statement,
  type Update,
} from './statement.ts';

const internal = expect.objectContaining({ name: 'SluiceError', kind: 'internal' });

const A = unsafeTenant('org-a', null);
const A1 = unsafeTenant('org-a', 'ws-1');

const ALWAYS: Condition = all([]);
const MINE = equals('organisation_id', 'org-a');
const isNull = (column: string): Condition => ({ is: 'null', column });
const select = (table: string, ...where: Condition[]): Select => ({
  kind: 'select',
  table,
  columns: ['id'],
  where: all(where),
});
const remove = (table: string, ...where: Condition[]): Remove => ({ kind: 'remove', table, where: all(where) });
const update = (table: string, values: Update['values'], ...where: Condition[]): Update => ({
  kind: 'update',
  table,
  values,
  where: all(where),
});
const insert = (table: string, values: Insert['values']): Insert => ({ kind: 'insert', table, values });

describe('the guard of tenant statements', () => {
  const passes = (statement: Statement, table = 'configs', tenant = A) => guardStatement(statement, table, tenant);
  const refuses = (statement: Statement, table = 'configs', tenant = A) =>
    expect(() => passes(statement, table, tenant), JSON.stringify(statement)).toThrow(internal);

  it('lets through what is bound to the organisation', () => {
    passes(select('configs', MINE));
    passes(select('configs', equals('id', 'x'), MINE));
    passes(select('configs', all([equals('id', 'x'), all([MINE, ALWAYS])])));
    passes({ kind: 'select', table: 'configs', columns: 'count', where: MINE });
    passes(remove('configs', MINE, any([equals('id', 'x'), equals('id', 'y')])));
    passes(update('configs', { name: 'x' }, MINE));
    passes(update('configs', { organisation_id: 'org-a' }, MINE));
    passes(insert('configs', { id: 'x', organisation_id: 'org-a' }));
    passes({
      ...insert('configs', { id: 'x', organisation_id: 'org-a' }),
      more: [{ id: 'y', organisation_id: 'org-a' }],
    });
  });

  it('refuses a statement without the predicate, or with one that does not bind', () => {
    const refused = [
      select('configs'),
      select('configs', equals('id', 'x')),
      select('configs', equals('organisation_id', 'org-b')),
      select('configs', { is: 'compared', column: 'organisation_id', operator: '<>', value: 'org-a' }),
      select('configs', { is: 'compared', column: 'organisation_id', operator: '>=', value: 'org-a' }),
      select('configs', { is: 'among', column: 'organisation_id', values: ['org-a', 'org-b'] }),
      select('configs', { is: 'containing', column: 'organisation_id', value: 'org-a' }),
      select('configs', any([MINE, equals('id', 'x')])),
      select('configs', any([MINE, isNull('organisation_id')])),
      select('configs', any([])),
      select('configs', equals('workspace_id', 'org-a')),
      remove('configs'),
      update('configs', { organisation_id: 'org-a' }),
      update('configs', { organisation_id: 'org-b' }, MINE),
      update('configs', { organisation_id: null }, MINE),
      insert('configs', { id: 'x' }),
      insert('configs', { id: 'x', organisation_id: 'org-b' }),
      { ...insert('configs', { id: 'x', organisation_id: 'org-a' }), more: [{ id: 'y', organisation_id: 'org-b' }] },
      { ...insert('configs', { id: 'x', organisation_id: 'org-a' }), more: [{ id: 'y' }] },
    ];
    for (const statement of refused) refuses(statement);
  });

  it('refuses every statement on more than its one table: a condition binds the rows of one', () => {
    refuses(select('users', MINE));
    refuses(remove('users', MINE));
    // No statement has such parts today; one that gets them must not pass before this guard knows what they reach.
    const inside = select('users') as unknown as string;
    const refused = [
      { ...select('configs', MINE), joins: ['users'] },
      { ...select('configs', MINE), from: 'users' },
      { ...remove('configs', MINE), using: 'users' },
      { ...insert('configs', { organisation_id: 'org-a' }), onConflict: { name: 'x' } },
      update('configs', { name: inside }, MINE),
      insert('configs', { organisation_id: 'org-a', name: inside }),
      { ...insert('configs', { organisation_id: 'org-a' }), more: [{ organisation_id: 'org-a', name: inside }] },
      { ...select('configs', MINE), kind: 'replace' } as unknown as Statement,
    ];
    for (const statement of refused) refuses(statement);
  });

  it('a tenant bound to a workspace is bound to it in every table that has workspaces', () => {
    const own = equals('workspace_id', 'ws-1');
    passes(select('configs', MINE, own), 'configs', A1);
    passes(select('users', MINE), 'users', A1);
    passes(insert('configs', { organisation_id: 'org-a', workspace_id: 'ws-1' }), 'configs', A1);
    refuses(select('configs', MINE), 'configs', A1);
    refuses(select('configs', MINE, equals('workspace_id', 'ws-2')), 'configs', A1);
    refuses(select('configs', MINE, any([own, isNull('workspace_id')])), 'configs', A1);
    refuses(insert('configs', { organisation_id: 'org-a', workspace_id: 'ws-2' }), 'configs', A1);
    refuses(insert('configs', { organisation_id: 'org-a' }), 'configs', A1);
    passes(update('configs', { name: 'x' }, MINE, own), 'configs', A1);
    refuses(update('configs', { workspace_id: 'ws-2' }, MINE, own), 'configs', A1);
    refuses(update('configs', { workspace_id: null }, MINE, own), 'configs', A1);
  });

  it('the integrations of the organisation are read by its workspaces, and never written by one', () => {
    const shared = (workspace: string) => any([equals('workspace_id', workspace), isNull('workspace_id')]);
    const given: Condition = { is: 'null', column: 'workspace_id', not: true };
    passes(select('integrations', MINE, shared('ws-1')), 'integrations', A1);
    refuses(select('integrations', MINE, shared('ws-2')), 'integrations', A1);
    refuses(select('integrations', MINE, any([equals('workspace_id', 'ws-1'), given])), 'integrations', A1);
    refuses(select('integrations', MINE, any([])), 'integrations', A1);
    refuses(remove('integrations', MINE, shared('ws-1')), 'integrations', A1);
  });

  it('of organisations a tenant reaches its own, and a workspace changes nothing of it', () => {
    const own = equals('id', 'org-a');
    for (const tenant of [A, A1]) {
      passes(select('organisations', own), 'organisations', tenant);
      refuses(select('organisations'), 'organisations', tenant);
      refuses(select('organisations', equals('id', 'org-b')), 'organisations', tenant);
      refuses(update('organisations', { name: 'x' }), 'organisations', tenant);
      refuses(update('organisations', { name: 'x' }, equals('id', 'org-b')), 'organisations', tenant);
      refuses(insert('organisations', { id: 'org-a' }), 'organisations', tenant);
    }
    passes(update('organisations', { name: 'x' }, own), 'organisations', A);
    refuses(update('organisations', { name: 'x' }, own), 'organisations', A1);
    refuses(update('organisations', { id: 'org-c' }, own), 'organisations', A);
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
