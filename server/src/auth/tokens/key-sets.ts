/**
 * The keys that sign the tokens of an organisation: stored in its settings, or read from an address. Sets that were read are
 * kept for ten minutes, and for a day where the address does not answer; on the disk too, so that a node starts without it.
 */
import type { KeyObject } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { Log } from '../../kernel/log.ts';
import { Lru } from '../../kernel/lru.ts';
import type { JwtSettings, RsaJwk } from '../jwt-settings.ts';
import { problemOfJwk, publicJwk, publicKey } from './rsa-keys.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
/** Between two attempts to read one set, whoever asks and for whatever key. */
const COOL_DOWN = 30 * SECOND;
/** How long a set holds where its answer does not say. */
const HOLDS = 10 * MINUTE;
const LEAST = 5 * MINUTE;
const MOST = 60 * MINUTE;
/** How long a set is used that cannot be read again. */
const STALE = 24 * 60 * MINUTE;
const MAX_SETS = 1_000;
/** Of one set that was read; others are left out. */
const MAX_KEYS = 100;
/** Keys of one name that are tried. An issuer that replaces a key has two; each is a verification that strangers may cause. */
const MAX_OF_ONE_NAME = 4;

/** A key set as its address answers it. */
export interface FetchedSet {
  readonly text: string;
  /** Of `Cache-Control`, milliseconds; null without one. */
  readonly maxAgeMs: number | null;
}

export interface KeySetSources {
  /** Reads an address for an organisation, through the egress guard. Rejects where that fails. */
  readSet(organisationId: string, url: string): Promise<FetchedSet>;
  /** The last set of each organisation, as text; null where there is none. A failure is as good as none. */
  readonly files: {
    read(organisationId: string): Promise<string | null>;
    write(organisationId: string, text: string): Promise<void>;
  };
}

export interface KeySetsOptions extends KeySetSources {
  readonly clock: Clock;
  readonly log: Log;
  /** A set was read that is another one than before: what was verified with the keys before may not hold. */
  readonly changed: (organisationId: string) => void;
}

/** What may have signed a token. */
export interface FoundKeys {
  readonly keys: readonly KeyObject[];
  /** Monotonic time at which the set is looked at again. */
  readonly until: number;
}

interface KeySet {
  readonly version: string;
  keys: Map<string, readonly RsaJwk[]>;
  /** Monotonic; null while nothing was read. */
  readAt: number | null;
  until: number;
  attemptedAt: number;
  flight: Promise<void> | null;
}

export class KeySets {
  readonly #options: KeySetsOptions;
  readonly #sets = new Lru<string, KeySet>({ maxEntries: MAX_SETS });
  readonly #objects = new Lru<string, KeyObject>({ maxEntries: 4 * MAX_SETS });

  constructor(options: KeySetsOptions) {
    this.#options = options;
  }

  /**
   * The keys of this name, none where the set has none: two while an issuer replaces a key. Throws `unavailable` when no set
   * could be read within the last day.
   */
  async find(organisationId: string, settings: JwtSettings, kid: string): Promise<FoundKeys> {
    const set = await this.#setOf(organisationId, settings);
    if (settings.jwksUrl !== null) {
      const now = this.#options.clock.monotonic();
      if (now >= set.until || !set.keys.has(kid)) await this.#refresh(organisationId, settings.jwksUrl, set);
      if (set.readAt === null || this.#options.clock.monotonic() - set.readAt > STALE)
        throw new SluiceError(
          'unavailable',
          'The key set of the organisation cannot be read right now. Try again in a moment.',
          { retryAfter: COOL_DOWN / SECOND },
        );
    }
    const keys = (set.keys.get(kid) ?? []).map((jwk) => this.#objectOf(jwk)).filter((key) => key !== null);
    return { keys, until: set.until };
  }

  async #setOf(organisationId: string, settings: JwtSettings): Promise<KeySet> {
    const known = this.#sets.get(organisationId);
    if (known?.version === settings.version) return known;
    const made = settings.jwks === null ? await this.#stored(organisationId, settings) : inline(settings);
    // Two requests may have come here at once: one set counts the attempts of both.
    const other = this.#sets.get(organisationId);
    if (other?.version === settings.version) return other;
    this.#sets.set(organisationId, made);
    return made;
  }

  /** What the disk has of this version of the settings: it is used, and looked at again at once. */
  async #stored(organisationId: string, { version }: JwtSettings): Promise<KeySet> {
    const { clock, files } = this.#options;
    const empty: KeySet = {
      version,
      keys: new Map(),
      readAt: null,
      until: Number.NEGATIVE_INFINITY,
      attemptedAt: Number.NEGATIVE_INFINITY,
      flight: null,
    };
    try {
      const kept: unknown = parseJson((await files.read(organisationId)) ?? 'null');
      if (!isObject(kept) || kept.version !== version || typeof kept.read_at !== 'number') return empty;
      const age = clock.now() - kept.read_at;
      if (age < 0 || age > STALE) return empty;
      return { ...empty, keys: keysIn(kept), readAt: clock.monotonic() - age };
    } catch {
      return empty;
    }
  }

  async #refresh(organisationId: string, url: string, set: KeySet): Promise<void> {
    const { clock } = this.#options;
    if (set.flight === null) {
      const now = clock.monotonic();
      if (now - set.attemptedAt < COOL_DOWN) return;
      set.attemptedAt = now;
      set.flight = this.#read(organisationId, url, set).finally(() => {
        set.flight = null;
      });
    }
    await set.flight;
  }

  async #read(organisationId: string, url: string, set: KeySet): Promise<void> {
    const { clock, log, readSet, files, changed } = this.#options;
    const began = clock.monotonic();
    try {
      const { text, maxAgeMs } = await readSet(organisationId, url);
      const body: unknown = parseJson(text);
      if (!isObject(body) || !Array.isArray(body.keys)) throw new Error('the answer is no JSON Web Key Set');
      const keys = keysIn(body);
      const other = set.readAt !== null && !isSame(keys, set.keys);
      set.keys = keys;
      set.readAt = began;
      set.until = began + Math.min(MOST, Math.max(LEAST, maxAgeMs ?? HOLDS));
      if (other) changed(organisationId);
      const kept = { version: set.version, read_at: clock.now(), keys: [...keys.values()].flat() };
      await files.write(organisationId, JSON.stringify(kept)).catch((error: unknown) => {
        log.warn('a key set was not kept on the disk', { organisation_id: organisationId, error });
      });
    } catch (error) {
      set.until = began + COOL_DOWN;
      log.warn('the key set of an organisation cannot be read', { organisation_id: organisationId, error });
    }
  }

  #objectOf(jwk: RsaJwk): KeyObject | null {
    const id = `${jwk.e} ${jwk.n}`;
    const known = this.#objects.get(id);
    if (known !== undefined) return known;
    const made = publicKey(jwk);
    if (made !== null) this.#objects.set(id, made);
    return made;
  }
}

function inline({ version, jwks }: JwtSettings): KeySet {
  const never = Number.POSITIVE_INFINITY;
  return { version, keys: keysIn({ keys: jwks }), readAt: 0, until: never, attemptedAt: never, flight: null };
}

/** The usable keys of a set by their names; others are as if they were not there. */
function keysIn(set: { readonly keys?: unknown }): Map<string, readonly RsaJwk[]> {
  const out = new Map<string, readonly RsaJwk[]>();
  const keys: readonly unknown[] = Array.isArray(set.keys) ? set.keys.slice(0, MAX_KEYS) : [];
  for (const key of keys) {
    if (problemOfJwk(key) !== null) continue;
    const jwk = publicJwk(key as JsonObject);
    const same = out.get(jwk.kid) ?? [];
    if (same.length < MAX_OF_ONE_NAME) out.set(jwk.kid, [...same, jwk]);
  }
  return out;
}

function isSame(one: KeySet['keys'], other: KeySet['keys']): boolean {
  return JSON.stringify([...one]) === JSON.stringify([...other]);
}
