/** `POST /v2/auth/login`: where a browser signs in, or a pair of tokens for one that is signed in. */
import { createPair } from '../../auth/session-families.ts';
import { tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Login, LoginAnswer, SignInCall } from './call.ts';
import { findSsoClient, startOidc } from './sso.ts';

type Call = SignInCall<Login, unknown, 'public'>;

export async function login(call: Call): Promise<LoginAnswer> {
  const { deps, body, request, reply } = call;
  const tokens = await tokensOf(call);
  if (tokens !== null) return tokens;
  const { email } = body;
  if (email === undefined) {
    const message = 'email is missing. Only a browser that is signed in leaves it out.';
    throw new SluiceError('validation', message, { param: 'email' });
  }
  const asked = { ...body, email };
  const client = await findSsoClient(deps, asked);
  if (client === null && !deps.mailedLinks.available) throw unknownWay();
  const browser = deps.sessions.cookies.newLogin();
  let answer: LoginAnswer;
  if (client === null) {
    // The same for every address, and before anything is looked up: it tells nothing about who is a user.
    const organisationId = body.organisation_id ?? null;
    await deps.mailedLinks.ask(email, request, { browser: browser.digest, organisationId });
    answer = { object: 'login', type: 'email' };
  } else answer = await startOidc(deps, client, { ...asked, browser: browser.digest });
  reply.header('set-cookie', browser.setCookie);
  return answer;
}

const unknownWay = () =>
  new SluiceError(
    'unknown_reference',
    'No identity provider is set up for this address, and this Sluice mails no links. Ask an administrator for a sign-in link.',
    { param: 'email' },
  );

/** A token pair for a signed-in browser that names no other user; null for all others. */
async function tokensOf({ deps, body, request }: Call): Promise<LoginAnswer | null> {
  const { sessions, tables, clock } = deps;
  const found = body.sso_client_id === undefined ? await sessions.find(request.headers.cookie) : null;
  if (found === null) return null;
  const { organisationId, userId } = found.principal;
  const tenant = tenantOf(found.principal);
  if (body.organisation_id !== undefined && body.organisation_id !== organisationId) return null;
  if (body.email !== undefined) {
    const user = await tables.read(tenant, (tx) => tx.find('users', { id: userId ?? '' }));
    if (user?.email !== body.email) return null;
  }
  const { 'x-csrf-token': csrf, origin, cookie } = request.headers;
  const sent = { method: 'POST', cookie, origin, csrf: Array.isArray(csrf) ? undefined : csrf };
  const { digest: session, expiresAt } = await sessions.authenticate(sent);
  const pair = await tables.write(tenant, (tx) => createPair(tx, clock, { organisationId, session, expiresAt }));
  return { object: 'login', ...pair };
}
