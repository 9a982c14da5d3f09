import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Counters, WindowHit, WindowResult } from '../ports.ts';
import type { Connection } from './connection.ts';

const PREFIX = 'sluice:c1:';

/**
 * All windows of one call in one script, so nothing happens between check and take. Values of the wrong type or form
 * count as 0. Arguments: amount, limit and time to the end of the window (ms) per key: time to go, because the server's
 * clock may be minutes from the one that windows go by. Answer: index of the refusing window or 0,
 * then the used amounts as texts, because the client's reader is not exact for integers near 2^53.
 */
const SCRIPT = `
local value, refused = {}, 0
local function read(key)
  local stored = redis.pcall('GET', key)
  if type(stored) == 'table' then redis.call('DEL', key) return 0 end
  local number = stored and tonumber(stored) or 0
  if number ~= number or number < 0 or number > 9007199254740992 then return 0 end
  return number
end
for i, key in ipairs(KEYS) do
  if value[key] == nil then value[key] = read(key) end
  local sum = value[key] + tonumber(ARGV[i * 3 - 2])
  if sum > tonumber(ARGV[i * 3 - 1]) then refused = i break end
  if sum < 0 then sum = 0 end
  value[key] = sum
end
local answer = { refused }
for i, key in ipairs(KEYS) do
  if refused > 0 then
    answer[i + 1] = string.format('%.0f', read(key))
  else
    answer[i + 1] = string.format('%.0f', value[key])
    if tonumber(ARGV[i * 3]) > 0 then redis.call('SET', key, answer[i + 1], 'PX', ARGV[i * 3])
    else redis.call('DEL', key) end
  end
end
return answer
`;
const SHA = createHash('sha1').update(SCRIPT).digest('hex');
/** Larger than any sum: `add` never refuses. */
const NO_LIMIT = 1e300;

export class RedisCounters implements Counters {
  readonly #connection: Connection;
  readonly #clock: Clock;

  /** `clock` is the one that the ends of windows are told by. */
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
    for (const { key, amount, limit = NO_LIMIT, expiresAt } of windows) {
      keys.push(PREFIX + key);
      numbers.push(amount, limit, Math.ceil(expiresAt - now));
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
    return (answer as unknown[]).map(Number);
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
