/** An identity provider as one client sees it: metadata, keys, and the calls of OpenID Connect through the egress guard. */
import { createHash, type webcrypto } from 'node:crypto';
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  importJWK,
  type JWTVerifyGetKey,
  customFetch as keySetFetch,
} from 'jose';
import {
  allowInsecureRequests,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  clockTolerance,
  customFetch,
  discovery,
  modifyAssertion,
  PrivateKeyJwt,
} from 'openid-client';
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { isObject } from '../kernel/json.ts';
import type { Log } from '../kernel/log.ts';
import { Lru } from '../kernel/lru.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';

type SsoClient = Row<'sso_clients'>;

/** The WHATWG fetch of an organisation, guarded and bounded by whoever composes the server. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

export interface ProviderParts {
  readonly callsOf: (organisationId: string) => Fetch;
  readonly vault: Pick<Vault, 'open'>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface Provider {
  readonly config: Configuration;
  /** Keys that its logout tokens are signed with. Anybody may send one: a key that is not known is looked for twice a minute. */
  readonly keys: JWTVerifyGetKey;
  /** The same keys for ID tokens, which come from the provider itself: it may sign with a key that it has just made. */
  readonly idTokenKeys: JWTVerifyGetKey;
  readonly algorithms: readonly string[];
}

/** What of a provider's answers is taken as signed. Never what a token says of itself. */
const ALGORITHMS = ['RS256', 'ES256', 'PS256'];
export const SKEW_SECONDS = 60;
const TIMEOUT_SECONDS = 5;
const FRESH_MS = 3_600_000;
const LEAST_FRESH_MS = 300_000;
const MOST_FRESH_MS = 24 * 3_600_000;
/** Of metadata that could be read once: it serves on while the provider is away. */
const STALE_MS = 24 * 3_600_000;
/** Between two looks at one provider. */
const COOL_DOWN_MS = 30_000;
/** A key that the provider withdraws is taken no longer than this. */
const KEYS_FRESH_MS = 300_000;
const MOST_PROVIDERS = 500;
const ENTRA = 'https://login.microsoftonline.com/';

/** What is wrong with a provider's metadata, as a sentence for an administrator. No text of the provider is in it. */
export class MetadataProblem extends Error {}

interface Entry {
  readonly provider: Promise<Provider>;
  failed: boolean;
  /** Monotonic milliseconds: when the metadata was read, until when it is fresh, when it was last asked for. */
  readonly readAt: number;
  freshUntil: number;
  askedAt: number;
}

/** Providers by client and version, so that a change of settings acts at once. One per process. */
export class Providers {
  readonly #parts: ProviderParts;
  readonly #entries = new Lru<string, Entry>({ maxEntries: MOST_PROVIDERS });

  constructor(parts: ProviderParts) {
    this.#parts = parts;
  }

  /** Rejects with `MetadataProblem`, or with what the call failed of. */
  async of(client: SsoClient): Promise<Provider> {
    const key = `${client.id} ${client.last_updated_at}`;
    const now = this.#parts.clock.monotonic();
    const entry = this.#entries.get(key);
    if (entry !== undefined && (now < entry.freshUntil || now - entry.askedAt < COOL_DOWN_MS)) return entry.provider;
    if (entry !== undefined && !entry.failed && now - entry.readAt <= STALE_MS)
      return this.#refresh(client, key, entry, now);
    const read = this.#open(client);
    const provider = read.then((made) => made.provider);
    const first: Entry = { provider, failed: false, readAt: now, freshUntil: now + LEAST_FRESH_MS, askedAt: now };
    this.#entries.set(key, first);
    try {
      first.freshUntil = now + (await read).freshMs;
    } catch {
      // The next one within the cool-down gets the same answer.
      Object.assign(first, { failed: true, freshUntil: now });
    }
    return provider;
  }

  /** Others use what was read before, meanwhile and while the provider is away. */
  async #refresh(client: SsoClient, key: string, before: Entry, now: number): Promise<Provider> {
    before.askedAt = now;
    try {
      const { provider, freshMs } = await this.#open(client);
      const at = { readAt: now, freshUntil: now + freshMs, askedAt: now };
      this.#entries.set(key, { provider: Promise.resolve(provider), failed: false, ...at });
      return provider;
    } catch (error) {
      const told = { sso_client: client.id, error: String(error) };
      this.#parts.log.warn('the metadata of an identity provider could not be read again', told);
      return before.provider;
    }
  }

  async #open(client: SsoClient): Promise<{ provider: Provider; freshMs: number }> {
    const call = this.#parts.callsOf(client.organisation_id);
    const seen: Seen = { freshMs: FRESH_MS, algorithms: [], problem: null };
    const config = await discoverAs(client, await this.#authentication(client), call, seen);
    const { jwks_uri: uri } = config.serverMetadata();
    if (client.provider_jwks === null && uri === undefined) {
      throw new MetadataProblem('The metadata of the issuer names no jwks_uri: send provider_jwks.');
    }
    const keysOf = (cooldownDuration: number) =>
      client.provider_jwks !== null
        ? createLocalJWKSet({ keys: client.provider_jwks as never })
        : createRemoteJWKSet(new URL(uri ?? ''), {
            [keySetFetch]: (url: string, init: RequestInit) => call(url, init),
            timeoutDuration: TIMEOUT_SECONDS * 1000,
            cacheMaxAge: KEYS_FRESH_MS,
            cooldownDuration,
          });
    const provider = { config, keys: keysOf(COOL_DOWN_MS), idTokenKeys: keysOf(0), algorithms: seen.algorithms };
    return { provider, freshMs: seen.freshMs };
  }

  async #authentication(client: SsoClient): Promise<ClientAuth> {
    const tenant = systemTenant(client.organisation_id);
    const open = async (column: 'client_secret' | 'jwks') => {
      const sealed = client[column];
      if (sealed === null) throw new MetadataProblem(`The SSO client has no ${column}.`);
      const place = { table: 'sso_clients', column, row: client.id };
      return (await this.#parts.vault.open(tenant, place, sealed)).reveal();
    };
    const method = client.token_endpoint_auth_method;
    if (method === 'client_secret_basic') return ClientSecretBasic(await open('client_secret'));
    if (method === 'client_secret_post') return ClientSecretPost(await open('client_secret'));
    const { keys } = JSON.parse(await open('jwks')) as { keys: Record<string, unknown>[] };
    const [jwk] = keys;
    if (jwk === undefined) throw new MetadataProblem('The SSO client has no key to sign with.');
    const { x5c, ...own } = jwk;
    const key = (await importJWK(own as never, String(jwk.alg))) as webcrypto.CryptoKey;
    const thumbprint = certificateThumbprint(x5c);
    // The library's audience is the issuer alone: one that the provider may choose could be another provider's.
    return PrivateKeyJwt(
      { key, kid: String(jwk.kid) },
      {
        [modifyAssertion]: (header) => {
          if (thumbprint !== null) header['x5t#S256'] = thumbprint;
        },
      },
    );
  }
}

/** Null when metadata of the issuer can be read and used, else what is wrong with it. */
export async function problemOfIssuer(issuer: string, call: Fetch): Promise<string | null> {
  const seen: Seen = { freshMs: 0, algorithms: [], problem: null };
  try {
    await discoverAs({ issuer, client_id: 'sluice', provider_jwks: null, allowed_tenants: [] }, undefined, call, seen);
    return null;
  } catch (error) {
    if (error instanceof MetadataProblem) return error.message;
    return 'The metadata of the issuer could not be read. Check the address, and whether this server may reach it.';
  }
}

interface Seen {
  freshMs: number;
  algorithms: readonly string[];
  /** The library words errors of its fetch anew. */
  problem: MetadataProblem | null;
}

async function discoverAs(
  client: Pick<SsoClient, 'issuer' | 'client_id' | 'provider_jwks' | 'allowed_tenants'>,
  authentication: ClientAuth | undefined,
  call: Fetch,
  seen: Seen,
): Promise<Configuration> {
  const { issuer } = client;
  let reading = true;
  const guarded = async (url: string, init: unknown): Promise<Response> => {
    const response = await call(url, { ...(init as RequestInit), redirect: 'error' });
    if (!reading || !url.endsWith('/.well-known/openid-configuration')) return response;
    try {
      return await readMetadata(client, response, seen);
    } catch (error) {
      if (error instanceof MetadataProblem) seen.problem = error;
      throw error;
    }
  };
  try {
    const config = await discovery(
      new URL(issuer),
      client.client_id,
      { [clockTolerance]: SKEW_SECONDS },
      authentication,
      {
        // http is for the egress guard to allow: for hosts that the operator trusts.
        execute: [allowInsecureRequests],
        timeout: TIMEOUT_SECONDS,
        [customFetch]: guarded as never,
      },
    );
    reading = false;
    config.timeout = TIMEOUT_SECONDS;
    return config;
  } catch (error) {
    throw seen.problem ?? error;
  }
}

/** The metadata with the algorithms that Sluice takes. */
async function readMetadata(
  client: Pick<SsoClient, 'issuer' | 'allowed_tenants'>,
  response: Response,
  seen: Seen,
): Promise<Response> {
  if (response.status !== 200) {
    throw new MetadataProblem(`The metadata of the issuer could not be read: the status is ${response.status}.`);
  }
  let metadata: unknown;
  try {
    metadata = await response.json();
  } catch {
    metadata = null;
  }
  if (!isObject(metadata)) throw new MetadataProblem('The metadata of the issuer is no JSON object.');
  const { issuer } = client;
  const everyTenant =
    client.allowed_tenants !== null && issuer.startsWith(ENTRA) && String(metadata.issuer).includes('{tenantid}');
  if (metadata.issuer !== issuer && !everyTenant) {
    throw new MetadataProblem(
      'The metadata names another issuer. Write it exactly so, with or without a slash at its end.',
    );
  }
  for (const name of ['authorization_endpoint', 'token_endpoint'] as const) {
    if (!isPage(metadata[name], issuer)) throw new MetadataProblem(`The metadata has no ${name} that can be used.`);
  }
  const { end_session_endpoint: end } = metadata;
  const listed = metadata.id_token_signing_alg_values_supported;
  const algorithms = Array.isArray(listed) ? ALGORITHMS.filter((name) => listed.includes(name)) : ['RS256'];
  if (algorithms.length === 0) {
    throw new MetadataProblem(`The provider signs ID tokens with none of ${ALGORITHMS.join(', ')}.`);
  }
  seen.algorithms = algorithms;
  seen.freshMs = freshness(response.headers.get('cache-control'));
  const { end_session_endpoint: _end, ...rest } = metadata;
  const kept = isPage(end, issuer) ? { ...rest, end_session_endpoint: end } : rest;
  return Response.json({ ...kept, id_token_signing_alg_values_supported: algorithms });
}

/** An address that a browser may be sent to: https, or http where the issuer itself is a trusted host with http. */
function isPage(value: unknown, issuer: string): boolean {
  const url = typeof value === 'string' ? URL.parse(value) : null;
  return url !== null && (url.protocol === 'https:' || (url.protocol === 'http:' && issuer.startsWith('http:')));
}

function freshness(header: string | null): number {
  const age = /(?:^|[\s,])max-age=(\d{1,9})/.exec(header ?? '')?.[1];
  return age === undefined ? FRESH_MS : Math.min(MOST_FRESH_MS, Math.max(LEAST_FRESH_MS, Number(age) * 1000));
}

/** Entra finds the certificate of an assertion by it. */
function certificateThumbprint(x5c: unknown): string | null {
  const first: unknown = Array.isArray(x5c) ? x5c[0] : undefined;
  if (typeof first !== 'string') return null;
  return createHash('sha256').update(Buffer.from(first, 'base64')).digest('base64url');
}
