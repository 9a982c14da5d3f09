/** What was asked to be erased: hidden at once, and then in no file. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { FEEDBACK } from '../../src/store/conformance/feedback-row.ts';
import { LOG_DESTINATION, LOG_DESTINATION_FEED } from '../../src/store/conformance/log-destination-row.ts';
import type { Answer } from '../support/admin.ts';
import { type ErasuresUnderTest, startErasures } from '../support/log-erasures.ts';

describe.each(['sqlite', 'postgres'] as const)('erasure of stored requests on %s', (engine) => {
  let under: ErasuresUnderTest;
  const call = (method: string, path: string, body?: unknown, key?: string): Promise<Answer> =>
    under.admin.call(method, path, { ...(body === undefined ? {} : { body }), ...(key === undefined ? {} : { key }) });
  const ok = async (...asked: Parameters<typeof call>) => {
    const answer = await call(...asked);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  };
  /** Everything that answers show of the requests of organisation A, or of another key. */
  const times = (from: string, to: string) => {
    const at = (ms: number) => new Date(systemClock.now() + ms).toISOString();
    return `${from}=${at(-3_600_000)}&${to}=${at(3_600_000)}`;
  };
  const shown = async (key?: string): Promise<string> => {
    const range = times('time_of_generation_min', 'time_of_generation_max');
    const answers = await Promise.all(
      [
        '/v1/logs?limit=200',
        `/v1/logs/groups/trace_id?${range}`,
        `/v1/analytics/metadata/_user?${range}`,
        `/v1/analytics/groups/users?${range}`,
      ].map((path) => call('GET', path, undefined, key)),
    );
    return answers.map(({ text }) => text).join('\n');
  };
  const counted = async (): Promise<number> => {
    const range = times('time_of_generation_min', 'time_of_generation_max');
    return (await ok('GET', `/v1/analytics/graphs/requests?${range}`)).summary.total;
  };

  beforeAll(async () => {
    under = await startErasures(engine);
  }, 60_000);
  afterAll(() => under.close());

  it('names the log destinations that may have been sent such requests, of the place and no other', async () => {
    const { a, b } = under.admin;
    const at = { created_at: 1, last_updated_at: 1 };
    const place = { organisation_id: a.organisation_id, workspace_id: a.workspace_id };
    const wide = { ...place, workspace_id: null };
    const foreign = { organisation_id: b.organisation_id, workspace_id: b.workspace_id };
    const made = [
      ['on', place, true, 0],
      ['off-and-fed', place, false, 3],
      ['off-and-never-fed', place, false, 0],
      ['wide', wide, true, 5],
      ['foreign', foreign, true, 5],
    ] as const;
    await under.tables.systemWrite(async (tx) => {
      for (const [id, of, enabled, delivered] of made) {
        await tx.insert('log_destinations', { ...LOG_DESTINATION, id, name: id, ...of, enabled, ...at });
        const feed = { ...LOG_DESTINATION_FEED, delivered, organisation_id: of.organisation_id, destination_id: id };
        await tx.insert('log_destination_feeds', feed);
      }
    });
    const erased = await ok('POST', '/v1/logs/erase', { end_user: 'nobody', workspace_id: a.workspace_id });
    expect([...erased.destinations].sort()).toEqual(['off-and-fed', 'on', 'wide']);
    const read = await ok('GET', `/v1/logs/erasures/${erased.id}`);
    expect(read.destinations).toEqual(erased.destinations);
    await under.tables.systemWrite(async (tx) => {
      for (const [id] of made) {
        await tx.remove('log_destination_feeds', { destination_id: id });
        await tx.remove('log_destinations', { id });
      }
    });
  });

  it('hides the requests of an end user from every answer at once, and leaves those of others', async () => {
    const canary = `canary-${engine}-ada`;
    const { b } = under.admin;
    const theirs = { organisation_id: b.organisation_id, workspace_id: b.workspace_id };
    const gone = [];
    for (let n = 0; n < 3; n++) {
      const user = { _user: canary, note: canary };
      gone.push(
        await under.write(`says ${canary}`, { metadata: user, trace_id: `${canary}-${n}`, error_message: canary }),
      );
    }
    const stays = await under.write('says nothing', { metadata: { _user: 'grace' } });
    const foreign = await under.write(`says ${canary}`, { ...theirs, metadata: { _user: canary } });
    const [first] = gone;
    if (first === undefined) throw new Error('there are three');
    expect(await shown()).toContain(canary);
    expect((await ok('GET', `/v1/logs/${first.id}`)).request.body).toEqual({ text: `says ${canary}` });
    const before = await counted();

    const search = `/v1/logs?q=${canary}&workspace_id=${under.admin.a.workspace_id}`;
    expect((await ok('GET', search)).data).toHaveLength(3);
    const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
    expect((await ok('GET', search)).data).toEqual([]);
    // Who is bound to a workspace sees no more than others, though the erasure is of all workspaces.
    expect(await shown(under.admin.a.workspace_api_key)).not.toContain(canary);
    expect(made).toMatchObject({ status: 'pending', selects: 'end_user', records: 0, workspace_id: null });
    expect(JSON.stringify(made)).not.toContain(canary);
    expect(await shown()).not.toContain(canary);
    expect(await counted()).toBe(before - 3);
    for (const { id } of gone) {
      expect((await call('GET', `/v1/logs/${id}`)).status).toBe(404);
      expect((await call('GET', `/v1/logs/${id}/decision`)).status).toBe(404);
    }
    expect((await call('GET', `/v1/logs/${stays.id}`)).status).toBe(200);
    expect(await shown(b.admin_api_key)).toContain(canary);

    // No file is written anew yet: now they are.
    expect(await under.placesOf(`${canary}-0`)).not.toEqual([]);
    under.work();
    const done = await under.done(made.id);
    expect(done).toMatchObject({ records: 3, bodies: 3, damaged_files: 0, nodes: ['node'] });
    expect(done.done_at).not.toBeNull();
    expect(await shown()).not.toContain(canary);
    expect(await counted()).toBe(before - 3);
    expect((await ok('GET', `/v1/logs/${stays.id}`)).request.body).toEqual({ text: 'says nothing' });
    const read = await ok('GET', `/v1/logs/${foreign.id}`, undefined, b.admin_api_key);
    expect(read.request.body).toEqual({ text: `says ${canary}` });

    // Once the other organisation has erased them, too, no file has them.
    const other = await ok('POST', '/v1/logs/erase', { end_user: canary }, b.admin_api_key);
    await expect
      .poll(async () => (await ok('GET', `/v1/logs/erasures/${other.id}`, undefined, b.admin_api_key)).status, {
        timeout: 30_000,
      })
      .toBe('done');
    expect(await under.placesOf(canary)).toEqual([]);
    expect((await call('GET', `/v1/logs/erasures/${other.id}`)).status).toBe(404);
    expect(await counted()).toBe(before - 3);
  });

  it('goes on wherever the keeper is killed, loses nothing else, and no body comes back', async () => {
    const canary = `canary-${engine}-trace`;
    const { organisation_id, workspace_id } = under.admin.a;
    for (let n = 0; n < 3; n++) await under.write(`${canary} ${n}`, { trace_id: canary });
    const stays = await under.write('stays in the same chunk and file');
    await under.tables.systemWrite((tx) =>
      tx.insert('feedback', {
        ...FEEDBACK,
        trace_id: canary,
        id: `feedback-${engine}`,
        organisation_id,
        workspace_id,
        created_at: 1,
        last_updated_at: 1,
      }),
    );
    const before = await counted();
    const made = await ok('POST', '/v1/logs/erase', { trace_id: canary });
    under.killAt('before chunk', 'after chunk', 'before feedback', 'before chunk', 'files');
    const done = await under.done(made.id);
    expect(under.deaths).toEqual([]);
    // Of a pass that was cut short nothing is counted.
    expect(done.records).toBeLessThanOrEqual(3);
    expect(await under.placesOf(canary)).toEqual([]);
    expect(await counted()).toBe(before - 3);
    expect((await ok('GET', `/v1/logs/${stays.id}`)).request.body).toEqual({
      text: 'stays in the same chunk and file',
    });
  });

  it('takes one request, those of a key, and those of before a time', async () => {
    const { workspace_id } = under.admin.a;
    const key = '01890000-0000-7000-8000-0000000000aa';
    const [one, other] = [await under.write('one', { api_key_id: key }), await under.write('other')];
    const early = await under.write('early', { api_key_id: key, time: systemClock.now() - 60_000 });
    const deleted = await ok('DELETE', `/v1/logs/${other.id}`);
    expect(deleted).toMatchObject({ selects: 'id', before: null });
    expect((await call('GET', `/v1/logs/${other.id}`)).status).toBe(404);
    expect((await call('DELETE', `/v1/logs/${other.id}`)).status).toBe(404);
    const before = new Date(systemClock.now() - 30_000).toISOString();
    const some = await ok('POST', '/v1/logs/erase', { api_key_id: key, before, workspace_id });
    expect(some).toMatchObject({ workspace_id, before });
    expect((await call('GET', `/v1/logs/${early.id}`)).status).toBe(404);
    expect((await call('GET', `/v1/logs/${one.id}`)).status).toBe(200);
    expect((await under.done(deleted.id)).records).toBe(1);
    expect((await under.done(some.id)).records).toBe(1);
    expect((await ok('GET', `/v1/logs/${one.id}`)).request.body).toEqual({ text: 'one' });
    const listed = await ok('GET', '/v1/logs/erasures?page_size=2');
    expect(listed.data.map(({ id }: { id: string }) => id)).toEqual([some.id, deleted.id]);
    expect(listed.total).toBe(5);
  });

  it('is for owners, admins and organisation keys, and for nothing but what was named', async () => {
    const { a } = under.admin;
    const { id } = await under.write('stays');
    const tries = [
      ['POST', '/v1/logs/erase', { end_user: 'x' }],
      ['DELETE', `/v1/logs/${id}`, undefined],
      ['GET', '/v1/logs/erasures', undefined],
    ] as const;
    for (const [method, path, body] of tries) {
      expect((await call(method, path, body, a.workspace_api_key)).status, path).toBe(403);
    }
    const wrong = [
      {},
      { end_user: 'x', trace_id: 'y' },
      { end_user: '' },
      { end_user: 'x', before: '2999-01-01T00:00:00Z' },
      { end_user: 'x', before: 'soon' },
      { api_key_id: 'x' },
    ];
    for (const body of wrong)
      expect((await call('POST', '/v1/logs/erase', body)).status, JSON.stringify(body)).toBe(400);
    expect((await call('GET', `/v1/logs/${id}`)).status).toBe(200);
  });

  it('leaves a row in the audit log that does not name the person', async () => {
    const canary = `canary-${engine}-audit`;
    const made = await ok('POST', '/v1/logs/erase', { end_user: canary });
    const rows = await ok('GET', `/v1/audit-logs?${times('start_time', 'end_time')}`);
    const row = rows.records.find((one: { resource_id: string }) => one.resource_id === made.id);
    expect(row).toMatchObject({ action: 'delete' });
    expect(JSON.stringify(rows)).not.toContain(canary);
    await under.done(made.id);
    expect(await under.placesOf(canary)).toEqual([]);
  });
});
