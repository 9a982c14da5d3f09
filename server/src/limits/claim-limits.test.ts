/** Limits that a token claims for itself, through the pipeline's own steps. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import type { Principal } from '../auth/principal.ts';
import { systemClock } from '../kernel/clock.ts';
import { claimLimits, type LimitClaims } from '../resources/claim-limits.ts';

const tokens = new Map<string, Principal | Error>();

// Whoever verifies tokens fills a principal from their claims; here it is found by the token's text.
vi.mock('../auth/authenticator.ts', async (original) => {
  const real = await original<typeof import('../auth/authenticator.ts')>();
  return {
    ...real,
    createAuthenticator: (options: Parameters<typeof real.createAuthenticator>[0]) => {
      const keys = real.createAuthenticator(options);
      const authenticate = keys.authenticate.bind(keys);
      keys.authenticate = (token, address) => {
        const known = tokens.get(token);
        if (known instanceof Error) throw known;
        return known ?? authenticate(token, address);
      };
      return keys;
    },
  };
});

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
}, 60_000);
afterAll(() => server.stop());

const NOW = Date.UTC(2026, 4, 4);

function signIn(token: string, claims: LimitClaims): string {
  const { organisation_id: organisationId, workspace_id: workspaceId } = server.first;
  tokens.set(token, {
    kind: 'workspace-service',
    keyId: null,
    keyName: null,
    organisationId,
    workspaceId,
    userId: null,
    role: null,
    scopes: new Set(['completions.write']),
    defaults: {},
    expiresAt: null,
    ...claimLimits(claims, token, { organisationId, now: Date.now() }),
  });
  return token;
}

async function chat(token: string, more: object = {}): Promise<{ status: number; text: string }> {
  const body = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 20, ...more };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-api-key': token });
  return { status: answer.status, text: await answer.text() };
}

/** Until what was used is in the store. */
async function until(token: string, status: number): Promise<{ status: number; text: string }> {
  for (let i = 0; ; i++) {
    const answer = await chat(token);
    if (answer.status === status || i > 50) return answer;
    await new Promise((resolve) => systemClock.after(20, () => resolve(undefined)));
  }
}

describe('the limits that a token claims', () => {
  it('are enforced: a usage limit with 412, a rate limit with 429, each naming the subject', async () => {
    const used = signIn('t-usage', { sub: 'alice', usage_limits: { type: 'tokens', credit_limit: 5 } });
    expect((await chat(used)).status).toBe(200);
    const { status, text } = await until(used, 412);
    expect([status, text]).toEqual([412, expect.stringContaining('usage limit of token alice is')]);
    const fast = signIn('t-rate', { sub: 'bob', rate_limits: [{ type: 'requests', unit: 'rpw', value: 1 }] });
    expect((await chat(fast)).status).toBe(200);
    const refused = await chat(fast);
    expect([refused.status, refused.text]).toEqual([429, expect.stringContaining('Rate limit of token bob exceeded')]);
  });

  it('count for the subject, whichever of its tokens is sent, and for nobody else', async () => {
    const limits = { usage_limits: { type: 'tokens', credit_limit: 5 } };
    await chat(signIn('t-carol-1', { iss: 'idp', sub: 'carol', ...limits }));
    expect((await until(signIn('t-carol-2', { iss: 'idp', sub: 'carol', jti: 'other', ...limits }), 412)).status).toBe(
      412,
    );
    expect((await chat(signIn('t-dave', { iss: 'idp', sub: 'dave', ...limits }))).status).toBe(200);
    expect((await chat(signIn('t-carol-3', { iss: 'another', sub: 'carol', ...limits }))).status).toBe(200);
  });

  it('of the token that was issued last hold for the subject', async () => {
    const iat = Math.floor(Date.now() / 1000) - 100;
    const small = signIn('t-erin-1', { sub: 'erin', iat, usage_limits: { type: 'tokens', credit_limit: 5 } });
    await chat(small);
    expect((await until(small, 412)).status).toBe(412);
    const raised = { sub: 'erin', iat: iat + 1, usage_limits: { type: 'tokens', credit_limit: 500 } } as const;
    expect((await chat(signIn('t-erin-2', raised))).status).toBe(200);
    expect((await until(small, 200)).status).toBe(200);
  });
});

describe('the claims', () => {
  const place = { organisationId: 'org', now: NOW };
  const of = (claims: LimitClaims, token = 'x.y.z') => claimLimits(claims, token, place);

  it('that say nothing limit nothing', () => {
    expect(of({ sub: 'a', usage_limits: null })).toMatchObject({ usageLimits: null, rateLimits: [], changedAt: NOW });
  });

  it('take one rate limit or a list of them', () => {
    const limit = { type: 'tokens', unit: 'rpm', value: 3 };
    expect(of({ rate_limits: limit }).rateLimits).toEqual([limit]);
    expect(of({ rate_limits: [limit] }).rateLimits).toEqual([limit]);
  });

  it('make one owner of issuer and subject, of the token’s id, or of the token itself', () => {
    const ids = [
      of({ sub: 'a' }),
      of({ iss: 'i', sub: 'a' }),
      of({ sub: 'b' }),
      of({ jti: 'a' }),
      of({}),
      of({}, 'another'),
      claimLimits({ sub: 'a' }, 'x.y.z', { organisationId: 'other', now: NOW }),
    ].map(({ limitOwner }) => limitOwner.id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    expect(of({ sub: 'a', email_id: 'a@b.c', jti: '1' }).limitOwner).toEqual(
      of({ uid: 'u', email_id: 'a@b.c', jti: '2' }, 'another').limitOwner,
    );
  });

  it('are as old as the token, and never from the future', () => {
    expect(of({ iat: NOW / 1000 - 60 }).changedAt).toBe(NOW - 60_000);
    expect(of({ iat: NOW / 1000 + 60 }).changedAt).toBe(NOW);
    expect(of({ iat: 'yesterday' }).changedAt).toBe(NOW);
  });

  it.each<[LimitClaims, string]>([
    [{ usage_limits: 5 }, 'usage_limits'],
    [{ usage_limits: [{ credit_limit: 5 }, { credit_limit: 0 }] }, 'usage_limits[1].credit_limit'],
    [{ usage_limits: Array.from({ length: 11 }, () => ({ credit_limit: 5 })) }, 'usage_limits'],
    [{ usage_limits: { credit_limit: 0 } }, 'usage_limits.credit_limit'],
    [{ usage_limits: { credit_limit: 5, used: 1 } }, 'usage_limits.used'],
    [{ usage_limits: { credit_limit: 5, alert_threshold: 5 } }, 'usage_limits.alert_threshold'],
    [{ usage_limits: { periodic_reset: 'weekly', periodic_reset_days: 7 } }, 'usage_limits.periodic_reset_days'],
    [{ rate_limits: 'many' }, 'rate_limits'],
    [{ rate_limits: [{ type: 'requests', unit: 'rpm', value: -1 }] }, 'rate_limits[0].value'],
    [{ rate_limits: { type: 'cost', unit: 'rpm', value: 1 } }, 'rate_limits.type'],
  ])('%j are refused with 401 and %s', (claims, path) => {
    try {
      of(claims);
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ kind: 'unauthenticated' });
      expect((error as Error).message).toMatch(`The token cannot be used: its claim ${path} `);
    }
  });
});
