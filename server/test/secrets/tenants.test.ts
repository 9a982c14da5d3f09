/** Who may use a secret reference, what may be changed of one, and where the secret never is: on both stores. */
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/telemetry/logger.ts';
import { filesBelow } from '../support/files-below.ts';
import { postgresDatabase } from '../support/postgres.ts';
import { type FakeVault, startVault, VAULT } from '../support/secret-managers/vault.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const CANARY = 'sk-canary-of-the-vault-0123456789';
const CHAT = { messages: [{ role: 'user', content: 'hi' }] };

describe.each(['SQLite', 'PostgreSQL'])('on %s', (engine) => {
  const lines: string[] = [];
  let upstream: FakeUpstream;
  let vault: FakeVault;
  let server: TestServer;
  let database = '';
  let other: Record<string, string>;
  const name = 'shared-key';
  let id = '';

  beforeAll(async () => {
    if (engine === 'PostgreSQL') database = await postgresDatabase();
    // It repeats what it was sent, as providers do.
    upstream = await startUpstream((request, response) =>
      sendJson(response, 401, { error: { message: `Incorrect API key: ${request.headers.authorization}` } }),
    );
    vault = await startVault({ namespace: VAULT.namespace });
    vault.put('secret/data/openai', { api_key: CANARY });
    const log = createLogger({ level: 'debug', format: 'json', write: (line) => lines.push(line) });
    const env = { SLUICE_TRUSTED_HOSTS: '127.0.0.0/8', ...(database === '' ? {} : { SLUICE_DATABASE_URL: database }) };
    server = await startServer(env, { writeAccess: (text) => lines.push(text) }, log);
    const owner = { email: 'ada@other.example', first_name: 'Ada', last_name: 'Other' };
    const made = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Other', owner },
      server.first.operator_api_key,
    );
    expect(made.status).toBe(200);
    other = made.body as Record<string, string>;
    const reference = await server.admin('POST', '/secret-references', {
      name,
      slug: name,
      manager_type: 'hashicorp_vault',
      auth_config: {
        vault_auth_type: 'token',
        vault_addr: vault.url,
        vault_token: VAULT.token,
        vault_namespace: VAULT.namespace,
      },
      secret_path: 'secret/data/openai',
      secret_key: 'api_key',
      allowed_workspaces: [server.first.workspace_id],
    });
    expect(reference.status, JSON.stringify(reference.body)).toBe(200);
    id = String(reference.body.id);
  });
  afterAll(() => Promise.all([server?.stop(), upstream?.stop(), vault?.stop()]));
  afterEach(() => expect(vault.faults.splice(0)).toEqual([]));

  const integration = (slug: string, more: object = {}, key?: string) =>
    server.admin(
      'POST',
      '/integrations',
      {
        name: slug,
        slug,
        ai_provider_id: 'openai',
        configurations: { custom_host: `${upstream.url}/v1` },
        secret_mappings: [{ target_field: 'key', secret_reference_id: id }],
        ...more,
      },
      key,
    );
  const chat = async (slug: string, key?: string) => {
    const headers: Record<string, string> = key === undefined ? {} : { 'x-gateway-api-key': key };
    const answer = await server.call('/chat/completions', { ...CHAT, model: `@${slug}/gpt-4o` }, headers);
    return { status: answer.status, text: await answer.text() };
  };

  it('another organisation that copies its id or slug is told that there is none, and reads nothing', async () => {
    for (const named of [id, name]) {
      const mapped = { secret_mappings: [{ target_field: 'key', secret_reference_id: named }] };
      const answer = await integration('stolen', mapped, other.admin_api_key);
      expect(answer).toMatchObject({
        status: 404,
        body: { error: { code: 'AB02', param: 'secret_mappings[0].secret_reference_id' } },
      });
      for (const [method, path] of [
        ['GET', `/secret-references/${named}`],
        ['POST', `/secret-references/${named}/test`],
        ['DELETE', `/secret-references/${named}`],
      ] as const) {
        expect((await server.admin(method, path, undefined, other.admin_api_key)).status).toBe(404);
      }
    }
    expect((await server.admin('GET', '/secret-references', undefined, other.admin_api_key)).body).toMatchObject({
      total: 0,
    });
    expect(vault.received).toEqual([]);
  });

  it('a workspace that it is closed to cannot map it, and loses it at once when it is closed', async () => {
    const made = await server.admin('POST', '/admin/workspaces', { name: `closed ${engine}` });
    const closed = String(made.body.id);
    const refused = await integration('closed-own', { workspace_id: closed });
    expect(refused).toMatchObject({ status: 404, body: { error: { code: 'AB02' } } });
    // The organisation's own integration may map it; it is the workspace that is asked when it is used.
    expect((await integration('of-all')).status).toBe(200);
    const own = { name: 'p', integration_id: 'of-all' };
    await server.admin('POST', '/providers', { ...own, slug: 'open-one', workspace_id: server.first.workspace_id });
    await server.admin('POST', '/providers', { ...own, slug: 'closed-one', workspace_id: closed });
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'k',
      workspace_id: closed,
      scopes: ['completions.write'],
    });
    const there = String(key.body.key);
    expect(await chat('closed-one', there)).toMatchObject({
      status: 503,
      text: expect.stringContaining('closed to this workspace'),
    });
    expect((await chat('open-one')).status).toBe(401);
    await server.admin('PUT', `/secret-references/${name}`, { allowed_workspaces: [closed] });
    expect((await chat('closed-one', there)).status).toBe(401);
    expect((await chat('open-one')).status).toBe(503);
    await server.admin('PUT', `/secret-references/${name}`, { allow_all_workspaces: true });
    expect((await chat('open-one')).status).toBe(401);
    expect((await server.admin('GET', `/secret-references/${name}`)).body).not.toHaveProperty('allowed_workspaces');
  });

  it('stays while it is used, keeps its secrets to its address, and shows them as masks', async () => {
    const used = await server.admin('DELETE', `/secret-references/${name}`);
    expect(used).toMatchObject({
      status: 400,
      body: { error: { code: 'AB01', message: expect.stringContaining('integration of-all') } },
    });
    const moved = { auth_config: { vault_addr: 'https://evil.example' } };
    expect(await server.admin('PUT', `/secret-references/${name}`, moved)).toMatchObject({
      status: 400,
      body: { error: { param: 'auth_config.vault_addr', message: expect.stringContaining('vault_token') } },
    });
    const shown = (await server.admin('GET', `/secret-references/${name}`)).body.auth_config as Record<string, string>;
    expect(shown).toMatchObject({
      vault_namespace: VAULT.namespace,
      masked_vault_token: expect.stringMatching(/^\*{7}/),
    });
    expect(shown).not.toHaveProperty('vault_token');
    for (const [body, param] of [
      [{}, null],
      [{ auth_config: { vault_token: shown.masked_vault_token } }, 'auth_config.vault_token'],
      [{ auth_config: { vault_role: 'r' } }, 'auth_config.vault_role'],
      [{ manager_type: 'env' }, 'manager_type'],
      [{ slug: 'x' }, 'slug'],
      [{ secret_path: '../x' }, 'secret_path'],
      [{ allow_all_workspaces: true, allowed_workspaces: [server.first.workspace_id] }, 'allowed_workspaces'],
    ] as const) {
      const answer = await server.admin('PUT', `/secret-references/${name}`, body);
      expect([answer.status, (answer.body.error as { param: string }).param]).toEqual([400, param]);
    }
    expect((await server.admin('POST', `/secret-references/${name}/test`)).body).toEqual({
      ok: true,
      problem: null,
      length: CANARY.length,
      object: 'secret-reference-test',
    });
  });

  it('never decides where secrets go that are stored with the account', async () => {
    const host = { target_field: 'configurations.custom_host', secret_reference_id: id };
    const param = 'secret_mappings[0].target_field';
    expect(await integration('led', { key: 'sk-stored', configurations: {}, secret_mappings: [host] })).toMatchObject({
      status: 400,
      body: { error: { param } },
    });
    const provider = { name: 'p', integration_id: 'of-all', workspace_id: server.first.workspace_id };
    expect(await server.admin('POST', '/providers', { ...provider, secret_mappings: [host] })).toMatchObject({
      status: 400,
      body: { error: { param } },
    });
  });

  it('its secret is in no answer, log line, metric, file or table, also where a provider repeats it', async () => {
    await server.admin('PUT', `/admin/workspaces/${server.first.workspace_id}`, { settings: { debug_log: 1 } });
    const texts = [(await chat('open-one')).text];
    expect(texts[0]).toContain('Incorrect API key');
    for (const path of ['/secret-references', '/integrations', '/integrations/of-all', '/providers', '/logs']) {
      texts.push(JSON.stringify((await server.admin('GET', path)).body));
    }
    texts.push(JSON.stringify(await server.records()), lines.join());
    texts.push(
      await (
        await fetch(`${server.url}/metrics`, { headers: { 'x-gateway-api-key': server.first.operator_api_key } })
      ).text(),
    );
    for (const { bytes } of await filesBelow(server.dataDir)) texts.push(bytes.toString('latin1'));
    if (database !== '') {
      const client = new pg.Client({ connectionString: database });
      await client.connect();
      await client.query("SET sluice.organisation = '*'");
      const { rows } = await client.query(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
      );
      for (const { schemaname, tablename } of rows as { schemaname: string; tablename: string }[]) {
        texts.push(
          JSON.stringify((await client.query(`SELECT t::text AS row FROM "${schemaname}"."${tablename}" t`)).rows),
        );
      }
      await client.end();
    }
    const all = texts.join('\n');
    expect(all).toContain(name);
    expect(all).not.toContain(CANARY);
    expect(all).not.toContain(VAULT.token);
  });
});
