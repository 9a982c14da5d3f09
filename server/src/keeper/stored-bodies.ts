/** The server's side of kept bodies: keys and blobs for the keeper, and the bodies of one request for who may read them. */
import { createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Blobs, Tables, TenantContext } from '../store/ports.ts';
import type { Subkeys } from '../store/vault.ts';
import { CHUNK_KEY, chunkBlob, chunkKeyId, dayOf, type KeptRequest, openChunk } from '../telemetry/bodies/chunk.ts';
import type { LogFoundPage, LogSearchQuery, LogSelection } from '../telemetry/log-query.ts';
import type { BodyStore, StoredChunk } from './body-keeper.ts';
import { receivedBodies } from './body-messages.ts';
import type { KeeperClient } from './keeper-client.ts';

export interface StoredBodiesOptions {
  readonly blobs: Blobs;
  readonly tables: Tables;
  readonly keys: Subkeys;
  readonly clock: Clock;
  readonly tenantOf: (organisationId: string) => TenantContext;
  /** The key of a segment of a journal (`BodyStore.segmentKey`). */
  readonly segmentKey: (journal: string, segment: string, keyId: string) => Buffer | null;
}

/** Where the bodies of a request are, as its record says. */
export interface BodyLocation {
  readonly organisationId: string;
  readonly chunk: string;
  readonly slot: number;
  /** Of the request. */
  readonly id: string;
}

/** A chunk is packed at 16 MB; what is larger is none of ours. */
const MOST_BLOB = 64 << 20;

export function bodyStore({ blobs, tables, keys, clock, tenantOf, segmentKey }: StoredBodiesOptions): BodyStore {
  return {
    segmentKey: async (...place) => segmentKey(...place),
    chunkKey: (organisationId, dataKeyId) => keys.subkey(organisationId, CHUNK_KEY, dataKeyId ?? undefined),
    async readKey(organisationId, dataKeyId) {
      const row = await tables.systemRead((tx) =>
        tx.find('data_keys', { id: dataKeyId, organisation_id: organisationId }),
      );
      return row === undefined ? null : (await keys.subkey(organisationId, CHUNK_KEY, dataKeyId)).key;
    },
    async put(chunk, file) {
      // Listed first: a blob that no row names would outlive its days.
      await note(chunk, 0);
      const { bytes } = await blobs.put(tenantOf(chunk.organisationId), chunkBlob(chunk.id), createReadStream(file));
      await note(chunk, bytes);
    },
    async get(organisationId, chunk, file) {
      const stream = await blobs.get(tenantOf(organisationId), chunkBlob(chunk));
      if (stream === null) return false;
      await pipeline(stream, createWriteStream(file, { mode: 0o600 }));
      return true;
    },
  };

  function note({ id, organisationId, workspaceId, records }: StoredChunk, bytes: number): Promise<void> {
    return tables.systemWrite(async (tx) => {
      if ((await tx.update('body_chunks', { id }, { records, bytes })) > 0) return;
      await tx.insert('body_chunks', {
        id,
        organisation_id: organisationId,
        workspace_id: workspaceId,
        day: dayOf(id),
        records,
        bytes,
        created_at: clock.now(),
      });
    });
  }
}

/** Reads the bodies of requests. */
export class StoredBodies {
  readonly #options: StoredBodiesOptions;
  readonly #keeper: KeeperClient;

  constructor(options: StoredBodiesOptions, keeper: KeeperClient) {
    this.#options = options;
    this.#keeper = keeper;
  }

  /**
   * The bodies of one request; null when they are not there, or not any more. Rejects with `unavailable` when they are there and
   * cannot be opened.
   */
  async find({ organisationId, chunk, slot, id }: BodyLocation): Promise<KeptRequest | null> {
    const waiting = await this.#keeper.ask('body', organisationId, chunk, slot).then(receivedBodies, () => null);
    const found = waiting ?? (await this.#stored(organisationId, chunk))?.get(slot) ?? null;
    return found?.id === id ? found : null;
  }

  /** Requests with a phrase in their kept bodies. */
  async search(selection: LogSelection, query: LogSearchQuery): Promise<LogFoundPage> {
    return (await this.#keeper.ask('search', selection, query)) as LogFoundPage;
  }

  async #stored(organisationId: string, chunk: string): Promise<Map<number, KeptRequest> | null> {
    const { blobs, keys, tenantOf } = this.#options;
    const stream = await blobs.get(tenantOf(organisationId), chunkBlob(chunk));
    if (stream === null) return null;
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of stream as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MOST_BLOB) throw new RangeError('a blob of bodies is too large');
      pieces.push(piece);
    }
    const blob = Buffer.concat(pieces);
    try {
      const { key } = await keys.subkey(organisationId, CHUNK_KEY, chunkKeyId(blob));
      return await openChunk(organisationId, chunk, blob, key);
    } catch (error) {
      const message = 'The kept bodies of this request cannot be opened. Its record without them is in GET /v1/logs.';
      throw new SluiceError('unavailable', message, {
        cause: error,
        detail: 'changed, moved, or without its data key',
      });
    }
  }
}
