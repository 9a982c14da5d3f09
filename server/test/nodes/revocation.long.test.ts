/**
 * Revocation: what one node takes away, another refuses within a second; within five while Redis is down, also without a
 * notice of PostgreSQL. Two nodes on real stores: this process changes, the other process is asked while it serves others.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPair } from '../../src/auth/session-families.ts';
import { sessionRow, tokenDigest } from '../../src/auth/session-rows.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import type { Row } from '../../src/store/schema.ts';
import { directory } from '../support/groups.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { killAll, type ServerProcess, startProcess } from '../support/process.ts';
import { ownRedisMissing, startRedis, type TestRedis } from '../support/redis.ts';
import { chat, inParallel, keepAsking, means, type Probe, report, SECOND } from '../support/revocation.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type SignInNodes, signedInBrowser, signInCall, signInWays } from '../support/sign-in-ways.ts';
import { silenceable } from '../support/silenceable.ts';
import { type Issuer, issuer } from '../support/tokens.ts';

/** The long form has 1,000: `SLUICE_TEST_REVOCATIONS=1000 npx vitest run server/test/nodes/revocation.long.test.ts`. */
const REVOCATIONS = Number(process.env.SLUICE_TEST_REVOCATIONS ?? 100);

/** Something that is allowed on the other node, until it is taken away on this one. */
interface Right {
  readonly probe: Probe;
  readonly allowed: number;
  readonly refused: number;
  /** Takes it away. Answers from when on it must count, in `performance.now()` of this process. */
  revoke(): Promise<number>;
  /** A request that must be allowed all the time and afterwards. */
  readonly kept?: Probe;
  /** Undoes it where others would feel it; the right must come back within the bound too. */
  restore?(): Promise<number>;
}

let dataDir = '';
let env: Record<string, string> = {};
let way: Awaited<ReturnType<typeof silenceable>>;
let redis: TestRedis;
let here: TestServer;
let there: ServerProcess;
let tables: Tables;

async function ask(
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: unknown,
  node = there,
): Promise<number> {
  const answer = await fetch(`${node.url}/v1${path}`, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

const inference =
  (key: string, node?: ServerProcess): Probe =>
  () =>
    ask('POST', '/chat/completions', { 'x-gateway-api-key': key }, chat, node);
const reading =
  (key: string, path: string): Probe =>
  () =>
    ask('GET', path, { 'x-gateway-api-key': key });

/** A call on this node that must succeed; answers its body. */
async function change(method: string, path: string, body?: unknown, key?: string): Promise<Record<string, unknown>> {
  const answer = await here.admin(method, path, body, key);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

async function done(method: string, path: string, body?: unknown, key?: string): Promise<number> {
  await change(method, path, body, key);
  return performance.now();
}

/** When the store's clock will show `at`; the store, and both nodes, are on this machine. */
const momentOf = (at: number) => performance.now() + at - Date.now();

async function makeKey(fields: Record<string, unknown> = {}, kind = 'service') {
  const made = await change('POST', `/api-keys/workspace/${kind}`, {
    name: 'revoked',
    workspace_id: here.first.workspace_id,
    scopes: ['completions.write', 'configs.list', 'configs.create'],
    ...fields,
  });
  return { id: String(made.id), key: String(made.key) };
}

/** A user with a place in the first workspace and a key there. */
async function makeUser(role: Row<'users'>['role'], inWorkspace: Row<'workspace_members'>['role']) {
  const { organisation_id, workspace_id } = here.first;
  const id = randomUUID();
  const now = Date.now();
  const stamps = { created_at: now, last_updated_at: now };
  await tables.systemWrite(async (tx) => {
    await tx.insert('users', {
      id,
      organisation_id,
      email: `${id}@example.com`,
      first_name: 'Ada',
      last_name: 'Lovelace',
      role,
      status: 'active',
      ...stamps,
    });
    await tx.insert('workspace_members', {
      organisation_id,
      workspace_id,
      user_id: id,
      role: inWorkspace,
      status: 'active',
      ...stamps,
    });
  });
  const { key } = await makeKey({ user_id: id }, 'user');
  return { id, key };
}

const signInNodes = (): SignInNodes => ({
  tables,
  organisationId: here.first.organisation_id,
  here: here.url,
  there: there.url,
  makeUser: () => makeUser('admin', 'admin'),
  change: done,
});

/** A sign-in of a user, as a probe of the other node. */
async function signIn(userId: string): Promise<Probe> {
  const { cookie } = await signedInBrowser(signInNodes(), userId);
  return () => ask('GET', `/configs?workspace_id=${here.first.workspace_id}`, { cookie });
}

/** What a user can come in with: a key, a sign-in, a pair of tokens, a signed token that names them. */
async function everyCredential(user: { readonly id: string; readonly key: string }): Promise<readonly Probe[]> {
  const { organisation_id: organisationId, workspace_id } = here.first;
  const [now, digest] = [Date.now(), tokenDigest(randomUUID())];
  const expiresAt = now + 3_600_000;
  const session = sessionRow({ digest, organisationId, userId: user.id, kind: 'session' }, now, expiresAt);
  const pair = await tables.systemWrite(async (tx) => {
    await tx.insert('console_sessions', session);
    return createPair(tx, systemClock, { organisationId, session: digest, expiresAt });
  });
  return [
    inference(user.key),
    await signIn(user.id),
    () => ask('GET', `/configs?workspace_id=${workspace_id}`, { authorization: `Bearer ${pair.auth_token}` }),
    inference(stays.token(tokenClaims({ email_id: `${user.id}@example.com` }))),
  ];
}

/** One status for many credentials: 401 once each of them is refused. */
async function statusOfAll(probes: readonly Probe[]): Promise<number> {
  const statuses = await Promise.all(probes.map((probe) => probe()));
  return statuses.find((status) => status !== 403 && !means(status, 401)) ?? 401;
}

const [stays, goes] = [issuer('stays'), issuer('goes')];
/** Of a token of the first workspace. */
const tokenClaims = (more: object = {}) => ({
  exp: Math.floor(Date.now() / SECOND) + 3_600,
  gateway_oid: here.first.organisation_id,
  gateway_workspace: here.first.workspace_id,
  scope: 'completions.write',
  ...more,
});

async function deactivate(userId: string): Promise<number> {
  await directory(tables, here.first.organisation_id).deactivate(userId);
  return performance.now();
}

const WAYS: Readonly<Record<string, () => Promise<Right>>> = {
  ...signInWays(signInNodes),
  'a key is deleted': async () => {
    const { id, key } = await makeKey();
    return {
      probe: inference(key),
      allowed: 200,
      refused: 401,
      revoke: () => done('DELETE', `/api-keys/${id}`),
    };
  },
  'a key loses a scope': async () => {
    const { id, key } = await makeKey();
    return {
      probe: inference(key),
      allowed: 200,
      refused: 403,
      revoke: () => done('PUT', `/api-keys/${id}`, { scopes: ['configs.list'] }),
      kept: reading(key, '/configs'),
    };
  },
  'a key is given an end that comes soon': async () => {
    const { id, key } = await makeKey();
    return {
      probe: inference(key),
      allowed: 200,
      refused: 401,
      revoke: async () => {
        const at = Date.now() + 400;
        await change('PUT', `/api-keys/${id}`, { expires_at: new Date(at).toISOString() });
        return momentOf(at);
      },
    };
  },
  'the end of a key comes': async () => {
    const at = Date.now() + 1_500;
    const { key } = await makeKey({ expires_at: new Date(at).toISOString() });
    return { probe: inference(key), allowed: 200, refused: 401, revoke: async () => momentOf(at) };
  },
  'the transition of a rotated key ends': async () => {
    const { id, key } = await makeKey();
    const rotated = await change('POST', `/api-keys/${id}/rotate`, {});
    return {
      probe: inference(key),
      allowed: 200,
      refused: 401,
      // Half an hour is the shortest transition there is: its end is moved in the store.
      revoke: async () => {
        const at = Date.now() + 400;
        await tables.systemWrite(async (tx) => {
          await tx.update('api_key_secrets', { api_key_id: id, expires_at: { not: null } }, { expires_at: at });
          const { organisation_id: organisationId, workspace_id: workspaceId } = here.first;
          tx.changed({ organisationId, workspaceId, topic: 'api_keys', entityId: id });
        });
        return momentOf(at);
      },
      kept: inference(String(rotated.key)),
    };
  },
  'an organisation is suspended': async () => {
    const operator = here.first.operator_api_key;
    const made = await change(
      'POST',
      '/operator/organisations',
      { name: 'Other', owner: { email: 'grace@example.com', first_name: 'Grace', last_name: 'Hopper' } },
      operator,
    );
    const set = (status: string) =>
      done('PUT', `/operator/organisations/${String(made.organisation_id)}`, { status }, operator);
    return {
      probe: inference(String(made.workspace_api_key)),
      allowed: 200,
      refused: 403,
      revoke: () => set('suspended'),
      restore: () => set('active'),
    };
  },
  'a workspace is archived': async () => {
    const name = `Short ${randomUUID()}`;
    const workspace = await change('POST', '/admin/workspaces', { name });
    const { key } = await makeKey({ workspace_id: workspace.id, scopes: ['configs.list'] });
    return {
      probe: reading(key, '/configs'),
      allowed: 200,
      refused: 401,
      revoke: () => done('DELETE', `/admin/workspaces/${String(workspace.id)}`, { name }),
    };
  },
  'a user is removed, with the key': async () => {
    const user = await makeUser('member', 'manager');
    return {
      probe: inference(user.key),
      allowed: 200,
      refused: 401,
      revoke: () => done('DELETE', `/admin/users/${user.id}`),
    };
  },
  'a user is removed, with the sign-in': async () => {
    const user = await makeUser('admin', 'admin');
    return {
      probe: await signIn(user.id),
      allowed: 200,
      refused: 401,
      revoke: () => done('DELETE', `/admin/users/${user.id}`),
    };
  },
  'a member leaves a workspace': async () => {
    const user = await makeUser('member', 'manager');
    return {
      probe: inference(user.key),
      allowed: 200,
      refused: 401,
      revoke: () => done('DELETE', `/admin/workspaces/${here.first.workspace_id}/users/${user.id}`),
    };
  },
  'a role in a workspace is lowered': async () => {
    const user = await makeUser('member', 'manager');
    return {
      // A body that is refused, so that nothing is made: 400 says that the right was there.
      probe: () => ask('POST', '/configs', { 'x-gateway-api-key': user.key }, {}),
      allowed: 400,
      refused: 403,
      revoke: () => done('PUT', `/admin/workspaces/${here.first.workspace_id}/users/${user.id}`, { role: 'member' }),
      kept: inference(user.key),
    };
  },
  'a role in the organisation is lowered': async () => {
    const user = await makeUser('admin', 'member');
    const signedIn = await signIn(user.id);
    return {
      probe: () => ask('POST', '/configs', { 'x-gateway-api-key': user.key }, {}),
      allowed: 400,
      refused: 403,
      revoke: () => done('PUT', `/admin/users/${user.id}`, { role: 'member' }),
      kept: signedIn,
    };
  },
  'a security setting is switched off': async () => {
    const user = await makeUser('member', 'manager');
    const set = (managersViewConfigs: boolean) =>
      done('PUT', '/admin/organisation/settings', { security_settings: { managersViewConfigs } });
    return {
      probe: reading(user.key, '/configs'),
      allowed: 200,
      refused: 403,
      revoke: () => set(false),
      restore: () => set(true),
      kept: inference(user.key),
    };
  },
  'a key that signs tokens is withdrawn': async () => {
    const save = (...keys: Issuer[]) =>
      done('PUT', '/admin/organisation/settings', {
        auth_settings: { jwt: { jwks: { keys: keys.map(({ jwk }) => jwk) } } },
      });
    await save(stays, goes);
    return {
      probe: inference(goes.token(tokenClaims())),
      allowed: 200,
      refused: 401,
      revoke: () => save(stays),
      kept: inference(stays.token(tokenClaims())),
    };
  },
  'a user is removed whom a token names': async () => {
    await change('PUT', '/admin/organisation/settings', { auth_settings: { jwt: { jwks: { keys: [stays.jwk] } } } });
    const user = await makeUser('member', 'member');
    return {
      probe: inference(stays.token(tokenClaims({ email_id: `${user.id}@example.com` }))),
      allowed: 200,
      refused: 403,
      revoke: () => done('DELETE', `/admin/users/${user.id}`),
      kept: inference(stays.token(tokenClaims())),
    };
  },
  'a directory deactivates a user, with the key, the sign-in, the pair of tokens and signed tokens': async () => {
    await change('PUT', '/admin/organisation/settings', { auth_settings: { jwt: { jwks: { keys: [stays.jwk] } } } });
    const user = await makeUser('member', 'manager');
    const probes = await everyCredential(user);
    for (const [n, probe] of probes.entries()) {
      expect(await lagOf(probe, 401, 200, performance.now(), 5 * SECOND), `credential ${n}`).toBeLessThan(5 * SECOND);
    }
    return {
      probe: () => statusOfAll(probes),
      allowed: 200,
      refused: 401,
      revoke: () => deactivate(user.id),
    };
  },
  'a user leaves the last group that gives a workspace': async () => {
    const users = directory(tables, here.first.organisation_id);
    const [user, stayed] = [await makeUser('member', 'member'), await makeUser('member', 'member')];
    const group = await users.group(randomUUID());
    await users.enter(group, [user.id, stayed.id]);
    await change('POST', '/scim/workspaces', {
      workspace_id: here.first.workspace_id,
      role: 'member',
      scim_group_id: group,
    });
    return {
      probe: inference(user.key),
      allowed: 200,
      refused: 401,
      revoke: async () => {
        await users.leave(group, [user.id]);
        return performance.now();
      },
      kept: inference(stayed.key),
    };
  },
  'a config is deleted that requests name': async () => {
    const config = await change('POST', '/configs', {
      name: 'Short',
      workspace_id: here.first.workspace_id,
      config: { retry: { attempts: 1 } },
    });
    const { key } = await makeKey();
    const headers = { 'x-gateway-api-key': key, 'x-gateway-config': String(config.slug) };
    const probe = () => ask('POST', '/chat/completions', headers, chat);
    return {
      probe,
      allowed: 200,
      refused: 400,
      revoke: () => done('DELETE', `/configs/${String(config.slug)}`),
      kept: inference(key),
    };
  },
};

/**
 * How long after `since` the last request was sent that was answered as before, milliseconds; more than `bound` when that
 * did not end. Later ones are answered as they should be, none in a third way. Paced, to stay below limits of an address.
 */
async function lagOf(probe: Probe, before: number, after: number, since: number, bound: number): Promise<number> {
  let lag = 0;
  for (;;) {
    const sent = performance.now();
    const status = await probe();
    if (means(status, after)) break;
    expect(status).toBe(before);
    lag = Math.max(0, sent - since);
    if (lag > bound) return lag;
    await new Promise<void>((resolve) => systemClock.after(20, resolve));
  }
  for (let i = 0; i < 3; i++) expect(means(await probe(), after)).toBe(true);
  return lag;
}

/** Takes one right away and measures it, while what must stay allowed is asked for all the time. */
async function measure(right: Right, bound: number): Promise<number> {
  const { probe, allowed, refused, kept } = right;
  // What was made a moment ago may not be known there yet.
  expect(await lagOf(probe, refused, allowed, performance.now(), bound)).toBeLessThanOrEqual(bound);
  let over = false;
  const watching = kept === undefined ? null : keepAsking(kept, () => over);
  const since = await right.revoke();
  const lag = await lagOf(probe, allowed, refused, since, bound).finally(() => {
    over = true;
  });
  if (watching !== null) expect((await watching).filter((status) => status !== 200)).toEqual([]);
  if (right.restore === undefined) return lag;
  return Math.max(lag, await lagOf(probe, refused, allowed, await right.restore(), bound));
}

describe.skipIf(ownRedisMissing !== null)('on the other node', () => {
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'sluice-revocation-'));
    const databaseUrl = await migratedDatabase();
    way = await silenceable(databaseUrl);
    redis = await startRedis();
    env = {
      SLUICE_DATABASE_URL: databaseUrl,
      SLUICE_REDIS_URL: redis.url,
      SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
      SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
    };
    here = await startServer(env);
    there = await startProcess(dataDir, { ...env, SLUICE_DATABASE_URL: way.url });
    tables = await openPostgresTables({ url: databaseUrl, log: silentLog, poolSize: 2 });
    await here.admin('PUT', '/admin/organisation/settings', {
      data_plane_security_settings: { block_inline_config: false },
    });
  });

  afterAll(async () => {
    await tables?.close();
    there?.child.kill('SIGKILL');
    await here?.stop();
    await redis?.close();
    await way?.close();
    killAll();
    await rm(dataDir, { recursive: true, force: true });
  });

  describe('everything connected: within a second', () => {
    for (const [title, make] of Object.entries(WAYS)) {
      it(`${title}`, async () => {
        const lags: number[] = [];
        for (let round = 0; round < 2; round++) lags.push(await measure(await make(), SECOND));
        report(title, lags);
        expect(Math.max(...lags)).toBeLessThanOrEqual(SECOND);
      }, 60_000);
    }

    it(`${REVOCATIONS} keys are deleted under load: none is accepted a second later, no good key is refused`, async () => {
      const keys = await inParallel(8, REVOCATIONS, async () => makeKey());
      await inParallel(8, REVOCATIONS, async (i) => {
        expect(await inference(keys[i]?.key ?? '')()).toBe(200);
      });
      let over = false;
      const load = Array.from({ length: 4 }, () => keepAsking(inference(here.first.workspace_api_key), () => over));
      const lags = await inParallel(4, REVOCATIONS, async (i) => {
        const { id, key } = keys[i] ?? { id: '', key: '' };
        const since = await done('DELETE', `/api-keys/${id}`);
        return lagOf(inference(key), 200, 401, since, SECOND);
      }).finally(() => {
        over = true;
      });
      const good = (await Promise.all(load)).flat();
      report(`deleted keys under load (${good.length} good requests meanwhile)`, lags);
      expect(Math.max(...lags)).toBeLessThanOrEqual(SECOND);
      expect(good.filter((status) => status !== 200)).toEqual([]);
      // Long after, none has come back.
      const again = await inParallel(8, REVOCATIONS, async (i) => inference(keys[i]?.key ?? '')());
      expect(again.filter((status) => !means(status, 401))).toEqual([]);
    }, 600_000);

    it('of six simultaneous uses of a refresh token, three on each node, one gets the next pair, and that is dead', async () => {
      const { id } = await makeUser('admin', 'admin');
      const pair = await signInCall(here.url, 'login', await signedInBrowser(signInNodes(), id), {});
      const uses = Array.from({ length: 6 }, (_, i) =>
        signInCall(i % 2 === 0 ? here.url : there.url, 'refresh', {}, { refresh_token: pair.refresh_token }),
      );
      const won = (await Promise.allSettled(uses)).filter(({ status }) => status === 'fulfilled');
      expect(won).toHaveLength(1);
      const [first] = won as PromiseFulfilledResult<Record<string, string>>[];
      const dead = { authorization: `Bearer ${first?.value.auth_token}` };
      const { probe, since } = { probe: () => ask('GET', '/auth/self', dead), since: performance.now() };
      expect(await lagOf(probe, 200, 401, since, SECOND)).toBeLessThanOrEqual(SECOND);
      await expect(signInCall(there.url, 'refresh', {}, { refresh_token: first?.value.refresh_token })).rejects.toThrow(
        '401',
      );
    });

    it.each<[string, () => Promise<{ id: string; key: string }>, (id: string) => Promise<unknown>]>([
      ['its key is deleted', () => makeKey(), (id) => change('DELETE', `/api-keys/${id}`)],
      ['a directory deactivates its user', () => makeUser('member', 'member'), deactivate],
    ])('a stream that runs when %s may finish, and the next request is refused', async (_what, make, end) => {
      const { id, key } = await make();
      const answer = await fetch(`${there.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': key, 'content-type': 'application/json' },
        body: JSON.stringify({ ...chat, model: '@sandbox/slow?ttft_ms=0&tokens_per_s=20&tokens=20', stream: true }),
      });
      expect(answer.status).toBe(200);
      await end(id);
      expect(await lagOf(inference(key), 200, 401, performance.now(), SECOND)).toBeLessThanOrEqual(SECOND);
      expect(await answer.text()).toContain('data: [DONE]');
    });
  });

  it.each([-5, 5])(
    'a node whose clock is %i minutes off judges the end of a key by the store’s',
    async (minutes) => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-revocation-'));
      const shift = `const now = Date.now.bind(Date); Date.now = () => now() + ${minutes * 60_000};`;
      const node = await startProcess(folder, {
        ...env,
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(shift)}`,
      });
      try {
        const at = Date.now() + 1_500;
        const ending = await makeKey({ expires_at: new Date(at).toISOString() });
        const lasting = await makeKey({ expires_at: new Date(at + 60_000).toISOString() });
        const lag = await lagOf(inference(ending.key, node), 200, 401, momentOf(at), SECOND);
        report(`the end of a key on a node that is ${minutes} minutes off`, [lag]);
        expect(lag).toBeLessThanOrEqual(SECOND);
        expect(await inference(lasting.key, node)()).toBe(200);
      } finally {
        node.child.kill('SIGKILL');
        await node.ended;
        await rm(folder, { recursive: true, force: true });
      }
    },
    60_000,
  );

  describe('Redis is down: within five seconds', () => {
    beforeAll(() => redis.kill());

    for (const [title, make] of Object.entries(WAYS)) {
      it(`${title}`, async () => {
        const lag = await measure(await make(), 5 * SECOND);
        report(`${title}, without Redis`, [lag]);
        expect(lag).toBeLessThanOrEqual(5 * SECOND);
      }, 60_000);
    }
  });

  describe('Redis is down and no notice arrives: within five seconds', () => {
    beforeAll(async () => {
      await redis.kill();
      way.silence();
    });
    afterAll(() => expect(way.swallowed()).toBeGreaterThan(0));

    for (const [title, make] of Object.entries(WAYS)) {
      it(`${title}`, async () => {
        const lag = await measure(await make(), 5 * SECOND);
        report(`${title}, without any feed`, [lag]);
        expect(lag).toBeLessThanOrEqual(5 * SECOND);
      }, 60_000);
    }
  });
});
