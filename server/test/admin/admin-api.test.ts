/** What the administration API promises, on a real listener and on both engines. */
import { randomBytes } from 'node:crypto';
import { Agent, request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { addUser, admin, fails, makeKey, NOWHERE, UUID, useAdminApi } from '../support/admin-api.ts';

const sample = { error: { code: 'AB05', message: 'HEAD has no body.', param: null, type: 'client_error' } };

describe.each(['sqlite', 'postgres'] as const)('the administration API on %s', (engine) => {
  useAdminApi(engine);

  const audit = (organisation = admin.a.organisation_id) =>
    admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { organisation_id: organisation }, orderBy: [['timestamp', 'desc']] }),
    );

  describe('GET /admin/users/{userId}', () => {
    it('answers exactly the published fields, dates as YYYY-MM-DD HH:MM:SS in UTC', async () => {
      const id = await addUser('member', 'member');
      const answer = await admin.call('GET', `/v1/admin/users/${id}`);
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({
        object: 'user',
        id,
        first_name: 'Grace',
        last_name: 'Hopper',
        role: 'member',
        email: `${id}@alpha.example`,
        created_at: '2026-02-03 04:05:06',
        last_updated_at: '2026-12-31 23:59:59',
        workspace_ids: [admin.a.workspace_slug],
      });
    });

    it('lists every workspace for owners and admins, and the joined ones for members', async () => {
      const { organisation_id } = admin.a;
      await admin.tables.systemWrite((tx) =>
        tx.insert('workspaces', {
          id: crypto.randomUUID(),
          organisation_id,
          slug: 'ws-second',
          name: 'Second',
          icon: null,
          description: null,
          is_default: false,
          status: 'active',
          defaults: null,
          settings: {},
          security_settings: {},
          creation_source: null,
          scim_source_id: null,
          last_reset_at: null,
          usage_limits: null,
          rate_limits: null,
          created_by: null,
          created_at: Date.now() + 1,
          last_updated_at: Date.now(),
        }),
      );
      const slugs = async (id: string) => (await admin.call('GET', `/v1/admin/users/${id}`)).body.workspace_ids;
      expect(await slugs(admin.a.user_id)).toEqual([admin.a.workspace_slug, 'ws-second']);
      expect(await slugs(await addUser('admin', null))).toEqual([admin.a.workspace_slug, 'ws-second']);
      expect(await slugs(await addUser('member', 'manager'))).toEqual([admin.a.workspace_slug]);
      expect(await slugs(await addUser('member', null))).toEqual([]);
    });

    it('missing, foreign and malformed ids get one and the same 404', async () => {
      const ids = [NOWHERE, admin.b.user_id, 'x', admin.b.user_id.toUpperCase(), '%20', 'a'.repeat(300)];
      const answers = await Promise.all(ids.map((id) => admin.call('GET', `/v1/admin/users/${id}`)));
      for (const answer of answers) fails(answer, 404, 'AB08');
      expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
      const comparable = answers.map(({ headers }) =>
        [...headers]
          .filter(([name]) => name !== 'x-gateway-request-id' && name !== 'date')
          .sort()
          .join('\n'),
      );
      expect(new Set(comparable).size).toBe(1);
    });
  });

  describe('credentials', () => {
    it('the bearer token is read where x-gateway-api-key is absent', async () => {
      const headers = { authorization: `Bearer ${admin.a.admin_api_key}` };
      expect((await admin.call('GET', '/v1/api-keys', { key: null, headers })).status).toBe(200);
      const foreign = await admin.call('GET', '/v1/api-keys', { headers: { authorization: 'Bearer sk-provider' } });
      expect(foreign.status).toBe(200);
    });

    it('no credential, and one that is not valid: 401 with the error body', async () => {
      fails(await admin.call('GET', '/v1/api-keys', { key: null }), 401, 'AB05');
      fails(await admin.call('GET', '/v1/api-keys', { key: 'nonsense' }), 401, 'AB05');
      fails(await admin.call('POST', '/v1/api-keys/workspace/service', { key: null, raw: '{' }), 401, 'AB05');
    });

    it('the operator key opens its own routes and nothing else, and nobody else opens them', async () => {
      fails(await admin.call('GET', '/v1/api-keys', { key: admin.operatorKey }), 403, 'AB03');
      fails(await admin.call('GET', `/v1/admin/users/${admin.a.user_id}`, { key: admin.operatorKey }), 403, 'AB03');
      for (const key of [admin.a.admin_api_key, admin.a.workspace_api_key]) {
        fails(await admin.call('GET', '/v1/operator/organisations', { key }), 403, 'AB03');
        fails(await admin.call('POST', '/v1/operator/organisations', { key, body: {} }), 403, 'AB03');
      }
    });
  });

  describe('the operator', () => {
    it('creates an organisation whose keys work and that sees nothing of the others', async () => {
      const body = { name: 'Gamma', owner: { email: 'eve@gamma.example', first_name: 'Eve', last_name: 'Gamma' } };
      const made = await admin.call('POST', '/v1/operator/organisations', { key: admin.operatorKey, body });
      expect(made.body).toEqual({
        organisation_id: expect.stringMatching(UUID),
        workspace_id: expect.stringMatching(UUID),
        workspace_slug: expect.stringMatching(/^ws-gamma-[0-9a-f]{6}$/),
        user_id: expect.stringMatching(UUID),
        admin_api_key: expect.stringMatching(/^slc_org_/),
        workspace_api_key: expect.stringMatching(/^slc_wks_/),
      });
      const keys = await admin.call('GET', '/v1/api-keys', { key: made.body.admin_api_key });
      expect(keys.body.total).toBe(2);
      const { settings, providers } = await admin.tables.systemRead(async (tx) => ({
        settings: (await tx.find('organisations', { id: made.body.organisation_id }))?.settings,
        providers: await tx.list('providers', { where: { organisation_id: made.body.organisation_id } }),
      }));
      expect(settings?.block_inline_config).toBe(true);
      expect(providers.map((provider) => provider.slug)).toEqual(['sandbox']);
      fails(
        await admin.call('POST', '/v1/operator/organisations', { key: admin.operatorKey, body: { ...body, name: '' } }),
        400,
        'AB01',
        'name',
      );
    });

    it('lists organisations, and suspends one: its keys answer 403 with the next request, until it is active again', async () => {
      const key = admin.operatorKey;
      const list = await admin.call('GET', '/v2/operator/organisations', { key });
      expect(list.body.data.map((item: { id: string }) => item.id)).toContain(admin.b.organisation_id);
      const path = `/v1/operator/organisations/${admin.b.organisation_id}`;
      const status = async (value: string) => (await admin.call('PUT', path, { key, body: { status: value } })).body;
      expect(await status('suspended')).toEqual({});
      for (const own of [admin.b.admin_api_key, admin.b.workspace_api_key]) {
        fails(await admin.call('GET', '/v1/api-keys', { key: own }), 403, 'AB03');
      }
      expect((await admin.call('GET', '/v1/api-keys')).status).toBe(200);
      expect(await status('active')).toEqual({});
      expect((await admin.call('GET', '/v1/api-keys', { key: admin.b.admin_api_key })).status).toBe(200);
      fails(await admin.call('PUT', path, { key, body: { status: 'gone' } }), 400, 'AB01', 'status');
      fails(await admin.call('PUT', `${path.slice(0, -1)}z`, { key, body: {} }), 404, 'AB08');
    });

    it('reads the state of the node', async () => {
      const answer = await admin.call('GET', '/v1/operator/health', { key: admin.operatorKey });
      expect(answer.body).toEqual({ object: 'health', status: 'ok' });
    });
  });

  describe('the audit log', () => {
    it('gets one row per write in the same commit, refused writes included, and no secret', async () => {
      const before = (await audit()).length;
      const made = await makeKey(['completions.write'], { description: 'slc_wks_looks_like_a_key' });
      await admin.call('GET', `/v1/api-keys/${made.id}`);
      const refused = await admin.call('PUT', `/v1/api-keys/${made.id}?workspace_id=ws-x`, { body: { name: 'y' } });
      await admin.call('DELETE', `/v1/api-keys/${made.id}`);
      const rows = (await audit()).slice(0, -before || undefined);
      const seen = rows
        .map((row) => [row.action, row.response_status_code, row.resource_type, row.resource_id])
        .reverse();
      expect(seen).toEqual([
        ['create', 200, 'api keys', made.id],
        ['update', 404, 'api keys', null],
        ['delete', 200, 'api keys', made.id],
      ]);
      expect(rows[1]).toMatchObject({
        method: 'PUT',
        uri: `/v1/api-keys/${made.id}`,
        query_params: '{"workspace_id":"ws-x"}',
        request_body: '{"name":"y"}',
        user_type: 'api_key',
        request_id: refused.headers.get('x-gateway-request-id'),
      });
      expect(rows[2]?.request_body).toMatch(/"description":"\*{7}[0-9a-f]{8}"/);
      expect(JSON.stringify(rows)).not.toContain(made.key.slice(21, 40));
    });

    it('the organisation finds what the operator did to it', async () => {
      const path = `/v1/operator/organisations/${admin.a.organisation_id}`;
      await admin.call('PUT', path, { key: admin.operatorKey, body: { name: 'Alpha again' } });
      expect((await audit())[0]).toMatchObject({ user_type: 'operator', action: 'update', user_id: null });
    });
  });

  describe('requests', () => {
    it('HEAD follows GET, and other methods are 405 with Allow', async () => {
      const head = await admin.call('HEAD', '/v1/api-keys');
      expect([head.status, head.text]).toEqual([200, '']);
      fails(
        await admin.call('HEAD', '/v1/api-keys', { key: null }).then((answer) => ({ ...answer, body: sample })),
        401,
        'AB05',
      );
      const patch = await admin.call('PATCH', '/v1/api-keys', { body: {} });
      fails(patch, 405, 'AB08');
      expect(patch.headers.get('allow')).toBe('GET, HEAD');
      fails(await admin.call('OPTIONS', '/v1/api-keys', { key: null }), 405, 'AB08');
    });

    it('bodies are strict JSON objects', async () => {
      const post = (raw: string | Buffer, headers = {}) =>
        admin.call('POST', '/v1/api-keys/workspace/service', { raw, headers });
      for (const raw of [
        '[]',
        '"x"',
        'null',
        '1',
        '{',
        '{"name":"a"}x',
        "{'name':'a'}",
        '{"name":"a",}',
        '\ufeff{}',
        '{"a":01}',
        ' ',
      ]) {
        fails(await post(raw), 400, 'AB01');
      }
      fails(await post('{"name":"a","name":"b"}'), 400, 'AB01');
      fails(await post('{"defaults":{"metadata":{"a":"b","\\u0061":"c"}}}'), 400, 'AB01');
      fails(await post(`{"a":${'['.repeat(70)}${']'.repeat(70)}}`), 400, 'AB01');
      fails(await post('{"__proto__":{"polluted":true}}'), 400, 'AB01');
      fails(await post(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])), 400, 'AB01');
      fails(await post('{"name":1e999}'), 400, 'AB01', 'name');
      for (const type of [
        'text/plain',
        'application/x-www-form-urlencoded',
        'application/json; charset=latin1',
        'application/jsonp',
      ]) {
        fails(await post('{}', { 'content-type': type }), 400, 'AB01');
      }
      expect((await post('{}', { 'content-type': 'Application/JSON; charset="UTF-8"' })).body.error.param).toBe('name');
    });

    it('U+0000 and lone surrogates are refused with the field named', async () => {
      const post = (raw: string) => admin.call('POST', '/v1/api-keys/workspace/service', { raw });
      fails(await post('{"name":"a\\u0000b"}'), 400, 'AB01', 'name');
      fails(await post('{"defaults":{"metadata":{"a":"\\ud800"}}}'), 400, 'AB01', 'defaults.metadata.a');
      fails(await post('{"scopes":["ok","\\udc00"]}'), 400, 'AB01', 'scopes[1]');
      fails(await post('{"\\ud800":1}'), 400, 'AB01');
    });

    it('a body over 1 MB is 413, declared or streamed', async () => {
      const raw = JSON.stringify({ name: 'x'.repeat(1_048_576) });
      fails(await admin.call('POST', '/v1/api-keys/workspace/service', { raw }), 413, 'AB01');
      const streamed = await new Promise<(string | number | undefined)[]>((resolve, reject) => {
        const headers = { 'x-gateway-api-key': admin.a.admin_api_key, 'content-type': 'application/json' };
        const sending = request(`${admin.url}/v1/api-keys/workspace/service`, { method: 'POST', headers });
        sending.on('response', (answer) => {
          resolve([answer.resume().statusCode, answer.headers.connection]);
        });
        sending.on('error', reject);
        for (let sent = 0; sent <= 1_048_576; sent += 65_536) sending.write(' '.repeat(65_536));
        sending.end();
      });
      // What is still to come of the body must not be read as the next request.
      expect(streamed).toEqual([413, 'close']);
      const declared = await new Promise<(string | number | undefined)[]>((resolve, reject) => {
        const headers = { 'x-gateway-api-key': admin.a.admin_api_key, 'content-length': '2000000' };
        const agent = new Agent({ keepAlive: true });
        const sending = request(`${admin.url}/v1/api-keys/workspace/service`, { method: 'POST', headers, agent });
        sending.on('response', (answer) => {
          resolve([answer.statusCode, answer.headers.connection]);
          sending.destroy();
        });
        sending.on('error', reject);
        sending.flushHeaders();
      });
      expect(declared).toEqual([413, 'close']);
      expect((await admin.call('GET', '/v1/api-keys')).status).toBe(200);
    });

    it('takes one gzip coding and counts what it decodes to', async () => {
      const post = (raw: Buffer, encoding: string) =>
        admin.call('POST', '/v1/api-keys/workspace/service', { raw, headers: { 'content-encoding': encoding } });
      const body = { name: 'x', scopes: ['completions.write'], workspace_id: admin.a.workspace_id };
      expect((await post(gzipSync(JSON.stringify(body)), 'gzip')).status).toBe(200);
      fails(await post(gzipSync(Buffer.alloc(2_000_000, 0x20)), 'gzip'), 400, 'AB01');
      fails(await post(gzipSync(randomBytes(1_200_000).toString('base64')), 'gzip'), 413, 'AB01');
      fails(await post(Buffer.from('{}'), 'gzip'), 400, 'AB01');
      fails(await post(Buffer.from('{}'), 'br'), 400, 'AB01');
      fails(await post(Buffer.from('{}'), 'gzip, gzip'), 400, 'AB01');
    });

    it('an operation without a body takes none, but an empty object does no harm', async () => {
      const made = await makeKey(['completions.write']);
      fails(await admin.call('DELETE', `/v1/api-keys/${made.id}`, { body: { force: true } }), 400, 'AB01');
      expect((await admin.call('DELETE', `/v1/api-keys/${made.id}`, { body: {} })).status).toBe(200);
    });

    it('unknown paths are 404 with the error body', async () => {
      for (const path of ['/v1/api-key', '/v1/api-keys/', '/v1/API-KEYS', '/v3/api-keys', '/v1/api-keys/a/b/c']) {
        fails(await admin.call('GET', path), 404, 'AB08');
      }
    });
  });

  it('nothing above was an unexpected failure', () => {
    expect(admin.logged.filter((line) => line.includes('"error"'))).toEqual([]);
  });
});
