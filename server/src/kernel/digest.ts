/** Digests of what is large, in turns of the event loop: 31 MB take up to 60 ms. */
import type { Hash, Hmac } from 'node:crypto';

/** Bytes that are digested before others get a turn: 2 ms. */
const SLICE = 1024 * 1024;

/** Whether the digest of so many bytes takes turns. */
export const isLongDigest = (bytes: number): boolean => bytes > 2 * SLICE;

/** Feeds all parts to `hash` and gives its digest. The parts must not change meanwhile. */
export async function digestInTurns(hash: Hash | Hmac, parts: readonly Uint8Array[]): Promise<Buffer> {
  let since = 0;
  for (const part of parts) {
    for (let at = 0; at < part.length; at += SLICE) {
      const slice = part.subarray(at, at + SLICE);
      if (since + slice.length > SLICE) {
        since = 0;
        await new Promise((resolve) => setImmediate(resolve));
      }
      hash.update(slice);
      since += slice.length;
    }
  }
  return hash.digest();
}
