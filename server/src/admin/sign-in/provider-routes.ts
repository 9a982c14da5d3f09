/** The routes of signing in that are no JSON calls: the return of a browser, public keys, sign-out by a provider. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { tokenDigest } from '../../auth/session-rows.ts';
import type { SsoDeed, SsoError, WriteAudit } from '../../auth/sso.ts';
import { type Throttle, tooMany } from '../../auth/throttle.ts';
import { clientAddress } from '../../http/client-address.ts';
import { hasUnreadBody } from '../../http/read-body.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { appendAudit } from '../../resources/audit-logs/chain.ts';
import { isUuid } from '../../resources/fields.ts';
import { consoleEntry } from '../audit.ts';
import { readFormBody } from '../json-body.ts';
import type { SignInDeps } from './call.ts';

export interface ProviderRoute {
  readonly deps: SignInDeps;
  /** Of failures, by client address. */
  readonly failures: Throttle;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** A code of the fixed list is all that the sign-in page learns. */
type PageError = SsoError | 'too_many' | 'unavailable';

/** `GET /v2/auth/callback`: always a redirect into the console, so that no address with a code stays in a history. */
export async function callback(route: ProviderRoute): Promise<FastifyReply> {
  const { reply } = route;
  const { to, cookies } = await outcomeOf(route);
  for (const cookie of cookies) reply.header('set-cookie', cookie);
  return reply
    .headers({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer', 'x-content-type-options': 'nosniff' })
    .redirect(to, 302);
}

async function outcomeOf({ deps, failures, request }: ProviderRoute): Promise<{ to: string; cookies: string[] }> {
  const { sessions, log } = deps;
  const refused = (error: PageError) => ({ to: `/console/sign-in?error=${error}`, cookies: [] });
  const address = clientAddress(request.raw);
  if (!failures.mayLook(address) || !(await deps.limiter(address)).allowed) return refused('too_many');
  const { cookie, 'user-agent': userAgent } = request.headers;
  const { cookies } = sessions;
  const { token: before } = cookies.sessionToken(cookie);
  const url = request.raw.url ?? '';
  const at = url.indexOf('?');
  try {
    const sso = await deps.sso();
    const outcome = await sso.finish({
      query: at === -1 ? '' : url.slice(at + 1),
      browser: cookies.loginDigest(cookie),
      replaces: before === null ? null : tokenDigest(before),
      userAgent,
      publicUrl: deps.publicUrl().replace(/\/+$/, ''),
      audit: auditOf(deps, request),
    });
    if (outcome.ok) return { to: outcome.returnTo, cookies: [cookies.setSession(outcome.token), cookies.endLogin()] };
    failures.failed(address);
    return refused(failures.blockedFor(address) > 0 ? 'too_many' : outcome.error);
  } catch (error) {
    log.error('a sign-in failed', { error });
    return refused('unavailable');
  }
}

function auditOf(deps: SignInDeps, request: FastifyRequest): WriteAudit {
  const { clock, vault } = deps;
  return async (tx, deed: SsoDeed) => {
    const { action: resource, organisationId, userId, resourceId, status, after } = deed;
    const change = { before: null, after };
    const action = resource === 'auth.sign_out' ? 'delete' : 'create';
    const own = { request, action, resource, organisationId, userId, resourceId, status, change } as const;
    await appendAudit(tx, vault, consoleEntry({ clock, vault }, own));
  };
}

/** `GET /v2/auth/jwks/{sso_client_id}`: the public keys that a client's assertions are checked with. */
export async function publicKeys({ deps, request, reply }: ProviderRoute): Promise<FastifyReply> {
  await admit(deps, request);
  const { ssoClientId: id } = request.params as { readonly ssoClientId: string };
  const client = isUuid(id)
    ? await deps.tables.systemRead((tx) =>
        tx.find('sso_clients', { id: id.toLowerCase(), status: { not: 'archived' } }),
      )
    : undefined;
  if (client === undefined || client.published_keys === null) {
    throw new SluiceError('not_found', 'There are no keys at this address.');
  }
  return reply.header('cache-control', 'public, max-age=300').send({ keys: client.published_keys });
}

/** Throws `throttled`. */
async function admit(deps: SignInDeps, request: FastifyRequest, use?: 'provider-logout'): Promise<void> {
  const { allowed, retryAfter } = await deps.limiter(clientAddress(request.raw), use);
  if (!allowed) throw tooMany(retryAfter * 1_000, 'Too many requests from your address. Wait before the next.');
}

/** `POST /v2/auth/backchannel-logout/{sso_client_id}`: a provider says that a session there has ended. */
export async function backChannelLogout({ deps, failures, request, reply }: ProviderRoute): Promise<FastifyReply> {
  reply.header('cache-control', 'no-store');
  await admit(deps, request, 'provider-logout');
  const address = clientAddress(request.raw);
  const { ssoClientId: id } = request.params as { readonly ssoClientId: string };
  const good = failures.mayLook(address) && isUuid(id) && (await isGood(deps, request, id.toLowerCase()));
  if (good) return reply.code(200).send('');
  failures.failed(address);
  if (hasUnreadBody(request.raw)) reply.header('connection', 'close');
  return reply.code(400).send({ error: 'invalid_request' });
}

/** A logout token has a few hundred bytes. */
const LOGOUT_BYTES = 65_536;

async function isGood(deps: SignInDeps, request: FastifyRequest, id: string): Promise<boolean> {
  let token: unknown;
  try {
    token = (await readFormBody(request.raw, deps.clock, LOGOUT_BYTES))?.logout_token;
  } catch (error) {
    if (error instanceof SluiceError) return false;
    throw error;
  }
  return typeof token === 'string' && (await deps.sso()).backChannelLogout(id, token, auditOf(deps, request));
}
