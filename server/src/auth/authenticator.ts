/**
 * Who calls: a key text becomes a Principal. Warm look-ups are synchronous and touch no store; what makes that safe is
 * that every state change reaches `invalidate` through the change feed, and that an entry nobody confirmed
 * for five seconds is verified again. When the store is lost, keys verified in the last 60 seconds keep working and
 * everything else is `unavailable`.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import type { Change, Tables } from '../store/ports.ts';
import { isSignInToken, KEY_LENGTH, type ParsedKey, parseKey } from './key-format.ts';
import { principalOfRow } from './key-principal.ts';
import type { Principal } from './principal.ts';
import { scopesOf } from './scopes.ts';
import { Throttle, tooMany } from './throttle.ts';
import type { TokenAuthenticator, TokenParts } from './tokens/token-authenticator.ts';

/** An entry that no poll confirmed and nobody verified for this long is verified again. */
const FRESH_MS = 5_000;
/** With the store lost, a key verified or confirmed at most this long ago still works. */
const GRACE_MS = 60_000;
/** While the store is lost, how long between attempts to verify one key again. */
const RETRY_MS = 1_000;
const NEGATIVE_MS = 5_000;
const DUMMY = Buffer.alloc(32);
const NEVER = Number.POSITIVE_INFINITY;

export interface AuthenticatorOptions {
  readonly tables: Pick<Tables, 'findKey' | 'read' | 'systemRead'>;
  readonly clock: Clock;
  readonly log: Log;
  /** Verified keys held; the least recently useful one goes first. Default 20,000. */
  readonly maxEntries?: number;
  /** For tokens that organisations sign; without it none is taken. Their verifier is loaded with the first one. */
  readonly tokens?: () => Promise<TokenParts>;
}

export interface Authenticator {
  /**
   * The principal of a gateway key or of a signed token. Synchronous when it is known and fresh, errors included. Throws
   * `unauthenticated` (malformed, unknown, wrong, expired, revoked), `forbidden` (organisation suspended; of a token: no
   * workspace, scope or key set), `too_many_requests` or `unavailable`.
   *
   * @param address the client's address, for the throttle of failed attempts
   */
  authenticate(token: string, address?: string): Principal | Promise<Principal>;
  /** To be called for every entry of the change feed; topics that do not concern keys cost nothing. */
  invalidate(change: Pick<Change, 'organisationId' | 'workspaceId' | 'topic' | 'entityId'>): void;
  /** Forgets everything, for a reader of the feed that lost its place. */
  invalidateAll(): void;
  /**
   * Version poll hook: every change committed before `readAt` (of `Clock.monotonic`, taken before the poll) has been
   * given to `invalidate`. While this is called at least every five seconds no key is verified twice.
   */
  confirm(readAt: number): void;
  readonly size: number;
}

interface Entry {
  readonly principal: Principal;
  readonly suspended: boolean;
  /** Of the key or of this secret of it, whichever is earlier. */
  readonly expiresAt: number;
  /** Monotonic time just before the read that made this entry. */
  verifiedAt: number;
  retryAt: number;
  used: boolean;
}

type Refusal = 'unknown' | 'expired' | 'revoked';

const REFUSALS: Record<Refusal, string> = {
  unknown: 'The API key is not valid. Check that it was copied completely, or create a new one.',
  expired: 'The API key has expired. Create a new one, or ask an administrator to prolong it.',
  revoked: 'The API key has been revoked. Create a new one.',
};

const TOO_MANY = 'Too many failed attempts. Wait before trying another key.';
const refusal = (reason: Refusal) => new SluiceError('unauthenticated', REFUSALS[reason]);

/** How keys of well-known providers begin. Shown to a caller who sent one, as a part that is no secret. */
const PROVIDER_KEY = /^(?:sk-|gsk_|xai-|pplx-|nvapi-|hf_|AIza)/;

/** The error of a text that is no key of Sluice, by what it looks like. */
function malformed(token: string): SluiceError {
  const theirs = PROVIDER_KEY.exec(token)?.[0];
  if (theirs !== undefined)
    return new SluiceError(
      'unauthenticated',
      `This looks like the key of a provider (it begins with ${theirs}). Send a key of Sluice as x-gateway-api-key; it begins with slc_. A provider's key belongs on a stored provider, or into Authorization beside the key of Sluice.`,
    );
  if (token.startsWith('slc_oat_'))
    return new SluiceError(
      'unauthenticated',
      'This is an access token of an OAuth client. It opens the MCP server or agent that it was made for, and nothing else. Send an API key here.',
    );
  if (isSignInToken(token))
    return new SluiceError(
      'unauthenticated',
      'This is the token of a sign-in, and this route takes an API key. Tokens of sign-ins open the administration, files, batches, fine-tuning jobs and the list of models.',
    );
  const wrong = token.startsWith('slc_') ? 'it does not have the form of a key' : 'keys of Sluice begin with slc_';
  return new SluiceError('unauthenticated', `The API key is not valid: ${wrong}. Check that it was copied completely.`);
}

export function createAuthenticator(options: AuthenticatorOptions): Authenticator {
  return new KeyAuthenticator(options);
}

class KeyAuthenticator implements Authenticator {
  readonly #tables: AuthenticatorOptions['tables'];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #maxEntries: number;
  /** By SHA-256 of the key: the digest is never reversed, and long shared prefixes cannot meet. */
  readonly #entries = new Map<string, Entry>();
  readonly #byKey = new Map<string, Set<string>>();
  readonly #refused = new Map<string, { readonly reason: Refusal; readonly until: number }>();
  readonly #loading = new Map<string, Promise<Principal>>();
  readonly #addresses: Throttle;
  readonly #keyIds: Throttle;
  readonly #openTokens: (() => Promise<TokenParts>) | null;
  #tokens: TokenAuthenticator | null = null;
  #confirmedAt = Number.NEGATIVE_INFINITY;
  /** Rises with every invalidation: a read that began before it must not be kept. */
  #generation = 0;

  constructor(options: AuthenticatorOptions) {
    this.#tables = options.tables;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#maxEntries = options.maxEntries ?? 20_000;
    this.#addresses = new Throttle(options.clock);
    this.#keyIds = new Throttle(options.clock);
    this.#openTokens = options.tokens ?? null;
  }

  get size(): number {
    return this.#entries.size;
  }

  authenticate(token: string, address = ''): Principal | Promise<Principal> {
    // A signature alone is longer than a key.
    if (token.length !== KEY_LENGTH) return this.#token(token, address);
    const id = hash('sha256', token, 'hex');
    const entry = this.#entries.get(id);
    if (entry !== undefined) {
      const now = this.#clock.monotonic();
      entry.used = true;
      const seen = Math.max(entry.verifiedAt, this.#confirmedAt);
      if (now - seen <= FRESH_MS || (now < entry.retryAt && now - seen <= GRACE_MS)) return this.#admit(entry);
      return this.#again(id, token, address, entry, seen);
    }
    const refused = this.#refused.get(id);
    if (refused !== undefined) {
      if (refused.until > this.#clock.monotonic()) throw refusal(refused.reason);
      this.#refused.delete(id);
    }
    const parsed = parseKey(token);
    if (parsed === null) throw malformed(token);
    // A known key never gets here, so this costs the callers of an address nothing but a guesser's flood.
    if (!this.#addresses.mayLook(address)) throw tooMany(this.#addresses.blockedFor(address), TOO_MANY);
    return this.#load(id, parsed, address);
  }

  invalidate(change: Pick<Change, 'organisationId' | 'workspaceId' | 'topic' | 'entityId'>): void {
    this.#tokens?.invalidate(change);
    const { organisationId, entityId } = change;
    switch (change.topic) {
      case 'api_keys':
      case 'api_key_secrets':
      case 'deployments':
        for (const id of [...(this.#byKey.get(entityId) ?? [])]) this.#drop(id);
        break;
      case 'organisations':
        this.#dropWhere((principal) => principal.organisationId === organisationId);
        break;
      case 'users':
        this.#dropWhere((principal) => principal.userId === entityId);
        break;
      case 'workspaces':
        this.#dropWhere((principal) => principal.workspaceId === entityId);
        break;
      case 'workspace_members':
        // Of one user, or of many in a workspace: a directory changes these all day, and other keys keep what was read.
        this.#dropWhere(
          ({ userId, workspaceId }) =>
            userId !== null && (userId === entityId || (workspaceId === entityId && change.workspaceId === entityId)),
        );
        break;
      case 'operator_keys':
        // They belong to no organisation, in whose audit log this could be.
        this.#log.warn('an operator key was added or revoked by a command on the server', { operator_key: entityId });
        this.#dropWhere((principal) => principal.kind === 'operator');
        break;
      default:
        return;
    }
    this.#forgetRefusals();
  }

  invalidateAll(): void {
    this.#tokens?.invalidateAll();
    this.#entries.clear();
    this.#byKey.clear();
    this.#forgetRefusals();
  }

  confirm(readAt: number): void {
    this.#tokens?.confirm(readAt);
    if (readAt > this.#confirmedAt) this.#confirmedAt = readAt;
  }

  #token(token: string, address: string): Principal | Promise<Principal> {
    if (!looksLikeToken(token)) throw malformed(token);
    return this.#tokens?.authenticate(token, address) ?? this.#firstToken(token, address);
  }

  async #firstToken(token: string, address: string): Promise<Principal> {
    if (this.#openTokens === null) throw malformed(token);
    const [parts, { TokenAuthenticator }] = await Promise.all([
      this.#openTokens(),
      import('./tokens/token-authenticator.ts'),
    ]);
    this.#tokens ??= new TokenAuthenticator({
      tables: this.#tables,
      clock: this.#clock,
      log: this.#log,
      addresses: this.#addresses,
      parts,
      confirmedAt: this.#confirmedAt,
    });
    return this.#tokens.authenticate(token, address);
  }

  #forgetRefusals(): void {
    this.#generation += 1;
    this.#refused.clear();
    // A caller that comes after the change must not join a read that began before it.
    this.#loading.clear();
  }

  /** State that can end between two changes of the feed is checked on every use. */
  #admit(entry: Entry): Principal {
    if (entry.suspended) {
      throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
    }
    if (entry.expiresAt <= this.#clock.now()) throw refusal('expired');
    return entry.principal;
  }

  async #again(id: string, token: string, address: string, entry: Entry, seen: number): Promise<Principal> {
    const parsed = parseKey(token);
    if (parsed === null) throw malformed(token);
    try {
      return await this.#load(id, parsed, address);
    } catch (error) {
      const now = this.#clock.monotonic();
      const lost = error instanceof SluiceError && error.kind === 'unavailable';
      if (!lost || now - seen > GRACE_MS || this.#entries.get(id) !== entry) {
        if (!lost) this.#drop(id);
        throw error;
      }
      entry.retryAt = now + RETRY_MS;
      return this.#admit(entry);
    }
  }

  #load(id: string, parsed: ParsedKey, address: string): Promise<Principal> {
    const running = this.#loading.get(id);
    if (running !== undefined) return running;
    const load = this.#verify(id, parsed, address).finally(() => {
      if (this.#loading.get(id) === load) this.#loading.delete(id);
    });
    this.#loading.set(id, load);
    return load;
  }

  async #verify(id: string, parsed: ParsedKey, address: string): Promise<Principal> {
    const generation = this.#generation;
    const verifiedAt = this.#clock.monotonic();
    let outcome: Entry | Refusal;
    try {
      outcome = await this.#read(id, parsed);
    } catch (error) {
      this.#log.error('key verification failed: the store cannot be read', { error });
      throw new SluiceError('unavailable', 'The key cannot be verified right now. Try again in a moment.', {
        retryAfter: 1,
        cause: error,
      });
    }
    if (typeof outcome === 'string') {
      if (generation === this.#generation) this.#refuse(id, outcome);
      throw this.#failed(parsed, address, outcome);
    }
    outcome.verifiedAt = verifiedAt;
    if (generation === this.#generation) this.#keep(id, outcome);
    return this.#admit(outcome);
  }

  #read(id: string, parsed: ParsedKey): Promise<Entry | Refusal> {
    if (parsed.type === 'opr') return this.#operator(id, parsed);
    return parsed.type === 'dep' ? this.#deployment(id, parsed) : this.#apiKey(id, parsed);
  }

  async #deployment(id: string, parsed: ParsedKey): Promise<Entry | Refusal> {
    const found = await this.#tables.systemRead(async (tx) => {
      const row = await tx.find('deployments', { client_auth_id: parsed.publicId });
      return row && { row, organisation: await tx.find('organisations', { id: row.organisation_id }) };
    });
    if (!same(found?.row.client_auth_digest, id) || !found?.organisation) return 'unknown';
    const { row, organisation } = found;
    if (row.status === 'archived') return 'revoked';
    const principal: Principal = {
      ...OPERATOR,
      kind: 'deployment',
      keyId: row.id,
      keyName: row.name,
      organisationId: organisation.id,
      scopes: scopesOf('deployment'),
    };
    return entryOf(principal, organisation.status !== 'active', NEVER);
  }

  async #operator(id: string, parsed: ParsedKey): Promise<Entry | Refusal> {
    const row = await this.#tables.systemRead((tx) => tx.find('operator_keys', { id: parsed.publicId }));
    return same(row?.digest, id) && row ? entryOf(OPERATOR, false, NEVER) : 'unknown';
  }

  async #apiKey(id: string, parsed: ParsedKey): Promise<Entry | Refusal> {
    const found = await this.#tables.findKey(parsed.publicId);
    if (!same(found?.secret.digest, id) || !found || TYPES[found.key.type] !== parsed.type) return 'unknown';
    const { key, secret, organisation } = found;
    if (key.status === 'archived') return 'revoked';
    const expiresAt = Math.min(key.expires_at ?? NEVER, secret.expires_at ?? NEVER);
    if (key.status === 'expired' || expiresAt <= this.#clock.now()) return 'expired';
    const principal = await principalOfRow(this.#tables, key, organisation);
    return principal === null ? 'revoked' : entryOf(principal, organisation.status !== 'active', expiresAt);
  }

  #failed(parsed: ParsedKey, address: string, reason: Refusal): SluiceError {
    this.#addresses.failed(address);
    this.#keyIds.failed(parsed.publicId);
    // The key id is public and an address may be a proxy's. A true key never gets here, so a guesser can lock nobody out.
    const wait = Math.max(this.#keyIds.blockedFor(parsed.publicId), this.#addresses.blockedFor(address));
    return wait > 0 ? tooMany(wait, TOO_MANY) : refusal(reason);
  }

  #keep(id: string, entry: Entry): void {
    this.#drop(id);
    if (this.#entries.size >= this.#maxEntries) this.#evict();
    this.#entries.set(id, entry);
    const { keyId } = entry.principal;
    if (keyId === null) return;
    const ids = this.#byKey.get(keyId);
    if (ids === undefined) this.#byKey.set(keyId, new Set([id]));
    else ids.add(id);
  }

  #refuse(id: string, reason: Refusal): void {
    if (this.#refused.size >= this.#maxEntries) {
      const oldest = this.#refused.keys().next();
      if (!oldest.done) this.#refused.delete(oldest.value);
    }
    this.#refused.set(id, { reason, until: this.#clock.monotonic() + NEGATIVE_MS });
  }

  /** Second chance: entries used since the last round move to the back, so a warm hit needs no reordering. */
  #evict(): void {
    for (const [id, entry] of this.#entries) {
      if (!entry.used) {
        this.#drop(id);
        return;
      }
      entry.used = false;
      this.#entries.delete(id);
      this.#entries.set(id, entry);
    }
  }

  #drop(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    const { keyId } = entry.principal;
    if (keyId === null) return;
    const ids = this.#byKey.get(keyId);
    ids?.delete(id);
    if (ids?.size === 0) this.#byKey.delete(keyId);
  }

  #dropWhere(matches: (principal: Principal) => boolean): void {
    for (const [id, entry] of this.#entries) if (matches(entry.principal)) this.#drop(id);
  }
}

const TYPES = { 'organisation-service': 'org', 'workspace-service': 'wks', 'workspace-user': 'usr' } as const;

const OPERATOR: Principal = {
  kind: 'operator',
  keyId: null,
  keyName: null,
  organisationId: '',
  workspaceId: null,
  userId: null,
  role: null,
  scopes: new Set(),
  defaults: {},
  rateLimits: [],
  usageLimits: null,
  expiresAt: null,
};

function entryOf(principal: Principal, suspended: boolean, expiresAt: number): Entry {
  return { principal, suspended, expiresAt, verifiedAt: 0, retryAt: 0, used: false };
}

/** A text that is handled as a token, whatever is wrong with it; anything else is a key. */
function looksLikeToken(text: string): boolean {
  if (!text.startsWith('eyJ')) return false;
  const first = text.indexOf('.');
  return first > 0 && text.indexOf('.', first + 1) > 0;
}

/** Compares digests without telling by time how much of them agrees; an unknown key id costs the same. */
function same(stored: string | undefined, presented: string): boolean {
  const wanted = stored === undefined ? DUMMY : Buffer.from(stored, 'hex');
  const given = Buffer.from(presented, 'hex');
  return timingSafeEqual(wanted.length === given.length ? wanted : DUMMY, given) && stored !== undefined;
}
