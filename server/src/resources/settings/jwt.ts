/** Whose tokens an organisation takes: `auth_settings.jwt` of its settings. */
import { z } from 'zod';
import { jwtSettingsOf } from '../../auth/jwt-settings.ts';
import { grantable, scopesOf } from '../../auth/scopes.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { text } from '../../kernel/text-schema.ts';
import type { Row } from '../../store/schema.ts';
import { findWorkspace, refuse, refuseIssues } from '../common.ts';
import type { Call } from '../resource.ts';
import { unknownScopes } from '../unknown-scopes.ts';
import { part } from './section.ts';

const MAX_KEYS = 20;
const MAX_NAME = 2_048;

export const jwtSettings = z
  .strictObject({
    jwks_url: text(MAX_NAME, 1)
      .nullable()
      .optional()
      .describe('Address of the JSON Web Key Set: https. It is read again every ten minutes. Either this or jwks.'),
    jwks: z
      .strictObject({
        keys: z
          .array(z.record(text(64, 1), z.unknown()))
          .min(1)
          .max(MAX_KEYS),
      })
      .nullable()
      .optional()
      .describe('The JSON Web Key Set itself: public RSA keys of at least 2048 bits, each with a kid.'),
    issuer: text(MAX_NAME, 1)
      .nullable()
      .optional()
      .describe('What iss of every token must be, character for character.'),
    audience: text(MAX_NAME, 1)
      .nullable()
      .optional()
      .describe('What aud of every token must be, or have among others.'),
    default_scopes: z
      .array(z.string().max(128))
      .min(1)
      .max(500)
      .nullable()
      .optional()
      .describe('Scopes of tokens that name none. Needs issuer and audience.'),
    default_workspace: text(255, 1)
      .nullable()
      .optional()
      .describe('Id or slug of the workspace of tokens that name none; the id is stored. Needs issuer and audience.'),
  })
  .describe('Tokens (JWT) that the organisation signs and Sluice takes like workspace keys. Null: none.');

export const jwtSettingsAnswer = z
  .object({
    jwks_url: z.string().nullable(),
    jwks: z
      .object({
        keys: z.array(
          z.object({
            kty: z.literal('RSA'),
            n: z.string(),
            e: z.string(),
            kid: z.string(),
            alg: z.literal('RS256').optional(),
            use: z.literal('sig').optional(),
          }),
        ),
      })
      .nullable(),
    issuer: z.string().nullable(),
    audience: z.string().nullable(),
    default_scopes: z.array(z.string()).nullable(),
    default_workspace: z.string().nullable(),
  })
  .nullable();

export function presentJwt(organisation: Pick<Row<'organisations'>, 'settings'>): z.input<typeof jwtSettingsAnswer> {
  const stored = jwtSettingsOf(organisation);
  if (stored === null) return null;
  return {
    jwks_url: stored.jwksUrl,
    jwks: stored.jwks === null ? null : { keys: [...stored.jwks] },
    issuer: stored.issuer,
    audience: stored.audience,
    default_scopes: stored.defaultScopes === null ? null : [...stored.defaultScopes],
    default_workspace: stored.defaultWorkspace,
  };
}

const PATH = 'auth_settings.jwt';

/**
 * The settings as they are stored, merged with those from before: one source of keys replaces the other. Throws 400 for keys,
 * addresses and defaults that cannot be used, and 403 for callers that could give themselves more than they have.
 */
export async function storedJwt(
  call: Pick<Call, 'checkHost' | 'clock' | 'principal' | 'tx'>,
  given: z.output<typeof jwtSettings>,
  before: Row<'organisations'>,
): Promise<Record<string, unknown>> {
  checkMaySign(call);
  if (given.jwks != null && given.jwks_url != null) throw refuse(PATH, 'takes jwks or jwks_url, not both');
  const merged = new Map<string, unknown>(Object.entries(part(part(before.settings, 'auth_settings'), 'jwt')));
  if (given.jwks != null) merged.delete('jwks_url');
  if (given.jwks_url != null) merged.delete('jwks');
  for (const [name, value] of Object.entries(given)) {
    if (value === null) merged.delete(name);
    else if (value !== undefined) merged.set(name, value);
  }
  if (!merged.has('jwks') && !merged.has('jwks_url'))
    throw refuse(PATH, 'needs the keys that sign: jwks or jwks_url. Send null to take no tokens at all');
  if (given.jwks_url != null) checkAddress(call, given.jwks_url);
  if (given.jwks != null) merged.set('jwks', { keys: await publicKeys(given.jwks.keys) });
  if (given.default_workspace != null)
    merged.set('default_workspace', await workspaceId(call, given.default_workspace));
  const unknown = unknownScopes(given.default_scopes ?? [], scopesOf('token'), `${PATH}.default_scopes`, 'tokens');
  if (unknown !== null) throw unknown;
  for (const name of ['default_scopes', 'default_workspace'])
    if (merged.has(name) && !(merged.has('issuer') && merged.has('audience')))
      throw refuse(
        `${PATH}.${name}`,
        'needs issuer and audience beside it: without them any token of the issuer would open the gateway',
      );
  merged.set('version', uuidv7(call.clock));
  return Object.fromEntries(merged);
}

/** Who says which keys sign can sign for every scope of every workspace. */
function checkMaySign({ principal }: Pick<Call, 'principal'>): void {
  const own = grantable(principal);
  const lacking = [...scopesOf('workspace-service')].find((scope) => !own.has(scope));
  if (lacking === undefined) return;
  throw new SluiceError(
    'forbidden',
    `You cannot set ${PATH}: its keys sign tokens with the scope ${lacking}, which your own credential lacks.`,
    { param: PATH },
  );
}

function checkAddress({ checkHost }: Pick<Call, 'checkHost'>, url: string): void {
  const problem = checkHost(url, { httpsOnly: true });
  if (problem !== null) throw refuse(`${PATH}.jwks_url`, problem);
}

async function publicKeys(keys: readonly JsonObject[] | readonly Record<string, unknown>[]): Promise<unknown[]> {
  const { problemOfJwk, publicJwk } = await import('../../auth/tokens/rsa-keys.ts');
  const seen = new Set<unknown>();
  const issues = keys.flatMap((key, i) => {
    const problem = problemOfJwk(key) ?? (seen.has(key.kid) ? 'repeats a kid: each key has its own' : null);
    seen.add(key.kid);
    return problem === null ? [] : [{ path: `keys[${i}]`, message: problem }];
  });
  if (issues.length > 0) throw refuseIssues(`${PATH}.jwks`, issues);
  return keys.map((key) => publicJwk(key as JsonObject));
}

async function workspaceId({ tx }: Pick<Call, 'tx'>, name: string): Promise<string> {
  const workspace = await findWorkspace(tx, name);
  if (workspace !== undefined) return workspace.id;
  throw refuse(
    `${PATH}.default_workspace`,
    'names no workspace of the organisation; GET /v1/admin/workspaces lists them',
  );
}
