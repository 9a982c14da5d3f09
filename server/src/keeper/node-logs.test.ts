import { expect, it, onTestFinished } from 'vitest';
import { naiveLogs } from '../../test/support/log-rows.ts';
import { migratedDatabase } from '../../test/support/postgres.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { openPostgresTables } from '../store/postgres/tables.ts';
import { NO_CHANGE } from './catalog.ts';
import { NodeLogs } from './node-logs.ts';
import { storedCatalog } from './stored-catalog.ts';

const scope = { organisationId: 'o', workspaceIds: null, userId: null, keptSince: 0, erased: [] };
const page = { columns: ['id'], order: 'newest', limit: 1, behind: null } as const;
const file = (node: string, id: string, minTime: number, maxTime: number) => {
  return { id, node, day: 0, level: 0, minTime, maxTime, records: 1, bytes: 1, damaged: false, place: 'disk' } as const;
};

it('an answer says for which times other nodes have records, and none is said to be missing that may be there', async () => {
  const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  onTestFinished(() => tables.close());
  await tables.migrate();
  const logs = new NodeLogs(naiveLogs().store, tables, 'one');
  const asked = (from: number, to: number) => logs.page({ scope, from, to, where: [] }, page);
  const keep = (node: string, id: string, from: number, to: number) =>
    storedCatalog(tables, node, systemClock).commit({ ...NO_CHANGE, add: [file(node, id, from, to)] });
  await keep('one', 'own', 100, 900);
  expect((await asked(0, 1_000)).incomplete).toEqual([]);
  expect(await logs.find(scope, 'no')).toBeNull();
  await keep('two', 'other', 300, 400);
  expect((await asked(0, 1_000)).incomplete).toEqual([{ from: 300, to: 400 }]);
  expect((await asked(350, 1_000)).incomplete).toEqual([{ from: 350, to: 400 }]);
  expect((await asked(401, 1_000)).incomplete).toEqual([]);
  const groups = await logs.groups({ scope, from: 0, to: 1_000, where: [] }, { by: [], measures: [] });
  expect(groups.incomplete).toEqual([{ from: 300, to: 400 }]);
  await expect(logs.find(scope, 'no')).rejects.toMatchObject({ kind: 'unavailable' });
});

it('where nodes send their files to ClickHouse, those that have waited for a minute are missing, and no others', async () => {
  const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  onTestFinished(() => tables.close());
  await tables.migrate();
  const clock = new TestClock();
  const logs = new NodeLogs(naiveLogs().store, tables, 'one', clock);
  const asked = async () => (await logs.page({ scope, from: 0, to: 1_000, where: [] }, page)).incomplete;
  await storedCatalog(tables, 'two', clock).commit({ ...NO_CHANGE, add: [file('two', 'other', 300, 400)] });
  expect(await asked()).toEqual([]);
  expect(await logs.find(scope, 'no')).toBeNull();
  await clock.advance(60_001);
  expect(await asked()).toEqual([{ from: 300, to: 400 }]);
  await expect(logs.find(scope, 'no')).rejects.toMatchObject({
    kind: 'unavailable',
    message:
      'No such request is in the log store, and log files of nodes are still on their way there. Try again later.',
  });
});
