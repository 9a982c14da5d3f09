/**
 * The one handler of the administration API. Every declared action is served on `/v1` and `/v2` by the same chain:
 * authenticate, authorise, admit, read, resolve the workspace, act in one transaction with its audit
 * row, check the answer, respond.
 */
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import type { Authenticator } from '../auth/authenticator.ts';
import { readCredential } from '../auth/credential.ts';
import { isSignInToken } from '../auth/key-format.ts';
import { callerId, type Principal } from '../auth/principal.ts';
import { roleScopes } from '../auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../auth/security-settings.ts';
import { systemTenant, tenantOf } from '../auth/tenant.ts';
import type { BodyBudget } from '../http/body-budget.ts';
import { clientAddress } from '../http/client-address.ts';
import type { KnownPaths } from '../http/known-paths.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { FairShares } from '../kernel/fair-shares.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import type { Log } from '../kernel/log.ts';
import { inTurns, nextTurn } from '../kernel/turns.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { CheckHost } from '../resources/body-fields.ts';
import { ACTIONS, REFERENCES } from '../resources/catalog.ts';
import { isNotFound } from '../resources/look-up.ts';
import { findReferences, type Refers } from '../resources/references.ts';
import type { AnyAction, AnyOperatorAction, Call, EventTurn } from '../resources/resource.ts';
import { AfterCommit, Services, type Work } from '../resources/services.ts';
import type { Change, SystemTx, Tables, TenantContext, TenantTx } from '../store/ports.ts';
import type { Vault } from '../store/vault.ts';
import type { AccessLog } from '../telemetry/access-log.ts';
import { auditRow, joinChanges, organisationIn, recordedBody, recordRefusal, type Trail } from './audit.ts';
import { follow, newFollowers } from './follow.ts';
import { fingerprintOf, Once, Replay, readIdempotencyKey, takesIdempotencyKey } from './idempotency.ts';
import { isLongBody, readFormBody, readJsonBodies, readJsonBody } from './json-body.ts';
import { readEntries } from './json-entries.ts';
import { parseQuery } from './query.ts';
import { type AdminLimiter, createLocalLimiter } from './rate-limit.ts';
import {
  type AdminAnswer,
  accessEntry,
  adminError,
  adminReplay,
  adminSuccess,
  JSON_OK,
  send,
  statusOf,
} from './respond.ts';
import { type AdminRow, checkTable, missingText, pathsOf, RESERVED_AREAS, scopesFor } from './route.ts';
import { differentCallers, findSignIn, isSame, SIGN_IN, type SignIns } from './sign-in.ts';
import { validate, withoutRepeated } from './validate.ts';
import { mayUse, resolveWorkspace } from './workspace.ts';

export interface AdminDeps {
  readonly tables: Tables;
  readonly vault: Vault;
  /** Learns the routes, and says what another path was meant to be. */
  readonly paths: KnownPaths;
  /** Null or absent: no request leaves a line. */
  readonly accessLog?: AccessLog | null;
  readonly clock: Clock;
  readonly log: Log;
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'invalidate'>;
  /** Console sign-in; without it only keys are accepted. */
  readonly sessions?: SignIns;
  /** Own rate limit (P-116) when `limiter` is not given: counted on this node only. Default 300. */
  readonly requestsPerMinute?: number;
  readonly limiter?: AdminLimiter;
  /** Syntax check of the egress guard, for custom hosts that are stored. */
  readonly checkHost: CheckHost;
  /** SLUICE_PUBLIC_URL; a function because a free port is known only after listening. */
  readonly publicUrl: () => string;
  /** What can stand in the way of a delete; the catalogue's when absent. */
  readonly references?: readonly Refers[];
  /** Waits until this node acts on every change committed so far, so that a caller sees its own write take effect. */
  readonly caughtUp?: () => Promise<unknown>;
  /** Who follows events; shares of them when absent, of this list of rows alone. */
  readonly followers?: FairShares;
  /** Aborted when the server begins to stop: events end. */
  readonly stopping?: AbortSignal;
  /** Where large bodies are counted, for each organisation; nowhere when absent. */
  readonly bodies?: BodyBudget;
  /** What actions need beyond their transaction. One whose service is missing is answered with 503. */
  readonly services?: Services;
}

/** Registers every action of the catalogue on `app`. Throws when the table is not complete. */
export function registerAdmin(app: FastifyInstance, deps: AdminDeps): void {
  registerRows(app, ACTIONS, deps, RESERVED_AREAS);
}

const METHODS: readonly HTTPMethods[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/**
 * Registers rows on `app`, HEAD beside each GET, 405 for the other methods of their paths, and 404 for what else begins
 * like them or below `reserved`: a misspelt path must not fall through to a provider. The work is done in
 * `onRequest`, before fastify would look at a content type or a body: credentials come first.
 */
export function registerRows(
  app: FastifyInstance,
  rows: readonly AdminRow[],
  deps: AdminDeps,
  reserved: readonly string[] = [],
): void {
  checkTable(rows);
  const serving: Serving = {
    ...deps,
    limiter: deps.limiter ?? createLocalLimiter(deps.clock, deps.requestsPerMinute ?? 300),
    services: deps.services ?? new Services(),
    followers: deps.followers ?? newFollowers(),
  };
  const methods = new Map<string, Set<HTTPMethods>>();
  for (const row of rows) {
    const own: HTTPMethods[] = row.method === 'GET' ? ['GET', 'HEAD'] : [row.method];
    for (const url of pathsOf(row)) {
      deps.paths.know(row.method, url);
      app.route({
        method: own,
        url,
        exposeHeadRoute: false,
        config: { operation: row.id },
        onRequest: (request, reply) => serve(serving, row, request, reply),
        handler: unreachable,
      });
      methods.set(url, new Set([...(methods.get(url) ?? []), ...own]));
    }
  }
  const refuse = (error: SluiceError, reply: FastifyReply) =>
    send(reply, adminError(error, uuidv7(deps.clock), deps.log));
  const refuseMethod = (served: Iterable<string>, reply: FastifyReply) => {
    const allow = [...served].sort().join(', ');
    const error = new SluiceError('method_not_allowed', `This path answers ${allow} only.`);
    return refuse(error, reply.header('allow', allow));
  };
  // A route for each method that a path does not serve would cost more memory than all that are served, so the routes
  // below find these paths. Only a path that the router would take for a parameter of another one needs its own.
  for (const [url, served] of methods) {
    const taken = METHODS.filter(
      (method) => !served.has(method) && [...methods].some(([other, own]) => own.has(method) && covers(other, url)),
    );
    if (taken.length === 0) continue;
    app.route({
      method: taken,
      url,
      exposeHeadRoute: false,
      onRequest: async (_request, reply) => refuseMethod(served, reply),
      handler: unreachable,
    });
  }
  const areas = new Set([
    ...[...methods.keys()].map((url) => /^\/v[12]\/[^/]+/.exec(url)?.[0] ?? url),
    ...reserved.map((area) => `/v1/${area}`),
  ]);
  for (const url of [...areas].flatMap((area) => [area, `${area}/*`])) {
    // The same area may have another list of rows.
    const free = METHODS.filter((method) => !app.hasRoute({ method, url }));
    if (free.length === 0) continue;
    app.route({
      method: free,
      url,
      exposeHeadRoute: false,
      onRequest: async ({ raw: { method = '', url = '', headers } }, reply) => {
        const served = deps.paths.methodsOf(url);
        if (served.length > 0) return refuseMethod(served, reply);
        return refuse(new SluiceError('not_found', deps.paths.advise(method, url, headers)), reply);
      },
      handler: unreachable,
    });
  }
}

/** Whether a parameter of the route `url` takes what the path `other` names. */
function covers(url: string, other: string): boolean {
  if (url === other) return false;
  const [parts, named] = [url.split('/'), other.split('/')];
  return parts.length === named.length && parts.every((part, index) => part.startsWith(':') || part === named[index]);
}

interface Serving extends AdminDeps {
  readonly followers: FairShares;
  readonly limiter: AdminLimiter;
  readonly services: Services;
}

async function unreachable(): Promise<never> {
  throw new Error('the administration handler answers before this');
}

async function serve(deps: Serving, row: AdminRow, request: FastifyRequest, reply: FastifyReply) {
  const trail: Trail = {
    requestId: uuidv7(deps.clock),
    principal: null,
    body: null,
    query: {},
    workspaceId: null,
    resourceId: null,
    change: null,
    recorded: null,
    organisationId: null,
  };
  const began = deps.clock.monotonic();
  const note = (answer: AdminAnswer, error?: unknown) => {
    if (deps.accessLog && (deps.accessLog.all || error !== undefined))
      deps.accessLog.write(
        accessEntry(
          request.raw,
          trail.requestId,
          { status: answer.status, error },
          trail,
          deps.clock.monotonic() - began,
        ),
      );
    return answer;
  };
  try {
    const form = row.answers ?? JSON_OK;
    if (form.as === 'events' && request.method !== 'HEAD') {
      const turn = (since: string | null) => perform(deps, row, request, trail, since) as Promise<EventTurn>;
      return await follow(deps, { ...form, request, reply, trail, turn, ended: note });
    }
    const made = await perform(deps, row, request, trail);
    await rest(request, trail);
    const answer =
      made instanceof Replay ? adminReplay(form, made, trail.requestId) : adminSuccess(form, made, trail.requestId);
    return send(reply, note(answer));
  } catch (thrown) {
    await rest(request, trail);
    const error = isNotFound(thrown) ? thrown.reworded(missingText(row, deps.paths)) : thrown;
    const answer = note(adminError(error, trail.requestId, deps.log), error);
    const record = () => (isAudited(row) ? recordRefusal(deps, row, request, trail, error, answer.status) : null);
    // The client of a body that is too large still sends: it must get the answer before the socket is given up.
    if (answer.status !== 413) await record();
    send(reply, answer);
    if (answer.status === 413) await record();
    return reply;
  } finally {
    trail.release?.();
  }
}

/** Lets others have the event loop, where the body is so long that each step of its work takes milliseconds. */
async function rest(request: FastifyRequest, trail: Trail): Promise<void> {
  if (trail.body !== null && isLongBody(request.raw)) await nextTurn();
}

/** @param since of answers as events, in every turn but the first: `next` of the turn before */
async function perform(
  deps: Serving,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  since: string | null = null,
): Promise<unknown> {
  const principal = await identify(deps, row, request);
  trail.principal = principal;
  // Before anything is judged: each refused write leaves an audit row, and those must not come faster than the limit.
  const { allowed, retryAfter } = since === null ? await deps.limiter(principal) : { allowed: true, retryAfter: 0 };
  if (!allowed) {
    throw new SluiceError(
      'throttled',
      'Too many administration requests with this credential: wait for the seconds in Retry-After.',
      {
        retryAfter,
      },
    );
  }
  checkKind(row, principal);
  const params = row.params === null ? {} : (validate(row.params, request.params) as Record<string, unknown>);
  const scopes = scopesFor(row, params);
  // A signed-in member has no scopes outside a workspace, and there an admin may have fewer: it is known once the workspace is.
  const signedIn = principal.kind === 'user' && principal.role !== 'owner';
  const member = signedIn && principal.role === 'member';
  const reachable = member ? roleScopes('member', 'admin', SECURITY_DEFAULTS) : principal.scopes;
  const self = principal.kind === 'user' && row.own !== undefined && isSelf(principal, params[row.own.param]);
  if (!self && !mayUse(reachable, scopes, row.auth)) throw missingScope(scopes);
  trail.query = parseQuery(request.raw.url ?? '', row.lists);
  const asked = withoutRepeated(row.query, trail.query, request.params);
  const query: unknown = row.query === null ? noParameters(asked) : validate(row.query, { ...asked });
  if (since === null) trail.body = await readBodyOf(deps, row, request.raw, trail);
  await rest(request, trail);
  const sent = trail.body ?? {};
  const given = isList(sent) ? sent : withoutRepeated(row.body, sent, request.params);
  const body: unknown = row.body === null ? noBody(given) : validate(row.body, given);
  await rest(request, trail);
  const input = { params, query, body, since };
  if (row.auth === 'operator') return actAsOperator(deps, row, request, trail, input);
  const named = Object.keys(trail.body ?? {});
  const own = self && named.length > 0 && named.every((field) => row.own?.fields.includes(field));
  if (!own && !mayUse(reachable, scopes, row.auth)) throw missingScope(scopes);
  const route = own ? { tenant: row.tenant, workspace: 'joined' as const } : row;
  const reach = await resolveWorkspace(deps.tables, principal, route, input);
  if (signedIn && !own && !mayUse(reach.scopes, scopes, row.auth)) throw missingScope(scopes);
  trail.workspaceId = reach.workspaceId;
  const { scopes: held, workspaceId } = reach;
  const acting = signedIn ? { ...principal, scopes: held, workspaceId: member ? workspaceId : null } : principal;
  return act(deps, row, request, trail, acting, tenantOf(principal, reach.workspaceId), input);
}

function readBodyOf({ clock, bodies: budget }: Serving, row: AdminRow, raw: IncomingMessage, trail: Trail) {
  if (row.entries !== undefined) {
    const hold = (release: () => void) => {
      trail.release = release;
    };
    return readEntries(raw, row.entries, { clock, budget, holder: trail.principal?.organisationId ?? '', hold });
  }
  return READERS[row.takes ?? 'object'](raw, clock);
}

const READERS = { object: readJsonBody, form: readFormBody, one_or_many: readJsonBodies } as const;

const isList = (body: JsonObject | readonly JsonValue[]): body is readonly JsonValue[] => Array.isArray(body);

const isAudited = (row: AdminRow): boolean => row.writes && row.unaudited !== true;

const isSelf = ({ userId }: Principal, named: unknown) => typeof named === 'string' && named.toLowerCase() === userId;

/** Whose the request is: of a key, of the token of a sign-in, or of the console's cookie. */
async function identify(deps: Serving, row: AdminRow, request: FastifyRequest): Promise<Principal> {
  const token = readCredential(request.raw.rawHeaders);
  const login = row.auth === 'login';
  const signsIn = login || row.auth === 'key_or_login' || row.auth === 'any_credential';
  const signedIn =
    signsIn && deps.sessions !== undefined
      ? await findSignIn(deps.sessions, token, request, token === null || login)
      : null;
  if (token === null || (signsIn && isSignInToken(token))) {
    if (signedIn !== null) return signedIn.principal;
    const key = 'Send an API key in the x-gateway-api-key header';
    const how = login ? SIGN_IN : signsIn ? `${key}, or sign in.` : `${key}.`;
    throw new SluiceError('unauthenticated', how);
  }
  const principal = await deps.authenticator.authenticate(token, clientAddress(request.raw));
  if (signedIn !== null && !isSame(principal, signedIn.principal)) throw differentCallers();
  if (!login || SIGNED_IN.has(principal.kind)) return principal;
  if (signedIn !== null) return signedIn.principal;
  throw new SluiceError('unauthenticated', `An API key alone is not enough here. ${SIGN_IN}`);
}

/** The principals that are sign-ins: what a route for sign-ins only takes. */
const SIGNED_IN: ReadonlySet<Principal['kind']> = new Set<Principal['kind']>(['user', 'token']);

/** The operator's routes and everybody else's are apart. */
function checkKind(row: AdminRow, principal: Principal): void {
  if ((principal.kind === 'operator') === (row.auth === 'operator')) return;
  const message =
    principal.kind === 'operator'
      ? 'The operator key opens /v1/operator/ only and reads no organisation.'
      : 'This needs the operator key of the installation.';
  throw new SluiceError('forbidden', message);
}

interface Input {
  readonly since: string | null;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}

async function act(
  deps: Serving,
  row: AnyAction,
  request: FastifyRequest,
  trail: Trail,
  principal: Principal,
  tenant: TenantContext,
  input: Input,
): Promise<unknown> {
  const once = await onceOf(deps, row, request, trail, tenant, callerId(principal));
  let changes: Change[] = [];
  let after: (() => void | Promise<void>)[] = [];
  const prepared = row.prepare === undefined ? null : await inTurns(row.prepare(input.body, deps), deps.clock);
  let asked: unknown = null;
  const callOf = (tx: TenantTx): Call => ({
    ...input,
    principal,
    tenant,
    tx,
    clock: deps.clock,
    vault: deps.vault,
    checkHost: deps.checkHost,
    requestId: trail.requestId,
    publicUrl: deps.publicUrl().replace(/\/+$/, ''),
    service: (wanted) => wanted.find(deps.services),
    audit: (resourceId, change, workspaceId) => {
      trail.resourceId = resourceId;
      trail.workspaceId ??= workspaceId ?? null;
      trail.change = joinChanges(trail.change, change);
    },
    references: (to) => findReferences(deps.references ?? REFERENCES, tx, to),
    onCommit: (step) => after.push(step),
    prepared,
    asked,
  });
  if (row.ahead !== undefined) {
    const work = await deps.tables.read(tenant, async (tx) => row.ahead?.(callOf(tx)) ?? null);
    if (work !== null) asked = await carryOn(deps, request, work);
  }
  const run = async (tx: TenantTx): Promise<unknown> => {
    // The store may run this again after a serialisation conflict: nothing of the lost attempt may survive.
    changes = [];
    after = [];
    trail.resourceId = null;
    trail.change = null;
    const kept = await once?.claim(tx);
    if (kept) return kept;
    const watching = row.writes
      ? watched(tx, (change) => changes.push({ ...change, organisationId: tenant.organisationId }))
      : tx;
    const answer = await row.run(callOf(watching));
    if (answer instanceof AfterCommit) {
      if (row.writes) throw new Error(`${row.id} writes: its answer must be there when its transaction ends`);
      return answer;
    }
    const checked = checkAnswer(row, answer);
    const status = statusOf(row.answers);
    if (isAudited(row)) {
      await appendAudit(tx, deps.vault, auditRow(deps, row, request, trail, tenant.organisationId, status));
    }
    await once?.keep(tx, status, checked, trail.resourceId);
    return checked;
  };
  if (row.writes) {
    await deps.vault.ensureKey?.(tenant.organisationId);
    if (isAudited(row)) recordedBody(deps, trail, tenant.organisationId);
  }
  // Before the transaction and behind it, never within: on SQLite all writes wait for its end.
  await rest(request, trail);
  const queue = isAudited(row) ? { queue: tenant.organisationId } : {};
  const carryOut = () => (row.writes ? deps.tables.write(tenant, run, queue) : deps.tables.read(tenant, run));
  const answer =
    once === null ? await carryOut() : await once.answer(carryOut, (find) => deps.tables.read(tenant, find));
  await committed(deps, answer instanceof Replay ? null : changes, after);
  if (answer instanceof AfterCommit) return checkAnswer(row, await carryOn(deps, request, answer.work));
  return answer;
}

/** Does the work of an action with the services that the action needs, outside any transaction. */
async function carryOn(deps: Serving, request: FastifyRequest, work: Work<unknown>): Promise<unknown> {
  const gone = new AbortController();
  const { socket } = request.raw;
  const leave = () => gone.abort();
  socket.once('close', leave);
  try {
    return await work.run(deps.services, gone.signal);
  } finally {
    socket.off('close', leave);
  }
}

async function actAsOperator(
  deps: Serving,
  row: AnyOperatorAction,
  request: FastifyRequest,
  trail: Trail,
  input: Input,
): Promise<unknown> {
  const once = await onceOf(deps, row, request, trail, null, 'operator');
  let changes: Change[] = [];
  let after: (() => void | Promise<void>)[] = [];
  const run = async (tx: SystemTx): Promise<unknown> => {
    changes = [];
    after = [];
    trail.organisationId = null;
    trail.change = null;
    const kept = await once?.claim(tx);
    if (kept) return kept;
    const answer = await row.run({
      ...input,
      tx: row.writes ? watched(tx, (change) => changes.push(change)) : tx,
      clock: deps.clock,
      requestId: trail.requestId,
      audit: (organisationId, change) => {
        trail.organisationId = organisationId;
        trail.resourceId = organisationId;
        trail.change = joinChanges(trail.change, change);
      },
      onCommit: (step) => after.push(step),
    });
    const checked = checkAnswer(row, answer);
    const { organisationId } = trail;
    const status = statusOf(row.answers);
    if (row.writes && organisationId !== null) {
      await appendAudit(tx, deps.vault, auditRow(deps, row, request, trail, organisationId, status));
    }
    await once?.keep(tx, status, checked, organisationId);
    return checked;
  };
  if (row.standalone) return run(NO_TRANSACTION);
  const queue = organisationIn(request.params);
  const carryOut = () =>
    row.writes ? deps.tables.systemWrite(run, queue === null ? {} : { queue }) : deps.tables.systemRead(run);
  const answer = once === null ? await carryOut() : await once.answer(carryOut, (find) => deps.tables.systemRead(find));
  await committed(deps, answer instanceof Replay ? null : changes, after);
  return answer;
}

/** What an `Idempotency-Key` asks for; null without one, and for operations that do not look at it. */
async function onceOf(
  deps: Serving,
  row: AdminRow,
  request: FastifyRequest,
  trail: Trail,
  tenant: TenantContext | null,
  caller: string,
): Promise<Once | null> {
  const key = takesIdempotencyKey(row) ? readIdempotencyKey(request.raw.rawHeaders) : null;
  if (key === null) return null;
  const path = (request.raw.url ?? '').split('?', 1)[0] ?? '';
  const fingerprint = fingerprintOf(row, path, trail.query, trail.body);
  const { tables, vault } = deps;
  const home = tenant ?? (await homeOf(tables));
  return Once.begin({ tables, vault, tenant: home, caller, key, fingerprint, secret: row.secretAnswer === true });
}

/**
 * The organisation that keeps the operator's records: the first one. The one that a request makes has no data key yet,
 * and two that are made at once must meet in one place.
 */
async function homeOf(tables: Tables): Promise<TenantContext> {
  const [first] = await tables.systemRead((tx) =>
    tx.list('organisations', { orderBy: [['created_at', 'asc']], limit: 1 }),
  );
  if (first) return systemTenant(first.id);
  throw new SluiceError('conflict', 'There is no organisation yet: send this request without an Idempotency-Key.');
}

const NO_TRANSACTION = new Proxy({} as SystemTx, {
  get() {
    throw new Error('a standalone action has no transaction');
  },
});

/** The same transaction, which also tells `seen` of every change that is announced in it. */
export function watched<T extends TenantTx | SystemTx>(tx: T, seen: (change: Parameters<T['changed']>[0]) => void): T {
  const changed = (change: Change) => {
    seen(change);
    tx.changed(change);
  };
  return new Proxy(tx, {
    get(target, name) {
      if (name === 'changed') return changed;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** @param changes null when an earlier request did the work, perhaps on another node, whose changes must be seen here too */
export async function committed(
  deps: Pick<AdminDeps, 'authenticator' | 'caughtUp' | 'log'>,
  changes: readonly Change[] | null,
  after: readonly (() => void | Promise<void>)[],
): Promise<void> {
  for (const change of changes ?? []) deps.authenticator.invalidate(change);
  try {
    if (changes?.length !== 0) await deps.caughtUp?.();
  } catch (error) {
    // The write stands; other parts of this node see it through the feed.
    deps.log.warn('changes were not applied at once', { error });
  }
  for (const step of changes === null ? [] : after) {
    try {
      await step();
    } catch (error) {
      deps.log.error('a step after the commit failed', { error });
    }
  }
}

/** An answer that breaks its own schema is our fault: the write rolls back, the caller gets a 500, the log the detail. */
function checkAnswer(row: AdminRow, answer: unknown): unknown {
  const result = row.response.safeParse(answer);
  if (result.success) return result.data;
  throw new Error(`the answer of ${row.id} does not match its schema: ${result.error.message}`);
}

function missingScope(scopes: readonly string[]): SluiceError {
  const list = scopes.join(' or ');
  return new SluiceError('forbidden', `This needs the scope ${list}, which your credential does not have.`);
}

function noParameters(query: Readonly<Record<string, string>>): object {
  const [name] = Object.keys(query);
  if (name === undefined) return {};
  const param = name.replace(/[^\x21-\x7e]/g, '?').slice(0, 64);
  throw new SluiceError('validation', `${param} is not a known parameter; this operation takes none.`, { param });
}

function noBody(body: object): undefined {
  const [name] = Object.keys(body);
  if (name === undefined) return undefined;
  throw new SluiceError('validation', 'This operation takes no body; send none.');
}
