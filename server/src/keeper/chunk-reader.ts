/** Reads the kept bodies of many requests: a chunk that was opened stays for those that follow, within a bound of memory. */
import { readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../kernel/log.ts';
import { chunkBlob, chunkKeyId, type KeptRequest, openChunk, timeOf } from '../telemetry/bodies/chunk.ts';
import { BODY_FLAGS } from '../telemetry/bodies/frame.ts';
import { absence, type MissingBodies } from '../telemetry/bodies/presented.ts';
import type { LogRow } from '../telemetry/log-query.ts';
import type { BodyStore } from './body-keeper.ts';

/** Columns that say where the bodies of a row are. */
export const BODY_COLUMNS = ['organisation_id', 'body_chunk', 'body_slot', 'body_flags'] as const;

export interface ChunkReaderParts {
  readonly store: BodyStore;
  /** Requests of a chunk that are in no blob yet. */
  readonly waiting: (organisationId: string, chunk: string) => ReadonlyMap<number, KeptRequest> | null;
  /** For files on their way, and the ending by which they go when a keeper starts. */
  readonly dir: string;
  readonly ending: string;
  readonly newId: () => string;
  readonly now: () => number;
  readonly log: Log;
}

type Chunk = ReadonlyMap<number, KeptRequest> | 'gone' | 'unreadable';

/** Of opened chunks; one is 16 MB as a rule. */
const MOST_BYTES = 64 << 20;
/** By then a chunk is packed, and every node reads it. */
const PACKED_MS = 120_000;

export class ChunkReader {
  readonly #parts: ChunkReaderParts;
  /** The one that was not used for longest first. */
  readonly #chunks = new Map<string, { readonly chunk: Chunk; readonly bytes: number }>();
  #bytes = 0;

  constructor(parts: ChunkReaderParts) {
    this.#parts = parts;
  }

  /** Bytes of the chunks that it holds. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * The bodies of a row with `BODY_COLUMNS`, or why there are none. Rejects where blobs or keys cannot be read just now.
   *
   * @param since milliseconds since the epoch: bodies of requests before it are past their days
   */
  async find(row: LogRow, since: number): Promise<KeptRequest | MissingBodies> {
    const { organisation_id: organisationId, body_chunk: id, body_slot: slot, body_flags: flags } = row;
    const chunk = typeof id === 'string' ? id : null;
    const none = absence(typeof flags === 'number' ? flags : null, chunk);
    if (none !== null || chunk === null || typeof organisationId !== 'string') return none ?? 'off';
    if (Number(row.time) < since) return 'expired';
    const waiting = this.#parts.waiting(organisationId, chunk)?.get(Number(slot));
    if (waiting !== undefined) return waiting.id === row.id ? waiting : 'unreadable';
    const opened = await this.#opened(organisationId, chunk);
    if (opened === 'unreadable') return opened;
    const found = opened === 'gone' ? undefined : opened.get(Number(slot));
    if (found === undefined) return this.#parts.now() - timeOf(chunk) < PACKED_MS ? 'pending' : 'expired';
    if ((found.end.flags & BODY_FLAGS.erased) !== 0) return 'expired';
    return found.id === row.id ? found : 'unreadable';
  }

  async #opened(organisationId: string, id: string): Promise<Chunk> {
    const name = `${organisationId} ${id}`;
    const known = this.#chunks.get(name) ?? { chunk: await this.#read(organisationId, id), bytes: -1 };
    const bytes = known.bytes < 0 ? bytesOf(known.chunk) : known.bytes;
    if (known.bytes < 0) this.#bytes += bytes;
    this.#chunks.delete(name);
    this.#chunks.set(name, { chunk: known.chunk, bytes });
    for (const [oldest, { bytes: freed }] of this.#chunks) {
      if (this.#bytes <= MOST_BYTES || oldest === name) break;
      this.#chunks.delete(oldest);
      this.#bytes -= freed;
    }
    return known.chunk;
  }

  async #read(organisationId: string, id: string): Promise<Chunk> {
    const { store, dir, newId, ending, log } = this.#parts;
    const file = join(dir, `${newId()}.chunk${ending}`);
    let blob: Buffer;
    try {
      if (!(await store.get(organisationId, id, file))) return 'gone';
      blob = await readFile(file);
    } finally {
      await unlink(file).catch(() => undefined);
    }
    let key: Buffer | null = null;
    try {
      key = await store.readKey(organisationId, chunkKeyId(blob));
      return key === null ? 'unreadable' : await openChunk(organisationId, id, blob, key);
    } catch (error) {
      // Without its store a key cannot be read just now; all else is wrong with the chunk.
      if (key === null && !(error instanceof RangeError)) throw error;
      log.error('a stored chunk of bodies cannot be opened', { error: String(error), blob: chunkBlob(id) });
      return 'unreadable';
    } finally {
      key?.fill(0);
    }
  }
}

function bytesOf(chunk: Chunk): number {
  if (typeof chunk === 'string') return 0;
  let bytes = 0;
  for (const { bodies } of chunk.values()) for (const body of Object.values(bodies)) bytes += body.length;
  return bytes;
}
