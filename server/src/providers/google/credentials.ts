/**
 * Access tokens of Google Cloud accounts. Who signs in is what the settings hold; the identity of
 * the machine Sluice runs on counts only where the operator lends it (`context.ambient`).
 */

import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';
import type { AccessContext } from '../training.ts';
import { integerOf, invalidAnswer, textOf } from '../training-calls.ts';
import { federatedToken } from './federation.ts';
import { CLOUD_SCOPE, exchangeFailure, type FreshToken } from './tokens.ts';

/**
 * The `token_uri` of a key file is never followed: who may send a key file could otherwise make Sluice post a signed
 * assertion to any address.
 */
const TOKEN_URI = 'https://oauth2.googleapis.com/token';
const HOUR_S = 3600;

const ACCOUNT = 'vertex_service_account_json';

export interface ServiceAccount {
  readonly email: string;
  readonly keyId: string | null;
  /** PEM, PKCS #8. */
  readonly privateKey: string;
  readonly projectId: string | null;
}

function wrongAccount(why: string): SluiceError {
  return new SluiceError('invalid_request', `The service account key of the provider cannot be used: ${why}`, {
    param: ACCOUNT,
  });
}

/** The key file of the account, given as an object or as its text; null when there is none. */
function serviceAccountOf(credentials: Credentials): ServiceAccount | null {
  let value: unknown = credentials.settings[ACCOUNT];
  if (value === undefined || value === null || value === '') return null;
  if (typeof value === 'string') {
    try {
      value = parseJson(value);
    } catch {
      throw wrongAccount('it is not JSON; paste the key file as Google wrote it.');
    }
  }
  const file: JsonObject = isObject(value) ? value : {};
  const email = textOf(file.client_email);
  const privateKey = textOf(file.private_key);
  if (file.type !== 'service_account' || email === null || privateKey === null) {
    throw wrongAccount('it needs "type": "service_account", "client_email" and "private_key".');
  }
  return { email, privateKey, keyId: textOf(file.private_key_id), projectId: textOf(file.project_id) };
}

/** RFC 7523: a short-lived assertion signed with the key of the account. */
async function assertion(account: ServiceAccount, nowMs: number): Promise<string> {
  const { importPKCS8, SignJWT } = await import('jose');
  const issued = Math.floor(nowMs / 1000);
  let key: Awaited<ReturnType<typeof importPKCS8>>;
  try {
    key = await importPKCS8(account.privateKey, 'RS256');
  } catch {
    // The reason would quote the key.
    throw wrongAccount('"private_key" is not an RSA key in PKCS #8 form ("-----BEGIN PRIVATE KEY-----").');
  }
  return new SignJWT({ scope: CLOUD_SCOPE })
    .setProtectedHeader({ alg: 'RS256', typ: 'JWT', ...(account.keyId === null ? null : { kid: account.keyId }) })
    .setIssuer(account.email)
    .setAudience(TOKEN_URI)
    .setIssuedAt(issued)
    .setExpirationTime(issued + HOUR_S)
    .sign(key);
}

async function exchange(account: ServiceAccount, context: AccessContext): Promise<FreshToken> {
  const asked = context.now();
  const form = new URLSearchParams({
    grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
    assertion: await assertion(account, asked),
  });
  const answer = await context.call({
    method: 'POST',
    url: new URL(TOKEN_URI),
    headers: ['accept', 'application/json', 'content-type', 'application/x-www-form-urlencoded'],
    body: Buffer.from(form.toString()),
    accountHeaders: false,
    shared: true,
  });
  if (answer.status !== 200) throw await exchangeFailure(answer, 'the service account');
  const body = await answer.json();
  const token = isObject(body) ? textOf(body.access_token) : null;
  const seconds = isObject(body) ? integerOf(body.expires_in) : null;
  if (token === null || seconds === null) throw invalidAnswer('an access token');
  return { value: token, expiresAt: asked + seconds * 1000 };
}

/** `vertex_auth_type`, or what the other settings mean. */
export function authType(credentials: Credentials): string {
  return (
    textSetting(credentials, 'vertex_auth_type') ??
    (serviceAccountOf(credentials) === null ? 'basic' : 'serviceAccount')
  );
}

/**
 * The bearer token for Google Cloud calls of the account: the provider key itself (`basic`), one exchanged for the
 * service account's assertion, or one of the workload's federated identity (`wif`). Shared by concurrent calls through `context.tokens`.
 */
export async function googleToken(context: AccessContext): Promise<string> {
  const { credentials } = context;
  switch (authType(credentials)) {
    case 'basic': {
      if (credentials.key === null) {
        throw new SluiceError(
          'malformed_call',
          'Google Cloud needs an access token as the provider key, or vertex_auth_type "serviceAccount" with a key file.',
        );
      }
      return credentials.key.reveal();
    }
    case 'serviceAccount': {
      const account = serviceAccountOf(credentials);
      if (account === null) throw wrongAccount('there is none; save it with the provider.');
      const identity = createHash('sha256').update(`${account.email}\n${account.privateKey}`).digest('hex');
      return context.tokens.get(`google ${identity}`, () => exchange(account, context));
    }
    case 'wif':
      return federatedToken(context);
    default:
      throw new SluiceError('malformed_call', 'vertex_auth_type must be "basic", "serviceAccount" or "wif".');
  }
}

/** Authorization of a call to Google Cloud. */
export async function googleHeaders(context: AccessContext): Promise<string[]> {
  return ['authorization', `Bearer ${await googleToken(context)}`];
}

/** The project of the account: the setting, else the one the key file belongs to. */
export function projectOf(credentials: Credentials): string | null {
  return textSetting(credentials, 'vertex_project_id') ?? serviceAccountOf(credentials)?.projectId ?? null;
}
