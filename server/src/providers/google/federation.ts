/**
 * Workload identity federation: a token of the platform Sluice runs on, renewed by it in a file, is
 * exchanged for one of Google's. Described by an `external_account` file, as `gcloud iam workload-identity-pools
 * create-cred-config` writes it, that the operator names in GOOGLE_APPLICATION_CREDENTIALS.
 */

import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { asObject } from '../../operations/convert/fields.ts';
import { ambientFor, type CloudHosts } from '../ambient.ts';
import type { AccessContext, AmbientIdentity } from '../training.ts';
import { integerOf, invalidAnswer, textOf } from '../training-calls.ts';
import { CLOUD_SCOPE, exchangeFailure, type FreshToken } from './tokens.ts';

/**
 * Vertex AI, also over Private Service Connect, and Secret Manager. An account without a custom host reaches Cloud Storage
 * beside it.
 */
const GOOGLE_CLOUD: CloudHosts = {
  hosts:
    /^(?:(?:[a-z0-9-]+-)?aiplatform|aiplatform(?:\.(?:us|eu)\.rep|-[a-z0-9-]+\.p)|secretmanager(?:\.[a-z0-9-]+\.rep)?)\.googleapis\.com$/,
  title: 'Google Cloud',
  param: 'vertex_auth_type',
  instead: 'use vertex_auth_type serviceAccount or basic',
};
const VARIABLE = 'GOOGLE_APPLICATION_CREDENTIALS';
const STS = 'https://sts.googleapis.com/v1/token';
const IMPERSONATION =
  /^https:\/\/iamcredentials\.googleapis\.com\/v1\/projects\/-\/serviceAccounts\/[^/:?#]+:generateAccessToken$/;

interface External {
  readonly audience: string;
  readonly tokenType: string;
  readonly file: string;
  /** Field of a JSON token file; null for a file that is the token. */
  readonly field: string | null;
  readonly impersonation: URL | null;
}

function wrong(why: string): SluiceError {
  return new SluiceError('malformed_call', `vertex_auth_type "wif" cannot be used: ${why}`, {
    param: 'vertex_auth_type',
  });
}

function parsed(text: string): JsonObject {
  try {
    const value: unknown = parseJson(text);
    if (isObject(value)) return value;
  } catch {
    // Said by the caller, without the content of the file.
  }
  return {};
}

async function externalAccount(ambient: AmbientIdentity): Promise<External> {
  const path = ambient.variable(VARIABLE);
  if (path === undefined || path === '') throw wrong(`the operator has to name a file in ${VARIABLE}.`);
  const account = parsed(await ambient.file(path));
  const audience = textOf(account.audience);
  const tokenType = textOf(account.subject_token_type);
  const source = asObject(account.credential_source);
  const file = textOf(source.file);
  if (account.type !== 'external_account' || audience === null || tokenType === null || file === null) {
    throw wrong(`the file in ${VARIABLE} is no "external_account" whose token is read from a file.`);
  }
  const format = asObject(source.format);
  const impersonation = textOf(account.service_account_impersonation_url);
  if (impersonation !== null && !IMPERSONATION.test(impersonation)) {
    throw wrong('service_account_impersonation_url is not one of iamcredentials.googleapis.com.');
  }
  return {
    audience,
    tokenType,
    file,
    field: format.type === 'json' ? (textOf(format.subject_token_field_name) ?? 'access_token') : null,
    impersonation: impersonation === null ? null : new URL(impersonation),
  };
}

async function exchanged(external: External, ambient: AmbientIdentity, context: AccessContext): Promise<FreshToken> {
  const content = (await ambient.file(external.file)).trim();
  const subject = external.field === null ? content : textOf(parsed(content)[external.field]);
  if (subject === null || subject === '') throw wrong('the token file is empty.');
  const asked = context.now();
  const form = new URLSearchParams({
    grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
    audience: external.audience,
    scope: CLOUD_SCOPE,
    requested_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    subject_token: subject,
    subject_token_type: external.tokenType,
  });
  const answer = await context.call({
    method: 'POST',
    url: new URL(STS),
    headers: ['accept', 'application/json', 'content-type', 'application/x-www-form-urlencoded'],
    body: Buffer.from(form.toString()),
    accountHeaders: false,
    shared: true,
  });
  if (answer.status !== 200) throw await exchangeFailure(answer, 'the workload identity');
  const body = await answer.json();
  const value = isObject(body) ? textOf(body.access_token) : null;
  const seconds = isObject(body) ? integerOf(body.expires_in) : null;
  if (value === null || seconds === null) throw invalidAnswer('an access token');
  return { value, expiresAt: asked + seconds * 1000 };
}

/** The token of the service account that the federated identity may act as. */
async function impersonated(url: URL, token: FreshToken, context: AccessContext): Promise<FreshToken> {
  const answer = await context.call({
    method: 'POST',
    url,
    headers: [
      'accept',
      'application/json',
      'authorization',
      `Bearer ${token.value}`,
      'content-type',
      'application/json',
    ],
    body: Buffer.from(JSON.stringify({ scope: [CLOUD_SCOPE], lifetime: '3600s' })),
    accountHeaders: false,
    shared: true,
  });
  if (answer.status !== 200) throw await exchangeFailure(answer, 'the workload identity');
  const body = await answer.json();
  const value = isObject(body) ? textOf(body.accessToken) : null;
  const expiresAt = Date.parse((isObject(body) ? textOf(body.expireTime) : null) ?? '');
  if (value === null || Number.isNaN(expiresAt)) throw invalidAnswer('an access token');
  return { value, expiresAt };
}

/** Refused where the operator lends no identity: every tenant would else be the machine Sluice runs on. */
export async function federatedToken(context: AccessContext): Promise<string> {
  const ambient = ambientFor(context, context.base, GOOGLE_CLOUD);
  if (ambient === undefined) {
    throw wrong('this server does not lend its own identity to this account; use "serviceAccount" or "basic".');
  }
  const external = await externalAccount(ambient);
  const key = `google wif ${external.audience} ${external.impersonation?.href ?? ''}`;
  return context.tokens.get(key, async () => {
    const token = await exchanged(external, ambient, context);
    return external.impersonation === null ? token : impersonated(external.impersonation, token, context);
  });
}
