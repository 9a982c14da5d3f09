/**
 * What users have given clients: codes become families of tokens, refresh tokens rotate, and a second use of a code or of a
 * refresh token ends its family (RFC 6749, RFC 7636, RFC 9700 §4.14.2).
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { digestOfToken, mintKey } from '../auth/key-format.ts';
import { maxSessionMs } from '../auth/security-settings.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { CODE_KEPT_MS } from './authorization.ts';
import type { Clients } from './clients.ts';
import { OAuthError } from './errors.ts';

const ACCESS_TTL_MS = 3_600_000;
const DAY_MS = 24 * 3_600_000;
/** A refresh token that nobody uses for this long is dead. */
const REFRESH_TTL_MS = 30 * DAY_MS;
/** After this the user is asked again, however often tokens were renewed. */
const FAMILY_TTL_MS = 90 * DAY_MS;
/** RFC 7636 §4.1. */
const VERIFIER = /^[A-Za-z0-9\-._~]{43,128}$/;

export interface GrantsOptions {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  readonly clients: Clients;
}

/** The answer of the token endpoint. */
export interface TokenAnswer {
  readonly access_token: string;
  readonly token_type: 'Bearer';
  readonly expires_in: number;
  readonly refresh_token: string;
  readonly scope: string;
}

/** Tokens, and why they were issued: for the audit log. */
export interface Issued {
  readonly answer: TokenAnswer;
  readonly family: Row<'oauth_families'>;
}

/** Writes more in the transaction in which a second use ended a family: its audit row. */
export type Reused = (tx: SystemTx, family: Row<'oauth_families'>) => Promise<void>;

/** A token that is valid now, with all that it hangs on. */
export interface LiveToken {
  readonly token: Row<'oauth_tokens'>;
  readonly family: Row<'oauth_families'>;
  readonly user: Row<'users'>;
  readonly organisation: Row<'organisations'>;
  readonly workspace: Row<'workspaces'>;
  readonly member: Row<'workspace_members'> | undefined;
}

type Fields = Readonly<Record<string, string>>;

/** One message for everything that is wrong with a code or a token: it says nothing about which of them exist. */
const refused = (what: 'code' | 'refresh_token') =>
  new OAuthError('invalid_grant', `The ${what} is not valid: it is unknown, was used, has expired or was revoked.`);

export class Grants {
  readonly #options: GrantsOptions;

  constructor(options: GrantsOptions) {
    this.#options = options;
  }

  /** Exchanges a code, once. It is used up by the first call of its client, whatever else is wrong with that call. */
  async exchange(fields: Fields, client: Row<'oauth_clients'>, reused: Reused): Promise<Issued> {
    const { code = '', redirect_uri, code_verifier = '', resource } = fields;
    const digest = digestOfToken(code, 'oac');
    if (digest === null) throw refused('code');
    const now = this.#options.clock.now();
    const { tables } = this.#options;
    const mine = { digest, client_id: client.id };
    const known = await tables.systemRead((tx) => tx.find('oauth_codes', mine));
    if (known === undefined) throw refused('code');
    const exchanged = async (tx: SystemTx) => {
      const row = await tx.find('oauth_codes', mine);
      if (row === undefined) return refused('code');
      const open = { digest, used_at: null, expires_at: { gt: now } };
      if ((await tx.update('oauth_codes', open, { used_at: now })) === 0) {
        if (row.used_at !== null) await this.#endReused(tx, row.family_id, reused);
        return refused('code');
      }
      if (!VERIFIER.test(code_verifier) || !sameText(challengeOf(code_verifier), row.challenge))
        return new OAuthError('invalid_grant', 'The code_verifier is not the one of the code_challenge.');
      if (redirect_uri !== row.redirect_uri)
        return new OAuthError('invalid_grant', 'Send the redirect_uri of the authorization request.');
      if (resource !== undefined && resource !== row.resource)
        return new OAuthError('invalid_target', 'The code is for another resource.');
      const { organisation_id, workspace_id, user_id, client_id, scope, client_name } = row;
      const family: Row<'oauth_families'> = {
        id: uuidv7(this.#options.clock),
        ...{ organisation_id, workspace_id, user_id, client_id, scope, resource: row.resource, client_name },
        signed_in_at: row.signed_in_at ?? row.created_at,
        expires_at: now + FAMILY_TTL_MS,
        created_at: now,
      };
      const place = await this.#placeOf(tx, family);
      if (place === null || endOf(family, place.organisation) <= now) return refused('code');
      await this.#purge(tx, now);
      await tx.insert('oauth_families', family);
      await tx.update('oauth_codes', { digest }, { family_id: family.id });
      return this.#issue(tx, { family, organisation: place.organisation }, family.scope, now);
    };
    const outcome = await tables.systemWrite(exchanged, { queue: known.organisation_id });
    if (outcome instanceof OAuthError) throw outcome;
    return outcome;
  }

  /** Renews tokens. Of any number of simultaneous calls with one token one succeeds; the others end the family. */
  async refresh(fields: Fields, client: Row<'oauth_clients'>, reused: Reused): Promise<Issued> {
    const { refresh_token = '', scope, resource } = fields;
    const digest = digestOfToken(refresh_token, 'ort');
    if (digest === null) throw refused('refresh_token');
    const now = this.#options.clock.now();
    const { tables } = this.#options;
    const known = await tables.systemRead((tx) => tx.find('oauth_tokens', { digest, kind: 'refresh' }));
    if (known === undefined) throw refused('refresh_token');
    const refreshed = async (tx: SystemTx) => {
      const found = await this.#live(tx, digest, now);
      if (found === undefined || found.family.client_id !== client.id) return refused('refresh_token');
      const { family } = found;
      if (resource !== undefined && resource !== family.resource)
        return new OAuthError('invalid_target', 'The refresh_token is for another resource.');
      const narrow = narrower(scope, family.scope);
      if (narrow === null) return new OAuthError('invalid_scope', `The user has given no more than: ${family.scope}.`);
      if ((await tx.update('oauth_tokens', { digest, kind: 'refresh', used_at: null }, { used_at: now })) === 0) {
        await this.#endReused(tx, family.id, reused);
        return refused('refresh_token');
      }
      await this.#options.clients.used(tx, client.id);
      await this.#purge(tx, now);
      return this.#issue(tx, found, narrow, now);
    };
    const outcome = await tables.systemWrite(refreshed, { queue: known.organisation_id });
    if (outcome instanceof OAuthError) throw outcome;
    return outcome;
  }

  /** The token as it is now: null for one that is unknown, used, expired, or whose user, workspace or client is gone. */
  async find(secret: string): Promise<LiveToken | null> {
    const read = readToken(secret);
    if (read === null) return null;
    const now = this.#options.clock.now();
    const found = await this.#options.tables.systemRead((tx) => this.#live(tx, read.digest, now));
    return found === undefined || found.token.kind !== read.kind || found.token.used_at !== null ? null : found;
  }

  /** Ends the family of a token; answers it. Undefined: there is none, or it is another client's. */
  async revoke(secret: string, clientId: string | undefined): Promise<Row<'oauth_families'> | undefined> {
    const read = readToken(secret);
    if (read === null) return undefined;
    const { tables } = this.#options;
    const known = await tables.systemRead((tx) => tx.find('oauth_tokens', { digest: read.digest }));
    if (known === undefined) return undefined;
    return tables.systemWrite(async (tx) => {
      const token = await tx.find('oauth_tokens', { digest: read.digest });
      const family = token && (await tx.find('oauth_families', { id: token.family_id }));
      if (family === undefined || (clientId !== undefined && clientId !== family.client_id)) return undefined;
      await endFamily(tx, family);
      return family;
    });
  }

  /** A token that has not ended, whether or not it was used, with all that it hangs on where all of it is active. */
  async #live(tx: SystemTx, digest: string, now: number): Promise<LiveToken | undefined> {
    const token = await tx.find('oauth_tokens', { digest, expires_at: { gt: now } });
    const family = token && (await tx.find('oauth_families', { id: token.family_id, expires_at: { gt: now } }));
    if (token === undefined || family === undefined) return undefined;
    const place = await this.#placeOf(tx, family);
    return place === null || endOf(family, place.organisation) <= now ? undefined : { token, family, ...place };
  }

  /** What a family hangs on; null unless all of it is active. */
  async #placeOf(tx: SystemTx, family: Row<'oauth_families'>): Promise<Omit<LiveToken, 'token' | 'family'> | null> {
    const { organisation_id, workspace_id, user_id, client_id } = family;
    const organisation = await tx.find('organisations', { id: organisation_id, status: 'active' });
    const user = await tx.find('users', { id: user_id, organisation_id, status: 'active' });
    const workspace = await tx.find('workspaces', { id: workspace_id, organisation_id, status: 'active' });
    const client = await tx.find('oauth_clients', { id: client_id });
    if (!organisation || !user || !workspace || !client) return null;
    const member = await tx.find('workspace_members', { workspace_id, user_id, organisation_id, status: 'active' });
    return user.role === 'member' && member === undefined ? null : { user, organisation, workspace, member };
  }

  async #issue(
    tx: SystemTx,
    { family, organisation }: Pick<LiveToken, 'family' | 'organisation'>,
    scope: string,
    now: number,
  ): Promise<Issued> {
    const [access, refresh] = [mintKey('oat'), mintKey('ort')];
    const { id: family_id, organisation_id } = family;
    const common = { organisation_id, family_id, scope, used_at: null, created_at: now };
    const end = endOf(family, organisation);
    const ends = (ttl: number) => Math.min(now + ttl, end);
    await tx.insert('oauth_tokens', {
      ...common,
      digest: access.digest,
      kind: 'access',
      expires_at: ends(ACCESS_TTL_MS),
    });
    await tx.insert('oauth_tokens', {
      ...common,
      digest: refresh.digest,
      kind: 'refresh',
      expires_at: ends(REFRESH_TTL_MS),
    });
    const expires_in = Math.floor((ends(ACCESS_TTL_MS) - now) / 1000);
    const answer = {
      access_token: access.key,
      token_type: 'Bearer',
      expires_in,
      refresh_token: refresh.key,
      scope,
    } as const;
    return { answer, family };
  }

  /** Used refresh tokens stay until their end: a second use of one must be known as such. */
  async #purge(tx: SystemTx, now: number): Promise<void> {
    await tx.remove('oauth_tokens', { expires_at: { lt: now } });
    await tx.remove('oauth_families', { expires_at: { lt: now } });
    await tx.remove('oauth_codes', { expires_at: { lt: now - CODE_KEPT_MS } });
  }

  async #endReused(tx: SystemTx, id: string | null, reused: Reused): Promise<void> {
    const family = id === null ? undefined : await tx.find('oauth_families', { id });
    if (family === undefined) return;
    await endFamily(tx, family);
    await reused(tx, family);
  }
}

/** Kind and digest of a well-formed access or refresh token, else null. */
function readToken(text: string): { readonly kind: 'access' | 'refresh'; readonly digest: string } | null {
  for (const [kind, type] of [
    ['access', 'oat'],
    ['refresh', 'ort'],
  ] as const) {
    const digest = digestOfToken(text, type);
    if (digest !== null) return { kind, digest };
  }
  return null;
}

/** When a family ends: no later than a sign-in of its organisation does, by what its settings say now. */
function endOf(
  { expires_at, signed_in_at, created_at }: Row<'oauth_families'>,
  organisation: Row<'organisations'>,
): number {
  return Math.min(expires_at, (signed_in_at ?? created_at) + (maxSessionMs(organisation) ?? Number.POSITIVE_INFINITY));
}

/** Ends a family on all nodes. */
async function endFamily(tx: SystemTx, family: Row<'oauth_families'>): Promise<void> {
  const { id, organisation_id: organisationId, workspace_id: workspaceId } = family;
  await tx.remove('oauth_families', { id });
  tx.changed({ organisationId, workspaceId, topic: 'oauth_families', entityId: id });
}

/** The scope of a renewed token: what is asked for of what was given; null when more is asked for. */
function narrower(asked: string | undefined, given: string): string | null {
  const named = [...new Set((asked ?? '').split(' ').filter((one) => one !== ''))];
  if (named.length === 0) return given;
  const had = given.split(' ');
  // `mcp` is both of the others.
  const covered = (one: string) =>
    had.includes(one) || (had.includes('mcp') && (one === 'mcp:read' || one === 'mcp:write'));
  return named.every(covered) ? named.join(' ') : null;
}

const challengeOf = (verifier: string): string => createHash('sha256').update(verifier).digest('base64url');

function sameText(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
}
