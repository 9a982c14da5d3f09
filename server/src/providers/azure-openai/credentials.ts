/** How a call to Azure signs in: the resource's key, or an access token of Microsoft Entra. */

import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import { ambientFor, type CloudHosts } from '../ambient.ts';
import type { CallContext, Credentials, Signer } from '../provider.ts';
import { textSetting } from '../settings.ts';
import { setBearer } from '../sign-in.ts';
import type { AccessContext, AdapterRequest } from '../training.ts';
import { integerOf } from '../training-calls.ts';
import { type Audience, audienceOf, cloudOf } from './clouds.ts';

const AUTH_MODES = ['default', 'entra', 'managed', 'workload', 'entraFederated'] as const;

/** Of models that Microsoft itself runs. Other names below `azure.com` are machines of customers, `cloudapp` among them. */
const AZURE: CloudHosts = {
  hosts: /\.(?:openai|cognitiveservices|services\.ai|models\.ai)\.azure\.(?:com|us|cn)$/,
  title: 'Azure',
  param: 'azure_auth_mode',
  instead: 'use azure_auth_mode default or entra',
};
const SCOPE = /^[\x21-\x7e]{1,2048}$/;
const ASSERTION = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
/** Tenants are named by id or by domain. */
const TENANT = /^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?$/;
const MASKED = ['authorization', 'Bearer ***'];

/** What a token is for. */
export interface TokenPurpose {
  /** Without a slash at its end: `https://cognitiveservices.azure.com`. */
  readonly resource: string;
  /** Where the server's own identity may go. */
  readonly hosts: CloudHosts;
  /** Address of the calls. */
  readonly to: string;
}

const purposeOf = (context: AccessContext, audience: Audience): TokenPurpose => ({
  resource: audienceOf(context.credentials, audience),
  hosts: AZURE,
  to: context.base,
});

const ENTRA = { tenant: 'azure_entra_tenant_id', client: 'azure_entra_client_id' } as const;

interface Token {
  readonly value: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

const modeOf = (credentials: Credentials): string => textSetting(credentials, 'azure_auth_mode') ?? 'default';

/** The headers of a call; fetches a token when the account uses one and none is at hand. */
export async function azureHeaders(context: AccessContext): Promise<string[]> {
  const mode = modeOf(context.credentials);
  if (mode === 'default') return keyHeaders(context);
  return ['authorization', `Bearer ${await accessToken(mode, context, 'cognitiveservices')}`];
}

/** The headers without asking for a token. */
export function plannedAzureHeaders(context: AccessContext): string[] {
  return modeOf(context.credentials) === 'default' ? keyHeaders(context) : MASKED;
}

/** The key of the resource, or an access token that the caller brought along; nothing for accounts that sign in. */
export function authorizeAzure(headers: string[], { credentials }: Pick<CallContext, 'credentials'>): void {
  if (modeOf(credentials) !== 'default') return;
  const token = textSetting(credentials, 'azure_ad_token');
  if (token !== undefined) headers.push('authorization', `Bearer ${token}`);
  else if (credentials.key !== null) headers.push('api-key', credentials.key.reveal());
}

/** Signs accounts of Microsoft Entra in; null for those with their own key or token. */
export function azureSigner({ credentials }: Pick<CallContext, 'credentials'>, audience: Audience): Signer | null {
  const mode = modeOf(credentials);
  if (mode !== 'default') {
    return async ({ headers }, access) => {
      const token = await accessToken(mode, access, audience);
      setBearer(headers, token);
      return [token];
    };
  }
  if (credentials.key !== null || textSetting(credentials, 'azure_ad_token') !== undefined) return null;
  // Told before anything is sent: Azure's own answer would name no remedy.
  return () => Promise.reject(missingKey());
}

function keyHeaders(context: AccessContext): string[] {
  const token = textSetting(context.credentials, 'azure_ad_token');
  if (token !== undefined) return ['authorization', `Bearer ${token}`];
  const { key } = context.credentials;
  if (key === null) throw missingKey();
  return ['api-key', key.reveal()];
}

const missingKey = () =>
  new SluiceError(
    'malformed_call',
    'Azure OpenAI needs the API key of the resource; send it, or use an account that has one.',
  );

function accessToken(mode: string, context: AccessContext, audience: Audience): Promise<string> {
  switch (mode) {
    case 'entra':
      return entraToken(context, required(context, 'azure_entra_client_secret'), scopeOf(context, audience));
    case 'workload':
      return federatedToken(
        context,
        { tenant: 'azure_workload_tenant_id', client: 'azure_workload_client_id' },
        purposeOf(context, audience),
      );
    case 'entraFederated':
      return federatedToken(context, ENTRA, purposeOf(context, audience));
    case 'managed':
      return managedToken(context, purposeOf(context, audience));
    default:
      throw new SluiceError('malformed_call', `azure_auth_mode must be one of ${AUTH_MODES.join(', ')}.`, {
        param: 'azure_auth_mode',
      });
  }
}

/** Only for an app registration of the account's own: what the server is may not be asked for another service. */
function scopeOf({ credentials }: AccessContext, audience: Audience): string {
  const scope = textSetting(credentials, 'azure_entra_scope') ?? `${audienceOf(credentials, audience)}/.default`;
  if (SCOPE.test(scope)) return scope;
  throw new SluiceError('malformed_call', 'azure_entra_scope must be a scope such as https://ai.azure.com/.default.', {
    param: 'azure_entra_scope',
  });
}

function required(context: AccessContext, name: string): string {
  const value = textSetting(context.credentials, name);
  if (value === undefined) throw new SluiceError('malformed_call', `The Azure account lacks ${name}.`, { param: name });
  return value;
}

/** The secret is part of the name under which a token is kept: an account with another one must not be given it. */
const digest = (text: string): string => createHash('sha256').update(text).digest('base64url');

function tokenUrl({ credentials }: AccessContext, tenant: string, param: string): URL {
  const { authority } = cloudOf(credentials);
  if (TENANT.test(tenant)) {
    const url = new URL(`/${tenant}/oauth2/v2.0/token`, authority);
    if (url.origin === authority && url.pathname === `/${tenant}/oauth2/v2.0/token`) return url;
  }
  throw new SluiceError('malformed_call', `${param} must be the id or the domain of a tenant.`, { param });
}

/** The token of an app registration, by `azure_entra_tenant_id` and `azure_entra_client_id` of the settings and its secret. */
export function entraToken(context: AccessContext, secret: string, scope: string): Promise<string> {
  const tenant = required(context, 'azure_entra_tenant_id');
  const client = required(context, 'azure_entra_client_id');
  const url = tokenUrl(context, tenant, 'azure_entra_tenant_id');
  return context.tokens.get(`azure entra ${url.origin} ${tenant} ${client} ${scope} ${digest(secret)}`, () =>
    clientCredentials(context, url, scope, { client_id: client, client_secret: secret }),
  );
}

/**
 * The assertion is the token the platform gives this server; the operator decides whether accounts may use it.
 *
 * @param names the settings that hold tenant and client
 */
export function federatedToken(
  context: AccessContext,
  names: { readonly tenant: string; readonly client: string },
  { resource, hosts, to }: TokenPurpose,
): Promise<string> {
  const ambient = ambientFor(context, to, hosts);
  const path = ambient?.variable('AZURE_FEDERATED_TOKEN_FILE');
  if (ambient === undefined || path === undefined || path === '') {
    throw unavailable(
      'a federated identity, and this server has none that accounts may use',
      'let the operator run it with AZURE_FEDERATED_TOKEN_FILE and allow accounts its identity',
    );
  }
  const tenant = required(context, names.tenant);
  const client = required(context, names.client);
  const url = tokenUrl(context, tenant, names.tenant);
  return context.tokens.get(`azure federated ${url.origin} ${resource} ${tenant} ${client}`, async () => {
    const assertion = (await ambient.file(path)).trim();
    return clientCredentials(context, url, `${resource}/.default`, {
      client_id: client,
      client_assertion_type: ASSERTION,
      client_assertion: assertion,
    });
  });
}

/** The token of the managed identity that the platform gives this server. */
export function managedToken(context: AccessContext, { resource, hosts, to }: TokenPurpose): Promise<string> {
  const ambient = ambientFor(context, to, hosts);
  const endpoint = ambient?.variable('IDENTITY_ENDPOINT');
  const header = ambient?.variable('IDENTITY_HEADER');
  if (endpoint === undefined || header === undefined || !URL.canParse(endpoint)) {
    // The metadata address of virtual machines answers whoever can reach it, so nothing here may ever call it.
    throw unavailable(
      'the managed identity of the machine, whose metadata address is never reachable from here',
      'on App Service or Container Apps let the operator allow accounts the identity and trust the host of IDENTITY_ENDPOINT',
    );
  }
  const client = textSetting(context.credentials, 'azure_managed_client_id');
  const url = new URL(endpoint);
  url.searchParams.set('resource', resource);
  url.searchParams.set('api-version', '2019-08-01');
  if (client !== undefined) url.searchParams.set('client_id', client);
  return context.tokens.get(`azure managed ${resource} ${client ?? ''}`, () =>
    token(context, {
      method: 'GET',
      url,
      headers: ['accept', 'application/json', 'x-identity-header', header],
      body: null,
      accountHeaders: false,
      shared: true,
    }),
  );
}

function unavailable(what: string, instead: string): SluiceError {
  return new SluiceError(
    'out_of_service',
    `The Azure account signs in with ${what}; ${instead}, or use an API key or azure_auth_mode entra.`,
    { param: 'azure_auth_mode' },
  );
}

function clientCredentials(
  context: AccessContext,
  url: URL,
  scope: string,
  fields: Readonly<Record<string, string>>,
): Promise<Token> {
  const form = new URLSearchParams({ grant_type: 'client_credentials', ...fields, scope });
  return token(context, {
    method: 'POST',
    url,
    headers: ['accept', 'application/json', 'content-type', 'application/x-www-form-urlencoded'],
    body: Buffer.from(form.toString()),
    accountHeaders: false,
    shared: true,
  });
}

async function token(context: AccessContext, request: AdapterRequest): Promise<Token> {
  const answer = await context.call(request);
  let body: JsonObject = {};
  try {
    const parsed: unknown = parseJson(await answer.text(256 * 1024));
    if (isObject(parsed)) body = parsed;
  } catch {
    // A refusal without a readable body is reported by its status.
  }
  const { access_token: value } = body;
  if (answer.status === 200 && typeof value === 'string' && value !== '') {
    // App Service answers the time itself, Entra the seconds until then.
    const lifetime = integerOf(body.expires_in);
    const until = integerOf(body.expires_on);
    const expiresAt = lifetime !== null ? context.now() + lifetime * 1000 : (until ?? 0) * 1000;
    return { value, expiresAt };
  }
  // Descriptions name tenant and client, and are not repeated; the code says enough to look it up.
  const code = typeof body.error === 'string' && /^[a-z_]{1,64}$/.test(body.error) ? body.error : 'no reason given';
  const number = /\bAADSTS\d{1,8}\b/.exec(
    typeof body.error_description === 'string' ? body.error_description : '',
  )?.[0];
  const said = number === undefined ? code : `${code}, ${number}`;
  const refused = answer.status >= 400 && answer.status < 500 && answer.status !== 429;
  throw new SluiceError(
    'provider_error',
    refused
      ? `Azure refused to sign the account in (${said}); check its tenant, client and secret.`
      : `Azure could not sign the account in (status ${answer.status}, ${said}).`,
    {
      provider: refused
        ? IN_ITS_STEAD.unauthenticated
        : answer.status === 429
          ? IN_ITS_STEAD.busy
          : IN_ITS_STEAD.failed,
    },
  );
}
