/**
 * Sessions as rows: what makes one and what ends them. Code that signs a user in calls `createSession`, code that cuts one
 * off `endSessions`, each in a transaction of the caller. A session is 256 random bits; the store keeps the digest only.
 */
import { createHash } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import { Secret } from '../kernel/secret.ts';
import type { Change, Where } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import { maxSessionMs } from './security-settings.ts';
import { systemTenant } from './tenant.ts';

/** How long a session lasts after sign-in, milliseconds; it is never prolonged. */
export const SESSION_TTL_MS = 12 * 3_600_000;
/** Links and sessions are both dead by this age, so older rows are removed when the next one is made. */
const PURGE_AFTER_MS = 24 * 3_600_000;
/** A longer ID token is not kept: signing out at the provider then names the client only. */
const MOST_ID_TOKEN = 16_384;
const MOST_USER_AGENT = 512;

type SessionRow = Row<'console_sessions'>;
type OfSessions = Where<'console_sessions'>;

/** A session with whose it is. */
export interface SessionParts {
  readonly session: SessionRow;
  readonly organisation: Row<'organisations'>;
  readonly user: Row<'users'>;
}

/** What of a transaction sessions need: a tenant's has it, and the system's. */
export interface SessionTx {
  insert(table: 'console_sessions', row: SessionRow): Promise<void>;
  remove(table: 'console_sessions', where: OfSessions): Promise<number>;
  changed(change: Change): void;
}

/** A transaction that can also read: the organisation whose limit a new session has, and the session before it. */
export interface SignInTx extends SessionTx {
  find<N extends 'organisations' | 'console_sessions'>(table: N, where: Where<N>): Promise<Row<N> | undefined>;
}

export interface NewSession {
  readonly organisationId: string;
  readonly userId: string;
  /** The identity provider's registration (`sso_clients`) that signed the user in. */
  readonly clientId?: string;
  /** When the user last proved who they are, milliseconds since the epoch. Default: now. */
  readonly authTime?: number;
  readonly issuer?: string;
  readonly subject?: string;
  /** The identity provider's own id of the session. */
  readonly sid?: string;
  /** Kept encrypted, as a hint for signing out at the provider. */
  readonly idToken?: string;
  readonly userAgent?: string;
  /** Digest of the session that this browser had until now: it ends. */
  readonly replaces?: string | null;
}

export interface CreatedSession {
  /** The cookie's value, shown once. */
  readonly token: string;
  readonly digest: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/**
 * Writes a session with a new id, whatever the browser had before. Throws `unauthenticated` when the proof of who the user
 * is, is older than the organisation's `max_session_ttl`: such a session would be born dead.
 *
 * An `idToken` needs `vault.ensureKey` of the organisation before the transaction.
 */
export async function createSession(
  tx: SignInTx,
  { clock, vault }: { readonly clock: Clock; readonly vault?: Pick<Vault, 'seal'> },
  own: NewSession,
): Promise<CreatedSession> {
  const now = clock.now();
  const organisation = await tx.find('organisations', { id: own.organisationId });
  const provedAt = Math.min(own.authTime ?? now, now);
  const expiresAt = Math.min(now + SESSION_TTL_MS, provedAt + limitOf(organisation));
  if (expiresAt <= now) {
    const message = 'You signed in to your identity provider too long ago for this organisation. Sign in there again.';
    throw new SluiceError('unauthenticated', message);
  }
  const { organisationId, replaces } = own;
  await purgeSessions(tx, now);
  if (replaces) {
    const before = await tx.find('console_sessions', { digest: replaces, kind: 'session' });
    if (before) await endSessions(tx, { organisationId: before.organisation_id, session: replaces });
  }
  const token = base62(43);
  const digest = tokenDigest(token);
  await tx.insert('console_sessions', {
    ...sessionRow({ digest, organisationId, userId: own.userId, kind: 'session' }, now, now + SESSION_TTL_MS),
    client_id: own.clientId ?? null,
    auth_time: provedAt,
    issuer: own.issuer ?? null,
    subject: own.subject ?? null,
    sid: own.sid ?? null,
    id_token: vault === undefined ? null : await sealIdToken(vault, organisationId, digest, own.idToken),
    user_agent: own.userAgent?.slice(0, MOST_USER_AGENT) ?? null,
  });
  return { token, digest, expiresAt };
}

/** Which sessions end: one by its digest, or all of a user, a client, a subject at an issuer, or a provider's session. */
export type EndedSessions = { readonly organisationId: string } & (
  | { readonly session: string }
  | { readonly userId: string }
  | { readonly clientId: string }
  | { readonly issuer: string; readonly subject: string }
  | { readonly issuer: string; readonly sid: string }
);

/**
 * Ends sessions with all tokens that hang on them, and, of a user, sign-in links that were not used yet. They end within a
 * second on every node; behind the commit, `ConsoleSessions.invalidate` ends them at once on this one, which the
 * administration handler does by itself. Answers how many rows went.
 */
export async function endSessions(tx: SessionTx, ended: EndedSessions): Promise<number> {
  const removed = await tx.remove('console_sessions', { organisation_id: ended.organisationId, ...columnsOf(ended) });
  const entityId = 'userId' in ended ? ended.userId : ended.organisationId;
  if (removed > 0) {
    tx.changed({ organisationId: ended.organisationId, workspaceId: null, topic: 'console_sessions', entityId });
  }
  return removed;
}

function columnsOf(ended: EndedSessions): OfSessions {
  if ('session' in ended) return { digest: ended.session, kind: 'session' };
  if ('userId' in ended) return { user_id: ended.userId };
  if ('clientId' in ended) return { client_id: ended.clientId };
  const { issuer } = ended;
  return 'sid' in ended ? { issuer, sid: ended.sid } : { issuer, subject: ended.subject };
}

/** What a session rests on, for another of the same user that is made from it. */
export function proofOf(session: SessionRow): Pick<NewSession, 'authTime' | 'clientId' | 'issuer' | 'subject' | 'sid'> {
  const { auth_time, created_at, client_id: clientId, issuer, subject, sid } = session;
  return {
    authTime: auth_time ?? created_at,
    ...(clientId !== null && { clientId }),
    ...(issuer !== null && { issuer }),
    ...(subject !== null && { subject }),
    ...(sid !== null && { sid }),
  };
}

/** When a session ends: 12 hours after it was made, or earlier by the limit that the organisation has now. */
export function endOf(session: SessionRow, organisation: Pick<Row<'organisations'>, 'settings'>): number {
  return Math.min(session.expires_at, (session.auth_time ?? session.created_at) + limitOf(organisation));
}

const limitOf = (organisation: Pick<Row<'organisations'>, 'settings'> | undefined): number =>
  (organisation && maxSessionMs(organisation)) ?? Number.POSITIVE_INFINITY;

/** A link or session of which nothing is known but its user. */
export function sessionRow(
  own: {
    readonly digest: string;
    readonly organisationId: string;
    readonly userId: string;
    readonly kind: SessionRow['kind'];
  },
  now: number,
  expiresAt: number,
): SessionRow {
  return {
    digest: own.digest,
    organisation_id: own.organisationId,
    user_id: own.userId,
    kind: own.kind,
    expires_at: expiresAt,
    created_at: now,
    client_id: null,
    auth_time: null,
    issuer: null,
    subject: null,
    sid: null,
    id_token: null,
    user_agent: null,
    browser: null,
  };
}

/** Removes links and sessions that ended long ago. */
export async function purgeSessions(tx: Pick<SessionTx, 'remove'>, now: number): Promise<void> {
  await tx.remove('console_sessions', { created_at: { lt: now - PURGE_AFTER_MS } });
}

/** SHA-256, lower-case hexadecimal: what is stored of links, sessions and login cookies. */
export const tokenDigest = (token: string): string => createHash('sha256').update(token).digest('hex');

const placeOf = (digest: string) => ({ table: 'console_sessions', column: 'id_token', row: digest });

/** The ID token that a session was made with, as a hint for signing out at the provider; null without one. */
export async function idTokenOf(vault: Pick<Vault, 'open'>, session: SessionRow): Promise<Secret | null> {
  if (session.id_token === null) return null;
  return vault.open(systemTenant(session.organisation_id), placeOf(session.digest), session.id_token);
}

async function sealIdToken(
  vault: Pick<Vault, 'seal'>,
  organisationId: string,
  digest: string,
  idToken: string | undefined,
): Promise<string | null> {
  if (idToken === undefined || idToken.length > MOST_ID_TOKEN) return null;
  return vault.seal(systemTenant(organisationId), placeOf(digest), new Secret(idToken));
}
