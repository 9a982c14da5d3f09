/** Feedback through the administration API on both stores: what is kept, what is refused, and who sees it. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import type { StoredLog } from '../../store/ports.ts';
import { Services } from '../services.ts';
import { TRACES } from './traces.ts';

/** Records of traces by workspace and trace. */
const records = new Map<string, object>();
let broken = false;

const services = () =>
  new Services().provide(TRACES, {
    async lastOfTraces({ workspaceId }, traceIds) {
      if (broken) throw new Error('the log store is away');
      const found = traceIds.map((id) => [id, records.get(`${workspaceId} ${id}`) as StoredLog | undefined] as const);
      return new Map(found.flatMap(([id, record]) => (record === undefined ? [] : [[id, record] as const])));
    },
  });

describe.each(['sqlite', 'postgres'] as const)('feedback on %s', (engine) => {
  let on: Organisation;
  let key: Caller;
  let other: Caller;

  beforeAll(async () => {
    on = await startOrganisation(engine, { admin: { services: services(), requestsPerMinute: 100_000 } });
    key = on.as(on.admin.a.workspace_api_key);
    other = on.as(on.admin.b.workspace_api_key);
  });
  afterAll(() => on.admin.close());

  const place = () => on.admin.a.workspace_id;
  const give = async (item: object, by = key): Promise<string> => {
    const made = await by('POST', '/v1/feedback', { value: 1, trace_id: 't', ...item });
    expect(made.status, made.text).toBe(200);
    return made.body.feedback_ids[0];
  };
  const get = async (id: string, by = key) => (await by('GET', `/v1/feedback/${id}`)).body;

  it('keeps one, with the model, provider and config of the last request of its trace', async () => {
    const user_id = randomUUID();
    records.set(`${place()} conversation`, {
      model_requested: 'gpt-4o',
      model_sent: 'gpt-4o-mini',
      provider: 'openai',
      config_slug: 'pc-a',
      user_id,
    });
    const given = {
      trace_id: 'conversation',
      value: -3,
      weight: 0.333333,
      metadata: { _user: 'ada', more: [1, null] },
    };
    const made = await key('POST', '/v1/feedback', given);
    expect(made.body).toEqual({
      status: 'success',
      message: 'The feedback is stored.',
      feedback_ids: [expect.any(String)],
      matched: [true],
    });
    expect(await get(made.body.feedback_ids[0])).toEqual({
      ...given,
      id: made.body.feedback_ids[0],
      object: 'feedback',
      workspace_id: place(),
      source: 'api',
      api_key_id: expect.any(String),
      ai_model: 'gpt-4o-mini',
      provider: 'openai',
      config_slug: 'pc-a',
      matched: true,
      created_at: expect.stringMatching(/Z$/),
      last_updated_at: expect.stringMatching(/Z$/),
    });
  });

  it('keeps a list whole, its ids in the order of the items', async () => {
    const items = Array.from({ length: 100 }, (_, n) => ({ trace_id: `list-${n}`, value: (n % 21) - 10 }));
    const { status, body } = await key('POST', '/v1/feedback', items);
    expect([status, body.feedback_ids.length, new Set(body.feedback_ids).size]).toEqual([200, 100, 100]);
    for (const n of [0, 41, 99]) {
      expect(await get(body.feedback_ids[n])).toMatchObject({ ...items[n], weight: 1, metadata: null });
    }
  });

  it('keeps one on a trace of no request, and one while records cannot be read', async () => {
    expect(await get(await give({ trace_id: 'nobody' }))).toMatchObject({ matched: false, ai_model: null });
    broken = true;
    expect(await get(await give({ trace_id: 'conversation' }))).toMatchObject({ matched: false, ai_model: null });
    broken = false;
  });

  it('keeps nothing of a list with faults, and names each fault by its place', async () => {
    const count = async () => (await key('GET', '/v1/feedback')).body.total;
    const before = await count();
    const { status, body } = await key('POST', '/v1/feedback', [
      { trace_id: 'a', value: 1 },
      { trace_id: 'b', value: 11 },
      { value: 1, weight: 2 },
      { trace_id: 'd', value: 1.5, extra: 1 },
    ]);
    expect([status, body.error.code, body.error.param]).toEqual([400, 'AB01', '[1].value']);
    expect(body.errors.map(({ param }: { param: string }) => param).sort()).toEqual([
      '[1].value',
      '[2].trace_id',
      '[2].weight',
      '[3].extra',
      '[3].value',
    ]);
    expect(await count()).toBe(before);
  });

  it.each([
    ['an empty list', [], null],
    ['more than 100', Array.from({ length: 101 }, () => ({ trace_id: 't', value: 1 })), null],
    ['no value', { trace_id: 't' }, 'value'],
    ['a value out of range', { trace_id: 't', value: -11 }, 'value'],
    ['a negative weight', { trace_id: 't', value: 1, weight: -0.1 }, 'weight'],
    ['an empty trace', { trace_id: '', value: 1 }, 'trace_id'],
    ['a key that is not known', { trace_id: 't', value: 1, traceID: 't' }, 'traceID'],
    ['too much metadata', { trace_id: 't', value: 1, metadata: { a: 'x'.repeat(17_000) } }, 'metadata'],
    ['text that cannot be kept', [{ trace_id: 't', value: 1, metadata: { a: '\0' } }], '[0].metadata.a'],
  ])('refuses %s', async (_title, body, param) => {
    refused(await key('POST', '/v1/feedback', body), 400, 'AB01', param);
  });

  it.each(['[', '[]]', '[],"a":[]', '[{"value":1,"value":2}]', ' [1', '"text"', '7'])(
    'refuses %s, which is no JSON list and no object',
    async (raw) => {
      const headers = { 'content-type': 'application/json' };
      const answer = await on.admin.call('POST', '/v1/feedback', { key: on.admin.a.workspace_api_key, raw, headers });
      refused(answer, 400, 'AB01', null);
      const offset = /at byte ([0-9]+)/.exec(answer.body.error.message)?.[1];
      if (offset !== undefined) expect(Number(offset)).toBeLessThanOrEqual(raw.length);
    },
  );

  it('changes value, weight and metadata, and leaves what is left out', async () => {
    const id = await give({ value: 5, weight: 0.5, metadata: { a: 1 } });
    const change = async (body: object) => {
      const answer = await key('PUT', `/v1/feedback/${id}`, body);
      expect(answer.body, answer.text).toMatchObject({ status: 'success', feedback_ids: [id] });
      const { value, weight, metadata } = await get(id);
      return [value, weight, metadata];
    };
    expect(await change({ value: -2 })).toEqual([-2, 0.5, { a: 1 }]);
    expect(await change({ value: 0, weight: 1, metadata: { b: 2 } })).toEqual([0, 1, { b: 2 }]);
    expect(await change({ value: 0, metadata: null })).toEqual([0, 1, null]);
    refused(await key('PUT', `/v1/feedback/${id}`, { weight: 1 }), 400, 'AB01', 'value');
  });

  it('changes at the same time leave one of them whole', async () => {
    const id = await give({ value: 0, weight: 0 });
    const changes = Array.from({ length: 8 }, (_, n) => ({ value: n, weight: n / 10, metadata: { n } }));
    const answers = await Promise.all(changes.map((body) => key('PUT', `/v1/feedback/${id}`, body)));
    expect(answers.map(({ status }) => status)).toEqual(changes.map(() => 200));
    const { value, weight, metadata } = await get(id);
    expect(changes).toContainEqual({ value, weight, metadata });
  });

  it('a POST that is repeated with its Idempotency-Key is carried out once', async () => {
    const send = (body: object) =>
      on.admin.call('POST', '/v1/feedback', {
        key: on.admin.a.workspace_api_key,
        headers: { 'idempotency-key': 'once' },
        body,
      });
    const body = [{ trace_id: 'repeated', value: 1 }];
    const [first, second] = await Promise.all([send(body), send(body)]);
    expect(second?.text).toBe(first?.text);
    expect((await key('GET', '/v1/feedback?trace_id=repeated')).body.total).toBe(1);
    expect((await send([{ trace_id: 'repeated', value: 2 }])).status).toBe(400);
  });

  it('is listed newest first, by page and by trace', async () => {
    const ids: string[] = [];
    for (const value of [1, 2, 3]) ids.push(await give({ trace_id: 'listed', value }));
    const { body } = await key('GET', '/v1/feedback?trace_id=listed&page_size=2');
    expect([body.object, body.total, body.data.length]).toEqual(['list', 3, 2]);
    const rest = await key('GET', '/v1/feedback?trace_id=listed&page_size=2&current_page=1');
    const listed = [...body.data, ...rest.body.data];
    expect(listed.map(({ id }) => id).sort()).toEqual([...ids].sort());
    const times = listed.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort().reverse());
  });

  it('is of its workspace: others neither see nor change it', async () => {
    const id = await give({ trace_id: 'mine', value: 7 });
    expect((await other('GET', '/v1/feedback?trace_id=mine')).body.total).toBe(0);
    refused(await other('GET', `/v1/feedback/${id}`), 404, 'AB08', null);
    refused(await other('PUT', `/v1/feedback/${id}`, { value: 0 }), 404, 'AB08', null);
    for (const wrong of [randomUUID(), 'x']) {
      refused(await key('PUT', `/v1/feedback/${wrong}`, { value: 0 }), 404, 'AB08', null);
    }
    expect(await get(id)).toMatchObject({ value: 7 });
    // The record of another workspace is none.
    records.set(`${on.admin.b.workspace_id} elsewhere`, { model_requested: 'theirs' });
    expect(await get(await give({ trace_id: 'elsewhere' }))).toMatchObject({ matched: false, ai_model: null });
  });

  it.each([
    ['feedbacks.write', ['POST', 'PUT']],
    ['logs.write', ['POST', 'PUT']],
    ['feedbacks.read', ['GET']],
    ['logs.view', ['GET']],
    ['completions.write', []],
  ] as const)('a key with %s may %s', async (scope, may) => {
    const id = await give({});
    const { key: made } = await on.makeKey('workspace/service', [scope]);
    const call = on.as(made);
    const answers = {
      POST: await call('POST', '/v1/feedback', { trace_id: 't', value: 1 }),
      PUT: await call('PUT', `/v1/feedback/${id}`, { value: 1 }),
      GET: await call('GET', `/v1/feedback/${id}`),
    };
    for (const [method, answer] of Object.entries(answers)) {
      if ((may as readonly string[]).includes(method)) expect(answer.status, answer.text).toBe(200);
      else refused(answer, 403, 'AB03', null);
    }
  });

  it('leaves no audit row and no change for other nodes', async () => {
    const state = () =>
      on.admin.tables.systemRead(async (tx) => [
        await tx.count('audit_log', { where: { organisation_id: on.admin.a.organisation_id } }),
        await tx.count('changes'),
      ]);
    const before = await state();
    await key('PUT', `/v1/feedback/${await give({})}`, { value: 2 });
    refused(await key('POST', '/v1/feedback', { value: 2 }), 400, 'AB01', 'trace_id');
    expect(await state()).toEqual(before);
  });

  it('with membersViewAllData off a member sees feedback on own requests and, of others, none', async () => {
    const id = await on.addUser('member', { [place()]: 'member' });
    const scopes = ['feedbacks.read', 'feedbacks.write'];
    const own = on.as((await on.makeKey('workspace/user', scopes, { user_id: id })).key);
    records.set(`${place()} of-member`, { model_requested: 'm', user_id: id });
    records.set(`${place()} of-another`, { model_requested: 'm', user_id: on.admin.a.user_id });
    const [about, by, foreign] = [
      await give({ trace_id: 'of-member' }),
      await give({ trace_id: 'unknown-trace' }, own),
      await give({ trace_id: 'of-another' }, own),
    ];
    const settings = (value: boolean | null, name = 'membersViewAllData') =>
      on.admin.call('PUT', '/v1/admin/organisation/settings', { body: { security_settings: { [name]: value } } });
    const seen = async () => (await own('GET', '/v1/feedback')).body.data.map(({ id }: { id: string }) => id);
    expect(await seen()).toContain(foreign);
    await settings(false);
    expect((await seen()).sort()).toEqual([about, by].sort());
    expect((await own('GET', `/v1/feedback/${about}`)).status).toBe(200);
    refused(await own('GET', `/v1/feedback/${foreign}`), 404, 'AB08', null);
    refused(await own('PUT', `/v1/feedback/${foreign}`, { value: 0 }), 404, 'AB08', null);
    await settings(null);
    const secret = await give({ trace_id: 'of-member', metadata: { _user: 'secret' } });
    await settings(false, 'membersViewLogMetadata');
    expect((await own('GET', `/v1/feedback/${secret}`)).text).not.toContain('secret');
    expect((await own('GET', '/v1/feedback?trace_id=of-member')).text).not.toContain('secret');
    await settings(null, 'membersViewLogMetadata');
    expect((await own('GET', `/v1/feedback/${secret}`)).text).toContain('secret');
  });

  it('goes with its workspace', async () => {
    const made = await on.admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Short-lived' } });
    expect(made.status, made.text).toBe(200);
    const workspace_id = made.body.id;
    const { key: inside } = await on.makeKey('workspace/service', ['feedbacks.write'], { workspace_id });
    await give({ trace_id: 'gone' }, on.as(inside));
    const path = `/v1/admin/workspaces/${workspace_id}`;
    const gone = await on.admin.call('DELETE', path, { body: { force_delete: true } });
    expect(gone.status, gone.text).toBe(200);
    const left = await on.admin.tables.systemRead((tx) => tx.count('feedback', { where: { workspace_id } }));
    expect(left).toBe(0);
  });
});
