/** Sign-ins through identity providers, from the address to go to until the session. Loaded with the first of them. */
import { createHash } from 'node:crypto';
import { errors } from 'jose';
import {
  AuthorizationResponseError,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  buildEndSessionUrl,
  ClientError,
  calculatePKCECodeChallenge,
  fetchUserInfo,
} from 'openid-client';
import { createSession, endSessions, type SignInTx } from '../auth/session-rows.ts';
import type { SingleSignOn, SsoBegin, SsoCallback, SsoError, SsoOutcome, WriteAudit } from '../auth/sso.ts';
import { systemTenant } from '../auth/tenant.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import { isObject } from '../kernel/json.ts';
import { redirectUri } from '../resources/admin/organisation/sso-clients/index.ts';
import type { Tables, TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import { accountOf, NoAccount } from './accounts.ts';
import { ClaimProblem, type Claims, checkIdToken, type Person, personOf, wantsUserinfo } from './claims.ts';
import { followGroups } from './groups.ts';
import {
  MetadataProblem,
  type Provider,
  type ProviderParts,
  Providers,
  problemOfIssuer,
  SKEW_SECONDS,
} from './provider.ts';
import { verifySigned } from './signed.ts';

export interface SsoParts extends ProviderParts {
  readonly tables: Pick<Tables, 'read' | 'write' | 'systemRead' | 'systemWrite'>;
  readonly vault: Vault;
  /** Forgets what this node keeps of sessions, once one has ended. */
  readonly sessionsEnded: () => void;
}

type SsoClient = Row<'sso_clients'>;
type Attempt = Row<'login_attempts'>;

const ATTEMPT_MS = 10 * 60_000;
const STATE = /^[0-9A-Za-z]{43}$/;
const ONCE = ['state', 'code', 'iss', 'error'];
/** Errors of providers that the sign-in page knows. */
const SAID: ReadonlySet<string> = new Set([
  'access_denied',
  'login_required',
  'interaction_required',
  'consent_required',
]);
/** Codes of the library for a provider that did not answer, or not as one. */
const AWAY: ReadonlySet<string | undefined> = new Set([
  undefined,
  'OAUTH_TIMEOUT',
  'OAUTH_ABORT',
  'OAUTH_RESPONSE_IS_NOT_CONFORM',
  'OAUTH_RESPONSE_IS_NOT_JSON',
]);
const LOGOUT_EVENT = 'http://schemas.openid.net/event/backchannel-logout';
const LOGOUT_TYPES: ReadonlySet<unknown> = new Set([undefined, 'JWT', 'LOGOUT+JWT']);
/** Of a logout token without an end. */
const LOGOUT_SECONDS = 120;
/** A token is remembered for longer than it can be used. */
const LOGOUT_AGE_SECONDS = 600;
const REMEMBERED_MS = 15 * 60_000;

/** Without `offline_access` where the provider does not list it: Google refuses such a request, and nothing is lost by it. */
const scopesOf = ({ scopes }: SsoClient, listed: readonly string[] | undefined): string =>
  scopes.filter((scope) => scope !== 'offline_access' || listed?.includes(scope) !== false).join(' ');

const digestOf = (value: string) => createHash('sha256').update(value).digest('hex');

export function openSingleSignOn(parts: SsoParts): SingleSignOn {
  return new Oidc(parts);
}

/** A sign-in that is refused: what the page says, and what the audit log says. */
class Refusal extends Error {
  readonly code: SsoError;

  constructor(code: SsoError, reason: string) {
    super(reason);
    this.code = code;
  }
}

class Oidc implements SingleSignOn {
  readonly #parts: SsoParts;
  readonly #providers: Providers;

  constructor(parts: SsoParts) {
    this.#parts = parts;
    this.#providers = new Providers(parts);
  }

  async begin({ client, email, browser, returnTo, publicUrl }: SsoBegin): Promise<{ url: string }> {
    const { tables, clock } = this.#parts;
    const { config } = await this.#provider(client);
    const state = base62(43);
    const { nonce, verifier, keyId } = this.#secrets(state);
    const tenant = systemTenant(client.organisation_id);
    const now = clock.now();
    const sessionSeconds = await tables.write(tenant, async (tx) => {
      await tx.remove('login_attempts', { expires_at: { lt: now } });
      await tx.insert('login_attempts', {
        digest: digestOf(state),
        organisation_id: client.organisation_id,
        sso_client_id: client.id,
        browser,
        mac_key: keyId,
        return_to: returnTo,
        expires_at: now + ATTEMPT_MS,
        created_at: now,
      });
      const { session_settings: session } = (await tx.organisation()).settings;
      const seconds = isObject(session) ? session.max_session_ttl : null;
      return typeof seconds === 'number' ? seconds : null;
    });
    const url = buildAuthorizationUrl(config, {
      response_type: 'code',
      redirect_uri: redirectUri(publicUrl),
      scope: scopesOf(client, config.serverMetadata().scopes_supported),
      state,
      nonce,
      code_challenge: await calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      ...(email === null ? {} : { login_hint: email }),
      ...(sessionSeconds === null ? {} : { max_age: String(sessionSeconds) }),
    });
    return { url: url.href };
  }

  problemOf(organisationId: string, issuer: string): Promise<string | null> {
    return problemOfIssuer(issuer, this.#parts.callsOf(organisationId));
  }

  async #provider(client: SsoClient): Promise<Provider> {
    try {
      return await this.#providers.of(client);
    } catch (error) {
      if (error instanceof SluiceError) throw error;
      throw new SluiceError('unavailable', 'Your identity provider cannot be asked just now. Try again in a minute.', {
        detail: { sso_client: client.id, problem: error instanceof MetadataProblem ? error.message : String(error) },
        cause: error,
      });
    }
  }

  /** Nonce and code verifier of an attempt: derived, so that the store holds nothing that finishes it. */
  #secrets(state: string, keyId?: string): { nonce: string; verifier: string; keyId: string } {
    const { vault } = this.#parts;
    const of = (use: string) => {
      const data = Buffer.from(state);
      const made = keyId === undefined ? vault.mac(use, data) : vault.mac(use, data, keyId);
      if (made === null) throw new Refusal('expired', 'the master key of the attempt is gone');
      return { keyId: made.keyId, text: made.digest.toString('base64url') };
    };
    const nonce = of('sign-in nonce 1');
    return { nonce: nonce.text, verifier: of('sign-in verifier 1').text, keyId: nonce.keyId };
  }

  async finish(callback: SsoCallback): Promise<SsoOutcome> {
    const query = new URLSearchParams(callback.query);
    const state = query.get('state') ?? '';
    const unclear = ONCE.some((name) => query.getAll(name).length > 1) || !STATE.test(state);
    const attempt = unclear || callback.browser === null ? null : await this.#take(state, callback.browser);
    if (attempt === null) return { ok: false, error: 'expired' };
    const { organisation_id: organisationId } = attempt;
    try {
      return await this.#complete(callback, query, state, attempt);
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === null) throw error;
      const reason = refusal.message;
      this.#parts.log.info('a sign-in was refused', { sso_client: attempt.sso_client_id, reason });
      await this.#parts.tables.write(
        systemTenant(organisationId),
        (tx) =>
          callback.audit(tx, {
            action: 'auth.sign_in_failed',
            organisationId,
            userId: null,
            resourceId: attempt.sso_client_id,
            status: 401,
            after: { reason, error: refusal.code },
          }),
        { queue: organisationId },
      );
      return { ok: false, error: refusal.code };
    }
  }

  /** The attempt, for whoever comes first with its state in its own browser; it is good for one answer. */
  async #take(state: string, browser: string): Promise<Attempt | null> {
    const { tables, clock } = this.#parts;
    const key = { digest: digestOf(state), browser, expires_at: { gt: clock.now() } };
    const attempt = await tables.systemRead((tx) => tx.find('login_attempts', key));
    if (attempt === undefined) return null;
    const taken = await tables.systemWrite((tx) => tx.remove('login_attempts', key));
    return taken === 1 ? attempt : null;
  }

  async #complete(callback: SsoCallback, query: URLSearchParams, state: string, attempt: Attempt): Promise<SsoOutcome> {
    const { tables, vault, clock } = this.#parts;
    const { organisation_id: organisationId } = attempt;
    const tenant = systemTenant(organisationId);
    const client = await tables.read(tenant, async (tx) => {
      const found = await tx.find('sso_clients', { id: attempt.sso_client_id, status: 'active' });
      return (await tx.organisation()).status === 'active' ? found : undefined;
    });
    if (client === undefined) throw new Refusal('expired', 'the SSO client was disabled');
    const provider = await this.#providers.of(client);
    const { nonce, verifier } = this.#secrets(state, attempt.mac_key);
    // From the public URL, never from the request's host.
    const currentUrl = new URL(`${redirectUri(callback.publicUrl)}?${query}`);
    const tokens = await authorizationCodeGrant(provider.config, currentUrl, {
      expectedState: state,
      expectedNonce: nonce,
      pkceCodeVerifier: verifier,
      idTokenExpected: true,
    });
    const claims = tokens.claims() as Claims | undefined;
    if (claims === undefined || tokens.id_token === undefined) throw new ClaimProblem('there is no ID token');
    await verifySigned(tokens.id_token, provider.idTokenKeys, {
      algorithms: [...provider.algorithms],
      clockTolerance: SKEW_SECONDS,
      currentDate: new Date(clock.now()),
    });
    checkIdToken(client, headerOf(tokens.id_token), claims, Math.floor(clock.now() / 1000));
    const userinfo = wantsUserinfo(client, claims) ? await this.#userinfo(provider, tokens.access_token, claims) : {};
    const person = personOf(client, claims, userinfo);
    await vault.ensureKey?.(organisationId);
    const idToken = tokens.id_token;
    const session = await tables.write(tenant, (tx) => this.#signIn(tx, { client, person, idToken, callback }), {
      queue: organisationId,
    });
    this.#parts.sessionsEnded();
    return { ok: true, token: session.token, returnTo: attempt.return_to, organisationId };
  }

  async #userinfo(provider: Provider, accessToken: string, claims: Claims): Promise<Claims> {
    if (provider.config.serverMetadata().userinfo_endpoint === undefined) return {};
    try {
      return (await fetchUserInfo(provider.config, accessToken, String(claims.sub))) as Claims;
    } catch (error) {
      if (error instanceof ClientError && error.code === 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED') {
        throw new ClaimProblem('userinfo is of another subject than the ID token');
      }
      this.#parts.log.info('userinfo could not be read', { error: String(error) });
      return {};
    }
  }

  async #signIn(
    tx: TenantTx,
    own: { client: SsoClient; person: Person; idToken: string; callback: SsoCallback },
  ): Promise<{ token: string }> {
    const { clock, vault } = this.#parts;
    const { client, person, idToken, callback } = own;
    const account = await accountOf(tx, clock, client, person);
    const groups = await followGroups(tx, clock, client, account, person);
    const { user } = account;
    const session = await createSession(
      signInTx(tx),
      { clock, vault },
      {
        organisationId: client.organisation_id,
        userId: user.id,
        clientId: client.id,
        issuer: client.issuer,
        subject: person.subject,
        idToken,
        replaces: callback.replaces,
        ...(person.authTime === null ? {} : { authTime: person.authTime }),
        ...(person.sid === null ? {} : { sid: person.sid }),
        ...(callback.userAgent === undefined ? {} : { userAgent: callback.userAgent }),
      },
    );
    await callback.audit(tx, {
      action: 'auth.sign_in',
      organisationId: client.organisation_id,
      userId: user.id,
      resourceId: user.id,
      status: 302,
      after: {
        sso_client_id: client.id,
        account: account.how,
        ...(account.keysLeftOut === true ? { api_keys_left_out: true } : null),
        ...groups,
      },
    });
    return session;
  }

  async endSessionUrl({ organisationId, clientId, idToken, publicUrl }: Parameters<SingleSignOn['endSessionUrl']>[0]) {
    const { tables, log } = this.#parts;
    const client = await tables.read(systemTenant(organisationId), (tx) => tx.find('sso_clients', { id: clientId }));
    if (client?.status !== 'active') return null;
    try {
      const { config } = await this.#providers.of(client);
      if (config.serverMetadata().end_session_endpoint === undefined) return null;
      return buildEndSessionUrl(config, {
        post_logout_redirect_uri: `${publicUrl}/console/sign-in`,
        state: base62(22),
        ...(idToken === null ? {} : { id_token_hint: idToken }),
      }).href;
    } catch (error) {
      log.warn('no address to sign out at an identity provider', { sso_client: clientId, error: String(error) });
      return null;
    }
  }

  async backChannelLogout(clientId: string, token: string, audit: WriteAudit): Promise<boolean> {
    const { tables, clock, log } = this.#parts;
    const client = await tables.systemRead((tx) => tx.find('sso_clients', { id: clientId, status: 'active' }));
    if (client === undefined) return false;
    let said: LogoutClaims;
    try {
      said = await logoutClaims(await this.#providers.of(client), client, token, clock.now());
    } catch (error) {
      log.info('a logout token was refused', { sso_client: clientId, error: String(error) });
      return false;
    }
    const { organisation_id: organisationId, issuer } = client;
    const { sid, subject, jti } = said;
    const now = clock.now();
    const fresh = await tables.write(
      systemTenant(organisationId),
      async (tx) => {
        const used = { sso_client_id: clientId, digest: digestOf(jti) };
        await tx.remove('used_logout_tokens', { expires_at: { lt: now } });
        if ((await tx.find('used_logout_tokens', used)) !== undefined) return false;
        await tx.insert('used_logout_tokens', {
          ...used,
          organisation_id: organisationId,
          expires_at: now + REMEMBERED_MS,
        });
        const identity = subject === null ? undefined : await tx.find('user_identities', { issuer, subject });
        const ended = await endSessions(tx, {
          organisationId,
          issuer,
          ...(sid === null ? { subject: subject ?? '' } : { sid }),
        });
        if (ended > 0) {
          await audit(tx, {
            action: 'auth.sign_out',
            organisationId,
            userId: identity?.user_id ?? null,
            resourceId: clientId,
            status: 200,
            after: { sso_client_id: clientId, sessions: ended },
          });
        }
        return true;
      },
      { queue: organisationId },
    );
    this.#parts.sessionsEnded();
    return fresh;
  }
}

interface LogoutClaims {
  readonly sid: string | null;
  readonly subject: string | null;
  readonly jti: string;
}

/** Throws for a token that breaks a rule of OpenID Connect Back-Channel Logout. */
async function logoutClaims(
  provider: Provider,
  client: SsoClient,
  token: string,
  nowMs: number,
): Promise<LogoutClaims> {
  const now = Math.floor(nowMs / 1000);
  const { issuer } = provider.config.serverMetadata();
  const { payload, protectedHeader } = await verifySigned(token, provider.keys, {
    issuer,
    audience: client.client_id,
    algorithms: [...provider.algorithms],
    clockTolerance: SKEW_SECONDS,
    currentDate: new Date(nowMs),
    requiredClaims: ['iat', 'jti', 'events'],
  });
  const refuse = (why: string) => new ClaimProblem(why);
  const { typ } = protectedHeader;
  if (!LOGOUT_TYPES.has(typ?.toUpperCase())) throw refuse('the token is of another type than a logout token');
  const { iat = 0, exp, jti, sub, sid, events } = payload;
  if (iat > now + SKEW_SECONDS) throw refuse('iat lies in the future');
  if (iat < now - (exp === undefined ? LOGOUT_SECONDS : LOGOUT_AGE_SECONDS)) throw refuse('the token is too old');
  if (typeof jti !== 'string' || jti === '') throw refuse('jti is empty');
  if ('nonce' in payload) throw refuse('the token has a nonce: it may be an ID token');
  if (!isObject(events) || !isObject(events[LOGOUT_EVENT])) throw refuse('events does not name a logout');
  const named = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
  const claims = { sid: named(sid), subject: named(sub), jti };
  if (claims.sid === null && claims.subject === null) throw refuse('there is neither sub nor sid');
  return claims;
}

function headerOf(token: string): Claims {
  const header: unknown = JSON.parse(Buffer.from(token.split('.', 1)[0] ?? '', 'base64url').toString('utf8'));
  return isObject(header) ? header : {};
}

/** Sessions read the organisation through the system's transaction; a tenant's has it, too. */
function signInTx(tx: TenantTx): SignInTx {
  return {
    insert: (table, row) => tx.insert(table, row),
    remove: (table, where) => tx.remove(table, where),
    changed: (change) => tx.changed(change),
    find: (async (table: 'organisations' | 'console_sessions', where: never) =>
      table === 'organisations' ? tx.organisation() : tx.find('console_sessions', where)) as SignInTx['find'],
  };
}

/** What a failure says to the person, and to the audit log in words that are ours; null for a fault of Sluice. */
function refusalOf(error: unknown): Refusal | null {
  if (error instanceof Refusal) return error;
  if (error instanceof ClaimProblem) return new Refusal('invalid_answer', error.message);
  if (error instanceof NoAccount) return new Refusal('no_account', error.message);
  if (error instanceof MetadataProblem) return new Refusal('provider_error', error.message);
  if (error instanceof AuthorizationResponseError) {
    const known = SAID.has(error.error);
    return new Refusal(
      known ? (error.error as SsoError) : 'provider_error',
      `the provider answered ${known ? error.error : 'an error'}`,
    );
  }
  if (error instanceof SluiceError) {
    return error.kind === 'unauthenticated' ? new Refusal('too_old', error.message) : null;
  }
  if (error instanceof ClientError) {
    const code = AWAY.has(error.code) ? 'provider_error' : 'invalid_answer';
    return new Refusal(code, `${error.message} (${error.code})`);
  }
  if (error instanceof errors.JOSEError) {
    // The plain one is of a key set that could not be read.
    const away = error.code === 'ERR_JOSE_GENERIC' || error.code === 'ERR_JWKS_TIMEOUT';
    return new Refusal(away ? 'provider_error' : 'invalid_answer', `the ID token was not verified (${error.code})`);
  }
  // Errors of the guarded fetch and of the token endpoint: the provider could not be asked, or refused.
  if (error instanceof Error && (error.name === 'ResponseBodyError' || error instanceof TypeError)) {
    return new Refusal('provider_error', 'the provider refused the code, or could not be asked');
  }
  return null;
}
