/** Bodies between the server and its keeper: what one asks of the other, and how bytes are sent. */
import type { ChunkKey, KeptRequest } from '../telemetry/bodies/chunk.ts';
import type { BodyEnd, BodyPart } from '../telemetry/bodies/frame.ts';
import type { BodyStore, StoredChunk } from './body-keeper.ts';
import type { Channel } from './messages.ts';

/** The server as its keeper asks it. */
export function bodyStoreOver(channel: Channel): BodyStore {
  const bytes = (value: unknown): Buffer => Buffer.from(value as Uint8Array);
  return {
    segmentKey: async (...place) => {
      const key = await channel.call('segmentKey', ...place);
      return key === null ? null : bytes(key);
    },
    chunkKey: async (...of) => {
      const { id, key } = (await channel.call('chunkKey', ...of)) as ChunkKey;
      return { id, key: bytes(key) };
    },
    readKey: async (...of) => {
      const key = await channel.call('readKey', ...of);
      return key === null ? null : bytes(key);
    },
    put: async (...chunk) => void (await channel.call('putChunk', ...chunk)),
    get: async (...place) => (await channel.call('getChunk', ...place)) === true,
  };
}

/** What the server answers its keeper. */
export function bodyAnswers(store: BodyStore): Readonly<Record<string, (...args: never[]) => unknown>> {
  return {
    segmentKey: (journal: string, segment: string, keyId: string) => store.segmentKey(journal, segment, keyId),
    chunkKey: (organisationId: string, dataKeyId: string | null) => store.chunkKey(organisationId, dataKeyId),
    readKey: (organisationId: string, dataKeyId: string) => store.readKey(organisationId, dataKeyId),
    putChunk: (chunk: StoredChunk, file: string) => store.put(chunk, file),
    getChunk: (organisationId: string, chunk: string, file: string) => store.get(organisationId, chunk, file),
  };
}

/** Bodies as text: they may pass through a channel of JSON. */
interface SentBodies {
  readonly id: string;
  readonly end: BodyEnd;
  readonly bodies: Readonly<Partial<Record<BodyPart, string>>>;
}

export function sentBodies(found: KeptRequest | null): SentBodies | null {
  if (found === null) return null;
  const bodies = Object.entries(found.bodies).map(([part, bytes]) => [part, bytes.toString('base64')]);
  return { id: found.id, end: found.end, bodies: Object.fromEntries(bodies) };
}

export function receivedBodies(sent: unknown): KeptRequest | null {
  if (sent === null) return null;
  const { id, end, bodies } = sent as SentBodies;
  const bytes = Object.entries(bodies).map(([part, text]) => [part, Buffer.from(text, 'base64')]);
  return { id, end, bodies: Object.fromEntries(bytes) };
}
