/**
 * Room for the files that Sluice keeps: their disk may be that of the databases. Bytes of an organisation are bounded,
 * those that are on their way included, and so are its uploads at a time.
 */
import { pipeline, type Readable, Transform } from 'node:stream';
import { systemTenant } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { SystemTx, Tables } from '../../store/ports.ts';
import { bytesOf } from './file-rows.ts';

/** Uploads of one organisation at the same time, on each process. */
export const UPLOADS_AT_ONCE = 32;

interface Under {
  uploads: number;
  /** Received and not stored yet. */
  bytes: number;
}

export interface Room {
  /** The same bytes; fails when there is no room for more. */
  limited(stream: Readable): Readable;
  /** For the transaction that stores the row: throws when there is no room for the whole file. */
  take(tx: SystemTx, bytes: number): Promise<void>;
  /** Once, in any case. */
  close(): void;
}

export class FileSpace {
  readonly #tables: Tables;
  readonly #quota: number;
  readonly #under = new Map<string, Under>();

  /** `quota`: bytes of an organisation; 0: as many as there is room for. */
  constructor(tables: Tables, quota: number) {
    this.#tables = tables;
    this.#quota = quota;
  }

  async open(organisationId: string): Promise<Room> {
    const under = this.#under.get(organisationId) ?? { uploads: 0, bytes: 0 };
    if (under.uploads >= UPLOADS_AT_ONCE) {
      throw new SluiceError(
        'rate_limit_exceeded',
        `The organisation has ${UPLOADS_AT_ONCE} uploads under way; send this one when another has ended.`,
        { retryAfter: 1 },
      );
    }
    this.#under.set(organisationId, under);
    under.uploads += 1;
    let mine = 0;
    let closed = false;
    const close = () => {
      if (closed) return;
      closed = true;
      under.uploads -= 1;
      under.bytes -= mine;
      if (under.uploads === 0) this.#under.delete(organisationId);
    };
    try {
      const stored = this.#quota === 0 ? 0 : await this.#stored(organisationId);
      const full = () => stored + under.bytes > this.#quota;
      if (this.#quota > 0 && stored >= this.#quota) throw this.#noRoom();
      return {
        limited: (stream) => {
          if (this.#quota === 0) return stream;
          const out = new Transform({
            transform: (chunk: Buffer, _encoding, done) => {
              mine += chunk.length;
              under.bytes += chunk.length;
              if (full()) done(this.#noRoom());
              else done(null, chunk);
            },
          });
          pipeline(stream, out, () => undefined);
          return out;
        },
        take: async (tx, bytes) => {
          if (this.#quota === 0) return;
          if ((await bytesOf(tx, organisationId)) + bytes > this.#quota) throw this.#noRoom();
        },
        close,
      };
    } catch (error) {
      close();
      throw error;
    }
  }

  #stored(organisationId: string): Promise<number> {
    return this.#tables.read(systemTenant(organisationId), (tx) => bytesOf(tx, organisationId));
  }

  #noRoom(): SluiceError {
    return new SluiceError(
      'too_large',
      `The files of the organisation may have ${this.#quota} bytes together (SLUICE_FILES_QUOTA), and this one does not fit; delete some.`,
      { param: 'file' },
    );
  }
}
