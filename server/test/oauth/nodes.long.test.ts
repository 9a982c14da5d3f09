/**
 * What a client was given ends on every node within a second, and within five when Redis is down and no notice of PostgreSQL
 * arrives: two nodes on one PostgreSQL and one Redis.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import {
  authorize,
  BEHIND_PROXY,
  type Browser,
  browserOf,
  callTools,
  codeFor,
  form,
  post,
  registered,
  request,
  type Served,
  tokenPlane,
  tokensFor,
} from '../support/oauth.ts';
import { addUser } from '../support/people.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { ownRedisMissing, startRedis, type TestRedis } from '../support/redis.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { silenceable } from '../support/silenceable.ts';

const WITHIN_MS = 1_000;
const WITHOUT_FEED_MS = 5_000;
const PUBLIC = 'https://sluice.example';
const YEAR_MS = 365 * 24 * 3_600_000;

interface Given {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly clientId: string;
  readonly browser: Browser;
  readonly userId: string;
  readonly workspaceId: string;
}

describe.skipIf(ownRedisMissing !== null)('two nodes on one PostgreSQL', () => {
  let server: TestServer;
  let one: Served;
  let two: Running;
  let tables: Tables;
  let dataDir: string;
  let redis: TestRedis;
  let way: Awaited<ReturnType<typeof silenceable>>;
  let owner: Browser;
  let client: string;

  beforeAll(async () => {
    const url = await migratedDatabase();
    redis = await startRedis();
    way = await silenceable(url);
    const shared = {
      ...BEHIND_PROXY,
      SLUICE_DATABASE_URL: url,
      SLUICE_REDIS_URL: redis.url,
      SLUICE_MASTER_KEY: randomBytes(32).toString('base64'),
      SLUICE_PUBLIC_URL: PUBLIC,
    };
    const planes = { planes: [tokenPlane] };
    server = await startServer(shared, planes);
    one = { ...server, publicUrl: PUBLIC };
    dataDir = await mkdtemp(join(tmpdir(), 'sluice-node-'));
    const env = {
      ...shared,
      SLUICE_DATABASE_URL: way.url,
      SLUICE_DATA_DIR: dataDir,
      SLUICE_PORT: '0',
      SLUICE_LOG_LEVEL: 'error',
    };
    two = await compose(loadConfig([], env, dataDir), silentLog, undefined, planes);
    tables = await openPostgresTables({ url, log: silentLog });
    owner = await browserOf(one);
    client = await registered(one);
  });
  afterAll(async () => {
    await two?.stop({ noticeMs: 0, drainMs: 1_000 });
    await tables?.close();
    await server?.stop();
    await redis?.close();
    await way?.close();
    await rm(dataDir, { recursive: true, force: true });
  });

  /** A browser of a new member of a workspace. */
  const member = async (): Promise<{ browser: Browser; userId: string; workspaceId: string }> => {
    const made = await server.admin('POST', '/admin/workspaces', { name: `w ${randomBytes(4).toString('hex')}` });
    const workspaceId = String(made.body.id);
    const { id: userId } = await addUser(tables, server.first.organisation_id);
    const users = [{ id: userId, role: 'member' }];
    expect((await server.admin('POST', `/admin/workspaces/${workspaceId}/users`, { users })).status).toBe(200);
    return { browser: await browserOf(one, userId), userId, workspaceId };
  };

  const ENDS: readonly (readonly [string, (given: Given) => Promise<void>])[] = [
    [
      'its revocation',
      async ({ refresh_token }) => void (await form(one.url, '/v2/oauth/revoke', { token: refresh_token })),
    ],
    [
      'a second use of its refresh token',
      async ({ refresh_token, clientId: client_id }) => {
        const fields = { grant_type: 'refresh_token', client_id, refresh_token };
        expect((await form(one.url, '/v2/oauth/token', fields)).status).toBe(200);
        expect((await form(one.url, '/v2/oauth/token', fields)).status).toBe(400);
      },
    ],
    [
      'the removal of its user',
      async ({ userId }) => expect((await server.admin('DELETE', `/admin/users/${userId}`)).status).toBe(200),
    ],
    [
      'the user leaving the workspace',
      async ({ userId, workspaceId }) =>
        expect((await server.admin('DELETE', `/admin/workspaces/${workspaceId}/users/${userId}`)).status).toBe(200),
    ],
    [
      'the removal of its workspace',
      async ({ workspaceId }) => {
        const gone = await server.admin('DELETE', `/admin/workspaces/${workspaceId}`, { force_delete: true });
        expect(gone.status, JSON.stringify(gone.body)).toBe(200);
      },
    ],
    [
      'the end of its client, which nobody has used for 90 days',
      async ({ clientId: id }) => {
        await tables.systemWrite((tx) => tx.update('oauth_clients', { id }, { last_used_at: Date.now() - YEAR_MS }));
        await registered(one);
      },
    ],
    [
      'its user taking the approval back',
      async ({ browser }) => {
        const { body } = await browser.call('GET', '/v1/oauth/approvals');
        const [{ id }] = body.data as [{ id: string }];
        expect((await browser.call('DELETE', `/v1/oauth/approvals/${id}`)).status).toBe(200);
      },
    ],
    [
      'a max_session_ttl that is shorter than the sign-in behind it is old',
      async ({ userId: user_id }) => {
        const signed_in_at = Date.now() - 2 * 3_600_000;
        await tables.systemWrite((tx) => tx.update('oauth_families', { user_id }, { signed_in_at }));
        const set = await server.admin('PUT', '/admin/organisation/settings', {
          session_settings: { max_session_ttl: 3_600 },
        });
        expect(set.status, JSON.stringify(set.body)).toBe(200);
      },
    ],
  ];

  const endsOnTheOther = async (end: (given: Given) => Promise<void>, bound: number): Promise<void> => {
    const { browser, userId, workspaceId } = await member();
    const clientId = await registered(one);
    const tokens = await tokensFor(one, browser, clientId);
    await expect.poll(async () => (await callTools(two.url, tokens.access_token)).status, { timeout: bound }).toBe(200);
    await end({ ...tokens, clientId, browser, userId, workspaceId });
    const since = performance.now();
    let status = 0;
    do status = (await callTools(two.url, tokens.access_token)).status;
    while (status === 200 && performance.now() - since < bound);
    expect(status).toBe(401);
    const known = await post(two.url, '/v2/oauth/introspect', { token: tokens.access_token });
    expect(known.text).toBe('{"active":false}');
    const fields = { grant_type: 'refresh_token', client_id: clientId, refresh_token: tokens.refresh_token };
    expect((await form(two.url, '/v2/oauth/token', fields)).status).toBeGreaterThanOrEqual(400);
  };

  it.each(ENDS)('an access token ends on the other node within a second of %s', (_what, end) =>
    endsOnTheOther(end, WITHIN_MS),
  );

  it('tokens end no later than the sign-in in which they were given', async () => {
    const set = (max_session_ttl: number | null) =>
      server.admin('PUT', '/admin/organisation/settings', { session_settings: { max_session_ttl } });
    expect((await set(1_800)).status).toBe(200);
    const { status, body } = await form(one.url, '/v2/oauth/token', await codeFor(one, owner, client));
    expect(status, JSON.stringify(body)).toBe(200);
    expect(body.expires_in).toBeGreaterThan(900);
    expect(body.expires_in).toBeLessThanOrEqual(1_800);
    expect((await set(null)).status).toBe(200);
  });

  it('a code that both nodes are sent at once is exchanged by one, and ends what it gave', async () => {
    const fields = await codeFor(one, owner, client);
    const answers = await Promise.all(
      [one.url, two.url, one.url, two.url].map((url) => form(url, '/v2/oauth/token', fields)),
    );
    const given = answers.filter(({ status }) => status === 200);
    expect(given).toHaveLength(1);
    for (const url of [one.url, two.url]) {
      const { text } = await post(url, '/v2/oauth/introspect', { token: String(given[0]?.body.access_token) });
      expect(text).toBe('{"active":false}');
    }
  });

  it('a refresh token that both nodes are sent at once is renewed by one, and ends the family', async () => {
    const { refresh_token } = await tokensFor(one, owner, client);
    const fields = { grant_type: 'refresh_token', client_id: client, refresh_token };
    const answers = await Promise.all(
      [one.url, two.url, one.url, two.url].map((url) => form(url, '/v2/oauth/token', fields)),
    );
    const given = answers.filter(({ status }) => status === 200);
    expect(given).toHaveLength(1);
    for (const url of [one.url, two.url]) {
      const { text } = await post(url, '/v2/oauth/introspect', { token: String(given[0]?.body.access_token) });
      expect(text).toBe('{"active":false}');
    }
  });

  it('an approval that both nodes are sent at once gives one code', async () => {
    const there = await browserAt(two.url);
    const { location } = await authorize(one, request(one, client).query);
    const resume_state = new URL(location ?? '').hash.slice(1);
    expect((await there.call('POST', '/console/api/access', { resume_state })).status).toBe(200);
    // The other node's session is another one, which the request is not for.
    expect((await owner.call('POST', '/console/api/access', { resume_state })).status).toBe(404);
    const body = {
      approved: true,
      resume_state,
      organisation_id: there.organisationId,
      workspace_id: there.workspaceId,
    };
    const answers = await Promise.all(Array.from({ length: 4 }, () => there.call('POST', '/v2/oauth/authorize', body)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404, 404]);
  });

  describe('Redis is down and no notice arrives', () => {
    beforeAll(async () => {
      await redis.kill();
      way.silence();
      await server.admin('PUT', '/admin/organisation/settings', { session_settings: { max_session_ttl: null } });
    });
    afterAll(() => expect(way.swallowed()).toBeGreaterThan(0));

    it.each(ENDS)('an access token ends on the other node within five seconds of %s', (_what, end) =>
      endsOnTheOther(end, WITHOUT_FEED_MS),
    );
  });

  const browserAt = (url: string) => browserOf(one, server.first.user_id, url);
});
