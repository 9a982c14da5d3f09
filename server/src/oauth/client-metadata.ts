/** What a program says of itself: in a registration (RFC 7591), or in a document at the address that is its id. */
import { z } from 'zod';
import type { Row } from '../store/schema.ts';
import { OAuthError } from './errors.ts';
import { isNativeRedirect, redirectFault } from './redirects.ts';
import { SCOPES } from './resource-addresses.ts';

const MOST_REDIRECTS = 10;
const GRANTS: readonly string[] = ['authorization_code', 'refresh_token'];

/** Shown to users: no control characters, and none that change the direction of the text around them. */
const shown = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .refine((text) => text.isWellFormed() && !/\p{C}|[\u2028\u2029]/u.test(text), 'has characters that cannot be shown');

/** Never fetched and never made an image of: an address to read. */
const page = z
  .string()
  .max(2_048)
  .refine((text) => {
    if (!URL.canParse(text)) return false;
    const { protocol, username, password } = new URL(text);
    return protocol === 'https:' && username === '' && password === '';
  }, 'must be an https address');

/** Unknown members are ignored, as RFC 7591 §2 asks for. */
const metadata = z.object({
  client_name: shown,
  redirect_uris: z.array(z.string()).min(1).max(MOST_REDIRECTS),
  scope: z.string().max(500).optional(),
  scopes: z.array(z.string().max(100)).max(50).optional(),
  logo_uri: page.nullish(),
  client_uri: page.nullish(),
  token_endpoint_auth_method: z.literal('none').optional(),
  grant_types: z.array(z.string().max(100)).max(10).optional(),
  response_types: z.array(z.string().max(100)).max(10).optional(),
  application_type: z.enum(['native', 'web']).optional(),
});

export type ClientFacts = Pick<
  Row<'oauth_clients'>,
  'name' | 'redirect_uris' | 'scopes' | 'application_type' | 'logo_uri' | 'client_uri'
>;

/** Metadata as it is stored. Throws `invalid_redirect_uri` or `invalid_client_metadata`. */
export function readMetadata(value: unknown): ClientFacts {
  const parsed = metadata.safeParse(value);
  if (!parsed.success) {
    const { path = [], message = '' } = parsed.error.issues[0] ?? {};
    const name = path.join('.');
    const code = path[0] === 'redirect_uris' ? 'invalid_redirect_uri' : 'invalid_client_metadata';
    throw new OAuthError(code, `${name === '' ? 'The metadata' : name}: ${message}.`);
  }
  const { client_name, redirect_uris, logo_uri, client_uri, application_type, grant_types, response_types } =
    parsed.data;
  for (const [at, address] of redirect_uris.entries()) {
    const fault = redirectFault(address);
    if (fault !== null) throw new OAuthError('invalid_redirect_uri', `redirect_uris.${at}: the address ${fault}.`);
  }
  const native = redirect_uris.some(isNativeRedirect);
  if (native && application_type === 'web')
    throw new OAuthError(
      'invalid_redirect_uri',
      'redirect_uris: a client of application_type web has https addresses only.',
    );
  if (grant_types !== undefined && !grant_types.includes('authorization_code'))
    throw new OAuthError('invalid_client_metadata', `grant_types: send ${GRANTS.join(' and ')}.`);
  if (response_types !== undefined && !response_types.includes('code'))
    throw new OAuthError('invalid_client_metadata', 'response_types: send code.');
  return {
    name: client_name,
    redirect_uris: [...new Set(redirect_uris)],
    scopes: scopesOf(parsed.data),
    application_type: application_type ?? (native ? 'native' : 'web'),
    logo_uri: logo_uri ?? null,
    client_uri: client_uri ?? null,
  };
}

/** The scopes that a client may ask for: what it names of ours; all where it names none. */
function scopesOf({ scope, scopes }: z.output<typeof metadata>): string[] {
  const named = scopes ?? scope?.split(' ').filter((one) => one !== '') ?? [];
  if (named.length === 0) return [...SCOPES];
  const known = SCOPES.filter((one) => named.includes(one));
  if (known.length === 0)
    throw new OAuthError('invalid_client_metadata', `scope: none of them is one of ${SCOPES.join(', ')}.`);
  return known;
}

/** A client as a registration is answered. */
export function presentClient(client: Row<'oauth_clients'>) {
  return {
    client_id: client.id,
    client_id_issued_at: Math.floor(client.created_at / 1000),
    client_name: client.name,
    redirect_uris: client.redirect_uris,
    scope: client.scopes.join(' '),
    scopes: client.scopes,
    ...(client.logo_uri === null ? {} : { logo_uri: client.logo_uri }),
    ...(client.client_uri === null ? {} : { client_uri: client.client_uri }),
    application_type: client.application_type,
    token_endpoint_auth_method: 'none',
    grant_types: GRANTS,
    response_types: ['code'],
  };
}
