import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Counters, WindowHit, WindowResult } from '../ports.ts';
import type { Connection } from './connection.ts';

const PREFIX = 'sluice:c1:';

/**
 * All windows of one call in one script, so nothing happens between check and take. Values of the wrong type or form
 * count as 0. Arguments: amount, limit, time to the end of the window (ms) and floor per key. Time to go, because the
 * server's clock may be minutes from the one that windows go by. The floor is what the caller had last seen there when its
 * connection was lost: a server that comes back without its data is reminded, once by each node. Answer: index of the refusing window or 0,
 * then the used amounts as texts, because the client's reader is not exact for integers near 2^53.
 */
const SCRIPT = `
local value, refused = {}, 0
local function read(i, key)
  local stored = redis.pcall('GET', key)
  if type(stored) == 'table' then redis.call('DEL', key) stored = false end
  local number = stored and tonumber(stored) or 0
  if number ~= number or number < 0 or number > 9007199254740992 then number = 0 end
  local floor, left = tonumber(ARGV[i * 4]), tonumber(ARGV[i * 4 - 1])
  if floor > number and left > 0 then
    number = floor
    redis.call('SET', key, string.format('%.0f', number), 'PX', left)
  end
  return number
end
for i, key in ipairs(KEYS) do
  if value[key] == nil then value[key] = read(i, key) end
  local sum = value[key] + tonumber(ARGV[i * 4 - 3])
  if sum > tonumber(ARGV[i * 4 - 2]) then refused = i break end
  if sum < 0 then sum = 0 end
  value[key] = sum
end
local answer = { refused }
for i, key in ipairs(KEYS) do
  if refused > 0 then
    answer[i + 1] = string.format('%.0f', read(i, key))
  else
    answer[i + 1] = string.format('%.0f', value[key])
    if tonumber(ARGV[i * 4 - 1]) > 0 then redis.call('SET', key, answer[i + 1], 'PX', ARGV[i * 4 - 1])
    else redis.call('DEL', key) end
  end
end
return answer
`;
const SHA = createHash('sha1').update(SCRIPT).digest('hex');
/** Larger than any sum: `add` never refuses. */
const NO_LIMIT = 1e300;
/** Windows this node remembers for a server that comes back empty; past it the oldest are forgotten. */
const MAX_SEEN = 100_000;

interface Seen {
  used: number;
  expiresAt: number;
  /** Of the connection it was seen over. */
  session: number;
}

export class RedisCounters implements Counters {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #seen = new Map<string, Seen>();
  #sweep = this.#seen.entries();

  /** `clock` is the one that gives the ends of windows. */
  constructor(connection: Connection, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
  }

  async hit(windows: readonly WindowHit[]): Promise<WindowResult> {
    if (windows.length === 0) return { allowed: true, refusedBy: -1, used: [] };
    const [refused = 0, ...used] = await this.#run(windows);
    return { allowed: refused === 0, refusedBy: refused - 1, used };
  }

  async add(windows: readonly Omit<WindowHit, 'limit'>[]): Promise<void> {
    if (windows.length > 0) await this.#run(windows);
  }

  async get(keys: readonly string[]): Promise<number[]> {
    if (keys.length === 0) return [];
    const values = await this.#guarded((client) => client.mget(keys.map((key) => PREFIX + key)));
    return values.map((value) => {
      const number = Number(value ?? 0);
      return number >= 0 && number <= 2 ** 53 ? number : 0;
    });
  }

  async close(): Promise<void> {}

  async #run(windows: readonly (Omit<WindowHit, 'limit'> & { readonly limit?: number })[]): Promise<number[]> {
    const keys: string[] = [];
    const numbers: number[] = [];
    const now = this.#clock.now();
    const { session } = this.#connection;
    for (const { key, amount, limit = NO_LIMIT, expiresAt } of windows) {
      keys.push(PREFIX + key);
      const seen = this.#seen.get(key);
      // Not over the same connection: what another node took back since then would be counted again.
      const reminded = seen === undefined || seen.expiresAt <= now || seen.session === this.#connection.session;
      const floor = reminded ? 0 : seen.used;
      numbers.push(amount, limit, Math.ceil(expiresAt - now), floor);
    }
    const answer = await this.#guarded(async (client) => {
      try {
        return await client.evalsha(SHA, keys.length, ...keys, ...numbers);
      } catch (error) {
        // A restarted or flushed server has forgotten the script; EVAL runs it and teaches it again.
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        return await client.eval(SCRIPT, keys.length, ...keys, ...numbers);
      }
    });
    const result = (answer as unknown[]).map(Number);
    this.#remember(windows, result, now, session);
    return result;
  }

  #remember(
    windows: readonly { readonly key: string; readonly expiresAt: number }[],
    result: number[],
    now: number,
    session: number,
  ) {
    for (const [index, { key, expiresAt }] of windows.entries()) {
      const used = result[index + 1] ?? 0;
      const known = this.#seen.get(key);
      if (known !== undefined) {
        known.used = used;
        known.expiresAt = expiresAt;
        known.session = session;
      } else if (used > 0 && expiresAt > now) this.#seen.set(key, { used, expiresAt, session });
      const next = this.#sweep.next();
      if (next.done) this.#sweep = this.#seen.entries();
      else if (next.value[1].expiresAt <= now) this.#seen.delete(next.value[0]);
    }
    for (const key of this.#seen.keys()) {
      if (this.#seen.size <= MAX_SEEN) return;
      this.#seen.delete(key);
    }
  }

  async #guarded<T>(command: (client: Redis) => Promise<T>): Promise<T> {
    try {
      return await this.#connection.run(command);
    } catch (error) {
      throw new SluiceError('unavailable', 'Limits cannot be checked right now. Try again.', {
        cause: error,
        detail: 'redis',
        retryAfter: 1,
      });
    }
  }
}
