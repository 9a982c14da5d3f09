/**
 * The web console: its files, and the one handler over the calls that only it makes. Everything answers on one origin,
 * without CORS headers; writes need the session cookie, the session's CSRF token and the right Origin.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { ConsoleSession, ConsoleSessions } from '../auth/console-session.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { sendBuilt } from './built-files.ts';
import { CONSOLE_ACTIONS, type ConsoleAction, type ConsoleCallDeps } from './console-actions.ts';
import { isConsoleBuilt } from './console-dist.ts';
import { readJsonBody } from './json-body.ts';
import { adminError, send } from './respond.ts';

export interface ConsoleDeps extends ConsoleCallDeps {
  readonly log: Log;
  /** Folder with the built console. When it is missing, `/console/` says how to build it and everything else works. */
  readonly dist: string;
}

const BODY_BYTES = 4_096;

const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const SECURITY_HEADERS = {
  'content-security-policy': CSP,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
} as const;

const NOT_BUILT = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Sluice</title>
<h1>The console is not built</h1>
<p>The gateway and its administration API work without it. To build it, run <code>npm ci &amp;&amp; npm run console</code>
in the Sluice folder and reload this page.</p></html>`;

const NO_SUCH_PATH = 'There is no such path. The console is at /console/.';
/** Every path that `registerConsole` serves, `[method, path, needs a session]`, for the route inventory. */
export const CONSOLE_ROUTES: readonly (readonly [method: string, path: string, needsSession: boolean])[] = [
  ['GET', '/', false],
  ['GET', '/console', false],
  ['GET', '/console/', false],
  ['GET', '/console/sign-in', false],
  ['GET', '/console/invite', false],
  ['GET', '/console/email', false],
  ['GET', '/console/account', false],
  ['GET', '/console/authorize', false],
  ['GET', '/console/device', false],
  ['GET', '/console/*', false],
  ['GET', '/console/assets/:file', false],
  ...CONSOLE_ACTIONS.map(({ method, path: url, auth }) => [method, url, auth === 'login'] as const),
];

/** Mounts the console on `app`, whose content type parsers must leave `request.raw` unread. */
export async function registerConsole(app: FastifyInstance, deps: ConsoleDeps): Promise<void> {
  await app.register(async (scope) => {
    scope.setErrorHandler((error, request, reply) => send(reply, adminError(error, request.id, deps.log)));
    registerFiles(scope, deps);
    for (const action of CONSOLE_ACTIONS) {
      const handler = (request: FastifyRequest, reply: FastifyReply) => serve(deps, action, request, reply);
      scope.route({ method: action.method, url: action.path, handler });
    }
  });
}

function registerFiles(app: FastifyInstance, deps: ConsoleDeps): void {
  const assets = path.join(deps.dist, 'assets');
  const page = async (request: FastifyRequest, reply: FastifyReply) => {
    reply.headers(SECURITY_HEADERS).header('cache-control', 'no-cache');
    if (isConsoleBuilt(deps.dist)) return sendBuilt(request, reply, deps.dist, 'index.html');
    return reply.code(503).type('text/html; charset=utf-8').send(NOT_BUILT);
  };
  const home = async (_request: FastifyRequest, reply: FastifyReply) => reply.redirect('/console/', 302);
  app.get('/', async (request, reply) =>
    isConsoleBuilt(deps.dist) ? home(request, reply) : reply.redirect('/docs/', 302),
  );
  app.get('/console', home);
  app.get('/console/', page);
  app.get('/console/sign-in', page);
  app.get('/console/invite', page);
  app.get('/console/email', page);
  app.get('/console/account', page);
  app.get('/console/authorize', page);
  app.get('/console/device', page);
  app.get('/console/*', async (request, reply) => {
    // Which pages there are, the console itself knows: it says so in its frame where there is none.
    if (String(request.headers.accept ?? '').includes('text/html')) return page(request, reply);
    throw new SluiceError('not_found', NO_SUCH_PATH);
  });
  app.get<{ Params: { file: string } }>('/console/assets/:file', async (request, reply) => {
    const { file } = request.params;
    if (!/^[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+$/.test(file) || !existsSync(path.join(assets, file))) {
      throw new SluiceError('not_found', 'There is no such file.');
    }
    // File names carry a content hash, so a name never changes its content.
    reply.headers(SECURITY_HEADERS).header('cache-control', 'public, max-age=31536000, immutable');
    return sendBuilt(request, reply, assets, file);
  });
}

/** Who calls is known before a body is read. */
async function serve(deps: ConsoleDeps, action: ConsoleAction, request: FastifyRequest, reply: FastifyReply) {
  const { sessions } = deps;
  const session = action.auth === 'login' ? await authenticate(sessions, request) : null;
  if (action.auth === 'public' && action.method !== 'GET') sessions.checkOrigin(request.headers.origin);
  const params = action.params === null ? undefined : parse(action.params, request.params);
  const limit = action.bodyBytes ?? BODY_BYTES;
  const body = action.body === null ? undefined : await readBody(request, action.body, limit);
  const made = await action.run({ deps, params, body, session, request, reply });
  if (action.answer.as === 'relayed') return made;
  reply.header('cache-control', 'no-store');
  if (action.answer.as === 'nothing') return reply.code(204).send();
  return reply.code(action.answer.status).send(action.answer.schema.parse(made));
}

async function authenticate(sessions: ConsoleSessions, request: FastifyRequest): Promise<ConsoleSession> {
  const csrf = request.headers['x-csrf-token'];
  return sessions.authenticate({
    method: request.method,
    cookie: request.headers.cookie,
    origin: request.headers.origin,
    csrf: Array.isArray(csrf) ? undefined : csrf,
  });
}

/** The body as checked data. A declared length over `limit` is refused before anything is read. */
async function readBody<T>(request: FastifyRequest, schema: z.ZodType<T>, limit: number): Promise<T> {
  if (Number(request.headers['content-length'] ?? 0) > limit) {
    throw new SluiceError('too_large', `The body is larger than ${limit} bytes.`);
  }
  return parse(schema, (await readJsonBody(request.raw)) ?? {});
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new SluiceError('validation', issue?.message ?? 'The body is not valid.', {
    param: issue ? issue.path.join('.') || null : null,
  });
}
