/** Access tokens as credentials: who calls with one, on the routes that take them. */
import { digestOfToken } from '../auth/key-format.ts';
import type { Principal } from '../auth/principal.ts';
import { roleScopes } from '../auth/scopes.ts';
import { securityOf } from '../auth/security-settings.ts';
import { Throttle, tooMany } from '../auth/throttle.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { Lru } from '../kernel/lru.ts';
import type { Change } from '../store/ports.ts';
import type { Grants, LiveToken } from './grants.ts';

/** An answer is at most this old, so what ends a token acts within it also where the change feed is away. */
const STALE_MS = 1_000;
const MOST_TOKENS = 10_000;

const TOPICS: ReadonlySet<Change['topic']> = new Set<Change['topic']>([
  'oauth_families',
  'oauth_clients',
  'organisations',
  'users',
  'workspaces',
  'workspace_members',
]);

interface Known {
  readonly at: number;
  readonly found: Promise<LiveToken | null>;
}

export interface AccessTokensOptions {
  readonly grants: Pick<Grants, 'find'>;
  readonly clock: Clock;
  readonly publicUrl: () => string;
}

export class AccessTokens {
  readonly #options: AccessTokensOptions;
  readonly #known = new Lru<string, Known>({ maxEntries: MOST_TOKENS });
  readonly #failures: Throttle;

  constructor(options: AccessTokensOptions) {
    this.#options = options;
    this.#failures = new Throttle(options.clock);
  }

  /**
   * The caller of a route. Throws `unauthenticated` for a token that is not valid, or is for another resource.
   *
   * @param path of the resource that is called, as `/tools/mcp`
   * @param address the client's, for the throttle of failed attempts
   */
  async authenticate(token: string, path: string, address: string): Promise<Principal> {
    const message = 'Too many failed attempts. Wait before trying another token.';
    return this.#failures.watch(address, message, async () => {
      const digest = digestOfToken(token, 'oat');
      if (digest === null) throw invalid();
      if (!this.#known.get(digest) && !this.#failures.mayLook(address))
        throw tooMany(this.#failures.blockedFor(address), message);
      const live = await this.#find(digest, token);
      if (live === null || live.token.expires_at <= this.#options.clock.now()) throw invalid();
      if (live.family.resource !== `${this.#options.publicUrl()}${path}`)
        throw new SluiceError(
          'unauthenticated',
          'The access token is for another address. Ask for one with this resource.',
        );
      return principalOf(live);
    });
  }

  /** To be called for every entry of the change feed, and with null where some were missed. */
  invalidate(change: Pick<Change, 'topic'> | null): void {
    if (change === null || TOPICS.has(change.topic)) this.#known.clear();
  }

  #find(digest: string, token: string): Promise<LiveToken | null> {
    const now = this.#options.clock.monotonic();
    const known = this.#known.get(digest);
    if (known !== undefined && now - known.at < STALE_MS) return known.found;
    const found = this.#options.grants.find(token);
    found.catch(() => this.#known.delete(digest));
    this.#known.set(digest, { at: now, found });
    return found;
  }
}

/** A user in one workspace, who may do what the role there allows of what was given to the client. */
function principalOf({ token, family, user, organisation, workspace, member }: LiveToken): Principal {
  const role = user.role === 'member' ? (member?.role ?? null) : 'admin';
  const held = roleScopes(user.role, role, securityOf(organisation, workspace));
  const given = new Set(token.scope.split(' '));
  const scopes = new Set<string>(['mcp.invoke', 'agents.invoke'].filter((scope) => held.has(scope)));
  for (const scope of ['mcp:read', 'mcp:write']) if (given.has('mcp') || given.has(scope)) scopes.add(scope);
  return {
    kind: 'oauth',
    keyId: null,
    keyName: null,
    organisationId: family.organisation_id,
    workspaceId: family.workspace_id,
    userId: family.user_id,
    role: user.role,
    scopes,
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    expiresAt: token.expires_at,
  };
}

const invalid = () =>
  new SluiceError(
    'unauthenticated',
    'The access token is not valid: it is unknown, has expired or was revoked. Sign in again.',
  );
