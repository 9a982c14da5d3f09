/** Whose tokens an organisation takes: `auth_settings.jwt` of its settings. */
import { isObject, type JsonObject } from '../kernel/json.ts';
import type { Row } from '../store/schema.ts';

/** A public RSA key, as it is stored and shown. */
export type RsaJwk = {
  readonly kty: 'RSA';
  readonly n: string;
  readonly e: string;
  readonly kid: string;
  readonly alg?: 'RS256';
  readonly use?: 'sig';
};

export interface JwtSettings {
  /** Another one with each change of the keys' source or of any other field: what was read under one is not used under another. */
  readonly version: string;
  /** One of the two. */
  readonly jwksUrl: string | null;
  readonly jwks: readonly RsaJwk[] | null;
  readonly issuer: string | null;
  readonly audience: string | null;
  readonly defaultScopes: readonly string[] | null;
  /** Id. */
  readonly defaultWorkspace: string | null;
}

/** Null where the organisation takes no tokens. */
export function jwtSettingsOf({ settings }: Pick<Row<'organisations'>, 'settings'>): JwtSettings | null {
  const section: unknown = settings.auth_settings;
  const jwt = isObject(section) ? section.jwt : null;
  if (!isObject(jwt)) return null;
  const jwksUrl = textOf(jwt, 'jwks_url');
  const jwks = isObject(jwt.jwks) && Array.isArray(jwt.jwks.keys) ? (jwt.jwks.keys as unknown as RsaJwk[]) : null;
  if (jwksUrl === null && jwks === null) return null;
  return {
    version: textOf(jwt, 'version') ?? '',
    jwksUrl,
    jwks,
    issuer: textOf(jwt, 'issuer'),
    audience: textOf(jwt, 'audience'),
    defaultScopes: Array.isArray(jwt.default_scopes) ? (jwt.default_scopes as string[]) : null,
    defaultWorkspace: textOf(jwt, 'default_workspace'),
  };
}

function textOf(object: JsonObject, name: string): string | null {
  const value = object[name];
  return typeof value === 'string' ? value : null;
}
