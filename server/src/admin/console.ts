/**
 * The web console: its files, and the few calls that only it makes. Everything answers on one origin, without CORS
 * headers; writes need the session cookie, the session's CSRF token and the right Origin.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { ConsoleSession, ConsoleSessions, Within } from '../auth/console-session.ts';
import type { Principal } from '../auth/principal.ts';
import { tenantOf } from '../auth/tenant.ts';
import { clientAddress } from '../http/client-address.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { LogSink, StoredLog } from '../store/ports.ts';
import { type AddressChangeDeps, ConfirmBody, confirmAddress } from './address-change.ts';
import { consoleEntry, type EntryDeps } from './audit.ts';
import { sendBuilt } from './built-files.ts';
import { isConsoleBuilt } from './console-dist.ts';
import { AcceptBody, type Invitations, LookUpBody } from './invitations.ts';
import { readJsonBody } from './json-body.ts';
import { LinkBody, type MailedLinks } from './mailed-links.ts';
import { adminError, send } from './respond.ts';

export interface ConsoleDeps {
  readonly sessions: ConsoleSessions;
  readonly invitations: Invitations;
  readonly mailedLinks: MailedLinks;
  readonly addresses: AddressChangeDeps;
  /** Clock and signature of audit rows. */
  readonly audit: EntryDeps;
  readonly log: Log;
  /** Request logs, for the record that the console shows beside an answer. */
  readonly logs: Pick<LogSink, 'list'>;
  /** SLUICE_PUBLIC_URL without a trailing slash; a function because a free port is known only after listening. */
  readonly publicUrl: () => string;
  /** Folder with the built console. When it is missing, `/console/` says how to build it and everything else works. */
  readonly dist: string;
  /**
   * Sends `body` (JSON of a `POST /v1/chat/completions`) through the data plane as `principal`, which is bound to a
   * workspace and holds its scopes, and answers on `reply` as the data plane does, streaming included.
   */
  readonly tryRequest: (
    request: FastifyRequest,
    reply: FastifyReply,
    principal: Principal,
    body: Buffer,
  ) => Promise<unknown> | unknown;
}

const SESSION_BODY_BYTES = 4_096;
const TRY_BODY_BYTES = 262_144;
/** Newest records of a trace id that are searched for the user's own: callers choose trace ids, so others may have it. */
const MOST_OF_A_TRACE = 100;

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
const NO_SUCH_PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Page not found · Sluice</title>
<h1>Page not found</h1>
<p>The console has no page at this address. <a href="/console/">Go to the console</a></p></html>`;

const ExchangeBody = z.strictObject({ token: z.string().max(256) });
const TryBody = z.strictObject({ workspace_id: z.uuid(), request: z.record(z.string(), z.unknown()) });
const TraceParams = z.strictObject({ traceId: z.string().min(1).max(256) });

/** Every path that `registerConsole` serves, `[method, path, needs a session]`, for the route inventory. */
export const CONSOLE_ROUTES = [
  ['GET', '/', false],
  ['GET', '/console', false],
  ['GET', '/console/', false],
  ['GET', '/console/sign-in', false],
  ['GET', '/console/invite', false],
  ['GET', '/console/email', false],
  ['GET', '/console/account', false],
  ['GET', '/console/*', false],
  ['GET', '/console/api/sign-in', false],
  ['POST', '/console/api/sign-in-link', false],
  ['GET', '/console/assets/:file', false],
  ['POST', '/console/api/session', false],
  ['GET', '/console/api/session', true],
  ['DELETE', '/console/api/session', true],
  ['POST', '/console/api/invite', false],
  ['POST', '/console/api/invite/acceptance', false],
  ['POST', '/console/api/email', true],
  ['POST', '/console/api/try', true],
  ['GET', '/console/api/records/:traceId', true],
] as const;

/** Mounts the console on `app`, whose content type parsers must leave `request.raw` unread. */
export async function registerConsole(app: FastifyInstance, deps: ConsoleDeps): Promise<void> {
  await app.register(async (scope) => {
    scope.setErrorHandler((error, request, reply) => send(reply, adminError(error, request.id, deps.log)));
    registerFiles(scope, deps);
    registerApi(scope, deps);
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
  app.get('/console/*', async (request, reply) => {
    if (!String(request.headers.accept ?? '').includes('text/html')) throw new SluiceError('not_found', NO_SUCH_PATH);
    reply.headers(SECURITY_HEADERS).header('cache-control', 'no-store');
    return reply.code(404).type('text/html; charset=utf-8').send(NO_SUCH_PAGE);
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

function registerApi(app: FastifyInstance, deps: ConsoleDeps): void {
  const { sessions } = deps;
  const recorded =
    (request: FastifyRequest, action: 'create' | 'delete'): Within =>
    async (tx, user) => {
      const who = { organisationId: user.organisation_id, userId: user.id, resourceId: user.id };
      const deed = { request, action, resource: 'console-sessions', ...who };
      await appendAudit(tx, deps.audit.vault, consoleEntry(deps.audit, deed));
    };

  // What the sign-in page offers.
  app.get('/console/api/sign-in', async (_request, reply) => {
    reply.header('cache-control', 'no-store');
    return reply.send({ object: 'console_sign_in', mailed_links: deps.mailedLinks.available });
  });

  app.post('/console/api/sign-in-link', async (request, reply) => {
    sessions.checkOrigin(request.headers.origin);
    const { email } = await readBody(request, LinkBody, SESSION_BODY_BYTES);
    await deps.mailedLinks.ask(email, request);
    reply.header('cache-control', 'no-store');
    return reply.code(202).send({ object: 'console_sign_in_link' });
  });

  app.post('/console/api/session', async (request, reply) => {
    sessions.checkOrigin(request.headers.origin);
    const { token } = await readBody(request, ExchangeBody, SESSION_BODY_BYTES);
    const signedIn = await sessions.exchange(token, clientAddress(request.raw), recorded(request, 'create'));
    reply.header('set-cookie', sessions.setCookie(signedIn.token)).header('cache-control', 'no-store');
    return reply.send(await present(deps, signedIn.session));
  });

  app.get('/console/api/session', async (request, reply) => {
    const session = await authenticate(sessions, request);
    reply.header('cache-control', 'no-store');
    return reply.send(await present(deps, session));
  });

  app.delete('/console/api/session', async (request, reply) => {
    await sessions.signOut(await authenticate(sessions, request), recorded(request, 'delete'));
    reply.header('set-cookie', sessions.setCookie(null)).header('cache-control', 'no-store');
    return reply.code(204).send();
  });

  app.post('/console/api/email', async (request, reply) => {
    const session = await authenticate(sessions, request);
    const { token } = await readBody(request, ConfirmBody, SESSION_BODY_BYTES);
    const email = await confirmAddress(deps.addresses, session, token, request);
    sessions.invalidate();
    reply.header('cache-control', 'no-store');
    return reply.send({ object: 'console_email', email });
  });

  // Not GET: an address must not hold the token.
  app.post('/console/api/invite', async (request, reply) => {
    sessions.checkOrigin(request.headers.origin);
    const { token } = await readBody(request, LookUpBody, SESSION_BODY_BYTES);
    const { invite, organisation, workspaces } = await deps.invitations.look(token, clientAddress(request.raw));
    reply.header('cache-control', 'no-store');
    return reply.send({
      object: 'console_invite',
      organisation: { name: organisation.name },
      email: invite.email,
      role: invite.role,
      workspaces,
      expires_at: new Date(invite.expires_at).toISOString(),
    });
  });

  app.post('/console/api/invite/acceptance', async (request, reply) => {
    sessions.checkOrigin(request.headers.origin);
    const body = await readBody(request, AcceptBody, SESSION_BODY_BYTES);
    const { accepted, token, session } = await deps.invitations.accept(body, request);
    reply.header('set-cookie', sessions.setCookie(token)).header('cache-control', 'no-store');
    return reply.send({
      object: 'console_acceptance',
      session: await present(deps, session),
      api_keys: accepted.keys,
    });
  });

  app.post('/console/api/try', async (request, reply) => {
    const session = await authenticate(sessions, request);
    const body = await readBody(request, TryBody, TRY_BODY_BYTES);
    const principal = await sessions.inWorkspace(session.principal, body.workspace_id);
    return deps.tryRequest(request, reply, principal, Buffer.from(JSON.stringify(body.request)));
  });

  app.get('/console/api/records/:traceId', async (request, reply) => {
    const session = await authenticate(sessions, request);
    const { traceId } = parse(TraceParams, request.params);
    const { rows } = await deps.logs.list(tenantOf(session.principal), { limit: MOST_OF_A_TRACE, traceId });
    // Only the user's own requests: everyone else's need the logs scopes of the administration API. A record is stored
    // moments after its answer, so "none" is an ordinary answer and the page asks again.
    const own = rows.find((record) => record.user_id === session.principal.userId);
    reply.header('cache-control', 'no-store');
    return reply.send({ object: 'console_record', record: own === undefined ? null : presentRecord(own) });
  });
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

async function present(deps: ConsoleDeps, session: ConsoleSession) {
  const { principal } = session;
  const { organisation, user, workspaces } = await deps.sessions.describe(principal);
  return {
    object: 'console_session',
    user: {
      id: principal.userId,
      email: user?.email ?? '',
      first_name: user?.first_name ?? '',
      last_name: user?.last_name ?? '',
      role: principal.role,
    },
    organisation: { id: principal.organisationId, name: organisation?.name ?? '' },
    workspaces: workspaces.map((workspace) => ({ id: workspace.id, slug: workspace.slug, name: workspace.name })),
    base_url: `${deps.publicUrl().replace(/\/+$/, '')}/v1`,
    csrf_token: session.csrf,
    expires_at: new Date(session.expiresAt).toISOString(),
  };
}

/** What the page shows of a `telemetry/record.ts` LogRecord. */
function presentRecord(record: StoredLog) {
  const { id, trace_id, status, outcome, provider, model_answered, usage, usage_estimated, cost_micros } = record;
  const { latency_ms, ttft_ms, attempts } = record;
  return {
    id,
    trace_id,
    status,
    outcome,
    provider,
    model_answered,
    usage,
    usage_estimated,
    cost_micros,
    latency_ms,
    ttft_ms,
    attempts: Array.isArray(attempts) ? attempts.length : 0,
  };
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
