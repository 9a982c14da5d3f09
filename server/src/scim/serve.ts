/** One request of a directory: its token, its rate, its route, one transaction with its audit row, its answer. */
import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { consoleEntry } from '../admin/audit.ts';
import { committed, watched } from '../admin/handle.ts';
import { readJsonObject } from '../admin/json-body.ts';
import { accessEntry } from '../admin/respond.ts';
import { digestOf, parseToken } from '../auth/key-format.ts';
import type { Principal } from '../auth/principal.ts';
import { systemTenant, tenantOf } from '../auth/tenant.ts';
import { Throttle, tooMany } from '../auth/throttle.ts';
import { clientAddress } from '../http/client-address.ts';
import { hasUnreadBody } from '../http/read-body.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { JsonObject } from '../kernel/json.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { AuditAction, AuditedChange } from '../resources/resource.ts';
import type { Change } from '../store/ports.ts';
import type { Answered, ScimCall, ScimDeps } from './call.ts';
import { failureOf, ScimError } from './errors.ts';
import { namesVersion } from './resource.ts';
import { type Route, routeOf, type ScimQuestion } from './route-table.ts';

type Method = AuditedMethod | 'GET';
type AuditedMethod = 'POST' | 'PUT' | 'PATCH' | 'DELETE';

interface Trail {
  readonly requestId: string;
  principal: Principal | null;
  route: Route | null;
  body: JsonObject | null;
  resourceId: string | null;
  change: AuditedChange | null;
}

export function createServe(deps: ScimDeps) {
  const throttle = new Throttle(deps.clock);
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const began = deps.clock.monotonic();
    const trail: Trail = {
      requestId: uuidv7(deps.clock),
      principal: null,
      route: null,
      body: null,
      resourceId: null,
      change: null,
    };
    let status = 500;
    let failed: unknown;
    reply.headers({ ...HEADERS, 'x-gateway-request-id': trail.requestId });
    try {
      const answer = await perform(deps, throttle, request, trail);
      const unchanged = answer.status === 200 && request.method === 'GET' && isKnown(request.raw, answer.etag);
      status = unchanged ? 304 : answer.status;
      if (answer.etag !== undefined) reply.header('etag', answer.etag);
      if (answer.location !== undefined) reply.header('location', answer.location);
      return reply.code(status).send(answer.body === null || unchanged ? '' : JSON.stringify(answer.body));
    } catch (error) {
      failed = error;
      const failure = failureOf(error);
      status = failure.status;
      if (status === 500) deps.log.error('SCIM request failed', { request_id: trail.requestId, error });
      if (status === 401) reply.header('www-authenticate', 'Bearer realm="SCIM"');
      if (failure.retryAfter !== null) reply.header('retry-after', String(failure.retryAfter));
      if (status === 405 && trail.route !== null) reply.header('allow', trail.route.methods.join(', '));
      if (hasUnreadBody(request.raw)) reply.header('connection', 'close');
      if (status !== 413) await recordRefusal(deps, request, trail, status);
      return reply.code(status).send(JSON.stringify(failure.body));
    } finally {
      const { accessLog, clock } = deps;
      if (accessLog && (accessLog.all || failed !== undefined)) {
        const caller = { principal: trail.principal, workspaceId: null };
        const error = failed instanceof SluiceError ? failed : undefined;
        accessLog.write(
          accessEntry(request.raw, trail.requestId, { status, error }, caller, clock.monotonic() - began),
        );
      }
    }
  };
}

const HEADERS = {
  'content-type': 'application/scim+json; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
} as const;

async function perform(deps: ScimDeps, throttle: Throttle, request: FastifyRequest, trail: Trail): Promise<Answered> {
  const { organisationId: named } = request.params as { readonly organisationId?: string };
  const principal = await authenticate(deps, throttle, request.raw, named?.toLowerCase() ?? null);
  trail.principal = principal;
  const { allowed, retryAfter } = await deps.limiter(principal);
  if (!allowed) {
    const message = 'Too many requests with this SCIM token: wait for the seconds in Retry-After.';
    throw new SluiceError('throttled', message, { retryAfter });
  }
  const [path = '', query = ''] = splitOnce(request.raw.url ?? '', '?');
  const prefix = named === undefined ? '/scim/v2' : `/v1/scim/${named}`;
  const base = `${deps.publicUrl().replace(/\/+$/, '')}${named === undefined ? prefix : `/v1/scim/${principal.organisationId}`}`;
  const route = routeOf(path.slice(prefix.length));
  trail.route = route;
  const method = request.method as Method;
  const run = route.run[method];
  if (run === undefined) {
    const message = `This path answers ${route.methods.join(', ')} only.`;
    throw new SluiceError('method_not_allowed', message);
  }
  const body = method === 'GET' || method === 'DELETE' ? {} : await bodyOf(request.raw, deps);
  trail.body = body;
  const asked: ScimQuestion = {
    query: Object.fromEntries(new URLSearchParams(query)),
    body,
    conditions: { ifMatch: headerOf(request.raw, 'if-match') },
  };
  const tenant = tenantOf(principal);
  const callOf = (tx: ScimCall['tx']): ScimCall => ({
    tx,
    clock: deps.clock,
    base,
    membersByUser: deps.membersByUser,
    actorId: principal.keyId ?? '',
    audit: (resourceId, change) => {
      trail.resourceId = resourceId;
      trail.change = change;
    },
  });
  if (method === 'GET' || !route.writes) return deps.tables.read(tenant, (tx) => run(callOf(tx), asked));
  await deps.vault.ensureKey?.(tenant.organisationId);
  let changes: Change[] = [];
  const answer = await deps.tables.write(
    tenant,
    async (tx) => {
      // The store may run this again: nothing of the lost attempt may survive.
      changes = [];
      trail.resourceId = null;
      trail.change = null;
      const { organisationId } = tenant;
      const seen = watched(tx, (change) => changes.push({ ...change, organisationId }));
      const made = await run(callOf(seen), asked);
      await appendAudit(seen, deps.vault, entryOf(deps, request, trail, made.status));
      return made;
    },
    { queue: tenant.organisationId },
  );
  await committed(deps, changes, []);
  return answer;
}

const INVALID =
  'The SCIM token is not valid here: send a token of this organisation as Authorization: Bearer slc_scm_….';

/** The principal of a token, read from the store each time: a token that was deleted opens nothing from then on. */
async function authenticate(
  { tables, clock }: ScimDeps,
  throttle: Throttle,
  raw: IncomingMessage,
  organisationId: string | null,
): Promise<Principal> {
  const address = clientAddress(raw);
  const message = 'Too many failed attempts. Wait before trying another SCIM token.';
  if (!throttle.mayLook(address)) throw tooMany(throttle.blockedFor(address), message);
  return throttle.watch(address, message, async () => {
    const refused = new SluiceError('unauthenticated', INVALID);
    const sent = credentialOf(headerOf(raw, 'authorization') ?? '');
    const publicId = sent === null ? null : parseToken(sent.token, 'scm');
    if (sent === null || publicId === null) throw refused;
    const found = await tables.systemRead(async (tx) => {
      const row = await tx.find('scim_tokens', { public_id: publicId });
      return row && { row, organisation: await tx.find('organisations', { id: row.organisation_id }) };
    });
    if (found?.organisation === undefined) throw refused;
    const { row, organisation } = found;
    const same = timingSafeEqual(Buffer.from(row.digest), Buffer.from(digestOf(sent.token)));
    const elsewhere = [organisationId, sent.organisationId].some((id) => id !== null && id !== organisation.id);
    if (!same || elsewhere || (row.expires_at !== null && row.expires_at <= clock.now())) throw refused;
    if (organisation.status !== 'active') {
      throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
    }
    return { ...DIRECTORY, keyId: row.id, keyName: row.name, organisationId: organisation.id };
  });
}

const DIRECTORY = {
  kind: 'scim',
  workspaceId: null,
  userId: null,
  role: null,
  scopes: new Set<string>(),
  defaults: {},
  rateLimits: [],
  usageLimits: null,
  expiresAt: null,
} as const;

/** A token as bearer, or as the password of Basic with the organisation as user. */
function credentialOf(header: string): { token: string; organisationId: string | null } | null {
  const [, scheme = '', text = ''] = /^(bearer|basic) +(\S{1,1024})$/i.exec(header.trim()) ?? [];
  if (scheme.toLowerCase() === 'bearer') return { token: text, organisationId: null };
  if (scheme === '') return null;
  const [user = '', token] = splitOnce(Buffer.from(text, 'base64').toString('latin1'), ':');
  return token === undefined ? null : { token, organisationId: user.toLowerCase() };
}

function splitOnce(text: string, by: string): string[] {
  const at = text.indexOf(by);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + by.length)];
}

function headerOf(
  raw: IncomingMessage,
  name: 'authorization' | 'if-match' | 'if-none-match' | 'content-type',
): string | null {
  return raw.headers[name] ?? null;
}

function isKnown(raw: IncomingMessage, etag: string | undefined): boolean {
  const list = headerOf(raw, 'if-none-match');
  return list !== null && etag !== undefined && namesVersion(list, etag);
}

const MEDIA_TYPES = new Set(['application/scim+json', 'application/json']);

async function bodyOf(raw: IncomingMessage, { clock }: ScimDeps): Promise<JsonObject> {
  const [type = '', ...parameters] = (headerOf(raw, 'content-type') ?? '')
    .split(';')
    .map((part) => part.trim().toLowerCase());
  if (
    !MEDIA_TYPES.has(type) ||
    !parameters.every((one) => !one.startsWith('charset') || /^charset="?utf-?8"?$/.test(one))
  ) {
    throw new ScimError('mediaType', 'Send the body as JSON in UTF-8, with Content-Type: application/scim+json.');
  }
  const body = await readJsonObject(raw, clock);
  if (body === null) throw new ScimError('invalidSyntax', 'This request needs a body: one JSON object.');
  return body;
}

const ACTIONS: Readonly<Record<AuditedMethod, AuditAction>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'update',
  DELETE: 'delete',
};

function entryOf({ clock, vault }: ScimDeps, request: FastifyRequest, trail: Trail, status: number) {
  return consoleEntry(
    { clock, vault },
    {
      request,
      requestId: trail.requestId,
      organisationId: trail.principal?.organisationId ?? '',
      userId: null,
      keyId: trail.principal?.keyId ?? null,
      action: ACTIONS[request.method as AuditedMethod],
      resource: trail.route?.resource ?? 'scim',
      resourceId: trail.resourceId ?? trail.route?.id ?? null,
      body: trail.body,
      change: status < 400 ? trail.change : null,
      status,
    },
  );
}

/** A refused write leaves a row too; one that came too fast does not, or it would be a way to fill the log. */
async function recordRefusal(deps: ScimDeps, request: FastifyRequest, trail: Trail, status: number): Promise<void> {
  const { principal, route } = trail;
  if (principal === null || route?.writes !== true || request.method === 'GET' || status === 429 || status === 503)
    return;
  const { organisationId } = principal;
  try {
    await deps.tables.write(
      systemTenant(organisationId),
      (tx) => appendAudit(tx, deps.vault, entryOf(deps, request, trail, status)),
      { queue: organisationId },
    );
  } catch (error) {
    deps.log.error('the audit row of a refused SCIM request was not stored', { request_id: trail.requestId, error });
  }
}
