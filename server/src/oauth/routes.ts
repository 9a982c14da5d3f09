/** The paths of the OAuth server, registered at the start; what is behind them is loaded with the first call. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { KnownPaths } from '../http/known-paths.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { pathOnly } from '../kernel/path-only.ts';
import type { Change } from '../store/ports.ts';
import type { OAuthOptions, OAuthServer } from './server.ts';

/** The OAuth server of this process: made once, by the first who asks. */
export type OpenOAuth = () => Promise<OAuthServer>;

/**
 * Answers what makes the server.
 *
 * @param follow hears of all changes of the store, and null where some were missed
 */
export function oauthServer(
  options: OAuthOptions,
  follow: (follower: (change: Pick<Change, 'topic'> | null) => void) => void,
): OpenOAuth {
  let opened: Promise<OAuthServer> | null = null;
  let server: OAuthServer | null = null;
  follow((change) => server?.invalidate(change));
  const open = async () => {
    const { OAuthServer: Server } = await import('./server.ts');
    server = new Server(options);
    return server;
  };
  return () => {
    opened ??= open();
    return opened;
  };
}

export interface OAuthRoutes {
  readonly open: OpenOAuth;
  readonly clock: Clock;
  readonly log: Log;
  readonly paths: KnownPaths;
  /** Without a slash at its end: the issuer. */
  readonly publicUrl: () => string;
}

type Method = 'GET' | 'POST';

interface Route {
  readonly method: Method;
  readonly path: string;
  /** Any web page may read the answer: without credentials, which are never sent along. */
  readonly anyOrigin?: true;
  readonly status?: number;
  run(server: OAuthServer, request: FastifyRequest, routes: OAuthRoutes): Promise<object | null>;
}

/** Where MCP clients look for the endpoints, beside `/v2/oauth`. */
const BASES = ['/v2/oauth', '/oauth'] as const;

/** Before the path of the resource that a document is about (RFC 9728 §3.1). */
const RESOURCE = '/.well-known/oauth-protected-resource';

const ROUTES: readonly Route[] = [
  // The second for clients that look there alone: it is the same document, and promises no ID token (RFC 8414 §5).
  ...['/.well-known/oauth-authorization-server', '/.well-known/openid-configuration'].map(
    (path): Route => ({
      method: 'GET',
      path,
      anyOrigin: true,
      run: async (_server, _request, { publicUrl }) => (await import('./metadata.ts')).serverMetadata(publicUrl()),
    }),
  ),
  {
    method: 'GET',
    path: RESOURCE,
    anyOrigin: true,
    run: async (_server, _request, { publicUrl }) => (await import('./metadata.ts')).originMetadata(publicUrl()),
  },
  ...['/:slug/mcp', '/:workspace/:slug/mcp', '/v1/agent/:slug'].map(
    (path): Route => ({
      method: 'GET',
      path: `${RESOURCE}${path}`,
      anyOrigin: true,
      run: async (_server, request, { publicUrl }) => {
        const { resourceMetadata } = await import('./metadata.ts');
        return resourceMetadata(publicUrl(), pathOnly(request.raw.url ?? '').slice(RESOURCE.length));
      },
    }),
  ),
  ...BASES.flatMap((base): Route[] => [
    { method: 'POST', path: `${base}/register`, status: 201, run: (server, request) => server.register(request) },
    { method: 'POST', path: `${base}/token`, anyOrigin: true, run: (server, request) => server.token(request) },
    { method: 'POST', path: `${base}/revoke`, run: (server, request) => server.revoke(request) },
    { method: 'POST', path: `${base}/introspect`, run: (server, request) => server.introspect(request) },
    { method: 'POST', path: `${base}/device_authorization`, run: (server, request) => server.device(request) },
  ]),
];

/** Paths of the authorization endpoint; two of them name the resource that the token will be for. */
const AUTHORIZE: readonly string[] = BASES.flatMap((base) => [
  `${base}/authorize`,
  `${base}/:resourceId/authorize`,
  `${base}/:workspaceId/:resourceId/authorize`,
]);

/** Every path that `registerOAuth` serves, for the route inventory. None takes a credential of Sluice. */
export const OAUTH_ROUTES: readonly (readonly [method: Method | 'OPTIONS', path: string])[] = [
  ...ROUTES.map(({ method, path }) => [method, path] as const),
  ...ROUTES.filter(({ anyOrigin }) => anyOrigin).map(({ path }) => ['OPTIONS', path] as const),
  ...AUTHORIZE.map((path) => ['GET', path] as const),
];

const HEADERS = {
  'cache-control': 'no-store',
  pragma: 'no-cache',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

const ANY_ORIGIN = { 'access-control-allow-origin': '*' } as const;
const PREFLIGHT = {
  ...ANY_ORIGIN,
  'access-control-allow-methods': 'GET, POST',
  'access-control-allow-headers': 'content-type, accept, mcp-protocol-version',
  'access-control-max-age': '600',
} as const;

/** Mounts the server on `app`, whose content type parsers must leave `request.raw` unread. */
export function registerOAuth(app: FastifyInstance, routes: OAuthRoutes): void {
  for (const route of ROUTES) {
    routes.paths.know(route.method, route.path);
    mount(app, route.method, route.path, async (request, reply) => {
      const id = begin(routes, reply);
      if (route.anyOrigin) reply.headers(ANY_ORIGIN);
      try {
        const answer = await route.run(await routes.open(), request, routes);
        if (answer !== null) return send(reply, route.status ?? 200, answer);
        reply.callNotFound();
        return reply;
      } catch (error) {
        return refuse(routes, id, reply, error);
      }
    });
    if (route.anyOrigin)
      mount(app, 'OPTIONS', route.path, async (_request, reply) => reply.code(204).headers(PREFLIGHT).send());
  }
  for (const path of AUTHORIZE) {
    routes.paths.know('GET', path);
    mount(app, 'GET', path, (request, reply) => authorize(routes, request, reply));
  }
}

/** In the first hook, because the framework refuses content types by itself and in another form. */
function mount(
  app: FastifyInstance,
  method: Method | 'OPTIONS',
  url: string,
  handle: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>,
): void {
  app.route({ method, url, exposeHeadRoute: false, onRequest: handle, handler: async () => undefined });
}

function begin({ clock }: OAuthRoutes, reply: FastifyReply): string {
  const id = uuidv7(clock);
  reply.headers({ ...HEADERS, 'x-gateway-request-id': id });
  return id;
}

const send = (reply: FastifyReply, status: number, answer: object): FastifyReply =>
  reply.code(status).type('application/json; charset=utf-8').send(JSON.stringify(answer));

async function refuse({ log }: OAuthRoutes, id: string, reply: FastifyReply, error: unknown): Promise<FastifyReply> {
  const { oauthError } = await import('./errors.ts');
  const { status, retryAfter, body } = oauthError(error);
  if (status >= 500) log.error('a call of the OAuth server failed', { request_id: id, error });
  if (retryAfter !== null) reply.header('retry-after', String(retryAfter));
  if (!reply.request.raw.complete) reply.header('connection', 'close');
  return send(reply, status, body);
}

async function authorize(routes: OAuthRoutes, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = begin(routes, reply);
  const { sendPage, sendFault } = await import('./fault-page.ts');
  try {
    const { workspaceId, resourceId } = request.params as { workspaceId?: string; resourceId?: string };
    const named = [workspaceId, resourceId].filter((part) => part !== undefined);
    const path = named.length === 0 ? null : `/${named.join('/')}/mcp`;
    const begun = await (await routes.open()).authorize(request, path);
    return 'to' in begun ? await reply.redirect(begun.to, 302) : sendPage(reply, begun.fault);
  } catch (error) {
    return sendFault(reply, error, id, routes.log);
  }
}
