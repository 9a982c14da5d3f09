import type { Readable } from 'node:stream';

const given = new WeakSet<Readable>();

/**
 * Marks a stream whose pieces nobody else looks at any more: who takes one may do away with its memory. Bodies of requests
 * are made of fresh buffers, and the heap lets many of them pile up before it looks.
 */
export function markTransferable<S extends Readable>(stream: S): S {
  given.add(stream);
  return stream;
}

export function isTransferable(stream: Readable): boolean {
  return given.has(stream);
}

/** Ends the memory of a piece at once, when it is alone in it. */
export function detachMemory(piece: Buffer): void {
  if (piece.length === piece.buffer.byteLength) (piece.buffer as ArrayBuffer).transfer(0);
}
