import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';

describe('testing an integration', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startServer();
  });
  afterAll(() => server.stop());
  const tried = (body: object, key?: string, slug = 'sandbox') =>
    server.admin('POST', `/integrations/${slug}/test`, body, key);

  test('lists the models of the account, through the gateway', async () => {
    const { status, body } = await tried({});
    expect([status, body.success, body.asked, body.provider]).toEqual([200, true, 'models', '@sandbox']);
    expect(body.models).toContain('echo');
  });

  test('one token needs the right to call models, and says what went wrong', async () => {
    const none = await tried({ model: 'echo' });
    expect([none.status, none.body.success, none.body.status]).toEqual([200, false, 403]);
    expect(none.body.message).toContain('completions.write');
    const workspace_id = server.first.workspace_id;
    const own = { name: 'Own', slug: 'own', ai_provider_id: 'sandbox', workspace_id };
    expect((await server.admin('POST', '/integrations', own)).status).toBe(200);
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'tests',
      workspace_id,
      scopes: ['workspace_integrations.update', 'completions.write'],
    });
    const key = String(made.body.key);
    expect((await tried({ model: 'echo' }, key, 'own')).body).toMatchObject({
      success: true,
      asked: 'call',
      message: null,
    });
    expect((await tried({ model: 'error?status=401' }, key, 'own')).body).toMatchObject({
      success: false,
      status: 401,
    });
  });

  test('an account that no workspace uses is refused with what to do', async () => {
    const made = await server.admin('POST', '/integrations', {
      name: 'O',
      slug: 'o',
      ai_provider_id: 'openai',
      key: 'k',
    });
    expect(made.status).toBe(200);
    const { status, body } = await tried({}, undefined, 'o');
    expect([status, (body.error as { message: string }).message]).toEqual([
      409,
      'No workspace has a provider of o, so no request can go there. Share it with a workspace first.',
    ]);
  });

  test('every kind of account and every check says its fields', async () => {
    const kinds = (await server.admin('GET', '/provider-kinds')).body.data as {
      id: string;
      fields: { name: string; ways: { value: string; fields: { name: string; secret: boolean }[] }[] | null }[];
    }[];
    const [way] =
      kinds.find(({ id }) => id === 'bedrock')?.fields.find(({ name }) => name === 'aws_auth_type')?.ways ?? [];
    expect(way).toMatchObject({ value: 'accessKey', fields: [{ secret: true }, { secret: true }] });
    const checks = (await server.admin('GET', '/guardrails/checks')).body.data as {
      id: string;
      parameters: { required?: string[] };
    }[];
    expect(checks.find(({ id }) => id === 'gateway.pii')?.parameters.required).toEqual(['categories']);
  });
});
