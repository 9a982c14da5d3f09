/** Files, batches, fine-tuning jobs and models for a user who is signed in, on a whole server: by cookie and by auth token. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { rightsOfCaller } from '../../src/auth/held-caller.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { createOrganisation } from '../../src/resources/organisations.ts';
import { workspaceRow } from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { addUser } from '../support/people.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { signedInBrowser, signInCall } from '../support/sign-in-ways.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

type Headers = Record<string, string>;
interface Told {
  readonly status: number;
  readonly text: string;
  readonly body: Record<string, unknown> & { readonly error?: { readonly param: string; readonly message: string } };
}
/** One user with both kinds of sign-in. */
interface Person {
  readonly user: Row<'users'>;
  readonly browser: Headers;
  readonly bearer: Headers;
}

const OTHER = '0190e1f2-0000-7000-8000-0000000000a1';
let server: TestServer;
let upstream: FakeUpstream;
let tables: Tables;
let foreign: string;
let ada: Person;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, { id: 'c', choices: [] }));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', slug: 'held', host: `${upstream.url}/v1` });
  tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
  const { organisation_id } = server.first;
  await tables.systemWrite((tx) =>
    tx.insert('workspaces', workspaceRow(organisation_id, OTHER, { slug: 'other', name: 'Other' })),
  );
  const owner = { email: 'owner@beta.example', first_name: 'Ada', last_name: 'Beta' };
  const beta = await tables.systemWrite((tx) =>
    createOrganisation(tx, { name: 'Beta', owner, blockInlineConfig: false, clock: systemClock }),
  );
  foreign = beta.workspace_id;
  ada = await person([server.first.workspace_id]);
});
afterAll(async () => {
  await tables?.close();
  await server?.stop();
  await upstream?.stop();
});

async function person(workspaces: readonly string[], role: Row<'users'>['role'] = 'member'): Promise<Person> {
  const { organisation_id } = server.first;
  const user = await addUser(tables, organisation_id, { role });
  await tables.systemWrite(async (tx) => {
    for (const workspace_id of workspaces) {
      const stamps = { created_at: 1, last_updated_at: 1 };
      const member = { organisation_id, workspace_id, user_id: user.id, role: 'member', status: 'active' } as const;
      await tx.insert('workspace_members', { ...member, ...stamps });
    }
  });
  const cookie = await signedInBrowser({ tables, organisationId: organisation_id }, user.id);
  const browser = { ...cookie, origin: server.url };
  const { auth_token } = await signInCall(server.url, 'login', browser, {});
  return { user, browser, bearer: { authorization: `Bearer ${auth_token}` } };
}

async function ask(method: string, path: string, headers: Headers, body?: unknown): Promise<Told> {
  const form = body instanceof FormData;
  const answer = await fetch(`${server.url}/v1${path}`, {
    method,
    headers: { ...headers, ...(body === undefined || form ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: form ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  const isJson = answer.headers.get('content-type')?.startsWith('application/json') === true;
  return { status: answer.status, text, body: (isJson ? JSON.parse(text) : {}) as Told['body'] };
}

const line = (id: string) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'echo', messages: [{ role: 'user', content: id }] },
  });
const row = JSON.stringify({
  messages: [
    { role: 'user', content: '1 + 1?' },
    { role: 'assistant', content: '2' },
  ],
});

function form(purpose: 'batch' | 'fine-tune', lines: readonly string[]): FormData {
  const made = new FormData();
  made.set('purpose', purpose);
  made.set('file', new Blob([lines.join('\n')]), 'lines.jsonl');
  return made;
}

const KEPT = { 'x-gateway-provider': 'gateway' };
const SANDBOX = { 'x-gateway-provider': '@sandbox' };
const job = (training_file: string) => ({
  model: 'echo',
  suffix: 'own',
  training_file,
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 } },
  },
});
const batch = (input_file_id: string, slug: string) => ({
  input_file_id,
  endpoint: '/v1/chat/completions',
  completion_window: 'immediate',
  model: 'echo',
  gateway_options: { 'x-gateway-virtual-key': slug },
});

async function good(told: Promise<Told>): Promise<Told> {
  const found = await told;
  expect(found.status, found.text).toBe(200);
  return found;
}

async function uploaded(headers: Headers, purpose: 'batch' | 'fine-tune', lines: readonly string[]): Promise<string> {
  const { body } = await good(ask('POST', '/files', { ...headers, ...KEPT }, form(purpose, lines)));
  const path = `/files/${String(body.id)}`;
  await vi.waitFor(
    async () => expect((await ask('GET', path, { ...headers, ...KEPT })).body.status).toBe('processed'),
    { timeout: 20_000, interval: 20 },
  );
  return String(body.id);
}

const ended = (headers: Headers, id: unknown) =>
  vi.waitFor(
    async () => {
      const { body } = await ask('GET', `/batches/${String(id)}`, headers);
      expect(['completed', 'failed']).toContain(body.status);
      return body;
    },
    { timeout: 20_000, interval: 20 },
  );

describe.each(['browser', 'bearer'] as const)('a user who is signed in, by %s', (way) => {
  it('uploads, lists, reads and deletes files', async () => {
    const headers = { ...ada[way], ...KEPT };
    const id = await uploaded(ada[way], 'fine-tune', [row]);
    const { body } = await good(ask('GET', '/files', headers));
    expect((body.data as { id: string }[]).map((file) => file.id)).toContain(id);
    expect((await good(ask('GET', `/files/${id}/content`, headers))).text).toBe(row);
    await good(ask('DELETE', `/files/${id}`, headers));
    expect((await ask('GET', `/files/${id}`, headers)).status).toBe(404);
  });

  it('creates, reads and ends fine-tuning jobs', async () => {
    const headers = { ...ada[way], ...SANDBOX };
    const file = await good(ask('POST', '/files', headers, form('fine-tune', [row])));
    const made = await good(ask('POST', '/fine_tuning/jobs', headers, job(String(file.body.id))));
    const path = `/fine_tuning/jobs/${String(made.body.id)}`;
    await good(ask('GET', path, headers));
    await good(ask('GET', `${path}/events`, headers));
    await good(ask('GET', '/fine_tuning/jobs?limit=5', headers));
    await good(ask('POST', `${path}/cancel`, headers));
  });

  it('runs a batch, whose requests are the user’s in that workspace', async () => {
    const input = await uploaded(ada[way], 'batch', [line('one'), line('two')]);
    const made = await good(ask('POST', '/batches', { ...ada[way], ...KEPT }, batch(input, 'sandbox')));
    const done = await ended(ada[way], made.body.id);
    expect(done).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
    await good(ask('GET', `/batches/${String(made.body.id)}/output`, ada[way]));
    const lines = (await server.records()).filter(({ trace_id }) => trace_id === made.body.id);
    expect(lines.map(({ user_id, api_key_id }) => [user_id, api_key_id])).toEqual([
      [ada.user.id, null],
      [ada.user.id, null],
    ]);
  });

  it('lists models, with and without the name of the workspace', async () => {
    const { body } = await good(ask('GET', '/models', ada[way]));
    expect((body.data as unknown[]).length).toBeGreaterThan(0);
    const named = { ...ada[way], 'x-gateway-workspace': server.first.workspace_id.toUpperCase() };
    expect((await good(ask('GET', '/models', named))).body).toEqual(body);
    const { workspace_id } = server.first;
    expect((await good(ask('GET', `/models?limit=1&workspace_id=${workspace_id}`, ada[way]))).body.data).toHaveLength(
      1,
    );
  });

  it('opens no other operation: nothing that asks a model', async () => {
    const open: string[] = [];
    const others = Object.values(OPERATIONS).filter(
      ({ path }) => !/^\/(files|batches|fine_tuning|models)\b/.test(path),
    );
    for (const { method, path } of others) {
      const real = path.replace(/:\w+/g, 'x').replace('*', 'assistants');
      const verb = method === 'ANY' ? 'POST' : method;
      const sent = verb === 'GET' || verb === 'DELETE' ? undefined : { model: '@sandbox/echo', input: 'x' };
      const { status } = await ask(verb, real, { ...ada[way], ...SANDBOX }, sent);
      if (status !== 401) open.push(`${method} ${path}: ${status}`);
    }
    expect(open).toEqual([]);
    expect(others.length).toBeGreaterThan(12);
  });
});

describe('the workspace of a sign-in', () => {
  const named = (name: string) => ({ 'x-gateway-workspace': name });

  it('must be named by a user of several, by id or slug, in the header or the query', async () => {
    const both = await person([server.first.workspace_id, OTHER]);
    const refused = await ask('GET', '/files', { ...both.bearer, ...KEPT });
    expect([refused.status, refused.body.error?.param]).toEqual([400, 'x-gateway-workspace']);
    expect(refused.body.error?.message).toContain('GET /v1/auth/self');
    const id = await uploaded({ ...both.bearer, ...named('other') }, 'fine-tune', [row]);
    for (const [path, headers] of [
      ['/files', named(OTHER)],
      ['/files?workspace_id=other&limit=5', {}],
      [`/files?workspace_id=${OTHER}`, named(OTHER)],
    ] as const) {
      const { body } = await good(ask('GET', path, { ...both.browser, ...KEPT, ...headers }));
      expect(
        (body.data as { id: string }[]).map((file) => file.id),
        path,
      ).toEqual([id]);
    }
    const here = named(server.first.workspace_id);
    expect((await ask('GET', `/files/${id}`, { ...both.bearer, ...KEPT, ...here })).status).toBe(404);
    const two = await ask('GET', '/files?workspace_id=other', { ...both.bearer, ...KEPT, ...here });
    expect([two.status, two.body.error?.param]).toEqual([400, 'workspace_id']);
  });

  it('is one of the user’s: any other is as one that is nowhere', async () => {
    const missing = await ask('GET', '/models', { ...ada.bearer, ...named('no-such-workspace') });
    expect([missing.status, missing.body.error?.param]).toEqual([404, 'x-gateway-workspace']);
    for (const name of [OTHER, 'other', foreign])
      expect((await ask('GET', '/models', { ...ada.bearer, ...named(name) })).body.error).toEqual(missing.body.error);
    const alone = await person([]);
    expect((await ask('GET', '/models', alone.bearer)).status).toBe(403);
    const owner = await person([], 'owner');
    expect((await ask('GET', '/models', { ...owner.bearer, ...named('other') })).status).toBe(200);
    expect((await ask('GET', '/models', { ...owner.bearer, ...named(foreign) })).status).toBe(404);
  });
});

describe('what else is sent', () => {
  it('a write with the cookie needs the CSRF token and the Origin of Sluice; a read needs neither', async () => {
    const { cookie = '', 'x-csrf-token': csrf = '', origin = '' } = ada.browser;
    const statusOf = async (headers: Headers) =>
      (await ask('POST', '/files', { cookie, ...headers, ...KEPT }, form('fine-tune', [row]))).status;
    expect(await statusOf({})).toBe(403);
    expect(await statusOf({ origin })).toBe(403);
    expect(await statusOf({ 'x-csrf-token': csrf })).toBe(403);
    expect(await statusOf({ 'x-csrf-token': csrf, origin: 'https://elsewhere.example' })).toBe(403);
    expect((await ask('DELETE', '/files/gw_file_x', { cookie, ...KEPT })).status).toBe(403);
    expect((await ask('GET', '/files', { cookie, ...KEPT })).status).toBe(200);
  });

  it('a key beside the cookie of another caller is refused, and a dead cookie beside a key counts for nothing', async () => {
    const key = { 'x-gateway-api-key': server.first.workspace_api_key };
    const { cookie = '' } = ada.browser;
    expect((await ask('GET', '/models', { ...key, cookie })).status).toBe(400);
    const bob = await person([server.first.workspace_id]);
    expect((await ask('GET', '/models', { ...bob.bearer, cookie })).status).toBe(400);
    expect((await ask('GET', '/models', { ...ada.bearer, cookie })).status).toBe(200);
    expect((await ask('GET', '/models', { ...key, cookie: `sluice_session=${'a'.repeat(43)}` })).status).toBe(200);
    expect((await ask('GET', '/models', { cookie: 'theme=dark' })).status).toBe(401);
    expect((await ask('GET', '/models', { cookie: `${cookie}; ${cookie}` })).status).toBe(401);
    const inference = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'x' }] };
    expect((await ask('POST', '/chat/completions', { ...key, cookie }, inference)).status).toBe(200);
  });
});

describe('the end of a sign-in', () => {
  it('acts at once, for the cookie and for the tokens', async () => {
    const { browser, bearer } = await person([server.first.workspace_id]);
    expect((await ask('GET', '/models', browser)).status).toBe(200);
    expect((await ask('GET', '/models', bearer)).status).toBe(200);
    await signInCall(server.url, 'logout', browser, {});
    for (const headers of [browser, bearer]) {
      const { status, text } = await ask('GET', '/models', headers);
      expect(status).toBe(401);
      expect(text).toContain('sign in again');
    }
  });

  it('leaves a batch running, and the removal of its user ends it', async () => {
    const { user, browser, bearer } = await person([server.first.workspace_id]);
    const input = await uploaded(
      bearer,
      'batch',
      Array.from({ length: 60 }, (_, i) => line(`line ${i}`)),
    );
    const waiting: (() => void)[] = [];
    let open = false;
    upstream.answer = (_request, response) => {
      const go = () => sendJson(response, 200, { id: 'c', choices: [] });
      if (open) go();
      else waiting.push(go);
    };
    const made = await good(ask('POST', '/batches', { ...bearer, ...KEPT }, batch(input, 'held')));
    await vi.waitFor(() => expect(waiting.length).toBeGreaterThan(0), { timeout: 20_000, interval: 10 });
    await signInCall(server.url, 'logout', browser, {});
    const seen = upstream.received.length;
    waiting.shift()?.();
    await vi.waitFor(() => expect(upstream.received.length).toBeGreaterThan(seen), { timeout: 20_000, interval: 10 });
    expect((await server.admin('DELETE', `/admin/users/${user.id}`)).status).toBe(200);
    open = true;
    for (const go of waiting.splice(0)) go();
    const done = await ended(ada.bearer, made.body.id);
    const { completed, failed } = done.request_counts as { completed: number; failed: number };
    expect(completed).toBeGreaterThan(0);
    expect(failed).toBeGreaterThan(0);
    expect(upstream.received.length).toBeLessThan(60);
    expect(JSON.stringify(done.errors)).toContain('The user has left the workspace.');
  });
});

describe('work that a user began and goes on after the sign-in', () => {
  it('has the rights of the user until user, membership, workspace or organisation say otherwise', async () => {
    const { user } = await person([OTHER]);
    const { organisation_id: organisationId } = server.first;
    const rights = async (userId = user.id, workspaceId = OTHER) => {
      const found = await rightsOfCaller(tables, systemClock, { keyId: null, userId, organisationId, workspaceId });
      return found?.refusal?.message ?? found?.principal.scopes.has('completions.write');
    };
    const set = async <N extends 'users' | 'workspace_members' | 'workspaces' | 'organisations'>(
      table: N,
      where: Partial<Row<N>>,
      ...[ended, alive]: readonly [Partial<Row<N>>, Partial<Row<N>>]
    ) => {
      const put = (own: Partial<Row<N>>) => tables.systemWrite((tx) => tx.update(table, where as never, own as never));
      expect(await rights(), table).toBe(true);
      await put(ended);
      const said = await rights();
      await put(alive);
      return said;
    };
    const [gone, here] = [{ status: 'archived' }, { status: 'active' }] as const;
    expect(await set('users', { id: user.id }, gone, here)).toContain('left the workspace');
    expect(await set('workspace_members', { user_id: user.id }, gone, here)).toContain('left the workspace');
    expect(await set('workspaces', { id: OTHER }, gone, here)).toContain('workspace is gone');
    expect(await set('organisations', { id: organisationId }, { status: 'suspended' }, here)).toContain('suspended');
    expect(await rights(user.id, server.first.workspace_id)).toContain('left the workspace');
    expect(await rights(server.first.user_id)).toBe(true);
  });

  it('is noted for fine-tuning jobs that Sluice runs', async () => {
    const file = await uploaded(ada.bearer, 'fine-tune', [row]);
    const options = { gateway_options: { 'x-gateway-virtual-key': 'sandbox' } };
    const made = await good(ask('POST', '/fine_tuning/jobs', ada.bearer, { ...job(file), ...options }));
    const find = () => tables.systemRead((tx) => tx.find('training_jobs', { id: String(made.body.id) }));
    expect((await find())?.request).toMatchObject({ userId: ada.user.id });
    const begun = async () => expect((await find())?.upstream_id).toBeTypeOf('string');
    await vi.waitFor(begun, { timeout: 20_000, interval: 20 });
  });
});
