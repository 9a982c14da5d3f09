import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { Lru } from '../kernel/lru.ts';
import { type Notes, silentNotes } from '../kernel/notes.ts';
import { addressBytes } from './addresses.ts';

/** One address record; `ttl` in seconds. */
export interface DnsRecord {
  readonly address: string;
  readonly ttl: number;
}

/** What the guard asks of a resolver: all records of one family, an empty list when the name has none. */
export interface DnsResolver {
  resolve(name: string, family: 4 | 6): Promise<readonly DnsRecord[]>;
}

export interface Dns {
  /**
   * All addresses of a name, IPv4 first. `operator` marks a name that the operator configured: the hosts file is read
   * for it, and an old answer up to one hour is used when the resolver fails.
   */
  lookup(name: string, organisationId: string, operator: boolean): Promise<readonly string[]>;
}

const DEADLINE_MS = 2_000;
const IN_FLIGHT = 5;
const WAITING = 64;
const MIN_TTL_MS = 5_000;
const MAX_TTL_MS = 300_000;
const STALE_MS = 3_600_000;
const MAX_ADDRESSES = 64;
const HOSTS_MS = 60_000;

const NO_RECORDS = new Set(['ENODATA', 'ENOTFOUND']);

/**
 * c-ares: it never uses the thread pool, so a name server that does not answer delays nobody else. A resolver object
 * per look-up, because giving up cancels everything that is in flight on the object.
 */
function systemResolver(clock: Clock): DnsResolver {
  return {
    async resolve(name, family) {
      const resolver = new Resolver({ timeout: 900, tries: 2 });
      const stop = clock.after(DEADLINE_MS, () => resolver.cancel());
      try {
        return family === 4
          ? await resolver.resolve4(name, { ttl: true })
          : await resolver.resolve6(name, { ttl: true });
      } catch (error) {
        if (NO_RECORDS.has(codeOf(error))) return [];
        throw error;
      } finally {
        stop();
      }
    },
  };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

interface Answer {
  readonly addresses: readonly string[];
  readonly expires: number;
}

/** Look-ups of one organisation: a few run, some wait, the rest are refused, so that nobody else waits for them. */
class Gate {
  #running = 0;
  #waiting: (() => void)[] = [];

  async enter(): Promise<void> {
    if (this.#running < IN_FLIGHT) {
      this.#running++;
      return;
    }
    if (this.#waiting.length >= WAITING) {
      throw new SluiceError('rate_limit_exceeded', 'Too many host names are being resolved; try again shortly', {
        retryAfter: 1,
      });
    }
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** True when nothing runs any more. */
  leave(): boolean {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#running--;
    return this.#running === 0;
  }
}

/** Lines of a hosts file as name → addresses. */
export function parseHostsFile(text: string): ReadonlyMap<string, readonly string[]> {
  const hosts = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (!address || addressBytes(address) === null) continue;
    for (const name of names) {
      const list = hosts.get(name.toLowerCase());
      if (list) list.push(address);
      else hosts.set(name.toLowerCase(), [address]);
    }
  }
  return hosts;
}

/** Look-ups with deadline, cache and a share per organisation. */
export function createDns(options: {
  readonly clock: Clock;
  readonly resolver?: DnsResolver;
  readonly hostsFile?: string;
  readonly notes?: Notes;
}): Dns {
  const { clock, notes = silentNotes } = options;
  const resolver = options.resolver ?? systemResolver(clock);
  const hostsFile = options.hostsFile ?? (process.platform === 'win32' ? null : '/etc/hosts');
  const cache = new Lru<string, Answer>({ maxEntries: 4096 });
  const flights = new Map<string, Promise<Answer>>();
  const gates = new Map<string, Gate>();
  let hosts: ReadonlyMap<string, readonly string[]> = new Map();
  let hostsRead = Number.NEGATIVE_INFINITY;

  async function fromHosts(name: string): Promise<readonly string[] | undefined> {
    if (hostsFile === null) return undefined;
    if (clock.monotonic() - hostsRead > HOSTS_MS) {
      hostsRead = clock.monotonic();
      hosts = parseHostsFile(await readFile(hostsFile, 'utf8').catch(() => ''));
    }
    return hosts.get(name);
  }

  /** Ends with the deadline even when the resolver does not. */
  function bounded<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = clock.after(DEADLINE_MS, () => reject(new Error('no answer in time')));
      work.then(resolve, reject).finally(stop);
    });
  }

  async function ask(name: string): Promise<Answer> {
    const [v4, v6] = await Promise.allSettled([bounded(resolver.resolve(name, 4)), bounded(resolver.resolve(name, 6))]);
    const records = [...(v4.status === 'fulfilled' ? v4.value : []), ...(v6.status === 'fulfilled' ? v6.value : [])];
    if (records.length === 0) {
      const failure = [v4, v6].find((result) => result.status === 'rejected');
      if (failure?.status === 'rejected') throw failure.reason;
    }
    if (records.length > MAX_ADDRESSES) throw new Error(`${records.length} addresses`);
    const ttl = records.reduce((least, record) => Math.min(least, record.ttl * 1000), MAX_TTL_MS);
    return {
      addresses: records.map((record) => record.address),
      expires: clock.monotonic() + (records.length === 0 ? MIN_TTL_MS : Math.max(ttl, MIN_TTL_MS)),
    };
  }

  async function guardedAsk(name: string, organisationId: string): Promise<Answer> {
    let gate = gates.get(organisationId);
    if (!gate) {
      gate = new Gate();
      gates.set(organisationId, gate);
    }
    await gate.enter();
    try {
      const answer = await ask(name);
      cache.set(name, answer);
      return answer;
    } finally {
      if (gate.leave()) gates.delete(organisationId);
    }
  }

  function failed(name: string, organisation: string, why: string, detail?: unknown): SluiceError {
    notes('dns', { host: name, organisation_id: organisation, why });
    return new SluiceError('upstream_unreachable', `DNS lookup for ${name} failed: ${why}`, { detail });
  }

  return {
    async lookup(name, organisationId, operator) {
      if (operator) {
        const listed = await fromHosts(name);
        if (listed) return listed;
      }
      const known = cache.peek(name);
      let answer = known;
      if (!answer || answer.expires <= clock.monotonic()) {
        // One flight per organisation and name: no organisation waits in the queue of another.
        const key = `${organisationId} ${name}`;
        let flight = flights.get(key);
        if (!flight) {
          flight = guardedAsk(name, organisationId).finally(() => flights.delete(key));
          flights.set(key, flight);
        }
        try {
          answer = await flight;
        } catch (error) {
          if (error instanceof SluiceError) throw error;
          if (!operator || !known || known.expires + STALE_MS < clock.monotonic()) {
            // What a name server says by itself may name hosts of the network that callers do not know.
            const { code } = error as { code?: unknown };
            const known = typeof code === 'string' && /^[A-Z_]{3,20}$/.test(code);
            throw failed(name, organisationId, known ? code : 'no name server answered', error);
          }
          answer = known;
        }
      }
      if (answer.addresses.length === 0) {
        throw failed(name, organisationId, 'it has no address');
      }
      return answer.addresses;
    },
  };
}
