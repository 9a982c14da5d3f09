/** Every forged token at every entry that takes credentials: none opens anything, and the right token does. */
import { request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { OPERATIONS } from '../src/operations/operation.ts';
import { ACTIONS } from '../src/resources/catalog.ts';
import { AUDIENCE, forgedTokens, ISSUER } from './support/forged-tokens.ts';
import { startServer, type TestServer } from './support/server.ts';
import { issuer } from './support/tokens.ts';

const key = issuer('first');
let server: TestServer;
let foreign: { organisationId: string; workspaceId: string };
const now = Math.floor(Date.now() / 1_000);

beforeAll(async () => {
  server = await startServer();
  const owner = { email: 'grace@example.com', first_name: 'Grace', last_name: 'Hopper' };
  const made = await server.admin(
    'POST',
    '/operator/organisations',
    { name: 'Beta', owner },
    server.first.operator_api_key,
  );
  foreign = { organisationId: String(made.body.organisation_id), workspaceId: String(made.body.workspace_id) };
  const jwt = { jwks: { keys: [key.jwk] }, issuer: ISSUER, audience: AUDIENCE };
  const saved = await server.admin('PUT', '/admin/organisation/settings', { auth_settings: { jwt } });
  if (saved.status !== 200) throw new Error(JSON.stringify(saved));
}, 60_000);
afterAll(() => server?.stop());

/** One of each family of routes, below both credentials' headers; what has a parameter names nothing. */
const ENTRIES: readonly (readonly [string, string])[] = [
  ...Object.values(OPERATIONS).map(({ method, path }) => [method, `/v1${path}`] as const),
  ...ACTIONS.filter(({ auth }) => auth !== 'public').map(({ method, path }) => [method, `/v1${path}`] as const),
  ['POST', '/v1/any/path/of/a/provider'] as const,
].map(
  ([method, path]) => [method === 'ANY' ? 'POST' : method, path.replace(/:\w+/g, 'x').replace(/\*/g, 'x')] as const,
);

/** Each call comes from an address of its own, or the throttle of failed attempts would answer. */
let calls = 0;
function ask(method: string, path: string, headers: Record<string, string>): Promise<number> {
  calls += 1;
  const localAddress = `127.${1 + ((calls >> 16) & 63)}.${(calls >> 8) & 255}.${1 + (calls & 127)}`;
  return new Promise((resolve, reject) => {
    const call = request(new URL(path, server.url), { method, headers, localAddress, agent: false }, (answer) => {
      answer.resume();
      answer.once('end', () => resolve(answer.statusCode ?? 0));
    });
    call.once('error', reject);
    call.end();
  });
}

it('opens no entry, raw or as bearer', async () => {
  const claims = {
    exp: now + 3_600,
    gateway_oid: server.first.organisation_id,
    gateway_workspace: server.first.workspace_id,
    scope: 'completions.write configs.list',
    iss: ISSUER,
    aud: AUDIENCE,
  };
  const forged = forgedTokens({ key, claims, foreign, now });
  const right = key.token(claims);
  expect(await ask('GET', '/v1/configs', { 'x-gateway-api-key': right })).toBe(200);
  expect(await ask('GET', '/v1/models', { authorization: `Bearer ${right}` })).toBe(200);
  const without = new Map<string, number>();
  for (const [method, path] of ENTRIES) without.set(`${method} ${path}`, await ask(method, path, {}));
  const wrong: string[] = [];
  const todo = forged.flatMap((one) =>
    ENTRIES.map(([method, path], i) => ({ ...one, method, path, raw: (i + one.token.length) % 2 === 0 })),
  );
  // Every pair of a token and an entry, half of them in each header.
  const worker = async () => {
    for (let one = todo.pop(); one !== undefined; one = todo.pop()) {
      const { name, token, method, path, raw } = one;
      const got = await ask(method, path, raw ? { 'x-gateway-api-key': token } : { authorization: `Bearer ${token}` });
      // What is refused before the caller is known is refused to all alike, as headers that are too long are.
      const known = got >= 400 && got === without.get(`${method} ${path}`);
      if (got !== 401 && got !== 403 && got !== 431 && !known) wrong.push(`${name}: ${method} ${path} ${got}`);
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  expect(wrong.slice(0, 20)).toEqual([]);
}, 300_000);
