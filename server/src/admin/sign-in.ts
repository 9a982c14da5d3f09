/**
 * The routes of signing in: `/v2/auth/…`, and the same below `/v1`. They are declared here with the schemas of what comes in
 * and goes out; what they do is in `sign-in/` and loaded with the first call.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { ConsoleSession, ConsoleSessions } from '../auth/console-session.ts';
import { readCredential } from '../auth/credential.ts';
import { isSignInToken } from '../auth/key-format.ts';
import type { Principal } from '../auth/principal.ts';
import { Throttle, tooMany } from '../auth/throttle.ts';
import { clientAddress } from '../http/client-address.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { userEmail } from '../resources/fields.ts';
import { readJsonBody } from './json-body.ts';
import { parseQuery } from './query.ts';
import { accessEntry, adminError, adminSuccess, JSON_OK, send } from './respond.ts';
import type { SignInAuth, SignInCall, SignInDeps } from './sign-in/call.ts';
import { validate } from './validate.ts';

export interface SignInAction<B = unknown, Q = unknown, R = unknown, A extends SignInAuth = SignInAuth> {
  /** Unique: `auth.login`. */
  readonly id: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Below `/v1` and `/v2`. */
  readonly path: string;
  readonly summary: string;
  readonly description: string;
  readonly auth: A;
  readonly body: z.ZodType<B> | null;
  readonly query: z.ZodType<Q> | null;
  readonly response: z.ZodType<unknown, R>;
  run(call: SignInCall<B, Q, A>): Promise<R>;
}

/** Ties the types of an action together: what its schemas say is what `run` gets and answers. */
const declare = <B, Q, R, A extends SignInAuth>(own: SignInAction<B, Q, R, A>): SignInAction => own;

const BODY_BYTES = 16_384;
const organisationId = z.uuid().transform((id) => id.toLowerCase());

const LoginBody = z.strictObject({
  email: userEmail
    .optional()
    .describe('Of the user who signs in. A signed-in browser that wants tokens leaves it out.'),
  organisation_id: organisationId.optional(),
  sso_client_id: z.string().min(1).max(255).optional().describe('Id or slug of one of several identity providers.'),
  return_to: z.string().max(2_048).optional().describe('Path of the console to open afterwards. Default `/console/`.'),
});

const pair = {
  auth_token: z.string().describe('For `Authorization: Bearer`, for 15 minutes.'),
  refresh_token: z.string().describe('Gets the next pair, once.'),
};

const LoginAnswer = z.union([
  z.object({
    object: z.literal('login'),
    type: z.literal('oidc'),
    url: z.string().describe('To be opened by the browser that asked.'),
    linked_sso: z.array(z.object({ id: z.string(), name: z.string(), type: z.string() })),
  }),
  z.object({ object: z.literal('login'), type: z.literal('email') }),
  z.object({ object: z.literal('login'), ...pair }),
]);

const login = declare({
  id: 'auth.login',
  method: 'POST',
  path: '/auth/login',
  summary: 'Sign in',
  description:
    'Answers where to go: `url` of an identity provider, or `type: "email"` where a link is mailed if a user has the address. ' +
    'A browser that is signed in gets a pair of tokens instead, when it sends its cookie, its `x-csrf-token` and neither `sso_client_id` nor the address of another user.',
  auth: 'public',
  body: LoginBody,
  query: null,
  response: LoginAnswer,
  run: async (call) => (await import('./sign-in/login.ts')).login(call),
});

const refresh = declare({
  id: 'auth.refresh',
  method: 'POST',
  path: '/auth/refresh',
  summary: 'Get the next pair of tokens',
  description:
    'Uses the refresh token up. A second use of one, also at the same moment, is 401 and ends all tokens of its family. ' +
    'Tokens never outlive the session that they came from.',
  auth: 'public',
  body: z.strictObject({ refresh_token: z.string().max(256), organisation_id: organisationId.optional() }),
  query: null,
  response: z.object({ object: z.literal('refresh'), ...pair }),
  run: async (call) => (await import('./sign-in/tokens.ts')).refresh(call),
});

const validateToken = declare({
  id: 'auth.validate-token',
  method: 'GET',
  path: '/auth/validate-token',
  summary: 'Ask whether the token of a sign-in is alive',
  description: 'Of the auth token in `Authorization: Bearer`, or of the cookie. 200 also for a dead one.',
  auth: 'public',
  body: null,
  query: z.strictObject({ organisation_id: organisationId.optional() }),
  response: z.object({ object: z.literal('validate-token'), is_valid: z.boolean() }),
  run: async (call) => (await import('./sign-in/tokens.ts')).validateToken(call),
});

const logout = declare({
  id: 'auth.logout',
  method: 'POST',
  path: '/auth/logout',
  summary: 'Sign out',
  description:
    'Ends the session with all its tokens; with `everywhere` all sessions of the user. `url`, where it is not null, signs the browser out at the identity provider, too.',
  auth: 'signed_in',
  body: z.strictObject({ everywhere: z.boolean().optional() }),
  query: null,
  response: z.object({ object: z.literal('logout'), url: z.string().nullable() }),
  run: async (call) => (await import('./sign-in/logout.ts')).logout(call),
});

const passkey = z.object({
  object: z.literal('passkey'),
  id: z.string(),
  name: z.string(),
  created_at: z.string(),
  last_used_at: z.string().nullable(),
});
const passkeyOptions = z.object({
  object: z.literal('passkey-options'),
  options: z.record(z.string(), z.unknown()).describe('For the WebAuthn call of the browser.'),
});
/** What a device answered, as browsers write it as JSON. */
const deviceAnswer = z.looseObject({
  id: z.string().max(2_048),
  rawId: z.string().max(2_048),
  type: z.literal('public-key'),
  response: z.looseObject({ clientDataJSON: z.string().max(8_192) }),
  clientExtensionResults: z.looseObject({}),
});
const load = () => import('./sign-in/passkeys.ts');
const BROWSER_ONLY = 'With the cookie of a browser only. Passkeys need https and a name, or localhost.';

const listPasskeys = declare({
  id: 'auth.passkeys.list',
  method: 'GET',
  path: '/auth/passkeys',
  summary: 'List the passkeys of the user',
  description: 'Of the user who is signed in.',
  auth: 'signed_in',
  body: null,
  query: null,
  response: z.object({ object: z.literal('list'), data: z.array(passkey) }),
  run: async (call) => (await load()).list(call),
});

const beginPasskey = declare({
  id: 'auth.passkeys.begin',
  method: 'POST',
  path: '/auth/passkeys/options',
  summary: 'Begin to make a passkey',
  description: BROWSER_ONLY,
  auth: 'signed_in',
  body: z.strictObject({}),
  query: null,
  response: passkeyOptions,
  run: async (call) => (await load()).beginRegistration(call),
});

const registerPasskey = declare({
  id: 'auth.passkeys.create',
  method: 'POST',
  path: '/auth/passkeys',
  summary: 'Store the passkey that a device has made',
  description: BROWSER_ONLY,
  auth: 'signed_in',
  body: z.strictObject({ name: z.string().trim().min(1).max(100), response: deviceAnswer }),
  query: null,
  response: passkey,
  run: async (call) => (await load()).register(call),
});

const deletePasskey = declare({
  id: 'auth.passkeys.delete',
  method: 'DELETE',
  path: '/auth/passkeys',
  summary: 'Delete a passkey of the user',
  description: BROWSER_ONLY,
  auth: 'signed_in',
  body: null,
  query: z.strictObject({ id: z.string().max(2_048) }),
  response: z.object({}),
  run: async (call) => (await load()).remove(call),
});

const beginPasskeyLogin = declare({
  id: 'auth.passkey-login.begin',
  method: 'POST',
  path: '/auth/passkey-login/options',
  summary: 'Begin to sign in with a passkey',
  description: 'Sets the cookie that ties the challenge to the browser. It is good for five minutes.',
  auth: 'public',
  body: z.strictObject({}),
  query: null,
  response: passkeyOptions,
  run: async (call) => (await load()).beginSignIn(call),
});

const passkeyLogin = declare({
  id: 'auth.passkey-login',
  method: 'POST',
  path: '/auth/passkey-login',
  summary: 'Sign in with a passkey',
  description: 'Sets the session cookie. A device whose counter has not risen is refused.',
  auth: 'public',
  body: z.strictObject({ response: deviceAnswer }),
  query: null,
  response: z.object({ object: z.literal('login'), type: z.literal('passkey') }),
  run: async (call) => (await load()).signIn(call),
});

/** All of them. */
export const SIGN_IN_ACTIONS: readonly SignInAction[] = [
  login,
  refresh,
  validateToken,
  logout,
  listPasskeys,
  beginPasskey,
  registerPasskey,
  deletePasskey,
  beginPasskeyLogin,
  passkeyLogin,
];

/** Routes that are no JSON calls (`sign-in/provider-routes.ts`), below `/v2` only. `oidc/openapi.ts` documents them. */
export const PROVIDER_ROUTES = [
  ['GET', '/v2/auth/callback', 'auth.callback', 'callback'],
  ['GET', '/v2/auth/jwks/:ssoClientId', 'auth.jwks', 'publicKeys'],
  ['POST', '/v2/auth/backchannel-logout/:ssoClientId', 'auth.backchannel-logout', 'backChannelLogout'],
] as const;
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

function registerProviderRoutes(app: FastifyInstance, deps: SignInDeps): void {
  const failures = new Throttle(deps.clock);
  /** Answers what `answer` throws, and tells the access log. */
  const serveWith = async (request: FastifyRequest, reply: FastifyReply, answer: () => Promise<unknown>) => {
    const id = uuidv7(deps.clock);
    const began = deps.clock.monotonic();
    let error: unknown;
    try {
      await answer();
    } catch (thrown) {
      error = thrown;
      send(reply, adminError(thrown, id, deps.log));
    }
    const { statusCode: status } = reply;
    // Providers are refused in the words of their standard, without an error of ours.
    if (status >= 400) error ??= new SluiceError('validation', 'The request was refused.');
    tellAccess(deps, request, { id, began, status, error });
    return reply;
  };
  for (const [method, url, operation, handler] of PROVIDER_ROUTES) {
    deps.paths.know(method, url);
    app.route({
      method,
      url,
      exposeHeadRoute: false,
      config: { operation },
      onRequest: (request, reply) =>
        serveWith(request, reply, async () => {
          const routes = await import('./sign-in/provider-routes.ts');
          await routes[handler]({ deps, failures, request, reply });
        }),
      handler: async () => undefined,
    });
    // HEAD too: it must not use a sign-in up.
    app.route({
      method: METHODS.filter((other) => other !== method),
      url,
      exposeHeadRoute: false,
      onRequest: (request, reply) =>
        serveWith(request, reply.header('allow', method), async () => {
          throw new SluiceError('method_not_allowed', `This path answers ${method} only.`);
        }),
      handler: async () => undefined,
    });
  }
}

/** Registers the routes on `app`. */
export function registerSignIn(app: FastifyInstance, deps: SignInDeps): void {
  registerProviderRoutes(app, deps);
  for (const action of SIGN_IN_ACTIONS) {
    for (const url of [`/v2${action.path}`, `/v1${action.path}`]) {
      deps.paths.know(action.method, url);
      app.route({
        method: action.method === 'GET' ? ['GET', 'HEAD'] : action.method,
        url,
        exposeHeadRoute: false,
        config: { operation: action.id },
        onRequest: (request, reply) => serve(deps, action, request, reply),
        handler: async () => undefined,
      });
    }
  }
}

async function serve(deps: SignInDeps, action: SignInAction, request: FastifyRequest, reply: FastifyReply) {
  const id = uuidv7(deps.clock);
  const began = deps.clock.monotonic();
  let error: unknown;
  let answer: ReturnType<typeof adminSuccess>;
  try {
    answer = adminSuccess(JSON_OK, await perform(deps, action, request, reply), id);
  } catch (thrown) {
    error = thrown;
    answer = adminError(thrown, id, deps.log);
  }
  tellAccess(deps, request, { id, began, status: answer.status, error });
  return send(reply.header('referrer-policy', 'no-referrer'), answer);
}

/** @param answered with `began`, the monotonic time of its begin */
function tellAccess(
  { accessLog, clock }: SignInDeps,
  request: FastifyRequest,
  answered: { readonly id: string; readonly began: number; readonly status: number; readonly error: unknown },
): void {
  const { id, began, status, error } = answered;
  if (accessLog === null || !(accessLog.all || error !== undefined)) return;
  accessLog.write(accessEntry(request.raw, id, { status, error }, null, clock.monotonic() - began));
}

/** Who calls is known before a body is read, and how often before that. */
async function perform(deps: SignInDeps, action: SignInAction, request: FastifyRequest, reply: FastifyReply) {
  const { allowed, retryAfter } = await deps.limiter(clientAddress(request.raw));
  if (!allowed) throw tooMany(retryAfter * 1_000, 'Too many sign-in requests from your address. Wait before the next.');
  const session = action.auth === 'signed_in' ? await signedIn(deps, request) : null;
  const { origin } = request.headers;
  // Programs send none; a browser does, and no foreign page may sign its user in.
  if (action.method !== 'GET' && origin !== undefined) deps.sessions.checkOrigin(origin);
  const query = action.query === null ? undefined : validate(action.query, { ...parseQuery(request.raw.url ?? '') });
  if (Number(request.headers['content-length'] ?? 0) > BODY_BYTES) {
    throw new SluiceError('too_large', `The body is larger than ${BODY_BYTES} bytes.`);
  }
  const body = action.body === null ? undefined : validate(action.body, (await readJsonBody(request.raw)) ?? {});
  const find = () => findSignIn(deps.sessions, readCredential(request.raw.rawHeaders), request, false);
  return action.response.parse(await action.run({ deps, body, query, session, signedIn: find, request, reply }));
}

async function signedIn({ sessions }: SignInDeps, request: FastifyRequest): Promise<ConsoleSession> {
  const session = await findSignIn(sessions, readCredential(request.raw.rawHeaders), request, true);
  if (session === null) throw new SluiceError('unauthenticated', SIGN_IN);
  return session;
}

export type SignIns = Pick<ConsoleSessions, 'authenticate' | 'find' | 'findBearer' | 'cookies'>;

/** Of a request what its sign-in is found by. */
export type SignInRequest = Pick<FastifyRequest, 'headers' | 'method' | 'raw'>;

/** How to come in where only a sign-in counts. */
export const SIGN_IN =
  'Sign in: send the cookie of the console, or Authorization: Bearer with the auth_token of a sign-in.';

/**
 * The sign-in of a request, or null. A token of a sign-in and a cookie of another user are 400, as are a key and a cookie
 * (`isSame`). A session cookie that is sent twice is 401: which of them the caller means must not be guessed. A write with
 * the cookie needs CSRF token and Origin, unless a key of the same user answers for it.
 *
 * @param token the credential of the headers, of whatever kind
 * @param alone whether nothing but the sign-in counts, whatever key was sent beside it
 */
export async function findSignIn(
  sessions: SignIns,
  token: string | null,
  request: SignInRequest,
  alone = token === null,
): Promise<ConsoleSession | null> {
  const { cookie } = request.headers;
  if (sessions.cookies.sessionToken(cookie).several) {
    throw new SluiceError('unauthenticated', 'The session cookie was sent more than once. Remove the others.');
  }
  if (token !== null && isSignInToken(token)) {
    const [found, browser] = [
      await sessions.findBearer(token, clientAddress(request.raw)),
      await sessions.find(cookie),
    ];
    if (found !== null && browser !== null && !isSame(found.principal, browser.principal)) throw differentCallers();
    return found;
  }
  const found = await sessions.find(cookie);
  if (found === null || !alone) return found;
  const csrf = request.headers['x-csrf-token'];
  return sessions.authenticate({
    method: request.method,
    cookie,
    origin: request.headers.origin,
    csrf: Array.isArray(csrf) ? undefined : csrf,
  });
}

/** Whether two credentials of one request are of one user. */
export const isSame = (one: Principal, other: Principal): boolean =>
  one.organisationId === other.organisationId && one.userId !== null && one.userId === other.userId;

export const differentCallers = () =>
  new SluiceError('validation', 'The cookie and the other credential are of different callers. Send one of them.');
