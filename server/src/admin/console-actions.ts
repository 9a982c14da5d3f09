/**
 * The calls that only the console makes, each declared with the schemas of what comes in and what goes out. `console.ts`
 * has the one handler over them; `consoleDocument` (`openapi.ts`) describes them, for the console only.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { authSettingsOf } from '../auth/auth-settings.ts';
import type { ConsoleSession, ConsoleSessions, LinkUser, SigningIn, Within } from '../auth/console-session.ts';
import type { Principal } from '../auth/principal.ts';
import { systemTenant, tenantOf } from '../auth/tenant.ts';
import { clientAddress } from '../http/client-address.ts';
import { personName } from '../resources/admin/person-name.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import { toIso } from '../resources/body-fields.ts';
import { userEmail } from '../resources/fields.ts';
import type { Method } from '../resources/resource.ts';
import type { StoredLog, StoredRecords } from '../store/ports.ts';
import type { AddressChangeDeps } from './address-change.ts';
import { consoleEntry, type EntryDeps } from './audit.ts';
import type { Invitations } from './invitations.ts';
import type { MailedLinks } from './mailed-links.ts';

/** What the pages that give access to programs ask of the OAuth server. Every call throws 404 for what is not the session's. */
export interface AccessQuestions {
  /** What a program asks for; `resume`: as the address of the page has it. */
  question(
    resume: string,
    session: ConsoleSession,
  ): Promise<{
    readonly question: {
      readonly client: {
        readonly id: string;
        readonly name: string;
        readonly uri: string | null;
        readonly document: boolean;
      };
      readonly redirect_host: string;
      readonly local: boolean;
      readonly scopes: readonly string[];
      readonly resource: string;
      /** Milliseconds since the epoch. */
      readonly expires_at: number;
    };
  }>;
  /** The address that the browser goes to with the answer. */
  decide(decision: z.output<typeof DecisionBody>, session: ConsoleSession, request: FastifyRequest): Promise<string>;
  lookAtDevice(
    userCode: string,
    session: ConsoleSession,
  ): Promise<{ readonly client_id: string; readonly address: string; readonly created_at: number }>;
  decideDevice(userCode: string, approved: boolean, session: ConsoleSession, request: FastifyRequest): Promise<void>;
}

const DecisionBody = z.strictObject({
  approved: z.boolean(),
  resume_state: z.string().max(256),
  organisation_id: z.uuid(),
  workspace_id: z.uuid().optional(),
});
const userCode = z.string().max(64);

/** What the calls of the console work with. */
export interface ConsoleCallDeps {
  readonly sessions: ConsoleSessions;
  readonly invitations: Pick<Invitations, 'look' | 'accept'>;
  readonly mailedLinks: Pick<MailedLinks, 'available' | 'ask'>;
  readonly addresses: AddressChangeDeps;
  /** Loaded with its first use. */
  readonly oauth: () => Promise<AccessQuestions>;
  /** Clock and signature of audit rows. */
  readonly audit: EntryDeps;
  /** Request logs, for the record that the console shows beside an answer. */
  readonly records: Pick<StoredRecords, 'ofTrace'>;
  /** SLUICE_PUBLIC_URL without a trailing slash; a function because a free port is known only after listening. */
  readonly publicUrl: () => string;
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

/** Who may call: a signed-in user, with the CSRF token for writes, or everyone, whose writes need the right Origin. */
type ConsoleAuth = 'public' | 'login';

/** How an answer is written. `relayed`: `run` answers on `reply` itself, and the answer is the data plane's. */
export type ConsoleAnswer<R> =
  | { readonly as: 'json'; readonly status: 200 | 202; readonly schema: z.ZodType<unknown, R> }
  | { readonly as: 'nothing' }
  | { readonly as: 'relayed' };

export interface ConsoleAction<P = unknown, B = unknown, R = unknown, L extends ConsoleAuth = ConsoleAuth> {
  /** Unique: `console.session.read`. */
  readonly id: string;
  readonly method: Method;
  /** Complete, fastify syntax: `/console/api/records/:traceId`. */
  readonly path: string;
  readonly summary: string;
  readonly auth: L;
  readonly params: z.ZodType<P> | null;
  readonly body: z.ZodType<B> | null;
  /** Default 4 KiB. */
  readonly bodyBytes?: number;
  readonly answer: ConsoleAnswer<R>;
  run(call: ConsoleCall<P, B, L>): Promise<R>;
}

export interface ConsoleCall<P, B, L extends ConsoleAuth> {
  readonly deps: ConsoleCallDeps;
  readonly params: P;
  readonly body: B;
  readonly session: L extends 'login' ? ConsoleSession : null;
  readonly request: FastifyRequest;
  /** For cookies. */
  readonly reply: FastifyReply;
}

/** Ties the types of an action together: what its schemas say is what `run` gets and answers. */
const declare = <P, B, R, L extends ConsoleAuth>(own: ConsoleAction<P, B, R, L>): ConsoleAction => own;

const NO_INPUT = { params: null, body: null } as const;
const NOTHING = { as: 'nothing' } as const;
const json = <R>(schema: z.ZodType<unknown, R>, status: 200 | 202 = 200) => ({ as: 'json', status, schema }) as const;

const TRY_BODY_BYTES = 262_144;
/** Newest records of a trace id that are searched for the user's own: callers choose trace ids, so others may have it. */
const MOST_OF_A_TRACE = 100;
/** How far back the page looks for what it has just sent. */
const BACK_MS = 24 * 3_600_000;

const place = z.object({ id: z.string(), slug: z.string(), name: z.string() }).meta({ title: 'ConsoleWorkspace' });

const session = z
  .object({
    object: z.literal('console_session'),
    user: z.object({
      id: z.string(),
      email: z.string(),
      first_name: z.string(),
      last_name: z.string(),
      role: z.enum(['owner', 'admin', 'member']),
    }),
    organisation: z.object({ id: z.string(), name: z.string() }),
    workspaces: z.array(place),
    scopes: z.array(z.string()).describe('Of the role; for members those that they have in any of their workspaces.'),
    base_url: z.string().describe('Of the data plane, with `/v1`.'),
    csrf_token: z.string(),
    expires_at: z.string(),
  })
  .meta({ title: 'ConsoleSession' });

const invite = z
  .object({
    object: z.literal('console_invite'),
    organisation: z.object({ name: z.string() }),
    email: z.string(),
    role: z.enum(['admin', 'member']),
    workspaces: z.array(z.object({ slug: z.string(), name: z.string(), role: z.enum(['admin', 'manager', 'member']) })),
    expires_at: z.string(),
  })
  .meta({ title: 'ConsoleInvite' });

const acceptance = z
  .object({
    object: z.literal('console_acceptance'),
    session,
    api_keys: z.array(z.object({ id: z.string(), key: z.string().describe('Whole, this once.'), workspace: place })),
  })
  .meta({ title: 'ConsoleAcceptance' });

const access = z
  .object({
    object: z.literal('console_access'),
    client: z.object({
      id: z.string(),
      name: z.string(),
      uri: z.string().nullable(),
      document: z.boolean().describe('The id is the address of a document that the program has published.'),
    }),
    redirect_host: z.string().describe('Where the answer goes.'),
    local: z.boolean().describe('It goes to a program on this machine.'),
    scopes: z.array(z.string()),
    resource: z.string().describe('Address of the MCP server or agent.'),
    expires_at: z.string(),
  })
  .meta({ title: 'ConsoleAccess' });

/** Of a `telemetry/record.ts` LogRecord. */
const record = z
  .object({
    id: z.string(),
    trace_id: z.string(),
    status: z.number(),
    outcome: z.enum(['ok', 'refused', 'failed', 'aborted']),
    provider: z.string().nullable(),
    model_answered: z.string().nullable(),
    usage: z.record(z.string(), z.unknown()).nullable(),
    usage_estimated: z.boolean(),
    cost_micros: z.number().nullable().describe('Micro-dollars; null without a known price.'),
    latency_ms: z.number(),
    ttft_ms: z.number().nullable(),
    attempts: z.int(),
  })
  .meta({ title: 'ConsoleRecord' });

const signInOptions = declare({
  ...NO_INPUT,
  id: 'console.sign-in.read',
  method: 'GET',
  path: '/console/api/sign-in',
  summary: 'Read what the sign-in page offers',
  auth: 'public',
  answer: json(z.object({ object: z.literal('console_sign_in'), mailed_links: z.boolean(), passkeys: z.boolean() })),
  run: async ({ deps }) => ({
    object: 'console_sign_in',
    mailed_links: deps.mailedLinks.available,
    passkeys: deps.sessions.passkeyHost !== null,
  }),
});

const mailLink = declare({
  ...NO_INPUT,
  id: 'console.sign-in-link.create',
  method: 'POST',
  path: '/console/api/sign-in-link',
  summary: 'Mail a sign-in link; the answer is the same whether or not a user has the address',
  auth: 'public',
  body: z.strictObject({ email: userEmail }),
  answer: json(z.object({ object: z.literal('console_sign_in_link') }), 202),
  run: async ({ deps, body, request, reply }) => {
    const login = deps.sessions.cookies.newLogin();
    await deps.mailedLinks.ask(body.email, request, { browser: login.digest });
    reply.header('set-cookie', login.setCookie);
    return { object: 'console_sign_in_link' };
  },
});

const signIn = declare({
  ...NO_INPUT,
  id: 'console.session.create',
  method: 'POST',
  path: '/console/api/session',
  summary: 'Exchange a one-time token for a session',
  auth: 'public',
  body: z.strictObject({ token: z.string().max(256) }),
  answer: json(session),
  run: async ({ deps, body, request, reply }) => {
    const within = recorded(deps, request, 'create');
    const from = { ...browserOf(request), onRefused: failed(deps, request) };
    const signedIn = await deps.sessions.exchange(body.token, from, within);
    reply.header('set-cookie', deps.sessions.setCookie(signedIn.token));
    return present(deps, signedIn.session);
  },
});

const readSession = declare({
  ...NO_INPUT,
  id: 'console.session.read',
  method: 'GET',
  path: '/console/api/session',
  summary: 'Read the session of this browser',
  auth: 'login',
  answer: json(session),
  run: async ({ deps, session: own }) => present(deps, own),
});

const signOut = declare({
  ...NO_INPUT,
  id: 'console.session.delete',
  method: 'DELETE',
  path: '/console/api/session',
  summary: 'Sign out',
  auth: 'login',
  answer: NOTHING,
  run: async ({ deps, session: own, request, reply }) => {
    await deps.sessions.signOut(own, recorded(deps, request, 'delete'));
    reply.header('set-cookie', deps.sessions.setCookie(null));
  },
});

const confirmEmail = declare({
  ...NO_INPUT,
  id: 'console.email.update',
  method: 'POST',
  path: '/console/api/email',
  summary: 'Confirm a new address with the token that was mailed to it',
  auth: 'login',
  body: z.strictObject({ token: z.string().max(1_024) }),
  answer: json(z.object({ object: z.literal('console_email'), email: z.string() })),
  run: async ({ deps, session: own, body, request }) => {
    const { confirmAddress } = await import('./address-change.ts');
    const email = await confirmAddress(deps.addresses, own, body.token, request);
    deps.sessions.invalidate();
    return { object: 'console_email', email };
  },
});

/** Not GET: an address must not hold the token. */
const readInvite = declare({
  ...NO_INPUT,
  id: 'console.invite.read',
  method: 'POST',
  path: '/console/api/invite',
  summary: 'Read what the invite of a link offers',
  auth: 'public',
  body: z.strictObject({ token: z.string().max(256) }),
  answer: json(invite),
  run: async ({ deps, body, request }) => {
    const offered = await deps.invitations.look(body.token, clientAddress(request.raw));
    return {
      object: 'console_invite',
      organisation: { name: offered.organisation.name },
      email: offered.invite.email,
      role: offered.invite.role,
      workspaces: [...offered.workspaces],
      expires_at: toIso(offered.invite.expires_at),
    };
  },
});

const acceptInvite = declare({
  ...NO_INPUT,
  id: 'console.invite.accept',
  method: 'POST',
  path: '/console/api/invite/acceptance',
  summary: 'Accept an invite and sign in',
  auth: 'public',
  body: z.strictObject({ token: z.string().max(256), first_name: personName, last_name: personName }),
  answer: json(acceptance),
  run: async ({ deps, body, request, reply }) => {
    const { accepted, token, session: own } = await deps.invitations.accept(body, request);
    reply.header('set-cookie', deps.sessions.setCookie(token));
    return { object: 'console_acceptance', session: await present(deps, own), api_keys: [...accepted.keys] };
  },
});

const tryIt = declare({
  ...NO_INPUT,
  id: 'console.try',
  method: 'POST',
  path: '/console/api/try',
  summary: 'Send a chat completion through the data plane as the signed-in user',
  auth: 'login',
  body: z.strictObject({ workspace_id: z.uuid(), request: z.record(z.string(), z.unknown()) }),
  bodyBytes: TRY_BODY_BYTES,
  answer: { as: 'relayed' },
  run: async ({ deps, session: own, body, request, reply }) => {
    const principal = await deps.sessions.inWorkspace(own.principal, body.workspace_id);
    return deps.tryRequest(request, reply, principal, Buffer.from(JSON.stringify(body.request)));
  },
});

const readRecord = declare({
  ...NO_INPUT,
  id: 'console.records.read',
  method: 'GET',
  path: '/console/api/records/:traceId',
  summary: 'Read the stored record of a request of the signed-in user; null while it is on its way to the store',
  auth: 'login',
  params: z.strictObject({ traceId: z.string().min(1).max(256) }),
  answer: json(z.object({ object: z.literal('console_record'), record: record.nullable() })),
  run: async ({ deps, session: own, params }) => {
    const since = deps.audit.clock.now() - BACK_MS;
    const rows = await deps.records.ofTrace(tenantOf(own.principal), params.traceId, since, MOST_OF_A_TRACE);
    // Only the user's own requests: everyone else's need the logs scopes of the administration API. A record is stored
    // moments after its answer, so "none" is an ordinary answer and the page asks again.
    const found = rows.find(({ user_id }) => user_id === own.principal.userId);
    return { object: 'console_record', record: found === undefined ? null : presentRecord(found) };
  },
});

/** Not GET: it ties the request to this session, and an address must not hold the state. */
const readAccess = declare({
  ...NO_INPUT,
  id: 'console.access.read',
  method: 'POST',
  path: '/console/api/access',
  summary: 'Read what a program asks for',
  auth: 'login',
  body: z.strictObject({ resume_state: z.string().max(256) }),
  answer: json(access),
  run: async ({ deps, session: own, body }) => {
    const { question } = await (await deps.oauth()).question(body.resume_state, own);
    const { client, redirect_host, local, resource, scopes, expires_at } = question;
    return {
      object: 'console_access',
      client,
      ...{ redirect_host, local, resource, scopes: [...scopes] },
      expires_at: toIso(expires_at),
    };
  },
});

/** The path is that of the protocol; only the consent page calls it. */
const decideAccess = declare({
  ...NO_INPUT,
  id: 'console.access.decide',
  method: 'POST',
  path: '/v2/oauth/authorize',
  summary: 'Answer a program that asks for access',
  auth: 'login',
  body: DecisionBody,
  answer: json(z.object({ redirect_uri: z.string() })),
  run: async ({ deps, session: own, body, request }) => ({
    redirect_uri: await (await deps.oauth()).decide(body, own, request),
  }),
});

const readDevice = declare({
  ...NO_INPUT,
  id: 'console.device.read',
  method: 'POST',
  path: '/console/api/device',
  summary: 'Read which command line waits with a code',
  auth: 'login',
  body: z.strictObject({ user_code: userCode }),
  answer: json(
    z.object({
      object: z.literal('console_device'),
      client_id: z.string(),
      address: z.string(),
      created_at: z.string(),
    }),
  ),
  run: async ({ deps, session: own, body }) => {
    const { client_id, address, created_at } = await (await deps.oauth()).lookAtDevice(body.user_code, own);
    return { object: 'console_device', client_id, address, created_at: toIso(created_at) };
  },
});

const decideDevice = declare({
  ...NO_INPUT,
  id: 'console.device.decide',
  method: 'POST',
  path: '/console/api/device/decision',
  summary: 'Sign a command line in, or refuse it',
  auth: 'login',
  body: z.strictObject({ user_code: userCode, approved: z.boolean() }),
  answer: NOTHING,
  run: async ({ deps, session: own, body, request }) => {
    await (await deps.oauth()).decideDevice(body.user_code, body.approved, own, request);
  },
});

/** All of them. */
export const CONSOLE_ACTIONS: readonly ConsoleAction[] = [
  signInOptions,
  mailLink,
  signIn,
  readSession,
  signOut,
  readInvite,
  acceptInvite,
  confirmEmail,
  tryIt,
  readRecord,
  readAccess,
  decideAccess,
  readDevice,
  decideDevice,
];

/** The audit row of a sign-in or sign-out. */
function recorded(deps: ConsoleCallDeps, request: FastifyRequest, action: 'create' | 'delete'): Within {
  return async (tx, user) => {
    const who = { organisationId: user.organisation_id, userId: user.id, resourceId: user.id };
    if (action === 'delete') {
      const deed = { request, action, resource: 'auth.sign_out', ...who };
      return appendAudit(tx, deps.audit.vault, consoleEntry(deps.audit, deed));
    }
    const organisation = await tx.find('organisations', { id: user.organisation_id });
    // An owner who comes in by a link although all others use an identity provider: worth a look.
    const past = organisation !== undefined && authSettingsOf(organisation).disableLinkSignIn;
    const change = { before: null, after: { by: 'link', ...(past && { break_glass: true }) } };
    const deed = { request, action, resource: 'auth.sign_in', change, ...who };
    return appendAudit(tx, deps.audit.vault, consoleEntry(deps.audit, deed));
  };
}

/** Writes the audit row of a link that was known and refused. */
function failed({ addresses: { tables }, audit }: ConsoleCallDeps, request: FastifyRequest) {
  return async (user: LinkUser): Promise<void> => {
    const who = { organisationId: user.organisation_id, userId: user.id, resourceId: user.id };
    const deed = { request, action: 'create', resource: 'auth.sign_in_failed', status: 401 } as const;
    const entry = consoleEntry(audit, { ...deed, ...who });
    const queue = user.organisation_id;
    await tables.write(systemTenant(queue), (tx) => appendAudit(tx, audit.vault, entry), { queue });
  };
}

/** The browser that a request of a sign-in comes from. */
const browserOf = (request: FastifyRequest): SigningIn => ({
  address: clientAddress(request.raw),
  cookie: request.headers.cookie,
  userAgent: request.headers['user-agent'],
});

async function present(deps: ConsoleCallDeps, own: ConsoleSession): Promise<z.input<typeof session>> {
  const { principal } = own;
  const { organisation, user, workspaces } = await deps.sessions.describe(principal);
  return {
    object: 'console_session',
    user: {
      id: principal.userId ?? '',
      email: user?.email ?? '',
      first_name: user?.first_name ?? '',
      last_name: user?.last_name ?? '',
      role: principal.role ?? 'member',
    },
    organisation: { id: principal.organisationId, name: organisation?.name ?? '' },
    workspaces,
    scopes: await scopesOf(deps, principal, workspaces),
    base_url: `${deps.publicUrl().replace(/\/+$/, '')}/v1`,
    csrf_token: own.csrf,
    expires_at: toIso(own.expiresAt),
  };
}

/** Workspaces whose scopes a member's session names: a page that has none of them in another one says so itself. */
const MOST_ASKED = 20;

async function scopesOf(deps: ConsoleCallDeps, principal: Principal, workspaces: readonly { id: string }[]) {
  const scopes = new Set(principal.scopes);
  if (principal.role === 'member') {
    for (const { id } of workspaces.slice(0, MOST_ASKED)) {
      for (const scope of (await deps.sessions.inWorkspace(principal, id)).scopes) scopes.add(scope);
    }
  }
  return [...scopes].sort();
}

const presentRecord = (row: StoredLog): z.input<typeof record> =>
  record.parse({ ...row, attempts: Array.isArray(row.attempts) ? row.attempts.length : 0 });
