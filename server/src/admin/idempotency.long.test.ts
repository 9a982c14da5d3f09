/** `Idempotency-Key`: a POST that is sent again is carried out once and answered as the first time. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type AdminHarness, type Answer, startAdmin } from '../../test/support/admin.ts';
import { migratedDatabase } from '../../test/support/postgres.ts';
import { killAll, readFirstRun, startProcess } from '../../test/support/process.ts';
import { ConsoleSessions, createLink } from '../auth/console-session.ts';
import { systemClock } from '../kernel/clock.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { silentLog } from '../kernel/log.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { openVault } from '../store/envelope.ts';
import { loadKeyring } from '../store/keyring.ts';
import type { Tables } from '../store/ports.ts';
import { openPostgresTables } from '../store/postgres/tables.ts';
import { openSqliteTables } from '../store/sqlite/tables.ts';
import { fingerprintOf, purgeIdempotencyKeys, takesIdempotencyKey } from './idempotency.ts';
import { buildOpenApi } from './openapi.ts';
import { operatorActions } from './operator.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const ORIGIN = 'http://127.0.0.1';
const MASTER_KEY = randomBytes(32).toString('base64');
const folders: string[] = [];

afterAll(async () => {
  killAll();
  for (const folder of folders) await rm(folder, { recursive: true, force: true });
});

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'sluice-once-'));
  folders.push(folder);
  return folder;
}

/** Opens one and the same database as often as asked, migrated. */
async function database(engine: 'sqlite' | 'postgres'): Promise<() => Promise<Tables>> {
  const url = engine === 'postgres' ? await migratedDatabase() : '';
  const file = engine === 'sqlite' ? path.join(await newFolder(), 'control.db') : '';
  return async () => {
    const tables =
      engine === 'sqlite'
        ? await openSqliteTables({ file, log: silentLog })
        : await openPostgresTables({ url, log: silentLog });
    await tables.migrate();
    return tables;
  };
}

async function vaultOf(tables: Tables) {
  const keyring = await loadKeyring({ masterKey: MASTER_KEY, masterKeyFile: '', create: true });
  return openVault({ keyring, tables, clock: systemClock });
}

const keyBody = (name: string) => ({ name, scopes: ['completions.write'] });
const once = (key: string) => ({ 'idempotency-key': key });

describe.each(['sqlite', 'postgres'] as const)('on %s', (engine) => {
  let first: AdminHarness;
  /** Another node on the same store. */
  let second: AdminHarness;
  /** How far the store's clock is set forward. */
  let ahead = 0;
  /** Called before an answer is given, after its commit. */
  let caughtUp: () => Promise<void> = async () => {};

  beforeAll(async () => {
    const open = await database(engine);
    const node = async () => {
      const tables = await open();
      const shifted = new Proxy(tables, {
        get(target, name) {
          if (name === 'now') return async () => (await target.now()) + ahead;
          const value: unknown = Reflect.get(target, name, target);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
      const sessions = new ConsoleSessions({ tables: shifted, clock: systemClock, publicUrl: () => ORIGIN });
      return startAdmin(shifted, { admin: { vault: await vaultOf(tables), sessions, caughtUp: () => caughtUp() } });
    };
    first = await node();
    second = await node();
  });

  afterEach(() => {
    ahead = 0;
    caughtUp = async () => {};
  });

  afterAll(async () => {
    await first?.close();
    await second?.close();
  });

  const post = (
    node: AdminHarness,
    url: string,
    body: unknown,
    key: string | null,
    credential = first.a.admin_api_key,
    headers: Record<string, string> = {},
  ) =>
    node.call('POST', `/v1${url}`, {
      key: credential,
      body,
      headers: { ...(key === null ? {} : once(key)), ...headers },
    });
  const service = '/api-keys/organisation/service';
  const makeKey = (node: AdminHarness, name: string, key: string | null, credential?: string) =>
    post(node, service, { name, scopes: ['configs.read'] }, key, credential);
  const keysNamed = (name: string) => first.tables.systemRead((tx) => tx.list('api_keys', { where: { name } }));
  const auditsOf = (id: string) =>
    first.tables.systemRead((tx) => tx.count('audit_log', { where: { resource_id: id } }));
  const configBody = () => ({ name: 'Once', workspace_id: first.a.workspace_id, config: { retry: { attempts: 3 } } });

  it('a repeat gets the first answer byte for byte and does nothing, on either node', async () => {
    const one = await makeKey(first, 'plain repeat', 'repeat-1');
    expect(one.status).toBe(200);
    expect(one.headers.get('idempotency-replayed')).toBeNull();
    for (const node of [first, second, first]) {
      const again = await makeKey(node, 'plain repeat', 'repeat-1');
      expect(again.status).toBe(200);
      expect(again.text).toBe(one.text);
      expect(again.headers.get('idempotency-replayed')).toBe('true');
      expect(again.headers.get('x-gateway-request-id')).not.toBe(one.headers.get('x-gateway-request-id'));
      expect(again.headers.get('cache-control')).toBe('no-store');
    }
    expect(await keysNamed('plain repeat')).toHaveLength(1);
    expect(await auditsOf(one.body.id)).toBe(1);
  });

  it('without the header two requests are two', async () => {
    await makeKey(first, 'twice', null);
    await makeKey(first, 'twice', null);
    expect(await keysNamed('twice')).toHaveLength(2);
  });

  it('the order of names in body and query does not matter', async () => {
    const send = (raw: string, query: string) =>
      first.call('POST', `/v1${service}${query}`, { raw, headers: once('order') });
    const one = await send('{"name":"order","scopes":["configs.read"],"description":"a"}', '');
    const two = await send('{ "description" : "\\u0061", "scopes":["configs.read"],"name":"order" }', '');
    expect(two.text).toBe(one.text);
    expect(two.headers.get('idempotency-replayed')).toBe('true');
  });

  it.each([
    ['another body', () => makeKey(first, 'changed', 'other')],
    [
      'another path',
      () =>
        post(first, '/api-keys/workspace/service', { ...keyBody('a'), workspace_id: first.a.workspace_id }, 'other'),
    ],
    ['another operation', () => post(first, '/configs', configBody(), 'other')],
    [
      'the other version',
      () =>
        first.call('POST', `/v2${service}`, {
          body: { name: 'other', scopes: ['configs.read'] },
          headers: once('other'),
        }),
    ],
  ])('with %s the same key is 400 and names the header', async (_title, send) => {
    expect((await makeKey(first, 'other', 'other')).status).toBe(200);
    const answer = await send();
    expect([answer.status, answer.body.error.code, answer.body.error.param]).toEqual([400, 'AB01', 'Idempotency-Key']);
    expect(await keysNamed('changed')).toHaveLength(0);
  });

  it.each([
    ['empty', ''],
    ['with a space', 'a b'],
    ['of 256 characters', 'x'.repeat(256)],
    ['outside ASCII', 'caf\u00e9'],
  ])('a value that is %s is 400', async (_title, value) => {
    const answer = await makeKey(first, 'bad value', value);
    expect([answer.status, answer.body.error.code, answer.body.error.param]).toEqual([400, 'AB01', 'Idempotency-Key']);
    expect(await keysNamed('bad value')).toHaveLength(0);
  });

  it.each(['x'.repeat(255), '"quoted"', '!~,;=/'])('%s is a fine value', async (value) => {
    const [one, two] = [await makeKey(first, 'fine', value), await makeKey(first, 'fine', value)];
    expect([one.status, two.text]).toEqual([200, one.text]);
  });

  it('two values are 400', async () => {
    const headers = [
      ['idempotency-key', 'a'],
      ['Idempotency-Key', 'b'],
    ] as [string, string][];
    const answer = await rawPost(`${first.url}/v1${service}`, first.a.admin_api_key, headers);
    expect(answer).toContain('HTTP/1.1 400');
    expect(answer).toContain('exactly one Idempotency-Key');
  });

  it('a refused request does not use the key up', async () => {
    const refused = await post(first, service, { name: 'later', scopes: ['no.such.scope'] }, 'later');
    expect(refused.status).toBe(400);
    expect((await makeKey(first, 'later', 'later')).status).toBe(200);
    expect(await keysNamed('later')).toHaveLength(1);
  });

  it('an answer with a secret is sealed, repeated for 10 minutes, and then 409 with the id of what was made', async () => {
    const one = await makeKey(first, 'secret', 'secret');
    const rows = await first.tables.systemRead((tx) => tx.list('idempotency_keys', { where: { key: 'secret' } }));
    expect(rows[0]?.answer).toMatch(/^slc1\./);
    expect(JSON.stringify(rows)).not.toContain(one.body.key);
    ahead = 10 * MINUTE - 5_000;
    expect((await makeKey(second, 'secret', 'secret')).text).toBe(one.text);
    ahead = 10 * MINUTE + 5_000;
    const late = await makeKey(second, 'secret', 'secret');
    expect([late.status, late.body.error.code, late.body.error.param]).toEqual([409, 'AB07', 'Idempotency-Key']);
    expect(late.body.error.message).toContain(one.body.id);
    expect(late.body.error.message).toMatch(/rotate or delete/);
    // The job forgets the answer, and still knows the key.
    await purgeIdempotencyKeys(first.tables);
    const [kept] = await first.tables.systemRead((tx) => tx.list('idempotency_keys', { where: { key: 'secret' } }));
    expect(kept).toMatchObject({ answer: null, object_id: one.body.id });
    expect((await makeKey(first, 'secret', 'secret')).status).toBe(409);
    expect(await keysNamed('secret')).toHaveLength(1);
  });

  it('other answers are repeated for 24 hours; then the key is new', async () => {
    const send = () => post(first, '/configs', configBody(), 'day');
    const one = await send();
    expect(one.status).toBe(200);
    ahead = 24 * HOUR - 5_000;
    await purgeIdempotencyKeys(first.tables);
    expect((await send()).text).toBe(one.text);
    ahead = 24 * HOUR + 5_000;
    const next = await send();
    expect([next.status, next.headers.get('idempotency-replayed')]).toEqual([200, null]);
    expect(next.body.id).not.toBe(one.body.id);
    ahead = 49 * HOUR;
    await purgeIdempotencyKeys(first.tables);
    expect(await first.tables.systemRead((tx) => tx.count('idempotency_keys'))).toBe(0);
  });

  it('a key of one caller is nothing to another, in the same organisation or another one', async () => {
    const other = await makeKey(first, 'other caller', null);
    const grown = await first.call('PUT', `/v1/api-keys/${other.body.id}`, {
      body: { scopes: ['organisation_service_api_keys.create', 'configs.read'] },
    });
    expect(grown.status).toBe(200);
    const answers = [
      await makeKey(first, 'shared', 'shared'),
      await makeKey(first, 'shared', 'shared', other.body.key),
      await makeKey(first, 'shared', 'shared', first.b.admin_api_key),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(new Set(answers.map(({ body }) => body.key)).size).toBe(3);
    expect(answers.map(({ headers }) => headers.get('idempotency-replayed'))).toEqual([null, null, null]);
  });

  it('a rotation is carried out once', async () => {
    const made = await makeKey(first, 'rotated', null);
    const rotate = (node: AdminHarness, key: string | null) => post(node, `/api-keys/${made.body.id}/rotate`, {}, key);
    const answers = await Promise.all([first, second, first, second].map((node) => rotate(node, 'rotate')));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect((await rotate(second, 'rotate')).text).toBe(answers[0]?.text);
    expect((await rotate(first, null)).status).toBe(409);
    const secrets = await first.tables.systemRead((tx) =>
      tx.count('api_key_secrets', { where: { api_key_id: made.body.id } }),
    );
    expect(secrets).toBe(2);
  });

  it('holds for keys of a workspace, and for who is signed in, each for itself', async () => {
    const { tables, a } = first;
    const body = { name: 'Once', config: { retry: { attempts: 3 } } };
    const bound = () => post(first, '/configs', body, 'each', a.workspace_api_key);
    const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => ORIGIN });
    const link = await createLink(tables, systemClock, { id: a.user_id, organisation_id: a.organisation_id });
    const { token, session } = await sessions.exchange(link.token);
    const signedIn = (name: string) =>
      first.call('POST', '/v1/configs', {
        key: null,
        body: { ...body, name, workspace_id: a.workspace_id },
        headers: {
          cookie: `${sessions.cookieName}=${token}`,
          origin: ORIGIN,
          'x-csrf-token': session.csrf,
          ...once('each'),
        },
      });
    const answers = [await bound(), await bound(), await signedIn('Once'), await signedIn('Once')];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const texts = answers.map(({ text }) => text);
    expect([texts[1], texts[3]]).toEqual([texts[0], texts[2]]);
    expect(texts[2]).not.toBe(texts[0]);
    expect((await signedIn('Twice')).status).toBe(400);
  });

  it('a repeat needs what the first needed: the scope, and a key that is still valid', async () => {
    const actor = await post(
      first,
      service,
      { name: 'actor', scopes: ['organisation_service_api_keys.create', 'configs.read'] },
      null,
    );
    const send = () => makeKey(first, 'made by actor', 'rights', actor.body.key);
    const made = await send();
    expect((await send()).text).toBe(made.text);
    const change = (body: unknown) => first.call('PUT', `/v1/api-keys/${actor.body.id}`, { body });
    expect((await change({ scopes: ['configs.read'] })).status).toBe(200);
    expect((await send()).status).toBe(403);
    expect((await change({ scopes: ['organisation_service_api_keys.create', 'configs.read'] })).status).toBe(200);
    expect((await send()).text).toBe(made.text);
    expect((await first.call('DELETE', `/v1/api-keys/${actor.body.id}`)).status).toBe(200);
    const refused = await send();
    expect([refused.status, refused.text.includes(made.body.key)]).toEqual([401, false]);
  });

  it('64 at once on two nodes are one: all get the same answer', async () => {
    const answers = await Promise.all(
      Array.from({ length: 64 }, (_, i) => makeKey(i % 2 === 0 ? first : second, 'crowd', 'crowd')),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === null)).toHaveLength(1);
    expect(await keysNamed('crowd')).toHaveLength(1);
  }, 60_000);

  it('at once and with a name that only one can have: the loser gets the answer, not a conflict', async () => {
    const body = {
      name: 'I',
      slug: 'one-name',
      ai_provider_id: 'openai',
      key: 'sk-test',
      workspace_id: first.a.workspace_id,
    };
    const send = (key: string | null, i = 0) => post(i % 2 === 0 ? first : second, '/integrations', body, key);
    const answers = await Promise.all(Array.from({ length: 12 }, (_, i) => send('name', i)));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect((await send(null)).status).toBe(409);
    expect((await send('name-2')).status).toBe(409);
  });

  it('different keys at once are different requests', async () => {
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, i) => makeKey(i % 2 === 0 ? first : second, 'distinct', `distinct-${i}`)),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(await keysNamed('distinct')).toHaveLength(12);
  });

  it('an answer that was lost after the commit is given to the repeat, also on another node', async () => {
    let committed: () => void = () => {};
    const reached = new Promise<void>((resolve) => {
      committed = resolve;
    });
    caughtUp = () => {
      committed();
      return new Promise(() => {});
    };
    const left = new AbortController();
    const lost = fetch(`${first.url}/v1${service}`, {
      method: 'POST',
      signal: left.signal,
      headers: { 'x-gateway-api-key': first.a.admin_api_key, 'content-type': 'application/json', ...once('lost') },
      body: JSON.stringify({ name: 'lost', scopes: ['configs.read'] }),
    });
    await reached;
    left.abort();
    await expect(lost).rejects.toThrow();
    caughtUp = async () => {};
    const again = await makeKey(second, 'lost', 'lost');
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([200, 'true']);
    const rows = await keysNamed('lost');
    expect(rows.map(({ id }) => id)).toEqual([again.body.id]);
    expect((await second.call('GET', '/v1/configs/none', { key: again.body.key })).status).toBe(404);
  });

  it('reads, PUT and DELETE do not look at the header', async () => {
    const made = await makeKey(first, 'not looked at', null);
    const url = `/v1/api-keys/${made.body.id}`;
    for (const value of ['same', '']) {
      expect((await first.call('GET', url, { headers: once(value) })).status).toBe(200);
      for (const description of ['a', 'b']) {
        const answer = await first.call('PUT', url, { body: { description }, headers: once(value) });
        expect(answer.status).toBe(200);
        expect((await first.call('GET', url)).body.description).toBe(description);
      }
    }
    expect((await first.call('DELETE', url, { headers: once('same') })).status).toBe(200);
    expect((await first.call('DELETE', url, { headers: once('same') })).status).toBe(404);
  });

  it('the operator makes an organisation once, also at once on two nodes', async () => {
    const send = (node: AdminHarness, name: string, key: string) =>
      node.call('POST', '/v1/operator/organisations', {
        key: first.operatorKey,
        body: { name, owner: { email: 'grace@gamma.example', first_name: 'Grace', last_name: 'Gamma' } },
        headers: once(key),
      });
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) => send(i % 2 === 0 ? first : second, 'Gamma', 'org')),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    const made = answers[0] as Answer;
    expect(await first.tables.systemRead((tx) => tx.count('organisations', { where: { name: 'Gamma' } }))).toBe(1);
    expect((await first.call('GET', '/v1/configs', { key: made.body.admin_api_key })).status).toBe(200);
    expect((await send(first, 'Delta', 'org')).status).toBe(400);
    ahead = 11 * MINUTE;
    const late = await send(first, 'Gamma', 'org');
    expect([late.status, late.body.error.message.includes(made.body.organisation_id)]).toEqual([409, true]);
  });
});

describe.each(['sqlite', 'postgres'] as const)('a server killed at any moment, on %s', (engine) => {
  it('gives the key it made, or makes it then, once', async () => {
    const dataDir = await newFolder();
    const env: Record<string, string> = engine === 'postgres' ? { SLUICE_DATABASE_URL: await migratedDatabase() } : {};
    let server = await startProcess(dataDir, env);
    const { admin_api_key } = await readFirstRun(dataDir);
    const send = (name: string): Promise<Answer | null> =>
      fetch(`${server.url}/v1/api-keys/organisation/service`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': admin_api_key, 'content-type': 'application/json', ...once(name) },
        body: JSON.stringify({ name, scopes: ['configs.read'] }),
      }).then(
        async (answer) => {
          const text = await answer.text();
          return { status: answer.status, headers: answer.headers, text, body: JSON.parse(text) };
        },
        () => null,
      );
    expect((await send('warm-up'))?.status).toBe(200);
    const rounds = 4;
    for (let round = 0; round < rounds; round++) {
      const name = `killed-${round}`;
      const lost = send(name);
      // Later in each round: before the write, within it, after it.
      await new Promise((resolve) => setTimeout(resolve, round * 6));
      server.child.kill('SIGKILL');
      const before = await lost.catch(() => null);
      await server.ended;
      server = await startProcess(dataDir, env);
      const after = await send(name);
      expect(after?.status).toBe(200);
      if (before !== null) expect(after?.text).toBe(before.text);
      const list = await fetch(`${server.url}/v1/api-keys?page_size=100`, {
        headers: { 'x-gateway-api-key': admin_api_key },
      });
      const { data } = (await list.json()) as { data: { name: string; id: string }[] };
      expect(data.filter((key) => key.name === name).map(({ id }) => id)).toEqual([after?.body.id]);
    }
    server.child.kill('SIGKILL');
    await server.ended;
  }, 60_000);
});

describe('the fingerprint of a request', () => {
  const row = { id: 'things.create', method: 'POST' } as const;
  const of = (body: JsonObject, query: Record<string, string> = {}) => fingerprintOf(row, '/v1/things', query, body);
  const shuffled = (value: JsonValue | undefined): JsonValue => {
    if (Array.isArray(value)) return value.map(shuffled);
    if (value === null || typeof value !== 'object') return value ?? null;
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([name, item]) => [name, shuffled(item)]),
    );
  };
  const bodies = fc
    .dictionary(fc.string(), fc.jsonValue({ maxDepth: 4 }))
    .map((body) => JSON.parse(JSON.stringify(body)) as JsonObject);

  it('does not depend on the order of names', () => {
    fc.assert(fc.property(bodies, (body) => of(body) === of(shuffled(body) as JsonObject)));
  });

  it('is another for every other body', () => {
    fc.assert(
      fc.property(bodies, bodies, (a, b) => {
        const same = JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
        return (of(a) === of(b)) === same;
      }),
    );
    const pairs: [JsonObject, JsonObject][] = [
      [{ a: 1 }, { a: '1' }],
      [{ a: null }, {}],
      [{ a: [1, 2] }, { a: [2, 1] }],
      [{ a: [[1], 2] }, { a: [1, [2]] }],
      [{ a: { b: 1 }, c: 2 }, { a: { b: 1, c: 2 } }],
      [{ 'a":1,"b': 2 }, { a: 1, b: 2 }],
      [{ a: true }, { a: 'true' }],
    ];
    for (const [a, b] of pairs) expect(of(a)).not.toBe(of(b));
  });

  it('tells body from query, and one query from another', () => {
    expect(of({ a: '1' })).not.toBe(of({}, { a: '1' }));
    expect(of({}, { a: '1', b: '2' })).toBe(of({}, { b: '2', a: '1' }));
    expect(of({}, { a: '1' })).not.toBe(of({}, { a: '2' }));
    expect(fingerprintOf(row, '/v1/things', {}, null)).toBe(of({}));
  });
});

describe('the table of operations', () => {
  const rows = [...ACTIONS, ...operatorActions(async () => ({}))];
  /** Names of answer fields under which a secret is shown once. */
  const SECRETS = /^(key|.*_api_key|token|.*_token|secret|link|.*_link|invite_url)$/;

  it('every POST that shows a secret says so', () => {
    const showing = rows.filter((row) => {
      if (!takesIdempotencyKey(row)) return false;
      const { properties } = z.toJSONSchema(row.response, { io: 'output', unrepresentable: 'any' });
      return Object.keys(properties ?? {}).some((name) =>
        SECRETS.test(name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)),
      );
    });
    expect(showing.filter((row) => row.secretAnswer !== true).map((row) => row.id)).toEqual([]);
    expect(showing.map((row) => row.id)).toContain('api-keys.create');
  });

  it('the reference names the header on every POST whose answer is kept, and nowhere else', () => {
    const document = buildOpenApi(ACTIONS, '1.0.0') as {
      paths: Record<string, Record<string, { operationId: string; parameters?: { $ref?: string }[] }>>;
    };
    const named: string[] = [];
    for (const item of Object.values(document.paths)) {
      for (const { operationId, parameters } of Object.values(item)) {
        const has = (parameters ?? []).some(({ $ref }) => $ref === '#/components/parameters/IdempotencyKey');
        if (has) named.push(operationId.replace(/\.alias\d+$/, ''));
      }
    }
    const expected = rows.filter(takesIdempotencyKey).map((row) => row.id);
    expect([...new Set(named)].sort()).toEqual(expected.sort());
  });
});

function sorted(value: JsonValue | undefined): JsonValue {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value ?? null;
  const names = Object.keys(value).sort();
  return names.map((name) => [name, sorted(value[name])]) as JsonValue;
}

/** What `fetch` would join into one header is sent as it is; answers the raw text. */
async function rawPost(url: string, key: string, headers: readonly (readonly [string, string])[]): Promise<string> {
  const { connect } = await import('node:net');
  const { text } = await import('node:stream/consumers');
  const { hostname, port, pathname } = new URL(url);
  const body = '{"name":"raw","scopes":["configs.read"]}';
  const lines = [
    `POST ${pathname} HTTP/1.1`,
    `Host: ${hostname}:${port}`,
    `x-gateway-api-key: ${key}`,
    'Content-Type: application/json',
    'Connection: close',
    `Content-Length: ${body.length}`,
    ...headers.map(([name, value]) => `${name}: ${value}`),
  ];
  const socket = connect(Number(port), hostname);
  socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`);
  return text(socket);
}
