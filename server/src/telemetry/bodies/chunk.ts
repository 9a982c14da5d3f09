/**
 * A chunk: bodies of up to a thousand requests of one workspace, packed together, because prompts and histories that are sent
 * again and again then take their space once. Sealed with a key of the organisation, and opened for its own place only.
 */
import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';
import { openBytes, sealBytes } from '../../kernel/sealed-bytes.ts';
import { BODY_PARTS, type BodyEnd, type BodyPart } from './frame.ts';

/** The use that the key of an organisation is derived for. */
export const CHUNK_KEY = 'bodies of requests';

export interface ChunkKey {
  /** Of the data key that it is derived from. */
  readonly id: string;
  readonly key: Buffer;
}

/** The bodies of one request. */
export interface KeptRequest {
  readonly id: string;
  readonly end: BodyEnd;
  readonly bodies: Readonly<Partial<Record<BodyPart, Buffer>>>;
}

interface Entry {
  readonly id: string;
  readonly end: BodyEnd;
  /** Place of each body behind the index. */
  readonly at: Readonly<Partial<Record<BodyPart, readonly [start: number, length: number]>>>;
}

/** Texts that are alike lie up to 32 MB from each other. */
const WINDOW_LOG = 25;
const LEVEL = 3;
const MAGIC = Buffer.from('SLB1');
const ID_BYTES = 36;
const HEAD = MAGIC.length + ID_BYTES;
/** Of one chunk before packing; what is larger is no chunk of ours. */
const MOST_BYTES = 256 << 20;
const MS_PER_DAY = 86_400_000;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** The key of a chunk's blob. `time`: milliseconds since the epoch. */
export function chunkBlob(chunk: string): string {
  return `logs-${new Date(timeOf(chunk)).toISOString().slice(0, 10)}-${chunk}`;
}

/** When a chunk was begun, milliseconds since the epoch: its id says so. */
export function timeOf(chunk: string): number {
  return Number.parseInt(chunk.slice(0, 8) + chunk.slice(9, 13), 16);
}

/** Days since the epoch (UTC) of its begin. */
export function dayOf(chunk: string): number {
  return Math.floor(timeOf(chunk) / MS_PER_DAY);
}

const placeOf = (organisationId: string, blob: string, keyId: string) => `bodies\n${organisationId}\n${blob}\n${keyId}`;

/** The bytes of the blob. */
export async function packChunk(
  organisationId: string,
  chunk: string,
  requests: readonly KeptRequest[],
  { id, key }: ChunkKey,
): Promise<Buffer> {
  const bodies: Buffer[] = [];
  let end = 0;
  const index = requests.map((request): Entry => {
    const at: Partial<Record<BodyPart, readonly [number, number]>> = {};
    for (const part of BODY_PARTS) {
      const bytes = request.bodies[part];
      if (bytes === undefined || bytes.length === 0) continue;
      at[part] = [end, bytes.length];
      bodies.push(bytes);
      end += bytes.length;
    }
    return { id: request.id, end: request.end, at };
  });
  const head = Buffer.from(JSON.stringify({ organisation_id: organisationId, chunk, requests: index }));
  const length = Buffer.allocUnsafe(4);
  length.writeUInt32LE(head.length);
  const packed = await compress(Buffer.concat([length, head, ...bodies]), {
    params: {
      [constants.ZSTD_c_compressionLevel]: LEVEL,
      [constants.ZSTD_c_windowLog]: WINDOW_LOG,
      [constants.ZSTD_c_enableLongDistanceMatching]: 1,
    },
  });
  return Buffer.concat([
    MAGIC,
    Buffer.from(id),
    ...sealBytes(key, placeOf(organisationId, chunkBlob(chunk), id), packed),
  ]);
}

/** Which data key opens a blob. Throws RangeError for what is no chunk. */
export function chunkKeyId(blob: Buffer): string {
  if (blob.length < HEAD || !blob.subarray(0, MAGIC.length).equals(MAGIC))
    throw new RangeError('not a chunk of bodies');
  return blob.toString('latin1', MAGIC.length, HEAD);
}

/** Throws where the bytes were changed, lay at another place, or are of another organisation. */
export async function openChunk(
  organisationId: string,
  chunk: string,
  blob: Buffer,
  key: Buffer,
): Promise<Map<number, KeptRequest>> {
  const place = placeOf(organisationId, chunkBlob(chunk), chunkKeyId(blob));
  const plain = await decompress(openBytes(key, place, blob.subarray(HEAD)), {
    maxOutputLength: MOST_BYTES,
    params: { [constants.ZSTD_d_windowLogMax]: 27 },
  });
  const length = plain.readUInt32LE(0);
  const head = JSON.parse(plain.toString('utf8', 4, 4 + length)) as {
    readonly organisation_id: string;
    readonly chunk: string;
    readonly requests: readonly Entry[];
  };
  if (head.organisation_id !== organisationId || head.chunk !== chunk) throw new RangeError('a chunk of another place');
  const found = new Map<number, KeptRequest>();
  for (const { id, end, at } of head.requests) {
    const bodies: Partial<Record<BodyPart, Buffer>> = {};
    for (const [part, [start, size]] of Object.entries(at) as [BodyPart, readonly [number, number]][]) {
      bodies[part] = plain.subarray(4 + length + start, 4 + length + start + size);
    }
    found.set(end.slot, { id, end, bodies });
  }
  return found;
}
