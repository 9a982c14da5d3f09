/** Free text over kept bodies, through the API with real chunks; and its end where the time is over. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../test/support/accounts.ts';
import { type ExportsUnderTest, type Said, startExports } from '../../test/support/log-exports.ts';
import { TestClock } from '../kernel/clock.ts';
import type { KeptRequest } from '../telemetry/bodies/chunk.ts';
import type { LogPage, LogSelection } from '../telemetry/log-query.ts';
import { LogSearch } from './log-search.ts';

let under: ExportsUnderTest;
let member: { readonly id: string; readonly key: string };

const asked = (content: unknown, more: object = {}) =>
  JSON.stringify({ model: 'm', messages: [{ role: 'user', content }], ...more });
const answered = (content: string) => JSON.stringify({ choices: [{ message: { content } }] });
const deltas = (...parts: readonly string[]) =>
  parts.map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`).join('');
const SAID: Readonly<Record<string, Said>> = {
  question: { request: asked('Where is the Blue Whale?') },
  answer: { request: asked('hello'), answer: answered('A blue whale sings.') },
  stream: { request: asked('hi'), answer: deltas('blu', 'e wh', 'ale'), type: 'text/event-stream' },
  escaped: { request: asked('x').replace('"x"', '"say \\"hi\\" to M\\u00fcller"') },
  member: { request: asked('y', { user: 'whale-watcher' }), answer: answered('metadata.team:orca is used up') },
  none: { request: asked('nothing of interest') },
};

beforeAll(async () => {
  under = await startExports('sqlite');
  const { on } = under;
  const { a, b } = on.admin;
  const id = await on.addUser('member', { [a.workspace_id]: 'member' });
  const { key } = await on.makeKey('workspace/user', ['logs.view', 'logs.list'], { user_id: id });
  member = { id, key };
  const names = Object.keys(SAID);
  const more = (n: number) => ({ trace_id: names[n], said: SAID[names[n] ?? ''], metadata: { team: 'orca' } });
  await under.write(3, more);
  await under.keeper.keeper.flush();
  await under.write(names.length - 3, (n) => ({ ...more(n + 3), user_id: names[n + 3] === 'member' ? id : null }));
  const foreign = { organisation_id: b.organisation_id, workspace_id: b.workspace_id };
  await under.write(1, () => ({ ...foreign, trace_id: 'foreign', said: SAID.question }));
}, 60_000);
afterAll(() => under.close());

async function search(q: string, more: Record<string, string> = {}, key = under.on.admin.a.workspace_api_key) {
  const query = new URLSearchParams({ q, order: 'oldest', ...more });
  return under.on.admin.call('GET', `/v1/logs?${query}`, { key });
}
/** Of what is found; on a machine with much to do a page may end before it is full. */
async function traces(q: string, more: Record<string, string> = {}, key?: string): Promise<string[]> {
  const { status, body, text } = await search(q, more, key);
  expect(status, text).toBe(200);
  const found = body.data.map(({ trace_id }: { trace_id: string }) => trace_id);
  expect(body.search.unread).toBe(0);
  return body.search.complete ? found : [...found, ...(await traces(q, { ...more, cursor: body.next_cursor }, key))];
}
const setting = async (body: object) => {
  const answer = await under.on.admin.call('PUT', '/v1/admin/organisation/settings', { body });
  expect(answer.status, answer.text).toBe(200);
};

describe('a phrase in bodies', () => {
  it('is found in requests, answers and across the events of streams, in any case', async () => {
    expect(await traces('bLUE whale')).toEqual(['question', 'answer', 'stream']);
    expect(await traces('blue whale', { order: 'newest' })).toEqual(['stream', 'answer', 'question']);
    expect(await traces('blue whale', { status_code: '404' })).toEqual([]);
  });

  it('is compared with what was said, whatever JSON makes of it, and not with names of members', async () => {
    expect(await traces('say "hi" to müller')).toEqual(['escaped']);
    expect(await traces('messages')).toEqual([]);
    expect(await traces('50% of _')).toEqual([]);
  });

  it('leads from page to page, each with as many as are asked for', async () => {
    const { body: first } = await search('blue whale', { limit: '2' });
    expect(first.data.map(({ trace_id }: { trace_id: string }) => trace_id)).toEqual(['question', 'answer']);
    expect(await traces('blue whale', { limit: '2', cursor: first.next_cursor })).toEqual(['stream']);
    refused(await search('blue', { cursor: first.next_cursor }), 400, 'AB01', 'cursor');
  });

  it('is looked for in one workspace, by those who may read bodies', async () => {
    const { a, b } = under.on.admin;
    expect(await traces('blue whale', {}, b.workspace_api_key)).toEqual(['foreign']);
    refused(await search('blue whale', {}, a.admin_api_key), 400, 'AB01', 'q');
    expect(await traces('blue whale', { workspace_id: a.workspace_id }, a.admin_api_key)).toHaveLength(3);
    const { key } = await under.on.makeKey('workspace/service', ['logs.list']);
    refused(await search('blue whale', {}, key), 403, 'AB03', 'q');
    refused(await search('blue whale', { total: 'true' }), 400, 'AB01', 'total');
  });

  it('finds no body that a setting hides, and nothing of metadata where that is hidden', async () => {
    expect(await traces('whale', {}, member.key)).toEqual(['question', 'answer', 'stream', 'member']);
    await setting({ security_settings: { membersViewAllData: false } });
    expect(await traces('whale', {}, member.key)).toEqual(['member']);
    await setting({ security_settings: { membersViewAllData: true, membersViewLogMetadata: false } });
    expect(await traces('whale-watcher', {}, member.key)).toEqual([]);
    expect(await traces('team:orca', {}, member.key)).toEqual([]);
    expect(await traces('is used up', {}, member.key)).toEqual(['member']);
    await setting({ security_settings: { membersViewLogMetadata: true } });
    expect(await traces('team:orca', {}, member.key)).toEqual(['member']);
  });

  it('is not found where the days of a body are over', async () => {
    const time = Date.now() - 3 * 86_400_000;
    await under.write(1, () => ({ time, trace_id: 'old', said: { request: asked('an old walrus') } }));
    const since = { time_of_generation_min: new Date(time - 1_000).toISOString() };
    const until = { ...since, time_of_generation_max: new Date().toISOString() };
    expect(await traces('walrus', until)).toEqual(['old']);
    await setting({ bodies_days: 2 });
    expect(await traces('walrus', until)).toEqual([]);
  });
});

describe('a search that takes long', () => {
  const kept: KeptRequest = {
    id: '1',
    end: {
      organisation_id: 'o',
      workspace_id: 'w',
      chunk: 'c',
      slot: 0,
      time: 0,
      flags: 0,
      parts: { request: { bytes: 9 } },
    },
    bodies: { request: Buffer.from('{"a":"b c"}') },
  };
  const scope = { organisationId: 'o', workspaceIds: ['w'], userId: null, keptSince: 0, erased: [] };
  const selection: LogSelection = { scope, from: 0, to: 1_000, where: [] };
  const row = (n: number) => ({ id: String(n), time: n });
  const query = { phrase: 'nowhere', since: 0, noMetadata: false, columns: ['id'], order: 'oldest', limit: 5 } as const;

  it('ends after a second, says so, and the next page goes on behind the last request that was read', async () => {
    const clock = new TestClock(0);
    const behinds: unknown[] = [];
    const store = {
      async page(
        _: LogSelection,
        { behind, limit }: { behind: { time: number } | null; limit: number },
      ): Promise<LogPage> {
        behinds.push(behind?.time ?? null);
        const first = behind === null ? 0 : behind.time + 1;
        const rows = Array.from({ length: Math.min(limit, 300 - first) }, (__, n) => row(first + n));
        const last = rows.at(-1) ?? null;
        return { rows, next: first + rows.length < 300 ? last : null, completeTo: 0, incomplete: [] };
      },
    };
    const find = async () => {
      clock.advance(8);
      return kept;
    };
    const under = new LogSearch({ store, bodies: async () => ({ find }), clock });
    const first = await under.search(selection, { ...query, behind: null });
    expect(first).toMatchObject({ rows: [], complete: false, searched: 125, next: { time: 124 } });
    const second = await under.search(selection, { ...query, behind: first.next });
    const third = await under.search(selection, { ...query, behind: second.next });
    expect([second.complete, third.complete, third.next]).toEqual([false, true, null]);
    expect(first.searched + second.searched + third.searched).toBe(300);
    expect(behinds.slice(0, 2)).toEqual([null, 99]);
  });
});
