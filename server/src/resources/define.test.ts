/** A resource that this file alone declares: everything that follows from its declaration is there. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../test/support/admin.ts';
import { buildOpenApi } from '../admin/openapi.ts';
import { slugify, uuidv7 } from '../kernel/id.ts';
import type { Row } from '../store/schema.ts';
import { ACTIONS } from './catalog.ts';
import { actorId } from './common.ts';
import { defineResource, itemAction } from './define.ts';
import { mergeActions } from './guardrails/schema.ts';
import { Levels, levelOf } from './kinds/levels.ts';
import { currentVersion } from './kinds/versions.ts';
import { action, type Call } from './resource.ts';
import { afterCommit, Service, Services } from './services.ts';
import { resourceSpec } from './spec.ts';

type Note = Row<'guardrails'>;

const LEVELS = new Levels({ workspace: 'guardrails', organisation: 'organisation_guardrails' });
const CLOCKWORK = new Service<{ tick(): Promise<string> }>('clockwork');

const createBody = z.strictObject({
  workspace_id: z.string().optional(),
  organisation_id: z.string().optional(),
  name: z.string(),
  text: z.string(),
});
const updateBody = z.strictObject({ name: z.string().optional(), text: z.string().optional() });
const item = z.object({ id: z.string(), name: z.string(), level: z.enum(['organisation', 'workspace']) });
const detail = item.extend({ text: z.string(), version_id: z.string() });

const present = (row: Note) => ({ id: row.id, name: row.name, level: levelOf(row) });
const textOf = (version: Row<'guardrail_versions'>) => version.checks[0]?.id ?? '';
const contentOf = (text: string) => ({
  checks: [{ id: text, is_enabled: true, parameters: {} }],
  actions: mergeActions(null, undefined),
});

/** Its rows are kept where guardrails are: only the table of a new resource would be new. */
const spec = resourceSpec({
  name: 'notes',
  tag: 'Notes',
  table: 'guardrails',
  path: '/notes',
  param: 'noteId',
  scopes: LEVELS.scopes,
  levels: LEVELS,
  versions: {
    table: 'guardrail_versions',
    of: 'guardrail_id',
    routes: {
      item: detail,
      present: async (row, version) => ({ ...present(row), text: textOf(version), version_id: version.id }),
      maxPageSize: 100,
      defaultPageSize: 50,
      restored: z.object({ version_id: z.string() }),
      restoreDescription: 'Its text becomes a new version.',
      restore: async (call, _row, former) => {
        const id = uuidv7(call.clock);
        const patch = { updated_by: actorId(call.principal) };
        return { patch, version: { id, ...contentOf(textOf(former)) }, answer: { version_id: id } };
      },
    },
  },
  tenant: 'organisation',
  object: 'note',
  archives: true,
  list: { query: z.object({}), paging: 'cursor', defaultPageSize: 2, maxPageSize: 10, item, present },
  detail,
  present: async (row, call) => {
    const version = await currentVersion(call, 'guardrail_versions', row);
    return { ...present(row), text: textOf(version), version_id: version.id };
  },
  create: {
    body: createBody,
    response: z.object({ id: z.string() }),
    answers: { as: 'json', status: 201 },
    run: async (call) => {
      const workspace_id = await LEVELS.place(call, 'a note');
      const now = call.clock.now();
      const row: Note = {
        id: uuidv7(call.clock),
        organisation_id: call.tenant.organisationId,
        workspace_id,
        slug: slugify(call.body.name, 'nt-'),
        name: call.body.name,
        target: 'llm',
        status: 'active',
        version_id: uuidv7(call.clock),
        owner_id: actorId(call.principal),
        updated_by: null,
        created_at: now,
        last_updated_at: now,
      };
      return { row, version: { id: row.version_id, ...contentOf(call.body.text) }, answer: { id: row.id } };
    },
  },
  update: {
    method: 'PATCH',
    body: updateBody,
    response: z.strictObject({}),
    run: async (call, _row) => {
      const { name, text } = call.body;
      return {
        patch: name === undefined ? {} : { name },
        ...(text === undefined ? {} : { version: { id: uuidv7(call.clock), ...contentOf(text) } }),
        answer: {},
      };
    },
  },
  remove: { referred: ({ kind, name }) => `This note is still used: ${kind} ${name}.` },
});

const copies = z.object({ id: z.string(), times: z.int() });

const notes = defineResource({
  ...spec,
  actions: [
    itemAction(spec, {
      name: 'copies',
      method: 'POST',
      summary: 'Copy a note',
      verb: 'update',
      body: z.strictObject({ times: z.int() }),
      response: copies,
      answers: { as: 'json', status: 201 },
      audit: 'duplicate',
      run: async (call, row) => ({ answer: { id: row.id, times: call.body.times } }),
    }),
    itemAction(spec, {
      name: 'text',
      method: 'GET',
      summary: 'Get the text of a note',
      verb: 'read',
      response: z.string(),
      answers: { as: 'text', contentType: 'text/plain; charset=utf-8' },
      audit: null,
      run: async (call, row) => ({ answer: textOf(await currentVersion(call, 'guardrail_versions', row)) }),
    }),
    itemAction(spec, {
      name: 'open',
      method: 'GET',
      summary: 'Go to a note',
      verb: 'read',
      response: z.string(),
      answers: { as: 'redirect', status: 303 },
      audit: null,
      run: async (_call, row) => ({ answer: `https://notes.example/${row.slug}` }),
    }),
    itemAction(spec, {
      name: 'seen',
      method: 'POST',
      summary: 'Say that a note was seen',
      verb: 'update',
      query: null,
      body: z.strictObject({ by: z.string() }),
      takes: 'form',
      response: z.null(),
      answers: { as: 'nothing' },
      audit: 'manage',
      run: async (call, row) => {
        call.audit(row.id, { before: null, after: { seen_by: call.body.by } });
        return { answer: null };
      },
    }),
    itemAction(spec, {
      name: 'tick',
      method: 'GET',
      summary: 'Wait for clockwork',
      verb: 'read',
      response: z.object({ said: z.string() }),
      audit: null,
      run: async () =>
        afterCommit({ clockwork: CLOCKWORK }, async ({ clockwork }) => ({ said: await clockwork.tick() })),
    }),
  ],
});

describe.each(['sqlite', 'postgres'] as const)('a resource that is declared in one place, on %s', (engine) => {
  let on: AdminHarness;
  let ownKey = '';
  const services = new Services();

  const call = (method: string, path: string, body?: unknown, key?: string) =>
    on.call(method, `/v1/notes${path}`, { ...(body === undefined ? {} : { body }), ...(key ? { key } : {}) });
  const create = async (name: string, where: object, text = 'first') => {
    const made = await call('POST', '', { name, text, ...where });
    expect(made.status, made.text).toBe(201);
    return String(made.body.id);
  };
  const here = () => ({ workspace_id: on.a.workspace_id });
  const everywhere = () => ({ organisation_id: on.a.organisation_id });
  const audit = async (answer: Answer) => {
    const where = { request_id: answer.headers.get('x-gateway-request-id') ?? '' };
    const [row] = await on.tables.systemRead((tx) => tx.list('audit_log', { where }));
    return row;
  };

  beforeAll(async () => {
    on = await startAdmin(await emptyTables(engine), { rows: notes.actions, admin: { services } });
    const body = {
      name: 'reader',
      scopes: ['guardrails.list', 'guardrails.read', 'guardrails.update'],
      ...here(),
    };
    ownKey = String((await on.call('POST', '/v1/api-keys/workspace/service', { body })).body.key);
  });

  afterAll(async () => {
    await on?.close();
  });

  it('answers 201 to a create and to an action that says so, and the audit log has that status', async () => {
    const id = await create('Copied', everywhere());
    const copied = await call('POST', `/${id}/copies`, { times: 2 });
    expect([copied.status, copied.body]).toEqual([201, { id, times: 2 }]);
    expect(await audit(copied)).toMatchObject({
      response_status_code: 201,
      action: 'duplicate',
      resource_type: 'notes',
      resource_id: id,
    });
  });

  it('is made in a workspace or in the organisation, and each level has its own scope', async () => {
    expect((await call('POST', '', { name: 'Nowhere', text: '' })).body.error).toMatchObject({
      param: 'workspace_id',
      message: 'workspace_id is required, or organisation_id for a note of the whole organisation.',
    });
    const [own, shared] = [await create('Own', here()), await create('Shared', everywhere())];
    const got = await call('GET', `/${own}`, undefined, ownKey);
    expect([got.status, got.body.level]).toEqual([200, 'workspace']);
    const refused = await call('GET', `/${shared}`, undefined, ownKey);
    expect([refused.status, refused.body.error.message]).toEqual([
      403,
      'This needs the scope organisation_guardrails.read, which your credential does not have.',
    ]);
    expect((await call('PATCH', `/${shared}`, { name: 'x' }, ownKey)).status).toBe(403);
    expect((await call('DELETE', `/${own}`, undefined, ownKey)).body.error.message).toContain('guardrails.delete');
  });

  it('keeps a version of every text, lists them, and brings a former one back as a new one', async () => {
    const id = await create('Versioned', everywhere(), 'one');
    const first = (await call('GET', `/${id}`)).body.version_id;
    const changed = await call('PATCH', `/${id}`, { text: 'two' });
    expect(changed.status, changed.text).toBe(200);
    const row = await audit(changed);
    expect(JSON.parse(row?.before ?? '')).toMatchObject({ checks: [{ id: 'one' }], version_id: first });
    expect(JSON.parse(row?.after ?? '')).toMatchObject({ checks: [{ id: 'two' }] });
    expect((await call('PATCH', `/${id}`, { name: 'Renamed' })).status).toBe(200);
    expect((await call('POST', `/${id}/versions/${first}/restore`)).status).toBe(200);
    const versions = (await call('GET', `/${id}/versions`)).body;
    expect([versions.total, versions.data.map(({ text }: { text: string }) => text)]).toEqual([
      3,
      ['one', 'two', 'one'],
    ]);
    expect((await call('GET', `/${id}`)).body).toMatchObject({ name: 'Renamed', text: 'one' });
    expect((await call('GET', `/${id}/versions/${first}`)).body).toMatchObject({ text: 'one', version_id: first });
    expect((await call('GET', `/${id}/versions/${id}`)).status).toBe(404);
  });

  it('announces every write under its topic, with the workspace of the object', async () => {
    const before = await on.tables.lastChange();
    const id = await create('Announced', here());
    await call('PATCH', `/${id}`, { name: 'Again' });
    await call('DELETE', `/${id}`);
    const seen = (await on.tables.changesAfter(before, 100)).filter(({ entityId }) => entityId === id);
    expect(seen.map(({ topic, workspaceId }) => [topic, workspaceId])).toEqual(
      Array(3).fill(['guardrails', on.a.workspace_id]),
    );
    expect((await call('GET', `/${id}`)).status).toBe(404);
  });

  it('pages by cursor: the pages together are the whole list, newest first', async () => {
    for (const name of ['A', 'B', 'C']) await create(name, everywhere());
    const seen: string[] = [];
    let page = (await call('GET', '')).body;
    while (page.has_more) {
      expect(page.data).toHaveLength(2);
      seen.push(...page.data.map(({ id }: { id: string }) => id));
      page = (await call('GET', `?after=${seen.at(-1)}`)).body;
    }
    seen.push(...page.data.map(({ id }: { id: string }) => id));
    const all = (await call('GET', '?limit=10')).body;
    expect(all).toMatchObject({ object: 'list', has_more: seen.length > 10 });
    expect(seen.slice(0, 10)).toEqual(all.data.map(({ id }: { id: string }) => id));
    expect(new Set(seen).size).toBe(seen.length);
    expect((await call('GET', '?current_page=1')).status).toBe(400);
  });

  it('answers text, a redirect and nothing at all, and takes a form', async () => {
    const id = await create('Forms', everywhere(), 'plain');
    const text = await fetch(`${on.url}/v1/notes/${id}/text`, {
      headers: { 'x-gateway-api-key': on.a.admin_api_key },
    });
    expect([await text.text(), text.headers.get('content-type')]).toEqual(['plain', 'text/plain; charset=utf-8']);
    const there = await fetch(`${on.url}/v1/notes/${id}/open`, {
      headers: { 'x-gateway-api-key': on.a.admin_api_key },
      redirect: 'manual',
    });
    expect([there.status, there.headers.get('location')]).toEqual([
      303,
      expect.stringMatching(/^https:\/\/notes\.example\/nt-/),
    ]);
    const send = (body: string, type = 'application/x-www-form-urlencoded', more: Record<string, string> = {}) =>
      fetch(`${on.url}/v1/notes/${id}/seen`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': on.a.admin_api_key, 'content-type': type, ...more },
        body,
      });
    const once = { 'idempotency-key': `seen-${engine}` };
    const answers = [await send('by=Ada+L.', undefined, once), await send('by=Ada+L.', undefined, once)];
    expect(await Promise.all(answers.map(async (one) => [one.status, await one.text()]))).toEqual([
      [204, ''],
      [204, ''],
    ]);
    expect(answers.map((one) => one.headers.get('idempotency-replayed'))).toEqual([null, 'true']);
    expect((await send('by=a&by=b')).status).toBe(400);
    expect((await send('{"by":"a"}', 'application/json')).status).toBe(400);
  });

  it('is answered with 503 while this node has not the service that it needs, and by the service afterwards', async () => {
    const id = await create('Ticking', everywhere());
    const without = await call('GET', `/${id}/tick`);
    expect([without.status, without.body.error.message]).toEqual([503, 'This node has no clockwork.']);
    services.provide(CLOCKWORK, { tick: async () => 'tock' });
    expect((await call('GET', `/${id}/tick`)).body).toEqual({ said: 'tock' });
  });

  it('answers 405 to other methods of its paths', async () => {
    const refused = await call('PUT', `/${on.a.workspace_id}`, { name: 'x' });
    expect([refused.status, refused.headers.get('allow')]).toEqual([405, 'DELETE, GET, HEAD, PATCH']);
  });

  it('is in the reference with its methods, statuses and content types', () => {
    const { paths, components } = buildOpenApi([...ACTIONS, ...notes.actions], '1.2.3') as {
      paths: Record<string, Record<string, { operationId: string; responses: object; 'x-scopes': string[] }>>;
      components: { schemas: object };
    };
    const own = Object.entries(paths).filter(([path]) => path.startsWith('/v1/notes'));
    const said = own.flatMap(([, methods]) =>
      Object.entries(methods).map(([method, { operationId, responses }]) => [
        operationId,
        method,
        Object.keys(responses).find((status) => Number(status) < 400),
      ]),
    );
    expect(said.sort()).toEqual([
      ['notes.copies', 'post', '201'],
      ['notes.create', 'post', '201'],
      ['notes.delete', 'delete', '200'],
      ['notes.list', 'get', '200'],
      ['notes.open', 'get', '303'],
      ['notes.read', 'get', '200'],
      ['notes.restore', 'post', '200'],
      ['notes.seen', 'post', '204'],
      ['notes.text', 'get', '200'],
      ['notes.tick', 'get', '200'],
      ['notes.update', 'patch', '200'],
      ['notes.version', 'get', '200'],
      ['notes.versions', 'get', '200'],
    ]);
    expect(paths['/v1/notes/{noteId}']?.patch?.['x-scopes']).toEqual([
      'guardrails.update',
      'organisation_guardrails.update',
    ]);
    expect(Object.keys(components.schemas)).toEqual(
      expect.arrayContaining(['Note', 'NoteItem', 'NoteList', 'NoteCreate', 'NoteCreated', 'NoteUpdate']),
    );
    expect(JSON.stringify(paths['/v1/notes/{noteId}/text'])).toContain('"text/plain"');
    expect(JSON.stringify(paths['/v1/notes/{noteId}/seen'])).toContain('"application/x-www-form-urlencoded"');
  });
});

describe('an action', () => {
  it('that writes and puts its answer off is a fault of ours, and writes nothing', async () => {
    const late = action<unknown, unknown, unknown, unknown>({
      id: 'test.late',
      method: 'POST',
      path: '/test/late',
      summary: 'For a test',
      tag: 'Test',
      auth: 'key_or_login',
      scopes: ['workspaces.update'],
      tenant: 'organisation',
      params: null,
      query: null,
      body: null,
      response: z.unknown(),
      writes: true,
      audit: { action: 'update', resource: 'workspaces' },
      run: async (call: Call) => {
        await call.tx.update('workspaces', { is_default: true }, { name: 'changed' });
        return afterCommit({}, async () => ({}));
      },
    });
    const on = await startAdmin(await emptyTables('sqlite'), { rows: [late] });
    try {
      expect((await on.call('POST', '/v1/test/late')).status).toBe(500);
      const found = await on.tables.systemRead((tx) => tx.find('workspaces', { id: on.a.workspace_id }));
      expect(found?.name).toBe('Default');
    } finally {
      await on.close();
    }
  });
});
