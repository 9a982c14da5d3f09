/** Browsers and programs of users, for suites of the OAuth server. */
import { createHash, randomBytes } from 'node:crypto';
import { runCall } from '../../src/gateway/non-model-call.ts';
import type { Plane } from '../../src/gateway/plane.ts';
import type { GatewayServices } from '../../src/gateway/services.ts';
import type { TestServer } from './server.ts';

/** A browser in which a user is signed in. */
export interface Browser {
  readonly cookie: string;
  readonly csrf: string;
  readonly organisationId: string;
  readonly workspaceId: string;
  /** Calls a path of the console as its pages do. */
  call(method: string, path: string, body?: unknown, more?: Record<string, string>): Promise<Answer>;
}

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly text: string;
}

/** What is needed of a server: where it listens, and its administration. */
export type Served = Pick<TestServer, 'url' | 'admin' | 'first'> & Public;

interface Public {
  readonly url: string;
  /** SLUICE_PUBLIC_URL, where it is another address. */
  readonly publicUrl?: string;
}

const publicOf = ({ url, publicUrl = url }: Public): string => publicUrl;

async function answered(answer: Response): Promise<Answer> {
  const text = await answer.text();
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // A page.
  }
  return { status: answer.status, body, text };
}

/** Signs a user in, the owner when absent. */
export async function browserOf(server: Served, userId = server.first.user_id, at = server.url): Promise<Browser> {
  const made = await server.admin('POST', `/admin/users/${userId}/sign-in-link`, {});
  const token = new URL(String(made.body.sign_in_link)).hash.slice(1);
  const origin = publicOf(server);
  const answer = await fetch(`${at}/console/api/session`, {
    method: 'POST',
    headers: { origin, 'content-type': 'application/json' },
    body: JSON.stringify({ token }),
  });
  const cookie = (answer.headers.get('set-cookie') ?? '').split(';', 1)[0] ?? '';
  const body = (await answer.json()) as {
    csrf_token: string;
    organisation: { id: string };
    workspaces: { id: string }[];
  };
  return {
    cookie,
    csrf: body.csrf_token,
    organisationId: body.organisation.id,
    workspaceId: body.workspaces[0]?.id ?? '',
    call: async (method, path, content, more = {}) =>
      answered(
        await fetch(`${at}${path}`, {
          method,
          headers: {
            cookie,
            origin,
            'x-csrf-token': body.csrf_token,
            ...(content === undefined ? {} : { 'content-type': 'application/json' }),
            ...more,
          },
          ...(content === undefined ? {} : { body: JSON.stringify(content) }),
        }),
      ),
  };
}

let calls = 0;
/** Another address for each call: one address has few a minute. Servers of these suites trust this machine as a proxy. */
export const fromAnywhere = (): Record<string, string> => {
  calls += 1;
  return { 'x-forwarded-for': `10.1.${Math.floor(calls / 200)}.${calls % 200}` };
};
/** Settings of servers of these suites. */
export const BEHIND_PROXY = { SLUICE_TRUSTED_PROXIES: '127.0.0.1' };

export const REDIRECT = 'http://127.0.0.1:45901/callback';

/** Registers a client; answers its id. */
export async function registered(server: Public, more: object = {}): Promise<string> {
  const { status, body, text } = await post(server.url, '/v2/oauth/register', {
    client_name: 'Editor',
    redirect_uris: [REDIRECT],
    token_endpoint_auth_method: 'none',
    ...more,
  });
  if (status !== 201) throw new Error(text);
  return String(body.client_id);
}

export async function post(base: string, path: string, body: object, more = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...fromAnywhere(), ...more };
  return answered(await fetch(`${base}${path}`, { method: 'POST', headers, body: JSON.stringify(body) }));
}

export async function form(base: string, path: string, fields: Record<string, string>, headers = {}): Promise<Answer> {
  const own = { ...fromAnywhere(), ...headers };
  return answered(await fetch(`${base}${path}`, { method: 'POST', headers: own, body: new URLSearchParams(fields) }));
}

export const newVerifier = (): string => randomBytes(32).toString('base64url');
export const challengeOf = (verifier: string): string => createHash('sha256').update(verifier).digest('base64url');

/** The address of the MCP server that suites ask for. */
export const resourceOf = (server: Public): string => `${publicOf(server)}/tools/mcp`;

/** Where a request for access leads, with no redirect followed. */
export async function authorize(
  server: Public,
  query: Record<string, string>,
  more: { readonly path?: string; readonly headers?: Record<string, string> } = {},
): Promise<{ status: number; location: string | null; text: string; headers: Headers }> {
  const url = `${server.url}${more.path ?? '/v2/oauth/authorize'}?${new URLSearchParams(query)}`;
  const answer = await fetch(url, { redirect: 'manual', headers: { ...fromAnywhere(), ...more.headers } });
  return {
    status: answer.status,
    location: answer.headers.get('location'),
    text: await answer.text(),
    headers: answer.headers,
  };
}

/** A good request of a client, and the verifier that belongs to it. */
export function request(server: Public, clientId: string, more: Record<string, string> = {}) {
  const verifier = newVerifier();
  return {
    verifier,
    query: {
      client_id: clientId,
      redirect_uri: REDIRECT,
      response_type: 'code',
      code_challenge: challengeOf(verifier),
      code_challenge_method: 'S256',
      state: 'the state',
      resource: resourceOf(server),
      ...more,
    },
  };
}

/** Lets a browser approve what a client asks for; answers where the browser goes. */
export async function approve(browser: Browser, location: string, more: object = {}): Promise<URL> {
  const resume_state = new URL(location).hash.slice(1);
  const seen = await browser.call('POST', '/console/api/access', { resume_state });
  if (seen.status !== 200) throw new Error(seen.text);
  const { organisationId: organisation_id, workspaceId: workspace_id } = browser;
  const decision = { approved: true, resume_state, organisation_id, workspace_id, ...more };
  const { status, body, text } = await browser.call('POST', '/v2/oauth/authorize', decision);
  if (status !== 200) throw new Error(text);
  return new URL(String(body.redirect_uri));
}

/** A code of a client, as a user gives it, and all that its exchange takes. */
export async function codeFor(
  server: Served,
  browser: Browser,
  clientId: string,
  more: Record<string, string> = {},
): Promise<Record<string, string>> {
  const { query, verifier } = request(server, clientId, more);
  const { location, text } = await authorize(server, query);
  if (location === null) throw new Error(text);
  const back = await approve(browser, location);
  return {
    grant_type: 'authorization_code',
    client_id: clientId,
    code: back.searchParams.get('code') ?? '',
    redirect_uri: query.redirect_uri,
    code_verifier: verifier,
  };
}

/** The tokens of a client that a user has approved. */
export async function tokensFor(
  server: Served,
  browser: Browser,
  clientId: string,
  more: Record<string, string> = {},
): Promise<{ access_token: string; refresh_token: string }> {
  const { status, body, text } = await form(
    server.url,
    '/v2/oauth/token',
    await codeFor(server, browser, clientId, more),
  );
  if (status !== 200) throw new Error(text);
  return { access_token: String(body.access_token), refresh_token: String(body.refresh_token) };
}

/** A plane that takes access tokens, as that of MCP servers will: it answers who calls. */
export const tokenPlane = (gateway: GatewayServices): Plane => ({
  name: 'tools',
  prefixes: ['/tools'],
  open(routes) {
    routes.serve(['POST'], '/tools/mcp', (incoming, response) => {
      const kind = {
        source: 'tools',
        operation: 'tools',
        scope: 'mcp.invoke',
        resource: () => '/tools/mcp',
        challenge: (_incoming: unknown, { kind: code }: { kind: string }) =>
          code === 'unauthenticated' ? 'Bearer resource_metadata="/of/tools"' : 'Bearer error="insufficient_scope"',
        errorBody: ({ kind: code, message }: { kind: string; message: string }) => ({
          status: code === 'unauthenticated' ? 401 : code === 'forbidden' ? 403 : 500,
          body: JSON.stringify({ error: message }),
        }),
      };
      void runCall(gateway, kind, incoming, response, async ({ principal }) => {
        const { kind: whose, userId, workspaceId, organisationId, scopes = new Set<string>() } = principal ?? {};
        const body = JSON.stringify({ kind: whose, userId, workspaceId, organisationId, scopes: [...scopes].sort() });
        return { status: 200, contentType: 'application/json', body: Buffer.from(body) };
      });
    });
  },
});

/** Calls the plane with a token. */
export async function callTools(base: string, token: string): Promise<Answer> {
  const headers = { ...fromAnywhere(), authorization: `Bearer ${token}` };
  return answered(await fetch(`${base}/tools/mcp`, { method: 'POST', headers, body: '{}' }));
}
