/** Settings changed on one node act on another within a second: the data plane, user keys and sign-ins. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLink } from '../../src/auth/console-session.ts';
import { mintKey } from '../../src/auth/key-format.ts';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { apiKeyRow, secretRow } from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { addUser } from '../support/people.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { startServer, type TestServer } from '../support/server.ts';

const WITHIN_MS = 1_000;

describe('two nodes on one PostgreSQL', () => {
  let one: TestServer;
  let two: Running;
  let dataDir: string;
  let tables: Tables;

  beforeAll(async () => {
    const url = await migratedDatabase();
    const shared = { SLUICE_DATABASE_URL: url, SLUICE_MASTER_KEY: randomBytes(32).toString('base64') };
    one = await startServer(shared);
    dataDir = await mkdtemp(join(tmpdir(), 'sluice-node-'));
    const env = { ...shared, SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error' };
    two = await compose(loadConfig([], env, dataDir), silentLog);
    tables = await openPostgresTables({ url, log: silentLog });
  });

  afterAll(async () => {
    await two?.stop({ noticeMs: 0, drainMs: 1_000 });
    await tables?.close();
    await one?.stop();
    await rm(dataDir, { recursive: true, force: true });
  });

  /** Changes settings on the first node and answers once the second one says `wanted`, or what it said after a second. */
  const change = async (body: object, ask: () => Promise<number>, wanted: number): Promise<number> => {
    expect((await one.admin('PUT', '/admin/organisation/settings', body)).status).toBe(200);
    const since = performance.now();
    let seen = 0;
    do seen = await ask();
    while (seen !== wanted && performance.now() - since < WITHIN_MS);
    return seen;
  };
  const statusOf = async (answer: Promise<Response>) => {
    const { status, body } = await answer;
    await body?.cancel();
    return status;
  };

  it('saved-only mode', async () => {
    const ask = () =>
      statusOf(
        fetch(`${two.url}/v1/chat/completions`, {
          method: 'POST',
          headers: {
            'x-gateway-api-key': one.first.workspace_api_key,
            'content-type': 'application/json',
            'x-gateway-config': '{"provider":"@sandbox"}',
          },
          body: JSON.stringify({ model: 'echo', messages: [{ role: 'user', content: 'Hello' }] }),
        }),
      );
    const block = (on: boolean) => ({ data_plane_security_settings: { block_inline_config: on } });
    expect(await ask()).toBe(200);
    expect(await change(block(true), ask, 400)).toBe(400);
    expect(await change(block(false), ask, 200)).toBe(200);
  });

  it('what a user key may do', async () => {
    const { organisation_id, workspace_id } = one.first;
    const user = await addUser(tables, organisation_id);
    const minted = mintKey('usr');
    const id = uuidv7(systemClock);
    const owned = { workspace_id, user_id: user.id, type: 'workspace-user' as const, scopes: ['configs.list'] };
    await tables.systemWrite(async (tx) => {
      const stamps = { created_at: systemClock.now(), last_updated_at: systemClock.now() };
      const joined = { organisation_id, workspace_id, user_id: user.id, ...stamps };
      await tx.insert('workspace_members', { ...joined, role: 'member', status: 'active' });
      await tx.insert('api_keys', apiKeyRow(organisation_id, id, owned));
      await tx.insert('api_key_secrets', secretRow(organisation_id, id, minted.publicId, { digest: minted.digest }));
    });
    const ask = () => statusOf(fetch(`${two.url}/v1/configs`, { headers: { 'x-gateway-api-key': minted.key } }));
    expect(await ask()).toBe(200);
    expect(await change({ security_settings: { membersViewConfigs: false } }, ask, 403)).toBe(403);
    expect(await change({ security_settings: { membersViewConfigs: true } }, ask, 200)).toBe(200);
  });

  it('how long a sign-in lives', async () => {
    const { organisation_id, user_id } = one.first;
    const { token } = await createLink(tables, systemClock, { id: user_id, organisation_id });
    const signedIn = await fetch(`${two.url}/console/api/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: two.url },
      body: JSON.stringify({ token }),
    });
    expect(signedIn.status).toBe(200);
    const cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? '';
    const ask = () => statusOf(fetch(`${two.url}/console/api/session`, { headers: { cookie } }));
    // Sixteen minutes have passed since.
    const created_at = systemClock.now() - 16 * 60_000;
    await tables.systemWrite((tx) =>
      tx.update('console_sessions', { kind: 'session' }, { created_at, auth_time: created_at }),
    );
    expect(await ask()).toBe(200);
    expect(await change({ session_settings: { max_session_ttl: 900 } }, ask, 401)).toBe(401);
    expect(await change({ session_settings: null }, ask, 200)).toBe(200);
  });
});
