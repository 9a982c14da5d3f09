/**
 * Console sign-in: one-time links, sessions and the checks on a cookie. A link and a session are 256 random
 * bits; the store keeps SHA-256 digests only. No HTTP here: callers pass header values in and set cookies themselves.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import type { Change, SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Principal } from './principal.ts';
import { roleScopes } from './scopes.ts';
import { maxSessionMs, securityOf } from './security-settings.ts';
import { Throttle } from './throttle.ts';

/** How long a one-time link may be used, milliseconds. */
export const LINK_TTL_MS = 15 * 60_000;
/** How long a session lasts after sign-in, milliseconds; it is never prolonged. */
export const SESSION_TTL_MS = 12 * 3_600_000;
/** Workspaces that a session names; any other is found by `GET /v1/workspaces`. */
const MOST_WORKSPACES = 1_000;
/** A session answer is at most this old, so sign-out on another node, a role change or a suspension act within it. */
const STALE_MS = 1_000;
const CACHE_SIZE = 1_000;
/** Links and sessions are both dead by this age, so older rows are removed when the next one is made. */
const PURGE_AFTER_MS = 24 * 3_600_000;
/** A used link keeps its row, with this expiry, so that the second click gets an answer that says what happened. */
const USED = 0;
const TOKEN = /^[0-9A-Za-z]{43}$/;

const TOPICS: ReadonlySet<string> = new Set(['console_sessions', 'users', 'organisations']);

const NEW_LINK = 'Ask an administrator for a new one, or run npm run sluice -- console-link <address> on the server.';

export interface LinkUser {
  readonly id: string;
  readonly organisation_id: string;
}

/** What else is written in the transaction of a sign-in or sign-out, for example its audit row. */
export type Within = (tx: SystemTx, user: LinkUser) => Promise<void>;

/** A signed-in browser. `csrf` is the value that every write must repeat in the `x-csrf-token` header. */
export interface ConsoleSession {
  /** SHA-256 of the session token, the row's key. */
  readonly digest: string;
  /** Organisation-wide; `ConsoleSessions.inWorkspace` narrows it. */
  readonly principal: Principal;
  readonly csrf: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** The parts of a request that a cookie sign-in is judged by. */
export interface ConsoleRequest {
  readonly method: string;
  /** Raw `Cookie` header. */
  readonly cookie: string | undefined;
  readonly origin: string | undefined;
  /** Raw `x-csrf-token` header. */
  readonly csrf: string | undefined;
}

/**
 * Makes a one-time sign-in link for a user and answers its token, which is shown once and never stored. Usable at first
 * run and from the command line, before any session exists.
 */
export async function createLink(
  tables: Pick<Tables, 'systemWrite'>,
  clock: Clock,
  user: LinkUser,
): Promise<{ token: string; expiresAt: number }> {
  const now = clock.now();
  const link = newLink(user, now);
  await tables.systemWrite(async (tx) => {
    await purge(tx, now);
    await tx.insert('console_sessions', link.row);
  });
  return { token: link.token, expiresAt: link.row.expires_at };
}

/** A one-time link that is not stored yet: its token, which is shown once, and its row. */
export function newLink(user: LinkUser, now: number): { token: string; row: Row<'console_sessions'> } {
  const token = base62(43);
  return { token, row: row(token, user, 'link', now, now + LINK_TTL_MS) };
}

/** The address to open. The token is in the fragment, which browsers never send, so no log on the way can hold it. */
export function linkUrl(publicUrl: string, token: string): string {
  return `${publicUrl.replace(/\/+$/, '')}/console/sign-in#${token}`;
}

export interface ConsoleSessionsOptions {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  /** SLUICE_PUBLIC_URL. A function, because a free port is known only once the server listens. */
  readonly publicUrl: () => string;
}

/** Exchanges links for sessions and tells who a cookie is. One instance per process; its cache is bounded. */
export class ConsoleSessions {
  readonly #tables: ConsoleSessionsOptions['tables'];
  readonly #clock: Clock;
  readonly #publicUrl: () => string;
  readonly #failures: Throttle;
  readonly #cache = new Map<string, { readonly at: number; readonly session: Promise<ConsoleSession | null> }>();

  constructor(options: ConsoleSessionsOptions) {
    this.#tables = options.tables;
    this.#clock = options.clock;
    this.#publicUrl = options.publicUrl;
    this.#failures = new Throttle(options.clock);
  }

  /** `__Host-` needs Secure, which browsers honour on https only; plain http (loopback) gets its own name. */
  get cookieName(): string {
    return this.#secure ? '__Host-sluice' : 'sluice_session';
  }

  get #secure(): boolean {
    return this.#publicUrl().startsWith('https:');
  }

  /** `Set-Cookie` value for a session token, or one that removes the cookie for null. */
  setCookie(token: string | null): string {
    const flags = this.#secure ? '; Secure; HttpOnly; SameSite=Lax' : '; HttpOnly; SameSite=Strict';
    const age = token === null ? 0 : Math.floor(SESSION_TTL_MS / 1000);
    return `${this.cookieName}=${token ?? ''}; Path=/; Max-Age=${age}${flags}`;
  }

  /**
   * Trades a link for a session. Of any number of simultaneous calls with one link exactly one succeeds; the others,
   * like an expired or unknown link, get 401 with a message that says which it is and how to get a new link. Failed
   * attempts of one address are throttled; a true link is never refused for them.
   */
  async exchange(token: string, address = '', within?: Within): Promise<{ token: string; session: ConsoleSession }> {
    const message = 'Too many failed sign-ins. Wait before trying another link.';
    return this.#failures.watch(address, message, () => this.#exchange(token, within));
  }

  async #exchange(token: string, within?: Within): Promise<{ token: string; session: ConsoleSession }> {
    if (!TOKEN.test(token)) throw unknownLink();
    const linkDigest = digestOf(token);
    const sessionToken = base62(43);
    const now = this.#clock.now();
    // A link that is no good must not take a turn among the writes.
    const known = await this.#tables.systemRead((tx) =>
      tx.find('console_sessions', { digest: linkDigest, kind: 'link' }),
    );
    if (!known) throw unknownLink();
    const user = await this.#tables.systemWrite(async (tx) => {
      const claimed = await tx.update(
        'console_sessions',
        { digest: linkDigest, kind: 'link', expires_at: { gt: now } },
        { expires_at: USED },
      );
      const link = await tx.find('console_sessions', { digest: linkDigest, kind: 'link' });
      if (!link) throw unknownLink();
      if (claimed === 0) throw link.expires_at === USED ? usedLink() : expiredLink();
      const owner = { id: link.user_id, organisation_id: link.organisation_id };
      await purge(tx, now);
      await tx.insert('console_sessions', row(sessionToken, owner, 'session', now, now + SESSION_TTL_MS));
      await within?.(tx, owner);
      return owner;
    });
    const session = await this.#load(sessionToken);
    if (!session) {
      throw new SluiceError('forbidden', 'This user can no longer sign in: the account is archived.', {
        detail: { user: user.id },
      });
    }
    return { token: sessionToken, session };
  }

  /** The session of a `Cookie` header, or null. Throws 403 for a suspended organisation. At most a second old. */
  async find(cookie: string | undefined): Promise<ConsoleSession | null> {
    const token = cookieValue(cookie, this.cookieName);
    if (token === null || !TOKEN.test(token)) return null;
    const digest = digestOf(token);
    const now = this.#clock.monotonic();
    let entry = this.#cache.get(digest);
    if (!entry || now - entry.at >= STALE_MS) {
      entry = { at: now, session: this.#load(token) };
      entry.session.catch(() => this.#cache.delete(digest));
      this.#cache.delete(digest);
      this.#cache.set(digest, entry);
      const oldest = this.#cache.keys().next();
      if (this.#cache.size > CACHE_SIZE && !oldest.done) this.#cache.delete(oldest.value);
    }
    const session = await entry.session;
    return session && session.expiresAt > this.#clock.now() ? session : null;
  }

  /** Who a `Cookie` header is, or null. Reads only: a write must go through `authenticate`. */
  async principalOf(cookie: string | undefined): Promise<Principal | null> {
    return (await this.find(cookie))?.principal ?? null;
  }

  /**
   * The session behind a request, with the checks that a write needs: Origin is SLUICE_PUBLIC_URL's and the CSRF token
   * is the session's own. Throws 401 without a session and 403 when a check fails.
   */
  async authenticate(request: ConsoleRequest): Promise<ConsoleSession> {
    const session = await this.find(request.cookie);
    if (!session) {
      throw new SluiceError('unauthenticated', `You are not signed in to the console. ${NEW_LINK}`);
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      this.checkOrigin(request.origin);
      if (!sameText(request.csrf ?? '', session.csrf)) {
        throw new SluiceError(
          'forbidden',
          'The x-csrf-token header is missing or is not this session’s. Reload the console and try again.',
        );
      }
    }
    return session;
  }

  /** Refuses a write that does not come from the console's own pages: another origin, `null`, or none. */
  checkOrigin(origin: string | undefined): void {
    const own = new URL(this.#publicUrl()).origin;
    if (origin !== own) {
      throw new SluiceError('forbidden', `The console accepts this only from its own address. Open ${own}/console/`);
    }
  }

  /**
   * What a signed-in user may know about where they are: the organisation, themselves, and the workspaces they may work
   * in (all of the organisation for owners and admins, else those joined), the default one first, then by name.
   */
  async describe(principal: Principal): Promise<{
    organisation: Row<'organisations'> | undefined;
    user: Row<'users'> | undefined;
    workspaces: Row<'workspaces'>[];
  }> {
    const organisation_id = principal.organisationId;
    const id = principal.userId ?? '';
    return this.#tables.systemRead(async (tx) => {
      const organisation = await tx.find('organisations', { id: organisation_id });
      const user = await tx.find('users', { id, organisation_id });
      const joined =
        principal.role === 'member'
          ? await tx.list('workspace_members', { where: { organisation_id, user_id: id, status: 'active' } })
          : null;
      if (joined?.length === 0) return { organisation, user, workspaces: [] };
      const workspaces = await tx.list('workspaces', {
        where: {
          organisation_id,
          status: 'active',
          ...(joined && { id: { in: joined.map((member) => member.workspace_id) } }),
        },
        orderBy: [
          ['is_default', 'desc'],
          ['name', 'asc'],
        ],
        limit: MOST_WORKSPACES,
      });
      return { organisation, user, workspaces };
    });
  }

  /** The same user bound to one workspace, with the scopes of the role there. 404 when it is not one of the user's. */
  async inWorkspace(principal: Principal, workspaceId: string): Promise<Principal> {
    const missing = () =>
      new SluiceError('unknown_reference', 'There is no such workspace.', { param: 'workspace_id' });
    const role = principal.role ?? 'member';
    const { member, security } = await this.#tables.systemRead(async (tx) => {
      const organisation = await tx.find('organisations', { id: principal.organisationId });
      const workspace = await tx.find('workspaces', {
        id: workspaceId,
        organisation_id: principal.organisationId,
        status: 'active',
      });
      if (!organisation || !workspace) throw missing();
      const joined = await tx.find('workspace_members', {
        workspace_id: workspaceId,
        user_id: principal.userId ?? '',
        organisation_id: principal.organisationId,
        status: 'active',
      });
      return { member: joined, security: securityOf(organisation, workspace) };
    });
    if (role === 'member' && !member) throw missing();
    return {
      ...principal,
      workspaceId,
      scopes: roleScopes(role, role === 'member' ? (member?.role ?? null) : 'admin', security),
    };
  }

  /** Ends a session everywhere: at once on this node, through the change feed (or a second) on the others. */
  async signOut(session: ConsoleSession, within?: Within): Promise<void> {
    const { organisationId, userId } = session.principal;
    await this.#tables.systemWrite(
      async (tx) => {
        await tx.remove('console_sessions', { digest: session.digest, kind: 'session' });
        tx.changed({
          organisationId,
          workspaceId: null,
          topic: 'console_sessions',
          entityId: userId ?? '',
        });
        await within?.(tx, { id: userId ?? '', organisation_id: organisationId });
      },
      { queue: organisationId },
    );
    this.invalidate();
  }

  /** Forgets what was read. For every entry of the change feed; topics that no session depends on cost nothing. */
  invalidate(change?: Pick<Change, 'topic'>): void {
    if (change === undefined || TOPICS.has(change.topic)) this.#cache.clear();
  }

  async #load(token: string): Promise<ConsoleSession | null> {
    const digest = digestOf(token);
    const found = await this.#tables.systemRead(async (tx) => {
      const session = await tx.find('console_sessions', { digest, kind: 'session' });
      if (!session) return null;
      const organisation = await tx.find('organisations', { id: session.organisation_id });
      const user = await tx.find('users', { id: session.user_id, organisation_id: session.organisation_id });
      return organisation && user ? { session, organisation, user } : null;
    });
    if (found?.user.status !== 'active') return null;
    // A sign-in is as old as its row: a limit that the organisation sets later ends older ones, too.
    const limit = maxSessionMs(found.organisation);
    const expiresAt = Math.min(
      found.session.expires_at,
      found.session.created_at + (limit ?? Number.POSITIVE_INFINITY),
    );
    if (expiresAt <= this.#clock.now()) return null;
    if (found.organisation.status === 'suspended') {
      throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
    }
    return {
      digest,
      csrf: createHmac('sha256', token).update('sluice console csrf').digest('base64url'),
      expiresAt,
      principal: {
        kind: 'user',
        keyId: null,
        keyName: null,
        organisationId: found.session.organisation_id,
        workspaceId: null,
        userId: found.user.id,
        role: found.user.role,
        scopes: roleScopes(found.user.role, null, securityOf(found.organisation, null)),
        defaults: {},
        rateLimits: [],
        usageLimits: null,
        expiresAt,
      },
    };
  }
}

function row(
  token: string,
  user: LinkUser,
  kind: Row<'console_sessions'>['kind'],
  now: number,
  expiresAt: number,
): Row<'console_sessions'> {
  return {
    digest: digestOf(token),
    organisation_id: user.organisation_id,
    user_id: user.id,
    kind,
    expires_at: expiresAt,
    created_at: now,
  };
}

async function purge(tx: SystemTx, now: number): Promise<void> {
  await tx.remove('console_sessions', { created_at: { lt: now - PURGE_AFTER_MS } });
}

const digestOf = (token: string): string => createHash('sha256').update(token).digest('hex');

/** Compares digests, so that neither length nor content shows in the time taken. */
function sameText(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
}

/** One cookie's value; null when it is absent, or present twice, which no browser that we set it on would send. */
function cookieValue(header: string | undefined, name: string): string | null {
  let value: string | null = null;
  for (const pair of (header ?? '').split(';')) {
    const at = pair.indexOf('=');
    if (at < 0 || pair.slice(0, at).trim() !== name) continue;
    if (value !== null) return null;
    value = pair.slice(at + 1).trim();
  }
  return value;
}

const refused = (what: string) => new SluiceError('unauthenticated', `${what} ${NEW_LINK}`);
const unknownLink = () => refused('This sign-in link is not valid: it is incomplete or was not made by this Sluice.');
const usedLink = () => refused('This sign-in link has been used. Each link works once.');
const expiredLink = () => refused('This sign-in link has expired. Links are valid for 15 minutes.');
