import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { request as send } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ConsoleServer, consoleServer, recordRow, type Seeded, seed } from '../../test/support/console.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import type { Principal } from '../auth/principal.ts';
import { TestClock } from '../kernel/clock.ts';
import type { StoredLog, Tables } from '../store/ports.ts';
import { CONSOLE_ROUTES } from './console.ts';

let tables: Tables;
let people: Seeded;
let server: ConsoleServer;
let dist: string;
let records: StoredLog[] = [];
const seen: { principal: Principal; body: Record<string, unknown> }[] = [];
const clock = new TestClock();

beforeAll(async () => {
  dist = mkdtempSync(path.join(tmpdir(), 'sluice-dist-'));
  mkdirSync(path.join(dist, 'assets'));
  writeFileSync(path.join(dist, 'index.html'), '<!doctype html><title>Sluice</title>');
  writeFileSync(path.join(dist, 'secret.txt'), 'not served');
  writeFileSync(path.join(dist, 'assets', 'index-abc123.js'), 'export {};');
  writeFileSync(path.join(dist, 'assets', 'index-abc123.js.gz'), 'gz');
  tables = await temporaryTables();
  people = await seed(tables, clock);
  server = await consoleServer({
    tables,
    clock,
    dist,
    logs: () => records,
    standIn: (reply, body, principal) => {
      seen.push({ principal, body });
      reply.writeHead(200, { 'content-type': 'text/event-stream' });
      reply.end('data: [DONE]\n\n');
    },
  });
});
afterAll(async () => {
  await server.close();
  await tables.close();
  rmSync(dist, { recursive: true, force: true });
});

interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: bodies under test
  json: any;
}

/** Raw HTTP: a client that sets Origin, Cookie and broken bodies as no browser would. */
function call(method: string, url: string, init: { headers?: Record<string, string>; body?: unknown } = {}) {
  return new Promise<Answer>((resolve, reject) => {
    const body = init.body === undefined || typeof init.body === 'string' ? init.body : JSON.stringify(init.body);
    const headers = { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...init.headers };
    const request = send(`${server.url}${url}`, { method, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => {
        const type = response.headers['content-type'] ?? '';
        const json = type.startsWith('application/json') ? JSON.parse(text) : null;
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json });
      });
    });
    request.on('error', reject).end(body);
  });
}

async function signIn(user = people.owner) {
  const token = (await server.link(user)).split('#')[1];
  const answer = await call('POST', '/console/api/session', { headers: { origin: server.url }, body: { token } });
  expect(answer.status).toBe(200);
  const cookie = String(answer.headers['set-cookie']).split(';')[0] ?? '';
  const csrf = answer.json.csrf_token as string;
  return { answer, cookie, csrf, headers: { origin: server.url, cookie, 'x-csrf-token': csrf } };
}

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }], stream: true };

test('signing in answers who and where, sets the cookie, and the cookie is a sign-in', async () => {
  const { answer, cookie } = await signIn();
  expect(answer.json).toMatchObject({
    user: { email: 'owner@acme.example', role: 'owner' },
    organisation: { name: 'Acme' },
    workspaces: [{ name: 'Default' }, { name: 'Research' }],
    base_url: `${server.url}/v1`,
  });
  expect(answer.headers['cache-control']).toBe('no-store');
  expect(String(answer.headers['set-cookie'])).toMatch(/^sluice_session=\w{43};.*HttpOnly; SameSite=Strict$/);
  const again = await call('GET', '/console/api/session', { headers: { cookie } });
  expect(again.json).toEqual(answer.json);
  expect(again.headers['set-cookie']).toBeUndefined();
});

test('a used, unknown or malformed link is 401 with the way to a new one, and sets no cookie', async () => {
  for (const token of ['A'.repeat(43), 'short']) {
    const answer = await call('POST', '/console/api/session', { headers: { origin: server.url }, body: { token } });
    expect(answer.status).toBe(401);
    expect(answer.json.error).toMatchObject({ code: 'AB05', message: expect.stringContaining('console-link') });
    expect(answer.headers['set-cookie']).toBeUndefined();
  }
});

test('a sign-in from another origin, or from none, is refused and leaves the link usable', async () => {
  const token = (await server.link(people.owner)).split('#')[1];
  const from = (origin?: string) =>
    call('POST', '/console/api/session', { headers: origin === undefined ? {} : { origin }, body: { token } });
  for (const origin of [undefined, 'null', 'http://attacker.example', `${server.url}.attacker.example`]) {
    const answer = await from(origin);
    expect(answer.status).toBe(403);
    expect(answer.json.error.message).toContain(`${server.url}/console/`);
  }
  expect((await from(server.url)).status).toBe(200);
});

test('every write without the right Origin and CSRF token is refused and does nothing', async () => {
  const { cookie, csrf, headers } = await signIn();
  const body = { workspace_id: people.workspaces[0], request: CHAT };
  const before = seen.length;
  for (const wrong of [
    { cookie },
    { cookie, origin: server.url },
    { cookie, 'x-csrf-token': csrf },
    { cookie, origin: 'null', 'x-csrf-token': csrf },
    { cookie, origin: 'http://attacker.example', 'x-csrf-token': csrf },
    { cookie, origin: server.url, 'x-csrf-token': `${csrf}x` },
  ]) {
    expect((await call('POST', '/console/api/try', { headers: wrong as Record<string, string>, body })).status).toBe(
      403,
    );
    expect((await call('DELETE', '/console/api/session', { headers: wrong as Record<string, string> })).status).toBe(
      403,
    );
  }
  expect(seen).toHaveLength(before);
  expect((await call('GET', '/console/api/session', { headers })).status).toBe(200);
});

test('sign-out ends the session and removes the cookie', async () => {
  const { headers } = await signIn();
  const answer = await call('DELETE', '/console/api/session', { headers });
  expect(answer.status).toBe(204);
  expect(String(answer.headers['set-cookie'])).toMatch(/^sluice_session=; Path=\/; Max-Age=0/);
  expect((await call('GET', '/console/api/session', { headers })).status).toBe(401);
});

test('a try runs as the signed-in user, bound to the chosen workspace, with the request as it was written', async () => {
  const { headers } = await signIn(people.member);
  const answer = await call('POST', '/console/api/try', {
    headers,
    body: { workspace_id: people.workspaces[1], request: { ...CHAT, temperature: 0.5 } },
  });
  expect(answer).toMatchObject({ status: 200, text: 'data: [DONE]\n\n' });
  const last = seen.at(-1);
  expect(last?.body).toEqual({ ...CHAT, temperature: 0.5 });
  expect(last?.principal).toMatchObject({ kind: 'user', userId: people.member.id, workspaceId: people.workspaces[1] });
  expect(last?.principal.scopes.has('completions.write')).toBe(true);
});

test('a try in a workspace that is not the user’s is 404 and reaches no data plane', async () => {
  const { headers } = await signIn(people.member);
  const before = seen.length;
  const answer = await call('POST', '/console/api/try', {
    headers,
    body: { workspace_id: people.workspaces[0], request: CHAT },
  });
  expect(answer.status).toBe(404);
  expect(seen).toHaveLength(before);
});

test('a bad body is a 4xx that names the field, never a 5xx', async () => {
  const { headers } = await signIn();
  const workspace_id = people.workspaces[0];
  for (const [body, status, param] of [
    [{}, 400, 'workspace_id'],
    [{ workspace_id: 'x', request: {} }, 400, 'workspace_id'],
    [{ workspace_id, request: [] }, 400, 'request'],
    [{ workspace_id, request: {}, more: 1 }, 400, null],
    ['[]', 400, null],
    ['{"workspace_id":"a","workspace_id":"b"}', 400, null],
    ['{', 400, null],
    [{ workspace_id, request: { text: 'x'.repeat(300_000) } }, 413, null],
  ] as const) {
    const answer = await call('POST', '/console/api/try', { headers, body });
    expect([answer.status, answer.json.error.param]).toEqual([status, param]);
  }
  const text = await call('POST', '/console/api/try', {
    headers: { ...headers, 'content-type': 'text/plain' },
    body: '{}',
  });
  expect(text.status).toBe(400);
});

test('a record is shown to the user who made the request and to nobody else', async () => {
  const { headers } = await signIn();
  records = [recordRow({ user_id: people.owner.id })];
  const own = await call('GET', '/console/api/records/t1', { headers });
  expect(own.json.record).toMatchObject({ id: 'r1', trace_id: 't1', cost_micros: 7, attempts: 1 });
  const colleagues = recordRow({ id: 'r2', seq: 2, time: 2, user_id: people.member.id });
  // A colleague’s newer request with the same trace id does not hide it.
  records = [colleagues, ...records];
  expect((await call('GET', '/console/api/records/t1', { headers })).json.record).toMatchObject({ id: 'r1' });
  records = [colleagues];
  expect((await call('GET', '/console/api/records/t1', { headers })).json.record).toBeNull();
  records = [];
  expect((await call('GET', '/console/api/records/t1', { headers })).json.record).toBeNull();
});

test('every route that needs a session answers 401 without one; the others are pages, files and sign-in', async () => {
  for (const [method, url, needsSession] of CONSOLE_ROUTES) {
    const answer = await call(method, url.replace(/:\w+/, 'x'));
    if (needsSession) expect([url, answer.status]).toEqual([url, 401]);
    else expect([url, answer.status < 500 && answer.status !== 401]).toEqual([url, true]);
  }
});

test('every address of the console is its page to browsers, which says what is missing, and 404 as JSON to programs', async () => {
  const browser = await call('GET', '/console/nothing/here', { headers: { accept: 'text/html,*/*;q=0.8' } });
  expect(browser.status).toBe(200);
  expect(browser.headers['content-type']).toBe('text/html; charset=utf-8');
  expect(browser.headers['content-security-policy']).toContain("default-src 'none'");
  expect(browser.text).toBe((await call('GET', '/console/')).text);
  const program = await call('GET', '/console/nothing', { headers: { accept: 'application/json' } });
  expect([program.status, program.json.error.code]).toEqual([404, 'AB08']);
});

test('no answer carries a CORS header, whatever Origin asks', async () => {
  const { headers } = await signIn();
  for (const [method, url] of [...CONSOLE_ROUTES, ['OPTIONS', '/console/api/try'] as const]) {
    const answer = await call(method, url.replace(/:\w+/, 'x'), {
      headers: { ...headers, origin: 'http://attacker.example', 'access-control-request-method': 'POST' },
    });
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  }
});

test('pages come with a strict content security policy and are revalidated; assets are kept for ever', async () => {
  for (const url of ['/console/', '/console/sign-in']) {
    const page = await call('GET', url);
    expect(page.status).toBe(200);
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(page.headers['cache-control']).toBe('no-cache');
    expect(page.headers['content-security-policy']).toContain("default-src 'none'; script-src 'self'");
    expect(page.headers['content-security-policy']).not.toContain('unsafe');
    expect(page.headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(page.headers['referrer-policy']).toBe('no-referrer');
  }
  const asset = await call('GET', '/console/assets/index-abc123.js');
  expect(asset).toMatchObject({ status: 200, text: 'export {};' });
  expect(asset.headers['cache-control']).toBe('public, max-age=31536000, immutable');
  const zipped = await call('GET', '/console/assets/index-abc123.js', { headers: { 'accept-encoding': 'gzip' } });
  expect(zipped.headers['content-encoding']).toBe('gzip');
  expect(zipped.headers['content-type']).toMatch(/javascript/);
});

test('/ and /console lead to /console/, without naming a host', async () => {
  for (const url of ['/', '/console']) {
    const answer = await call('GET', url, { headers: { host: 'attacker.example' } });
    expect([answer.status, answer.headers.location]).toEqual([302, '/console/']);
  }
});

test('without a build / leads to the API reference, and the page of the console says how to build it', async () => {
  const index = path.join(dist, 'index.html');
  renameSync(index, `${index}.away`);
  try {
    const answer = await call('GET', '/');
    expect([answer.status, answer.headers.location]).toEqual([302, '/docs/']);
    const page = await call('GET', '/console/');
    expect([page.status, page.text]).toEqual([503, expect.stringContaining('npm run console')]);
  } finally {
    renameSync(`${index}.away`, index);
  }
});

test('only the built assets are served: no other file, no way out of the folder', async () => {
  for (const url of [
    '/console/secret.txt',
    '/console/index.html',
    '/console/assets/',
    '/console/assets/missing.js',
    '/console/assets/..%2Fsecret.txt',
    '/console/assets/%2e%2e%2fsecret.txt',
    '/console/assets/..%5csecret.txt',
    '/console/assets/.env',
    '/console/assets/index-abc123.js%00',
  ]) {
    const answer = await call('GET', url);
    expect([url, answer.status]).toEqual([url, 404]);
    expect(answer.text).not.toContain('not served');
  }
});

test('without a build the page says how to make one and everything else works', async () => {
  const bare = await consoleServer({ tables, clock, dist: path.join(dist, 'nowhere') });
  try {
    const page = await fetch(`${bare.url}/console/`);
    expect(page.status).toBe(503);
    expect(await page.text()).toContain('npm run console');
    expect((await fetch(`${bare.url}/console/api/session`)).status).toBe(401);
  } finally {
    await bare.close();
  }
});
