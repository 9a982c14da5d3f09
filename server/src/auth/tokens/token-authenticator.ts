/**
 * Who calls with a token that an organisation has signed. A verified token is remembered by its digest, under the
 * rules of keys: every change of organisation, user, membership or workspace ends it, and an entry that nobody confirmed
 * for five seconds is verified again. A key that left its set ends it too.
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import { Lru } from '../../kernel/lru.ts';
import type { Change, Tables } from '../../store/ports.ts';
import type { Principal } from '../principal.ts';
import { type Throttle, tooMany } from '../throttle.ts';
import { type KeySetSources, KeySets } from './key-sets.ts';
import { type RefusedToken, TokenRefused } from './refused.ts';
import { type ClaimRules, tokenDigest, type Verified, verifyToken } from './verifier.ts';

const FRESH_MS = 5_000;
const GRACE_MS = 60_000;
const RETRY_MS = 1_000;
const NEGATIVE_MS = 5_000;
const MAX_ENTRIES = 20_000;
const TOO_MANY = 'Too many failed attempts. Wait before trying another token.';

/** What is said of a token in the audit log of the organisation that it names. */
export interface TokenNote extends RefusedToken {
  /** Why it was refused; `unknown_config`: it was taken, and its `defaults.config_id` left out. */
  readonly reason: string;
  readonly status: number;
  /** SHA-256 in hexadecimal. */
  readonly digest: string;
  readonly address: string;
}

/** What whoever composes the server knows of tokens, and the rest of authentication does not. */
export interface TokenParts extends KeySetSources {
  readonly rules: ClaimRules;
  /** Of the installation. */
  readonly defaultScopes: readonly string[];
  /** Writes it where the organisation's administrators see it. Never rejects; bounded. */
  readonly note: (note: TokenNote) => void;
}

export interface TokenAuthenticatorOptions {
  readonly tables: Pick<Tables, 'read' | 'systemRead'>;
  /** The store's time. */
  readonly clock: Clock;
  readonly log: Log;
  /** Failed attempts by address, those with keys included. */
  readonly addresses: Throttle;
  readonly parts: TokenParts;
  readonly confirmedAt: number;
}

interface Entry {
  readonly principal: Principal;
  readonly usableUntil: number;
  readonly keysUntil: number;
  readonly about: RefusedToken;
  verifiedAt: number;
  retryAt: number;
}

export class TokenAuthenticator {
  readonly #options: TokenAuthenticatorOptions;
  readonly #clock: Clock;
  readonly #keySets: KeySets;
  readonly #entries = new Lru<string, Entry>({ maxEntries: MAX_ENTRIES });
  readonly #refused = new Lru<string, { readonly error: TokenRefused; readonly until: number }>({
    maxEntries: MAX_ENTRIES,
  });
  readonly #loading = new Map<string, Promise<Principal>>();
  #confirmedAt: number;
  /** Rises with every change that may end something: what was read before it must not be kept. */
  #generation = 0;

  constructor(options: TokenAuthenticatorOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#confirmedAt = options.confirmedAt;
    this.#keySets = new KeySets({
      ...options.parts,
      clock: options.clock,
      log: options.log,
      changed: (organisationId) => this.#forget(organisationId),
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Synchronous for a token that is known and fresh. Throws as `Authenticator.authenticate`. */
  authenticate(token: string, address: string): Principal | Promise<Principal> {
    const id = tokenDigest(token);
    const entry = this.#entries.get(id);
    if (entry !== undefined) {
      const now = this.#clock.monotonic();
      const seen = Math.max(entry.verifiedAt, this.#confirmedAt);
      const fresh = now - seen <= FRESH_MS && now < entry.keysUntil;
      if (fresh || (now < entry.retryAt && now - seen <= GRACE_MS)) return this.#admit(entry);
      return this.#again(id, token, address, entry, seen);
    }
    const refused = this.#refused.get(id);
    if (refused !== undefined) {
      if (refused.until > this.#clock.monotonic()) throw refused.error;
      this.#refused.delete(id);
    }
    const { addresses } = this.#options;
    if (!addresses.mayLook(address)) throw tooMany(addresses.blockedFor(address), TOO_MANY);
    return this.#load(id, token, address);
  }

  invalidate({ organisationId, topic }: Pick<Change, 'organisationId' | 'topic'>): void {
    switch (topic) {
      case 'organisations':
      case 'users':
      case 'workspaces':
      case 'workspace_members':
      case 'configs':
        this.#forget(organisationId);
    }
  }

  invalidateAll(): void {
    this.#entries.clear();
    this.#forgetOthers();
  }

  confirm(readAt: number): void {
    if (readAt > this.#confirmedAt) this.#confirmedAt = readAt;
  }

  #forget(organisationId: string): void {
    for (const [id, entry] of this.#entries.entries()) {
      if (entry.principal.organisationId === organisationId) this.#entries.delete(id);
    }
    this.#forgetOthers();
  }

  #forgetOthers(): void {
    this.#generation += 1;
    this.#refused.clear();
    this.#loading.clear();
  }

  #admit(entry: Entry): Principal {
    if (entry.usableUntil <= this.#clock.now()) throw new TokenRefused('expired', entry.about);
    return entry.principal;
  }

  async #again(id: string, token: string, address: string, entry: Entry, seen: number): Promise<Principal> {
    try {
      return await this.#load(id, token, address);
    } catch (error) {
      const now = this.#clock.monotonic();
      const lost = error instanceof SluiceError && error.kind === 'unavailable';
      if (!lost || now - seen > GRACE_MS || this.#entries.get(id) !== entry) {
        if (!lost) this.#entries.delete(id);
        throw error;
      }
      entry.retryAt = now + RETRY_MS;
      return this.#admit(entry);
    }
  }

  #load(id: string, token: string, address: string): Promise<Principal> {
    const running = this.#loading.get(id);
    if (running !== undefined) return running;
    const load = this.#verify(id, token, address).finally(() => {
      if (this.#loading.get(id) === load) this.#loading.delete(id);
    });
    this.#loading.set(id, load);
    return load;
  }

  async #verify(id: string, token: string, address: string): Promise<Principal> {
    const { tables, clock, parts } = this.#options;
    const generation = this.#generation;
    const verifiedAt = clock.monotonic();
    let verified: Verified;
    try {
      const { rules, defaultScopes } = parts;
      verified = await verifyToken({ tables, clock, keySets: this.#keySets, rules, defaultScopes }, token);
    } catch (error) {
      throw this.#failed(id, address, error, generation);
    }
    const { principal, usableUntil, keysUntil, about } = verified;
    const entry: Entry = { principal, usableUntil, keysUntil, about, verifiedAt, retryAt: 0 };
    const known = this.#entries.has(id);
    if (generation === this.#generation) this.#entries.set(id, entry);
    if (verified.unknownConfig && !known) this.#note(about, 'unknown_config', 200, id, address);
    return this.#admit(entry);
  }

  #failed(id: string, address: string, error: unknown, generation: number): unknown {
    if (!(error instanceof TokenRefused)) {
      if (error instanceof SluiceError) return error;
      this.#options.log.error('a token cannot be verified: the store cannot be read', { error });
      const message = 'The token cannot be verified right now. Try again in a moment.';
      return new SluiceError('unavailable', message, { retryAfter: 1, cause: error });
    }
    const { addresses } = this.#options;
    const { about, why, kind } = error;
    if (generation === this.#generation) this.#refused.set(id, { error, until: this.#clock.monotonic() + NEGATIVE_MS });
    if (about !== null) this.#note(about, why, kind === 'forbidden' ? 403 : 401, id, address);
    if (kind !== 'unauthenticated') return error;
    addresses.failed(address);
    const wait = addresses.blockedFor(address);
    return wait > 0 ? tooMany(wait, TOO_MANY) : error;
  }

  #note(about: RefusedToken, reason: string, status: number, digest: string, address: string): void {
    this.#options.parts.note({ ...about, reason, status, digest, address });
  }
}
