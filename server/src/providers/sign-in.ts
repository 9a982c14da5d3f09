/** Signing in for a call: the account's own way (`Provider.sign`), or OAuth client credentials, which every provider takes. */

import { createHash } from 'node:crypto';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { Secret } from '../kernel/secret.ts';
import type { CallContext, Credentials, Provider, Signer } from './provider.ts';
import { CREDENTIAL_HEADERS } from './sent-secrets.ts';
import { textSetting } from './settings.ts';
import type { AccessContext, AdapterAnswer, FreshToken } from './training.ts';
import { integerOf } from './training-calls.ts';

const MINUTE_MS = 60_000;
/** Life of a token whose answer does not say, in seconds. */
const UNSAID_S = 300;
/** A token is a header value: printable ASCII, no spaces. */
const TOKEN = /^[\x21-\x7e]{1,16384}$/;

/** What signs the requests of an account; null when `authorize` has done all there is. */
export function signerOf(provider: Provider, context: CallContext): Signer | null {
  return usesClientCredentials(context.credentials) ? bearerOfGrant : (provider.sign?.(context) ?? null);
}

export function usesClientCredentials(credentials: Credentials): boolean {
  return credentials.settings.auth_type === 'oauthClientCredentials';
}

/** Puts a bearer token in the place of every credential that the request has. */
export function setBearer(headers: string[], token: string): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (CREDENTIAL_HEADERS.has((headers[i] ?? '').toLowerCase())) headers.splice(i, 2);
  }
  headers.push('authorization', `Bearer ${token}`);
}

const bearerOfGrant: Signer = async ({ headers }, access) => {
  const token = await grantedToken(access);
  setBearer(headers, token);
  return [token];
};

/**
 * The access token of OAuth client credentials (RFC 6749 §4.4; id and secret in the body, §2.3.1). Kept until a minute
 * before it expires and shared by concurrent calls. Rejects with `unauthenticated` when none was given.
 */
export async function grantedToken(access: AccessContext): Promise<string> {
  const grant = grantOf(access.credentials);
  return access.tokens.get(keyOf(grant), async () => {
    const { endpoint, id, secret, scope } = grant;
    const form = new URLSearchParams({ grant_type: 'client_credentials', client_id: id, client_secret: secret });
    if (scope !== undefined) form.set('scope', scope);
    return granted(access, new URL(endpoint), Buffer.from(form.toString()));
  });
}

/** Forgets a token that the provider refused. */
export function dropGrantedToken({ credentials, tokens }: AccessContext, token: string): void {
  tokens.drop(keyOf(grantOf(credentials)), token);
}

interface Grant {
  readonly endpoint: string;
  readonly id: string;
  readonly secret: string;
  readonly scope: string | undefined;
}

function grantOf(credentials: Credentials): Grant {
  const endpoint = textSetting(credentials, 'oauth_token_endpoint');
  const id = textSetting(credentials, 'oauth_client_id');
  const secret = secretText(credentials.settings.oauth_client_secret);
  if (endpoint === undefined || id === undefined || secret === null || !URL.canParse(endpoint)) {
    throw refused('the account lacks oauth_token_endpoint, oauth_client_id or oauth_client_secret');
  }
  return { endpoint, id, secret, scope: textSetting(credentials, 'oauth_scope') };
}

/** The secret is part of the name under which a token is kept: an account with another one must not be given it. */
function keyOf({ endpoint, id, secret, scope }: Grant): string {
  const parts = JSON.stringify([endpoint, id, secret, scope ?? null]);
  return `oauth ${createHash('sha256').update(parts).digest('base64url')}`;
}

function secretText(value: unknown): string | null {
  if (value instanceof Secret) return value.reveal();
  return typeof value === 'string' && value !== '' ? value : null;
}

async function granted(access: AccessContext, url: URL, body: Buffer): Promise<FreshToken> {
  const asked = access.now();
  let answer: AdapterAnswer;
  let fields: JsonObject = {};
  try {
    answer = await access.call({
      method: 'POST',
      url,
      headers: ['accept', 'application/json', 'content-type', 'application/x-www-form-urlencoded'],
      body,
      accountHeaders: false,
      shared: true,
    });
  } catch (error) {
    const why = error instanceof SluiceError ? error.message : '';
    throw refused(`its token endpoint could not be asked: ${why.charAt(0).toLowerCase()}${why.slice(1)}`, error);
  }
  try {
    const parsed: unknown = parseJson(await answer.text(256 * 1024));
    if (isObject(parsed)) fields = parsed;
  } catch {
    // Told below, by the status.
  }
  const { access_token: value, token_type: type } = fields;
  if (answer.status !== 200) {
    // Descriptions may repeat what was sent; the code of RFC 6749 §5.2 says enough.
    const code = typeof fields.error === 'string' && /^[a-z_]{1,64}$/.test(fields.error) ? `, ${fields.error}` : '';
    throw refused(`its token endpoint answered ${answer.status}${code}`);
  }
  if (typeof value !== 'string' || !TOKEN.test(value)) throw refused('its token endpoint answered without a token');
  if (typeof type === 'string' && type.toLowerCase() !== 'bearer') {
    throw refused('its token endpoint gives out tokens that are no bearer tokens');
  }
  const lifetime = (integerOf(fields.expires_in) ?? UNSAID_S) * 1000;
  const expiresAt = asked + lifetime;
  return { value, expiresAt, refreshAt: lifetime > MINUTE_MS ? expiresAt - MINUTE_MS : asked + lifetime / 2 };
}

function refused(why: string, cause?: unknown): SluiceError {
  return new SluiceError(
    'unauthenticated',
    `The provider account could not sign in with oauthClientCredentials: ${why}. Check its oauth settings.`,
    cause === undefined ? {} : { cause },
  );
}
