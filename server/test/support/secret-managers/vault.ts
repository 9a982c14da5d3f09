/** HashiCorp Vault after its HTTP API: KV version 1 and 2, AppRole, Kubernetes, JWT, renewal, namespaces. */
import { members, must, type Reply, type StrictManager, startStrict } from './strict.ts';

interface Version {
  readonly data: Readonly<Record<string, unknown>> | null;
}

export interface FakeVault extends StrictManager {
  /** Path without version → versions of the secret, oldest first; null data: deleted. */
  readonly secrets: Map<string, Version[]>;
  /** Tokens that are accepted. */
  readonly tokens: Set<string>;
  /** Seconds that tokens of logins live. */
  lease: number;
  logins: number;
  renewals: number;
  put(path: string, data: Readonly<Record<string, unknown>>): void;
}

const ROOT = 'hvs.root-token-of-the-fake-vault';
export const VAULT = {
  token: ROOT,
  role_id: 'role-of-the-gateway',
  secret_id: 'secret-id-of-the-gateway-0123',
  role: 'gateway',
  jwt: 'eyJhbGciOiJSUzI1NiJ9.cluster.token',
  namespace: 'team-a',
};
const denied: Reply = { status: 403, body: { errors: ['permission denied'] } };

export async function startVault({ namespace = null as string | null } = {}): Promise<FakeVault> {
  const secrets = new Map<string, Version[]>();
  const tokens = new Set([ROOT]);
  const state = { lease: 3600, logins: 0, renewals: 0 };
  const login = (good: boolean): Reply => {
    if (!good) return { status: 400, body: { errors: ['invalid role or secret ID'] } };
    state.logins += 1;
    const token = `hvs.login-${state.logins}-of-the-fake-vault`;
    tokens.add(token);
    return {
      status: 200,
      body: { auth: { client_token: token, lease_duration: state.lease, renewable: true, policies: ['default'] } },
    };
  };
  const made = await startStrict((request, url) => {
    const { headers, method } = request;
    must(headers['x-vault-request'] === 'true', 'x-vault-request');
    must(headers.accept === 'application/json', 'accept');
    must(headers['x-vault-namespace'] === (namespace ?? undefined), `namespace ${headers['x-vault-namespace']}`);
    must(headers.authorization === undefined, 'authorization');
    const path = decodeURIComponent(url.pathname);
    must(path.startsWith('/v1/'), 'no /v1/');
    if (/^\/v1\/auth\/.*\/login$/.test(path)) {
      must(method === 'POST' && headers['content-type'] === 'application/json', 'login is a POST of JSON');
      must(headers['x-vault-token'] === undefined, 'a login carries no token');
      if (path === '/v1/auth/approle/login' || path === '/v1/auth/teams/approle/login') {
        const body = members(request, 'role_id', 'secret_id');
        return login(body.role_id === VAULT.role_id && body.secret_id === VAULT.secret_id);
      }
      if (path === '/v1/auth/kubernetes/login' || path === '/v1/auth/jwt/login') {
        const body = members(request, 'role', 'jwt');
        return login(body.role === VAULT.role && body.jwt === VAULT.jwt);
      }
      return { status: 404, body: { errors: ['no handler for route'] } };
    }
    const token = String(headers['x-vault-token'] ?? '');
    if (!tokens.has(token)) return denied;
    if (path === '/v1/auth/token/renew-self') {
      must(method === 'POST', 'renewal is a POST');
      members(request);
      state.renewals += 1;
      return { status: 200, body: { auth: { client_token: token, lease_duration: state.lease, renewable: true } } };
    }
    must(method === 'GET' && request.body.length === 0, 'a read is a GET without a body');
    const name = path.slice('/v1/'.length);
    if (name.includes('forbidden')) return denied;
    const versions = secrets.get(name);
    if (versions === undefined) return { status: 404, body: { errors: [] } };
    if (!name.includes('/data/')) {
      must(url.search === '', `query ${url.search}`);
      return { status: 200, body: { lease_duration: 2_764_800, data: versions.at(-1)?.data } };
    }
    must(
      [...url.searchParams.keys()].every((key) => key === 'version'),
      `query ${url.search}`,
    );
    const number = Number(url.searchParams.get('version') ?? versions.length);
    const version = versions[number - 1];
    if (version === undefined) return { status: 404, body: { errors: [] } };
    const metadata = { version: number, deletion_time: version.data === null ? '2026-11-01T00:00:00Z' : '' };
    return { status: version.data === null ? 404 : 200, body: { data: { data: version.data, metadata } } };
  });
  return Object.defineProperties(made, {
    secrets: { value: secrets },
    tokens: { value: tokens },
    lease: {
      get: () => state.lease,
      set: (seconds: number) => {
        state.lease = seconds;
      },
    },
    logins: { get: () => state.logins },
    renewals: { get: () => state.renewals },
    put: {
      value: (path: string, data: Readonly<Record<string, unknown>>) =>
        secrets.set(path, [...(secrets.get(path) ?? []), { data }]),
    },
  }) as FakeVault;
}
