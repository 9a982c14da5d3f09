import Fastify from 'fastify';
import { afterAll, expect, it } from 'vitest';
import { KnownPaths } from '../http/known-paths.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import type { AccessEntry } from '../telemetry/access-log.ts';
import { registerSignIn } from './sign-in.ts';

const app = Fastify();
afterAll(() => app.close());

it('requests of identity providers and returning browsers are in the access log, without their query', async () => {
  const written: AccessEntry[] = [];
  registerSignIn(app, {
    clock: systemClock,
    log: silentLog,
    paths: new KnownPaths(() => 'http://sluice.example'),
    limiter: async () => ({ allowed: false, retryAfter: 7 }),
    accessLog: { all: true, write: (entry: AccessEntry) => void written.push(entry), close: async () => {} },
    sessions: { cookies: { sessionToken: () => ({ token: null, several: false }) } },
  } as never);
  await app.inject({ method: 'GET', url: '/v2/auth/callback?code=secret&state=secret' });
  await app.inject({ method: 'GET', url: '/v2/auth/jwks/x' });
  const logout = await app.inject({ method: 'POST', url: '/v2/auth/backchannel-logout/x', payload: {} });
  await app.inject({ method: 'PUT', url: '/v2/auth/callback' });
  expect(logout.headers['retry-after']).toBe('7');
  expect(written.map(({ method, path, status, error }) => [method, path, status, error])).toEqual([
    ['GET', '/v2/auth/callback', 302, null],
    ['GET', '/v2/auth/jwks/x', 429, expect.any(String)],
    ['POST', '/v2/auth/backchannel-logout/x', 429, expect.any(String)],
    ['PUT', '/v2/auth/callback', 405, expect.any(String)],
  ]);
  expect(JSON.stringify(written)).not.toContain('secret');
  expect(written[2]?.request_id).toBe(logout.headers['x-gateway-request-id']);
});
