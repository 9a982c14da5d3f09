import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type KeeperUnderTest, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import { systemTenant } from '../auth/tenant.ts';
import { systemClock } from '../kernel/clock.ts';
import type { LogStore } from '../telemetry/log-query.ts';
import { storedRecords } from '../telemetry/stored-records.ts';
import { tracesOf } from './traces.ts';

const ORGANISATION = 'org-a';
const WORKSPACE = 'ws-a1';
const tenant = systemTenant(ORGANISATION, WORKSPACE);

let under: KeeperUnderTest;
let asked: string[] = [];

beforeAll(async () => {
  under = await startKeeper();
});
afterAll(() => under.close());

/** Look-ups over a real keeper; `asked` has the names of the questions that it was asked. */
function lookUps() {
  asked = [];
  const store = new Proxy<LogStore>(under.keeper, {
    get(target, name: keyof LogStore) {
      asked.push(name);
      return (target[name] as (...args: unknown[]) => unknown).bind(target);
    },
  });
  return tracesOf(
    storedRecords(
      store,
      30,
      () => systemClock.now(),
      async () => [],
    ),
    systemClock,
  );
}

describe('the last requests of many traces', () => {
  it('are found in three questions, whether a trace is a name or the id of a request', async () => {
    const now = systemClock.now();
    const one = recordOfNow(1, { trace_id: 'one', model_sent: 'first', time: now - 2_000 });
    const last = recordOfNow(2, { trace_id: 'one', model_sent: 'last', time: now - 1_000 });
    const two = recordOfNow(3, { trace_id: 'two', model_sent: 'other', time: now - 2_000 });
    const old = recordOfNow(4, { trace_id: 'old', time: now - 25 * 3_600_000 });
    const own = recordOfNow(5, { time: now - 25 * 3_600_000, model_sent: 'own' });
    const foreign = recordOfNow(6, { trace_id: 'foreign', workspace_id: 'ws-a2' });
    await under.write(one, last, two, old, own, foreign);
    const unknown = Array.from({ length: 90 }, (_, i) => `unknown-${i}`);
    const wanted = ['one', 'two', 'old', 'foreign', own.id.toUpperCase(), ...unknown];
    const found = await lookUps().lastOfTraces(tenant, wanted);
    expect([...found].map(([trace, { id, model_sent }]) => [trace, id, model_sent])).toEqual([
      ['one', last.id, 'last'],
      ['two', two.id, 'other'],
      [own.id.toUpperCase(), own.id, 'own'],
    ]);
    expect(asked).toEqual(['page', 'groups', 'page']);
  });

  it('that have none are one question, however many they are', async () => {
    const unknown = Array.from({ length: 100 }, (_, i) => `unknown-${i}`);
    expect((await lookUps().lastOfTraces(tenant, unknown)).size).toBe(0);
    expect(asked).toEqual(['groups']);
  });
});
