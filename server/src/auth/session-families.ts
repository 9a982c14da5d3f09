/**
 * Pairs of tokens for the API and the command line. A pair hangs on a session and ends with it. Each refresh makes the next
 * pair of the same family; a second use of one refresh token, by whomever, ends the family.
 */
import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { digestOf, mintKey, parseToken, type TokenType } from './key-format.ts';
import { endOf, type SessionParts } from './session-rows.ts';

/** How long an auth token is taken, milliseconds. */
export const AUTH_TOKEN_TTL_MS = 15 * 60_000;

export interface TokenPair {
  readonly auth_token: string;
  readonly refresh_token: string;
}

/** The session that a pair hangs on. */
interface Holder {
  readonly organisationId: string;
  /** Its digest. */
  readonly session: string;
  /** When it ends, milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** A transaction that writes tokens: a tenant's or the system's. */
interface FamilyTx {
  insert<N extends 'session_families' | 'session_tokens'>(table: N, row: Row<N>): Promise<void>;
}

/** Begins a family. */
export async function createPair(tx: FamilyTx, clock: Clock, holder: Holder): Promise<TokenPair> {
  const family = uuidv7(clock);
  const { organisationId: organisation_id, session } = holder;
  await tx.insert('session_families', { id: family, organisation_id, session, created_at: clock.now() });
  return addPair(tx, clock, family, holder);
}

async function addPair(tx: FamilyTx, clock: Clock, family: string, holder: Holder): Promise<TokenPair> {
  const now = clock.now();
  const ends = { auth: Math.min(now + AUTH_TOKEN_TTL_MS, holder.expiresAt), refresh: holder.expiresAt };
  const [auth, refresh] = [mintKey('sat'), mintKey('srt')];
  for (const [kind, { publicId, digest }] of Object.entries({ auth, refresh }) as ['auth' | 'refresh', typeof auth][]) {
    await tx.insert('session_tokens', {
      id: publicId,
      organisation_id: holder.organisationId,
      family_id: family,
      kind,
      digest,
      expires_at: ends[kind],
      used_at: null,
      created_at: now,
    });
  }
  return { auth_token: auth.key, refresh_token: refresh.key };
}

const dead = () =>
  new SluiceError('unauthenticated', 'The refresh token is not valid, or its session has ended. Sign in again.');
const reused = () =>
  new SluiceError(
    'unauthenticated',
    'The refresh token was used before, so all tokens of its family have ended. Sign in again.',
  );

export interface RefreshDeps {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  /** Writes, in the same transaction, that a token was used twice. */
  readonly onReuse: (tx: SystemTx, whose: { organisationId: string; userId: string }) => Promise<void>;
}

/**
 * The next pair for a refresh token, which is used up by it. Of any number of simultaneous calls one gets a pair, and the
 * others end it with its family. Throws `unauthenticated` for any token that gives none, whatever the reason.
 *
 * @param organisationId as the caller names it; another one than the token's is refused, and uses nothing up
 */
export async function refreshPair(deps: RefreshDeps, token: string, organisationId: string | null): Promise<TokenPair> {
  const { tables, clock } = deps;
  const known = await findToken(tables, token, 'srt');
  if (known === null || (organisationId !== null && organisationId !== known.organisation_id)) throw dead();
  const { id, organisation_id, family_id } = known;
  const pair = await tables.systemWrite(
    async (tx) => {
      const now = clock.now();
      const found = await sessionOf(tx, known);
      if (found === null || endOf(found.session, found.organisation) <= now) return 'dead';
      const { session, organisation, user } = found;
      if ((await tx.update('session_tokens', { id, organisation_id, used_at: null }, { used_at: now })) === 0) {
        await tx.remove('session_families', { id: family_id, organisation_id });
        const topic = 'console_sessions';
        tx.changed({ organisationId: organisation_id, workspaceId: null, topic, entityId: user.id });
        await deps.onReuse(tx, { organisationId: organisation_id, userId: user.id });
        return 'reused';
      }
      if (user.status !== 'active' || organisation.status !== 'active') return 'dead';
      await tx.remove('session_tokens', { organisation_id, family_id, kind: 'auth', expires_at: { lt: now } });
      const expiresAt = endOf(session, organisation);
      return addPair(tx, clock, family_id, { organisationId: organisation_id, session: session.digest, expiresAt });
    },
    { queue: organisation_id },
  );
  if (pair === 'dead') throw dead();
  if (pair === 'reused') throw reused();
  return pair;
}

/** The row of a token that is known and not expired by its own time; null for every other text. */
export async function findToken(
  tables: Pick<Tables, 'systemRead'>,
  token: string,
  type: TokenType,
): Promise<Row<'session_tokens'> | null> {
  const id = parseToken(token, type);
  if (id === null) return null;
  const kind = type === 'sat' ? 'auth' : 'refresh';
  const row = await tables.systemRead((tx) => tx.find('session_tokens', { id, kind }));
  if (row === undefined) return null;
  const same = timingSafeEqual(Buffer.from(row.digest, 'hex'), Buffer.from(digestOf(token), 'hex'));
  return same ? row : null;
}

/** The session that a token hangs on. */
export async function sessionOf(tx: SystemTx, token: Row<'session_tokens'>): Promise<SessionParts | null> {
  const { organisation_id, family_id } = token;
  const family = await tx.find('session_families', { id: family_id, organisation_id });
  if (family === undefined) return null;
  const session = await tx.find('console_sessions', { digest: family.session, organisation_id, kind: 'session' });
  if (session === undefined) return null;
  const organisation = await tx.find('organisations', { id: organisation_id });
  const user = await tx.find('users', { id: session.user_id, organisation_id });
  return organisation && user ? { session, organisation, user } : null;
}
