/**
 * The body of a streamed answer. Node frames each chunk as three writes that are corked and put together in the next
 * tick; for a stream of small events that is most of what the answer costs. Here a chunk is framed into one buffer and
 * goes out with one write. Node still decides whether an answer is chunked, and keeps or closes the connection.
 */
import type { ServerResponse } from 'node:http';
import { isLent, keepBuffer } from './buffer-pool.ts';

const OWN = Symbol('own framing');
type Framed = ServerResponse & { [OWN]?: true };

/** Up to this size a chunk is copied behind its head; a larger one is worth three writes. */
const COPY_BYTES = 16 * 1024;
/** The same for lent memory: a fresh copy brings on the collections that lending saves. */
const COPIED_LENT_BYTES = 4 * 1024;
const LAST = '0\r\n\r\n';

/** Whether an answer without a length can end with trailers: only a client of HTTP/1.1 reads chunks. */
export function takesTrailers(response: ServerResponse): boolean {
  return response.useChunkedEncodingByDefault;
}

/** Sends status and headers (`[name, value, …]`) of an answer whose body is written with `writePart` and `endParts`. */
export function startParts(response: ServerResponse, status: number, headers: string[]): void {
  response.writeHead(status, headers);
  if (!response.chunkedEncoding) return;
  // The head says so already; from here on Node passes bytes through as they are.
  response.chunkedEncoding = false;
  (response as Framed)[OWN] = true;
}

/** Like `response.write`: false when the client is slower than the upstream. Lent memory is kept until it is written. */
export function writePart(response: ServerResponse, part: Buffer): boolean {
  const lent = isLent(part);
  if ((response as Framed)[OWN] === undefined)
    return lent ? response.write(part, keepBuffer(part)) : response.write(part);
  if (part.length === 0) return true;
  if (part.length <= (lent ? COPIED_LENT_BYTES : COPY_BYTES)) return response.write(framed(part, ''));
  response.cork();
  response.write(`${part.length.toString(16)}\r\n`, 'latin1');
  if (lent) response.write(part, keepBuffer(part));
  else response.write(part);
  const more = response.write('\r\n', 'latin1');
  response.uncork();
  return more;
}

/** Ends the body, after `parts`. `trailer` is a line `name: value`, which the head has declared; left out where nothing is chunked. */
export function endParts(response: ServerResponse, parts: readonly Buffer[], trailer: string | null = null): void {
  const end = trailer === null ? LAST : `0\r\n${trailer}\r\n\r\n`;
  const last = parts.length - 1;
  for (let i = 0; i < last; i++) writePart(response, parts[i] as Buffer);
  const part = parts[last];
  if ((response as Framed)[OWN] === undefined) {
    if (part !== undefined && isLent(part)) response.end(part, keepBuffer(part));
    else response.end(part);
  } else if (part === undefined || part.length > COPY_BYTES) {
    if (part !== undefined) writePart(response, part);
    response.end(end, 'latin1');
  } else {
    response.end(framed(part, end));
  }
}

/** Bytes that are written at once: the kernel copies several megabytes in one write, for milliseconds. */
const SLICE_BYTES = 128 * 1024;

/**
 * Like `endParts`, for bodies of any length: what is large is written in slices, each in a turn that `turn` gives, and no faster
 * than the client reads. Resolves when all is written, or the client has gone; undefined where it was written at once.
 */
export function endPartsInTurns(
  response: ServerResponse,
  parts: readonly Buffer[],
  trailer: string | null,
  turn: (work: () => void) => void,
): Promise<void> | undefined {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  if (bytes <= SLICE_BYTES) {
    endParts(response, parts, trailer);
    return undefined;
  }
  return new Promise((resolve) => {
    let part = 0;
    let at = 0;
    const next = (): void => {
      response.off('drain', later);
      if (response.destroyed) {
        gone();
        return;
      }
      const now = parts[part];
      if (now === undefined) {
        response.off('close', gone);
        endParts(response, [], trailer);
        resolve();
        return;
      }
      const slice = now.subarray(at, at + SLICE_BYTES);
      at += slice.length;
      if (at === now.length) {
        part += 1;
        at = 0;
      }
      if (writePart(response, slice)) later();
      else response.once('drain', later);
    };
    const later = (): void => turn(next);
    const gone = (): void => {
      response.off('close', gone);
      resolve();
    };
    response.once('close', gone);
    next();
  });
}

function framed(part: Buffer, end: string): Buffer {
  if (part.length === 0) return Buffer.from(end, 'latin1');
  const head = `${part.length.toString(16)}\r\n`;
  const out = Buffer.allocUnsafe(head.length + part.length + 2 + end.length);
  let at = out.write(head, 0, 'latin1');
  part.copy(out, at);
  at += part.length;
  out[at] = 13;
  out[at + 1] = 10;
  if (end !== '') out.write(end, at + 2, 'latin1');
  return out;
}
