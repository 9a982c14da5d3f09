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
import type { Vault } from '../store/vault.ts';
import { mayUseLinks } from './auth-settings.ts';
import { parseToken } from './key-format.ts';
import type { Principal } from './principal.ts';
import { roleScopes } from './scopes.ts';
import { securityOf } from './security-settings.ts';
import {
  type CreatedSession,
  createSession,
  endOf,
  endSessions,
  type NewSession,
  purgeSessions,
  SESSION_TTL_MS,
  type SessionParts,
  type SignInTx,
  sessionRow,
  tokenDigest,
} from './session-rows.ts';
import { Throttle, tooMany } from './throttle.ts';

/** How long a one-time link may be used, milliseconds. */
export const LINK_TTL_MS = 15 * 60_000;
/** Workspaces that a session names; any other is found by `GET /v1/workspaces`. */
const MOST_WORKSPACES = 1_000;
/** A session answer is at most this old, so sign-out on another node, a role change or a suspension act within it. */
const STALE_MS = 1_000;
const CACHE_SIZE = 1_000;
/** Seconds; nothing that is begun in a browser lasts longer. */
const LOGIN_MAX_AGE = 15 * 60;
/** A used link keeps its row, with this expiry, so that the second click gets an answer that says what happened. */
const USED = 0;
const TOKEN = /^[0-9A-Za-z]{43}$/;

const TOPICS: ReadonlySet<string> = new Set(['console_sessions', 'users', 'organisations']);

const TOO_MANY_TOKENS = 'Too many failed attempts. Wait before trying another token.';
const NEW_LINK = 'Ask an administrator for a new link, or run npm run sluice -- console-link <address> on the server.';

export interface LinkUser {
  readonly id: string;
  readonly organisation_id: string;
}

/** What else is written in the transaction of a sign-in or sign-out, for example its audit row. */
export type Within = (tx: SystemTx, user: LinkUser) => Promise<void>;

/** A sign-in that is alive, in a browser or behind a token. */
export interface ConsoleSession {
  /** SHA-256 of the session token, the row's key. */
  readonly digest: string;
  /** Organisation-wide; `ConsoleSessions.inWorkspace` narrows it. */
  readonly principal: Principal;
  /** What every write with the cookie must repeat in the `x-csrf-token` header; empty behind a token, which needs none. */
  readonly csrf: string;
  /** Of the session, or of the token where that ends earlier; milliseconds since the epoch. */
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
    await purgeSessions(tx, now);
    await tx.insert('console_sessions', link.row);
  });
  return { token: link.token, expiresAt: link.row.expires_at };
}

/**
 * A one-time link that is not stored yet: its token, which is shown once, and its row.
 *
 * @param browser digest of the login cookie of the one browser that may use it; null: any
 */
export function newLink(
  user: LinkUser,
  now: number,
  browser: string | null = null,
): { token: string; row: Row<'console_sessions'> } {
  const token = base62(43);
  const own = { digest: tokenDigest(token), organisationId: user.organisation_id, userId: user.id } as const;
  return { token, row: { ...sessionRow({ ...own, kind: 'link' }, now, now + LINK_TTL_MS), browser } };
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
  /** Seals ID tokens; without it none is kept. */
  readonly vault?: Pick<Vault, 'seal'>;
}

/** The browser that signs in. */
export interface SigningIn {
  /** For the throttle of failed attempts. */
  readonly address?: string;
  /** Raw `Cookie` header: its session, if any, ends with the sign-in. */
  readonly cookie?: string | undefined;
  readonly userAgent?: string | undefined;
  /** Told of a link that is known and was refused, unless its caller has failed too often. */
  readonly onRefused?: (user: LinkUser) => Promise<void>;
}

/**
 * The cookies of signing in: one names the session; the other, the login cookie, ties what a browser began (a provider's
 * sign-in, a mailed link, a passkey's challenge) to that browser. `__Host-` needs Secure, which browsers honour on https only; plain http (loopback) gets its own names.
 */
class SignInCookies {
  readonly #publicUrl: () => string;

  constructor(publicUrl: () => string) {
    this.#publicUrl = publicUrl;
  }

  get #secure(): boolean {
    return this.#publicUrl().startsWith('https:');
  }

  get session(): string {
    return this.#secure ? '__Host-sluice' : 'sluice_session';
  }

  get login(): string {
    return this.#secure ? '__Host-sluice-login' : 'sluice_login';
  }

  /** `Set-Cookie` value for a session token, or one that removes the cookie for null. */
  setSession(token: string | null): string {
    const flags = this.#secure ? '; Secure; HttpOnly; SameSite=Lax' : '; HttpOnly; SameSite=Strict';
    const age = token === null ? 0 : Math.floor(SESSION_TTL_MS / 1000);
    return `${this.session}=${token ?? ''}; Path=/; Max-Age=${age}${flags}`;
  }

  /** A login cookie for a new attempt. Lax: the browser comes back from the identity provider with it. */
  newLogin(): { readonly digest: string; readonly setCookie: string } {
    const token = base62(43);
    const flags = this.#secure ? '; Secure; HttpOnly; SameSite=Lax' : '; HttpOnly; SameSite=Lax';
    return {
      digest: tokenDigest(token),
      setCookie: `${this.login}=${token}; Path=/; Max-Age=${LOGIN_MAX_AGE}${flags}`,
    };
  }

  /** `Set-Cookie` value that removes the login cookie. */
  endLogin(): string {
    return `${this.login}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax${this.#secure ? '; Secure' : ''}`;
  }

  /** Digest of the login cookie of a `Cookie` header; null without one, or with several. */
  loginDigest(header: string | undefined): string | null {
    const values = cookieValues(header, this.login);
    return values.length === 1 && TOKEN.test(values[0] ?? '') ? tokenDigest(values[0] ?? '') : null;
  }

  /** The session token of a `Cookie` header, null without one; `several` when the header has it more than once. */
  sessionToken(header: string | undefined): { readonly token: string | null; readonly several: boolean } {
    const values = cookieValues(header, this.session);
    const [first = ''] = values;
    return { token: values.length === 1 && TOKEN.test(first) ? first : null, several: values.length > 1 };
  }
}

function cookieValues(header: string | undefined, name: string): string[] {
  if (header === undefined) return [];
  const values: string[] = [];
  for (const pair of header.split(';')) {
    const at = pair.indexOf('=');
    if (at >= 0 && pair.slice(0, at).trim() === name) values.push(pair.slice(at + 1).trim());
  }
  return values;
}

/** Exchanges links for sessions and tells who a cookie is. One instance per process; its cache is bounded. */
export class ConsoleSessions {
  readonly #tables: ConsoleSessionsOptions['tables'];
  readonly #clock: Clock;
  readonly #publicUrl: () => string;
  readonly #vault: ConsoleSessionsOptions['vault'];
  readonly #failures: Throttle;
  readonly cookies: SignInCookies;
  readonly #cache = new Map<string, { readonly at: number; readonly session: Promise<ConsoleSession | null> }>();

  constructor(options: ConsoleSessionsOptions) {
    this.#tables = options.tables;
    this.#clock = options.clock;
    this.#publicUrl = options.publicUrl;
    this.#vault = options.vault;
    this.#failures = new Throttle(options.clock);
    this.cookies = new SignInCookies(options.publicUrl);
  }

  get cookieName(): string {
    return this.cookies.session;
  }

  /** The name that passkeys of this Sluice are for; null where browsers offer none: plain http elsewhere, or an IP address. */
  get passkeyHost(): string | null {
    const { protocol, hostname } = new URL(this.#publicUrl());
    if (hostname === 'localhost') return hostname;
    return protocol === 'https:' && /[a-z]/.test(hostname) && !hostname.startsWith('[') ? hostname : null;
  }

  /** `Set-Cookie` value for a session token, or one that removes the cookie for null. */
  setCookie(token: string | null): string {
    return this.cookies.setSession(token);
  }

  /**
   * Trades a link for a session. Of any number of simultaneous calls with one link exactly one succeeds; the others,
   * like an expired or unknown link, get 401 with a message that says which it is and how to get a new link. Failed
   * attempts of one address are throttled; a true link is never refused for them.
   */
  async exchange(
    token: string,
    from: SigningIn = {},
    within?: Within,
  ): Promise<{ token: string; session: ConsoleSession }> {
    const message = 'Too many failed sign-ins. Wait before trying another link.';
    return this.#failures.watch(from.address ?? '', message, () => this.#exchange(token, from, within));
  }

  async #exchange(token: string, from: SigningIn, within?: Within) {
    if (!TOKEN.test(token)) throw unknownLink();
    const linkDigest = tokenDigest(token);
    // A link that is no good must not take a turn among the writes.
    const known = await this.#tables.systemRead((tx) =>
      tx.find('console_sessions', { digest: linkDigest, kind: 'link' }),
    );
    if (!known) throw unknownLink();
    const whose = { id: known.user_id, organisation_id: known.organisation_id };
    try {
      return await this.#useLink(known, from, within);
    } catch (error) {
      const judged = error instanceof SluiceError && (error.kind === 'unauthenticated' || error.kind === 'forbidden');
      if (judged && this.#failures.blockedFor(from.address ?? '') === 0) await from.onRefused?.(whose);
      throw error;
    }
  }

  async #useLink(known: Row<'console_sessions'>, from: SigningIn, within?: Within) {
    const linkDigest = known.digest;
    const now = this.#clock.now();
    if (known.browser !== null && known.browser !== this.cookies.loginDigest(from.cookie)) throw otherBrowser();
    const { owner, made } = await this.#tables.systemWrite(async (tx) => {
      const claimed = await tx.update(
        'console_sessions',
        { digest: linkDigest, kind: 'link', expires_at: { gt: now } },
        { expires_at: USED },
      );
      const link = await tx.find('console_sessions', { digest: linkDigest, kind: 'link' });
      if (!link) throw unknownLink();
      if (claimed === 0) throw link.expires_at === USED ? usedLink() : expiredLink();
      const owner = { id: link.user_id, organisation_id: link.organisation_id };
      await checkMayUseLinks(tx, owner);
      const made = await this.createSession(tx, { organisationId: owner.organisation_id, userId: owner.id }, from);
      await within?.(tx, owner);
      return { owner, made };
    });
    this.invalidate();
    const session = await this.#load(made.token);
    if (!session) {
      throw new SluiceError('forbidden', 'This user can no longer sign in: the account is archived.', {
        detail: { user: owner.id },
      });
    }
    return { token: made.token, session };
  }

  /**
   * Writes a session of a user who has proved who they are, in the transaction of that proof; see `createSession` of
   * `session-rows.ts`. The session that the browser had, if any, ends. Call `invalidate` behind the commit.
   */
  async createSession(tx: SignInTx, own: NewSession, from: SigningIn = {}): Promise<CreatedSession> {
    const before = this.cookies.sessionToken(from.cookie).token;
    const replaces = before === null ? null : tokenDigest(before);
    const vault = this.#vault === undefined ? {} : { vault: this.#vault };
    const userAgent = from.userAgent === undefined ? {} : { userAgent: from.userAgent };
    return createSession(tx, { clock: this.#clock, ...vault }, { replaces, ...userAgent, ...own });
  }

  /** The session of a `Cookie` header, or null. Throws 403 for a suspended organisation. At most a second old. */
  async find(cookie: string | undefined): Promise<ConsoleSession | null> {
    const { token } = this.cookies.sessionToken(cookie);
    return token === null ? null : this.#kept(token, () => this.#load(token));
  }

  /**
   * The session of an auth token (`slc_sat_…`), or null. Throws 403 for a suspended organisation. At most a second old.
   *
   * @param address the client's, for the throttle of failed attempts
   */
  async findBearer(token: string, address = ''): Promise<ConsoleSession | null> {
    if (parseToken(token, 'sat') === null) return null;
    if (!this.#failures.mayLook(address)) throw tooMany(this.#failures.blockedFor(address), TOO_MANY_TOKENS);
    const found = await this.#kept(token, () => this.#loadBearer(token));
    if (found === null) this.#failures.failed(address);
    return found;
  }

  async #kept(token: string, load: () => Promise<ConsoleSession | null>): Promise<ConsoleSession | null> {
    const digest = tokenDigest(token);
    const now = this.#clock.monotonic();
    let entry = this.#cache.get(digest);
    if (!entry || now - entry.at >= STALE_MS) {
      entry = { at: now, session: load() };
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

  /** The same user bound to one workspace, with the scopes of the role there. 404 at `param` when it is not one of the user's. */
  async inWorkspace(principal: Principal, workspaceId: string, param = 'workspace_id'): Promise<Principal> {
    const missing = () =>
      new SluiceError('unknown_reference', 'You have no such workspace. GET /v1/auth/self lists yours.', { param });
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
        await endSessions(tx, { organisationId, session: session.digest });
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
    const digest = tokenDigest(token);
    const found = await this.#tables.systemRead(async (tx) => {
      const session = await tx.find('console_sessions', { digest, kind: 'session' });
      if (!session) return null;
      const organisation = await tx.find('organisations', { id: session.organisation_id });
      const user = await tx.find('users', { id: session.user_id, organisation_id: session.organisation_id });
      return organisation && user ? { session, organisation, user } : null;
    });
    if (!found) return null;
    const csrf = createHmac('sha256', token).update('sluice console csrf').digest('base64url');
    return this.#signedIn(found, csrf);
  }

  async #loadBearer(token: string): Promise<ConsoleSession | null> {
    const { findToken, sessionOf } = await import('./session-families.ts');
    const row = await findToken(this.#tables, token, 'sat');
    if (row === null) return null;
    const found = await this.#tables.systemRead((tx) => sessionOf(tx, row));
    return found === null ? null : this.#signedIn(found, '', row.expires_at);
  }

  #signedIn(found: SessionParts, csrf: string, noLaterThan = Number.POSITIVE_INFINITY): ConsoleSession | null {
    if (found.user.status !== 'active') return null;
    const expiresAt = Math.min(endOf(found.session, found.organisation), noLaterThan);
    if (expiresAt <= this.#clock.now()) return null;
    if (found.organisation.status === 'suspended') {
      throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
    }
    return {
      digest: found.session.digest,
      csrf,
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

/** Throws 403 for a user who must sign in through an identity provider. */
async function checkMayUseLinks(tx: SystemTx, { id, organisation_id }: LinkUser): Promise<void> {
  const organisation = await tx.find('organisations', { id: organisation_id });
  const user = await tx.find('users', { id, organisation_id });
  if (!organisation || !user || mayUseLinks(organisation, user.role)) return;
  throw new SluiceError('forbidden', 'In this organisation only owners sign in by a link. Use your identity provider.');
}

/** Compares digests, so that neither length nor content shows in the time taken. */
function sameText(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
}

const refused = (what: string) => new SluiceError('unauthenticated', `${what} ${NEW_LINK}`);
const unknownLink = () => refused('This sign-in link is not valid: it is incomplete or was not made by this Sluice.');
const usedLink = () => refused('This sign-in link has been used. Each link works once.');
const expiredLink = () => refused('This sign-in link has expired. Links are valid for 15 minutes.');
const otherBrowser = () =>
  new SluiceError(
    'unauthenticated',
    'This sign-in link works only in the browser that asked for it. Open it there, or ask for a new link here.',
  );
