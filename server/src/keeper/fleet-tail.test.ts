/** Following the requests of several nodes: each with its own records, over a way that can be cut. */
import { afterEach, describe, expect, it } from 'vitest';
import { plainVault } from '../../test/support/admin.ts';
import { logRow } from '../../test/support/log-rows.ts';
import { NaiveLogStore } from '../../test/support/naive-log-store.ts';
import { TestClock } from '../kernel/clock.ts';
import type { Bus } from '../store/ports.ts';
import type { LogArrivals, LogSelection } from '../telemetry/log-query.ts';
import { FleetTail } from './fleet-tail.ts';

const SECOND = 1_000;
const clock = new TestClock();
const listeners = new Map<string, Set<(text: string) => void>>();
let cut = false;
const sent: { readonly channel: string; readonly text: string }[] = [];
const opened: FleetTail[] = [];

const bus: Bus = {
  send: async (channel, text) => {
    if (cut) return false;
    sent.push({ channel, text });
    for (const listener of listeners.get(channel) ?? []) listener(text);
    return true;
  },
  listen: (channel, onMessage) => {
    const there = listeners.get(channel) ?? new Set();
    listeners.set(channel, there.add(onMessage));
    return () => void there.delete(onMessage);
  },
};

afterEach(async () => {
  for (const tail of opened.splice(0)) await tail.close();
  listeners.clear();
  sent.length = 0;
  cut = false;
});

function nodeOf(name: string, { others = [] as string[], way = bus as Bus | null } = {}) {
  const store = new NaiveLogStore();
  const columns = ['id', 'organisation_id', 'workspace_id', 'user_id'];
  const options = { bus: way, macs: plainVault, node: name, process: `${name}-1`, own: store, columns, clock };
  const tail = new FleetTail({ ...options, others: async () => others }, true);
  opened.push(tail);
  const answers: LogArrivals[] = [];
  const follow = async (selection: LogSelection, limit = 200): Promise<LogArrivals> => {
    const asked = { columns, since: answers.at(-1)?.next ?? null, limit };
    const answer = await tail.arrived(selection, asked);
    answers.push(answer);
    return answer;
  };
  return { store, follow };
}

const everythingOf = (organisationId: string): LogSelection => ({
  scope: { organisationId, workspaceIds: ['ws'], userId: null, keptSince: 0, erased: [] },
  from: 0,
  to: Number.MAX_SAFE_INTEGER,
  where: [],
});

const row = (more: object = {}) => logRow({ organisation_id: 'org', workspace_id: 'ws', ...more });

async function second(): Promise<void> {
  await clock.advance(SECOND);
  await new Promise((resolve) => setImmediate(resolve));
}

describe('the tail of several nodes', () => {
  it('shows what the others serve, of its tenant and of no other', async () => {
    const [one, other] = [nodeOf('one'), nodeOf('other')];
    await one.follow(everythingOf('org'));
    const mine = row();
    other.store.rows.push(row({ organisation_id: 'else' }), row({ workspace_id: 'elsewhere' }), mine);
    await second();
    const { rows } = await one.follow(everythingOf('org'));
    expect(rows.map(({ id }) => id)).toEqual([mine.id]);
    expect((await one.follow(everythingOf('org'))).rows).toEqual([]);
  });

  it('takes nothing that is not signed with the master key, and no row of another tenant', async () => {
    const one = nodeOf('one');
    await one.follow(everythingOf('org'));
    const asked = sent.find(({ channel }) => channel === 'sluice:tail:asks');
    const [keyId, , text = ''] = asked?.text.split(/\.(.*?)\.(.*)/s) ?? [];
    const { tail, to } = JSON.parse(text) as { tail: string; to: string };
    const told = (rows: object[]) => JSON.stringify({ tail, node: 'other', rows, left: 0 });
    const forged = told([row()]);
    await bus.send(to, `${keyId}.${Buffer.alloc(32).toString('base64url')}.${forged}`);
    await bus.send(to, forged);
    const { keyId: id, digest } = plainVault.mac(
      'messages of log tails',
      Buffer.from(told([row({ organisation_id: 'else' })])),
    );
    await bus.send(to, `${id}.${digest.toString('base64url')}.${told([row({ organisation_id: 'else' })])}`);
    expect((await one.follow(everythingOf('org'))).rows).toEqual([]);
  });

  it('sends at most 50 requests of a node a second, and says how many more there were', async () => {
    const [one, other] = [nodeOf('one'), nodeOf('other')];
    await one.follow(everythingOf('org'));
    other.store.rows.push(...Array.from({ length: 70 }, () => row()));
    await second();
    const { rows, left } = await one.follow(everythingOf('org'));
    expect([rows.length, left]).toEqual([50, 20]);
  });

  it('sends and asks nothing without followers, and no more once they have gone', async () => {
    const [one, other] = [nodeOf('one'), nodeOf('other')];
    let asked = 0;
    const { arrived } = other.store;
    other.store.arrived = (...of) => {
      asked += 1;
      return arrived.apply(other.store, of);
    };
    for (let i = 0; i < 10; i++) await second();
    expect([sent.length, asked]).toEqual([0, 0]);
    await one.follow(everythingOf('org'));
    for (let i = 0; i < 10; i++) await second();
    const before = [sent.length, asked];
    expect(asked).toBeGreaterThan(3);
    for (let i = 0; i < 10; i++) await second();
    expect([sent.length, asked]).toEqual(before);
  });

  it('says when the way to the others is cut, which of them is silent, and that they are back', async () => {
    const one = nodeOf('one', { others: ['other'] });
    const other = nodeOf('other');
    const turn = async () => {
      await second();
      return (await one.follow(everythingOf('org'))).incomplete;
    };
    await one.follow(everythingOf('org'));
    const quiet = [await turn(), await turn(), await turn()];
    expect(quiet).toEqual([undefined, undefined, undefined]);
    cut = true;
    const lost = [await turn(), await turn(), await turn()];
    expect(lost.filter((nodes) => nodes !== undefined)).toEqual([null]);
    cut = false;
    const back = [await turn(), await turn(), await turn()];
    expect(back.filter((nodes) => nodes !== undefined)).toEqual([[]]);
    other.store.arrived = async () => Promise.reject(new Error('its keeper is away'));
    const silent = [];
    for (let i = 0; i < 8; i++) silent.push(await turn());
    expect(silent.filter((nodes) => nodes !== undefined)).toEqual([['other']]);
  });

  it('names the others where there is no way to them', async () => {
    const one = nodeOf('one', { others: ['other'], way: null });
    expect((await one.follow(everythingOf('org'))).incomplete).toEqual(['other']);
    expect((await one.follow(everythingOf('org'))).incomplete).toBeUndefined();
  });
});
