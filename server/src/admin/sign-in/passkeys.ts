/** The routes of passkeys. */
import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server';
import type { ConsoleSession } from '../../auth/console-session.ts';
import { registerPasskey, registrationOptions, signInOptions, signInWithPasskey } from '../../auth/passkeys.ts';
import { systemTenant, tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { appendAudit } from '../../resources/audit-logs/chain.ts';
import { toIso, toIsoOrNull } from '../../resources/body-fields.ts';
import { notFound } from '../../resources/look-up.ts';
import type { Row } from '../../store/schema.ts';
import { consoleEntry } from '../audit.ts';
import type { SignInCall } from './call.ts';

type SignedIn<B = unknown, Q = unknown> = SignInCall<B, Q, 'signed_in'>;
type Public<B = unknown> = SignInCall<B, unknown, 'public'>;

/** A passkey outlives tokens: a program that was given one must not make it. */
function inBrowser(session: ConsoleSession): ConsoleSession {
  if (session.csrf !== '') return session;
  throw new SluiceError('forbidden', 'Passkeys are made and deleted in a browser that is signed in, not with a token.');
}

const shown = ({ id, name, created_at, last_used_at }: Row<'passkeys'>) => ({
  object: 'passkey' as const,
  id,
  name,
  created_at: toIso(created_at),
  last_used_at: toIsoOrNull(last_used_at),
});

export async function list({ deps, session: { principal } }: SignedIn) {
  const where = { user_id: principal.userId ?? '' };
  const rows = await deps.tables.read(tenantOf(principal), (tx) =>
    tx.list('passkeys', { where, orderBy: [['created_at', 'asc']] }),
  );
  return { object: 'list' as const, data: rows.map(shown) };
}

export async function beginRegistration({ deps, session, reply }: SignedIn) {
  const login = deps.sessions.cookies.newLogin();
  const options = await registrationOptions(deps, inBrowser(session), login.digest);
  reply.header('set-cookie', login.setCookie);
  return { object: 'passkey-options' as const, options: { ...options } };
}

export async function register(call: SignedIn<{ readonly name: string; readonly response: object }>) {
  const { deps, session, body, request } = call;
  const { vault, clock, sessions } = deps;
  const browser = sessions.cookies.loginDigest(request.headers.cookie);
  const { organisationId, userId } = session.principal;
  const given = { name: body.name, response: body.response as RegistrationResponseJSON };
  const row = await registerPasskey(deps, inBrowser(session), browser, given, async (tx, made) => {
    const deed = { request, action: 'create', resource: 'passkeys', body: { name: made.name } } as const;
    const whose = { organisationId, userId, resourceId: made.id };
    await appendAudit(tx, vault, consoleEntry({ clock, vault }, { ...deed, ...whose }));
  });
  return shown(row);
}

export async function remove({ deps, session, query, request }: SignedIn<unknown, { readonly id: string }>) {
  const { vault, clock, tables } = deps;
  const { principal } = inBrowser(session);
  const { organisationId, userId } = principal;
  await tables.write(
    tenantOf(principal),
    async (tx) => {
      if ((await tx.remove('passkeys', { id: query.id, user_id: userId ?? '' })) === 0) throw notFound();
      const deed = { request, action: 'delete', resource: 'passkeys' } as const;
      const whose = { organisationId, userId, resourceId: query.id };
      await appendAudit(tx, vault, consoleEntry({ clock, vault }, { ...deed, ...whose }));
    },
    { queue: organisationId },
  );
  return {};
}

export async function beginSignIn({ deps, reply }: Public) {
  const login = deps.sessions.cookies.newLogin();
  const options = await signInOptions(deps, login.digest);
  reply.header('set-cookie', login.setCookie);
  return { object: 'passkey-options' as const, options: { ...options } };
}

export async function signIn({ deps, body, request, reply }: Public<{ readonly response: object }>) {
  const { vault, clock, tables, sessions } = deps;
  const { cookie, 'user-agent': userAgent } = request.headers;
  const from = { cookie, userAgent, browser: sessions.cookies.loginDigest(cookie) };
  const entry = (user: { id: string; organisation_id: string }, resource: string, status: number) => {
    const deed = { request, action: 'create', resource, status } as const;
    const change = { before: null, after: { by: 'passkey' } };
    const whose = { organisationId: user.organisation_id, userId: user.id, resourceId: user.id, change };
    return consoleEntry({ clock, vault }, { ...deed, ...whose });
  };
  const made = await signInWithPasskey(deps, from, body.response as AuthenticationResponseJSON, {
    within: (tx, user) => appendAudit(tx, vault, entry(user, 'auth.sign_in', 200)),
    onRefused: async (user) => {
      const row = entry(user, 'auth.sign_in_failed', 401);
      const queue = user.organisation_id;
      await tables.write(systemTenant(queue), (tx) => appendAudit(tx, vault, row), { queue });
    },
  });
  sessions.invalidate();
  reply.header('set-cookie', sessions.setCookie(made.token));
  return { object: 'login' as const, type: 'passkey' as const };
}
