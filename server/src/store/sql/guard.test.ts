import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { configRow, organisationRow, workspaceRow } from '../conformance/rows.ts';
import { MIGRATIONS } from '../migrations/index.ts';
import { unsafeTenant } from '../ports.ts';
import { SqliteEngine } from '../sqlite/engine.ts';
import { compilerFor } from './engine.ts';
import { guardRows, guardStatement } from './guard.ts';
import { type Filters, Session, systemTx } from './transaction.ts';

const db = compilerFor('sqlite');
const internal = expect.objectContaining({ name: 'SluiceError', kind: 'internal' });

describe('the guard of tenant statements', () => {
  const passes = (query: { compile(): { query: Parameters<typeof guardStatement>[0] } }) =>
    guardStatement(query.compile().query, 'org-a');

  it('G-02 lets through what is bound to the organisation', () => {
    passes(db.selectFrom('configs').selectAll().where('organisation_id', '=', 'org-a'));
    passes(db.selectFrom('configs').selectAll().where('id', '=', 'x').where('organisation_id', '=', 'org-a'));
    passes(
      db
        .deleteFrom('configs')
        .where((eb) => eb.and([eb('organisation_id', '=', 'org-a'), eb.or([eb('id', '=', 'x'), eb('id', '=', 'y')])])),
    );
    passes(db.updateTable('configs').set({ name: 'x' }).where('organisation_id', '=', 'org-a'));
    passes(db.insertInto('configs').values({ id: 'x', organisation_id: 'org-a' }));
  });

  it('G-02 refuses a statement without the predicate, or with one that does not bind', () => {
    const configs = db.selectFrom('configs').selectAll();
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
    for (const query of refused) expect(() => passes(query), query.compile().sql).toThrow(internal);
  });

  it('G-02 refuses rows of another organisation, and rows that do not say whose they are', () => {
    guardRows([], 'org-a');
    guardRows([{ organisation_id: 'org-a' }], 'org-a');
    expect(() => guardRows([{ organisation_id: 'org-a' }, { organisation_id: 'org-b' }], 'org-a')).toThrow(internal);
    expect(() => guardRows([{}], 'org-a')).toThrow(internal);
  });
});

describe('each of the two filters holds without the other', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-guard-'));
  let engine: SqliteEngine;
  beforeAll(async () => {
    engine = await SqliteEngine.open({
      file: join(dir, 'control.db'),
      log: silentLog,
      clock: systemClock,
      migrations: MIGRATIONS,
    });
    await engine.migrate();
    await engine.write(null, async (execute) => {
      const tx = systemTx(new Session(engine, execute, null, true));
      for (const org of ['org-a', 'org-b']) {
        await tx.insert('organisations', organisationRow(org));
        await tx.insert('workspaces', workspaceRow(org, `ws-${org}`));
        await tx.insert('configs', configRow(org, `ws-${org}`, `config-${org}`));
      }
    });
  });
  afterAll(async () => {
    await engine.close();
    rmSync(dir, { recursive: true });
  });
  const as = <T>(filters: Filters, run: (session: Session) => Promise<T>) =>
    engine.write(null, (execute) => run(new Session(engine, execute, unsafeTenant('org-a', null), true, filters)));
  const other = { id: 'config-org-b' };

  it('G-02 with the guard off, the predicate finds, counts, changes and removes nothing of another organisation', async () => {
    const filters = { predicate: true, guard: false };
    expect(await as(filters, (session) => session.find('configs', other))).toBeUndefined();
    expect((await as(filters, (session) => session.list('configs'))).map((row) => row.id)).toEqual(['config-org-a']);
    expect(await as(filters, (session) => session.count('configs', { where: other }))).toBe(0);
    expect(await as(filters, (session) => session.update('configs', other, { name: 'taken' }))).toBe(0);
    expect(await as(filters, (session) => session.remove('configs', other))).toBe(0);
  });

  it('G-02 with the predicate off, the guard refuses every statement', async () => {
    const filters = { predicate: false, guard: true };
    const attempts: ((session: Session) => Promise<unknown>)[] = [
      (session) => session.find('configs', other),
      (session) => session.list('configs'),
      (session) => session.list('configs', { where: { organisation_id: 'org-b' } }),
      (session) => session.count('configs', { where: other }),
      (session) => session.update('configs', other, { name: 'taken' }),
      (session) => session.remove('configs', other),
    ];
    for (const attempt of attempts) await expect(as(filters, attempt)).rejects.toEqual(internal);
  });
});
