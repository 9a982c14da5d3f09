import { crc32 } from 'node:zlib';
import type { Cache } from '../ports.ts';
import type { Connection } from './connection.ts';

const PREFIX = 'sluice:k1:';
/** First byte of every value, raised when the form changes: nodes of two releases never misread each other. */
const VERSION = 1;
const HEADER = 5;

/** Values carry a version and a checksum; any other value under a key is a miss. */
export class RedisCache implements Cache {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async get(key: string): Promise<Buffer | null> {
    const stored = await this.#connection.run((client) => client.getBuffer(PREFIX + key)).catch(() => null);
    if (!stored || stored.length < HEADER || stored[0] !== VERSION) return null;
    const value = stored.subarray(HEADER);
    return crc32(value) === stored.readUInt32BE(1) ? value : null;
  }

  async set(key: string, value: Buffer, ttlMs: number): Promise<void> {
    if (ttlMs <= 0) return await this.delete(key);
    const stored = Buffer.allocUnsafe(HEADER + value.length);
    stored[0] = VERSION;
    stored.writeUInt32BE(crc32(value), 1);
    value.copy(stored, HEADER);
    await this.#connection.run((client) => client.set(PREFIX + key, stored, 'PX', Math.ceil(ttlMs))).catch(() => null);
  }

  async delete(key: string): Promise<void> {
    await this.#connection.run((client) => client.del(PREFIX + key)).catch(() => null);
  }

  async close(): Promise<void> {}
}
