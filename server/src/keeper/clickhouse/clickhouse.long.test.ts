import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeClickHouse } from '../../../test/support/clickhouse-fake.ts';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../../test/support/log-keeper.ts';
import { systemClock } from '../../kernel/clock.ts';
import { type LogFields, silentLog } from '../../kernel/log.ts';
import type { StoredLog } from '../../store/ports.ts';
import { LOG_COLUMNS } from '../../telemetry/log-columns.ts';
import { LogQueries } from '../queries.ts';
import { remoteReading } from './remote-logs.ts';
import { ClickHouse } from './store.ts';

let fake: FakeClickHouse;
let under: KeeperUnderTest | null = null;
let lines: LogFields[] = [];

beforeEach(async () => {
  lines = [];
  fake = await new FakeClickHouse().start();
  fake.answer = ({ sql }) => (sql.includes('AS "n"') ? [{ n: fake.rows.length, proof_foreign: 0 }] : []);
});
afterEach(async () => {
  await under?.close();
  under = null;
  await fake.close();
  expect(fake.faults).toEqual([]);
});

const note = (message: string, fields?: object) => void lines.push({ message, ...fields });

async function start(address: object = {}): Promise<KeeperUnderTest> {
  under = await startKeeper({
    store: { ...fake.address, ...address },
    tickMs: 20,
    log: { debug() {}, info: note, warn: note, error: note },
  });
  return under;
}

const made = (count: number, from = 1): StoredLog[] => Array.from({ length: count }, (_, i) => recordOfNow(from + i));
const idsOf = (rows: readonly object[]) => rows.map((row) => String((row as { id?: unknown }).id)).sort();

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 10));
}

describe('records of a server with SLUICE_LOGS_URL', () => {
  it('are in ClickHouse when a question is answered, each with all its columns', async () => {
    const { keeper, write } = await start();
    const records = made(20);
    await write(...records);
    expect(await keeper.count(recent(), 100)).toBe(20);
    expect(idsOf(fake.rows)).toEqual(idsOf(records));
    const names = [...LOG_COLUMNS.map(({ name }) => name), 'metadata_known'].sort();
    expect(Object.keys(fake.rows[0] ?? {}).sort()).toEqual(names);
    expect(fake.asked.some(({ sql }) => sql.startsWith('CREATE TABLE'))).toBe(true);
  });

  it('are there once when the server stored a batch and broke before it said so, and when the keeper is killed then', async () => {
    const { keeper, write, kill } = await start();
    let breaks = 1;
    fake.stored = async () => {
      if (breaks-- > 0) await fake.stop();
    };
    await write(...made(10));
    await expect(keeper.count(recent(), 100)).rejects.toMatchObject({ kind: 'unavailable' });
    expect(fake.rows).toHaveLength(10);
    await kill();
    await write(...made(5, 11));
    await fake.start();
    await until(async () => (await keeper.count(recent(), 100).catch(() => 0)) === 15);
    expect(new Set(idsOf(fake.rows)).size).toBe(15);
  });

  it('wait while it is away: questions are 503 with a clear text, a record is still found by its id, and all arrive', async () => {
    const { keeper, write } = await start();
    await write(...made(3));
    expect(await keeper.count(recent(), 100)).toBe(3);
    await fake.stop();
    const [late] = made(1, 4);
    if (late === undefined) throw new Error('one was made');
    await write(late);
    await expect(keeper.count(recent(), 100)).rejects.toMatchObject({
      kind: 'unavailable',
      retryAfter: 5,
      message: 'The logs cannot be read because their store is away. GET /v1/operator/health says why.',
    });
    expect(await keeper.find(recent().scope, late.id)).toMatchObject({ id: late.id });
    const { state } = await keeper.health();
    expect(state?.away).toMatch(/^ClickHouse at 127\.0\.0\.1:\d+ does not store the logs\. It cannot be reached/);
    await fake.start();
    await until(() => fake.rows.length === 4);
    expect(await keeper.count(recent(), 100)).toBe(4);
    expect((await keeper.health()).state?.away).toBeNull();
    expect(lines.map(({ message }) => message)).toContain('ClickHouse stores the logs again');
  });

  it('with a wrong password: one line and the health report say what to do, and neither has the password', async () => {
    const { keeper } = await start({ password: 'not this one' });
    keeper.wake();
    await until(() => lines.length > 0);
    const line = /It refused the user "writer" or its password: correct SLUICE_LOGS_URL\.$/;
    expect(lines.map(({ message }) => message)).toEqual([expect.stringMatching(line)]);
    const health = await keeper.health();
    expect(health.state?.away).toMatch(line);
    expect(JSON.stringify([lines, health])).not.toMatch(/a password|not this one/);
  });

  it('that were in files when ClickHouse was set go there, and answers name their times until then', async () => {
    under = await startKeeper({});
    const records = made(30);
    await under.write(...records);
    await under.keeper.flush();
    expect(await under.keeper.count(recent(), 100)).toBe(30);
    await under.restart({ store: fake.address });
    under.keeper.wake();
    await until(() => fake.rows.length === 30);
    expect(idsOf(fake.rows)).toEqual(idsOf(records));
  });
});

describe('ClickHouse', () => {
  /** What the keeper's process has, in this one. */
  function direct(address: object = {}) {
    const store = new ClickHouse({ ...fake.address, ...address }, { debug() {}, info: note, warn: note, error: note });
    const settle = async () => ({ completeTo: 0, incomplete: [] });
    const queries = new LogQueries({ ...remoteReading({ store, settle, log: silentLog }), clock: systemClock });
    return { store, queries };
  }

  it.each([
    [
      'a wrong password',
      () => ({ password: 'not this one' }),
      /It refused the user "writer" or its password: correct SLUICE_LOGS_URL\.$/,
    ],
    [
      'a wrong database',
      () => ({ database: 'nowhere' }),
      /It has no database "nowhere": create it there, or correct SLUICE_LOGS_URL\.$/,
    ],
    [
      'a version that is too old',
      () => {
        fake.version = '23.8.1.2992';
        return {};
      },
      /Its version 23\.8\.1\.2992 is too old: upgrade it to 24\.8 or later\.$/,
    ],
  ])('with %s is named in one line that says what to do and has no password', async (_, wrong, line) => {
    const { keeper } = await start(wrong());
    keeper.wake();
    await until(() => lines.length > 0);
    await until(async () => (await keeper.health()).state !== null);
    expect(lines.map(({ message }) => message)).toEqual([expect.stringMatching(line)]);
    expect((await keeper.health()).state?.away).toMatch(line);
    expect(JSON.stringify([lines, await keeper.health()])).not.toMatch(/a password|not this one/);
  });

  it('gets the columns that a table of an older version lacks', async () => {
    fake.columns = LOG_COLUMNS.map(({ name }) => name).filter((name) => name !== 'body_flags');
    await direct().store.ready();
    const changes = fake.asked.map(({ sql }) => sql).filter((sql) => sql.startsWith('ALTER'));
    expect(changes).toEqual([
      'ALTER TABLE sluice_logs ADD COLUMN IF NOT EXISTS "metadata_known" Bool CODEC(ZSTD(1))',
      'ALTER TABLE sluice_logs ADD COLUMN IF NOT EXISTS "body_flags" Nullable(Int64) CODEC(ZSTD(1))',
    ]);
  });

  it('forgets whole days, without a mutation', async () => {
    fake.partitions = [19_000, 19_001, 19_002, 19_003];
    await direct().store.forgetBefore(19_002 * 86_400_000 + 5);
    const changes = fake.asked.map(({ sql }) => sql).filter((sql) => sql.startsWith('ALTER'));
    expect(changes).toEqual([19_000, 19_001].map((day) => `ALTER TABLE sluice_logs DROP PARTITION ${day}`));
  });

  it('lists records in two steps: which they are, then their columns, both of the tenant alone', async () => {
    const { queries } = direct();
    const { scope } = recent();
    const proof = { proof_organisation: scope.organisationId, proof_workspace: 'ws-a1' };
    fake.answer = ({ sql }) =>
      sql.includes('"model"') ? [{ id: 'b', time: 2, model: 'm', ...proof }] : [{ id: 'b', time: 2, ...proof }];
    const query = { columns: ['id', 'model'], order: 'newest', limit: 5, behind: null } as const;
    expect((await queries.page(recent(), query)).rows).toEqual([{ id: 'b', model: 'm' }]);
    const [first, second] = fake.asked.filter(({ sql }) => sql.includes('FROM sluice_logs WHERE'));
    expect(first?.sql).toMatch(/^SELECT "id", "time", "organisation_id" AS proof_organisation/);
    expect(second?.sql).toMatch(/"id" IN \{p4:Array\(String\)\}/);
    expect(second?.params).toEqual({ p1: scope.organisationId, p2: '2', p3: '3', p4: "['b']" });
  });

  it('that answers with records of another organisation is not believed', async () => {
    const { queries } = direct();
    fake.answer = () => [{ n: 3, proof_foreign: 1 }];
    await expect(queries.count(recent(), 100)).rejects.toMatchObject({ kind: 'internal' });
  });
});
