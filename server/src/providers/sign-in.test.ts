import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { adapterContext, type TestContext } from '../../test/support/adapter-context.ts';
import { CLIENT, startTokenEndpoint, type TokenEndpoint } from '../../test/support/upstreams/oauth.ts';
import { grantedToken, setBearer } from './sign-in.ts';
import { createTokenCache } from './token-cache.ts';

const START = 1_767_225_600_000;
let now: number;
let endpoint: TokenEndpoint;
let context: TestContext;

beforeAll(async () => {
  endpoint = await startTokenEndpoint();
});
afterAll(() => endpoint.stop());
beforeEach(() => {
  now = START;
  endpoint.tokens.length = 0;
  context = open();
});
afterEach(async () => {
  expect(endpoint.faults).toEqual([]);
  await context.close();
});

const open = (settings: Record<string, unknown> = {}): TestContext =>
  adapterContext({
    base: 'https://api.example',
    key: null,
    now: () => now,
    settings: {
      auth_type: 'oauthClientCredentials',
      oauth_token_endpoint: `${endpoint.url}/oauth/token/1`,
      oauth_client_id: CLIENT.id,
      oauth_client_secret: CLIENT.secret,
      ...settings,
    },
  });

describe('a granted token', () => {
  it.each([
    ['is kept until a minute before it expires', 3600, 3540],
    ['that lives two minutes is kept for one', 120, 60],
    ['that lives less than a minute is kept for half its life', 40, 20],
    ['whose life is not told is kept for four minutes', null, 240],
  ])('%s', async (_title, lifetime, kept) => {
    endpoint.lifetime = lifetime;
    expect(await grantedToken(context)).toBe('granted-token-1');
    now = START + kept * 1000 - 1;
    expect(await grantedToken(context)).toBe('granted-token-1');
    now = START + kept * 1000;
    expect(await grantedToken(context)).toBe('granted-token-2');
  });

  it.each([
    ['secret', { oauth_client_secret: 'another' }],
    ['scope', { oauth_scope: CLIENT.scope }],
    ['endpoint', { oauth_token_endpoint: '/oauth/token/2' }],
  ])('is not given to an account with another %s', async (_what, more) => {
    await grantedToken(context);
    const settings = Object.fromEntries(
      Object.entries(more).map(([name, value]) => [name, value.startsWith('/') ? endpoint.url + value : value]),
    );
    const other = { ...open(settings), tokens: context.tokens };
    const outcome = await grantedToken(other).catch(() => 'refused');
    expect(outcome).not.toBe('granted-token-1');
    if ('oauth_client_secret' in more) expect(endpoint.faults.splice(0)).toHaveLength(1);
    await other.close();
  });

  it.each(['oauth_token_endpoint', 'oauth_client_id', 'oauth_client_secret'])(
    'is not asked for without %s',
    async (name) => {
      const lacking = open({ [name]: undefined });
      await expect(grantedToken(lacking)).rejects.toMatchObject({ kind: 'unauthenticated' });
      expect(lacking.calls).toEqual([]);
      await lacking.close();
    },
  );
});

it('a bearer token takes the place of every credential that a request has', () => {
  const headers = [
    'x-api-key',
    'a',
    'accept',
    '*/*',
    'authorization',
    'Bearer b',
    'api-key',
    'c',
    'X-Goog-Api-Key',
    'd',
  ];
  setBearer(headers, 'token');
  expect(headers).toEqual(['accept', '*/*', 'authorization', 'Bearer token']);
});

describe('a kept token', () => {
  it('is forgotten when it was refused, unless another one was fetched since', async () => {
    const tokens = createTokenCache(() => now);
    let fetched = 0;
    const get = () => tokens.get('key', async () => ({ value: `t${++fetched}`, expiresAt: now + 3_600_000 }));
    expect(await get()).toBe('t1');
    tokens.drop('key', 't0');
    expect(await get()).toBe('t1');
    tokens.drop('key', 't1');
    expect(await get()).toBe('t2');
    tokens.drop('key', 't1');
    expect(await get()).toBe('t2');
  });
});
