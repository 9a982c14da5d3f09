/** A refused body says all that is wrong with it at once: no caller has to send it again to learn the next thing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});

afterAll(() => server?.stop());

const refused = async (method: string, path: string, body: unknown) => {
  const answer = await server.admin(method, path, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(400);
  return answer.body as {
    error: { code: string; message: string; param: string | null };
    errors?: { param: string | null; message: string }[];
  };
};
const service = (scopes: string[]) => ({ name: 'k', workspace_id: server.first.workspace_id, scopes });

describe('a refused body', () => {
  it.each([
    ['POST', '/integrations', { name: 'a', ai_provider: 'openai' }],
    ['POST', '/policies/usage-limits', { group_by: [], unit: 'dollars' }],
    ['POST', '/policies/rate-limits', { type: 'requests', value: 'many' }],
    ['POST', '/configs', { name: 5, config: {}, description: 'a' }],
  ])('%s %s lists each problem as a sentence, the one of its message first', async (method, path, sent) => {
    const { error, errors = [] } = await refused(method, path, { workspace_id: server.first.workspace_id, ...sent });
    expect(errors.length).toBeGreaterThan(1);
    expect(errors[0]?.param).toBe(error.param);
    expect(error.message.startsWith(errors[0]?.message ?? '?')).toBe(true);
    for (const { param, message } of errors)
      expect(message).toMatch(new RegExp(`^${param?.replace(/[[\].]/g, '\\$&')}.* .*[.?]$`));
  });

  it('says what each problem is, an unknown field among them', async () => {
    const { errors } = await refused('POST', '/integrations', { name: 'a', ai_provider: 'openai' });
    expect(errors).toContainEqual({ param: 'ai_provider_id', message: 'ai_provider_id is required.' });
    expect(errors).toContainEqual({ param: 'ai_provider', message: expect.stringContaining('is not a known key') });
  });

  it('of a config lists each of its faults', async () => {
    const config = { retry: { attempts: 9 }, cache: { mode: 'often' } };
    const { errors } = await refused('POST', '/configs', {
      name: 'c',
      workspace_id: server.first.workspace_id,
      config,
    });
    expect(errors?.map(({ param }) => param)).toEqual(['config.retry.attempts', 'config.cache.mode']);
  });

  it('with one problem has no list', async () => {
    const body = await refused('POST', '/api-keys/workspace/service', service(['completion.write']));
    expect(body.errors).toBeUndefined();
    expect(body.error).toMatchObject({
      param: 'scopes[0]',
      message:
        'scopes[0] is not a scope of workspace-service keys; did you mean completions.write? docs/guides/scopes.md lists the scopes of each kind of key.',
    });
  });

  it('names the nearest scope for each that is wrong', async () => {
    const { errors } = await refused(
      'POST',
      '/api-keys/workspace/service',
      service(['config.read', 'logs.view', 'zzzzzzzz']),
    );
    expect(errors).toEqual([
      { param: 'scopes[0]', message: expect.stringContaining('did you mean configs.read?') },
      { param: 'scopes[2]', message: expect.stringContaining('is not a scope of workspace-service keys. docs/guides') },
    ]);
  });
});
