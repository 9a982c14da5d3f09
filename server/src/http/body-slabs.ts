/**
 * Memory for request bodies, used again. A fresh Buffer of 100 KB for every request is memory outside V8's heap: it
 * brings on a full garbage collection every hundred requests, which costs more than everything else such a request
 * does. Slabs are lent by `lend`, kept by every socket that still has bytes of them to send (`watchWrites`), and used
 * again only when nobody keeps them: bytes of one caller must never be overwritten while they are on their way.
 */
import type { Socket } from 'node:net';

const SMALLEST = 16 * 1024;
const LARGEST = 1024 * 1024;
/** Bytes of idle slabs kept at most; more are left to the garbage collector. */
const IDLE_BYTES = 16 * 1024 * 1024;

const SLAB = Symbol('slab');

interface Slab {
  readonly memory: Buffer;
  /** The borrower, and every write that has not reached the kernel. */
  keepers: number;
}

type Tagged = ArrayBufferLike & { [SLAB]?: Slab };

const idle = new Map<number, Slab[]>();
let idleBytes = 0;

/**
 * A Buffer of `length` bytes with undefined content, from a slab when the size is worth it. What is larger than a slab lies in
 * memory that another thread can read, too.
 */
export function lend(length: number): Buffer {
  if (length > LARGEST) return Buffer.from(new SharedArrayBuffer(length));
  if (length < SMALLEST) return Buffer.allocUnsafeSlow(length);
  const size = 2 ** Math.ceil(Math.log2(length));
  let slab = idle.get(size)?.pop();
  if (slab === undefined) {
    slab = { memory: Buffer.allocUnsafeSlow(size), keepers: 0 };
    (slab.memory.buffer as Tagged)[SLAB] = slab;
  } else idleBytes -= size;
  slab.keepers = 1;
  return slab.memory.subarray(0, length);
}

/** The borrower is done with a Buffer of `lend`; any other Buffer is left alone. Must be called once at most. */
export function giveBack(buffer: Buffer): void {
  const slab = (buffer.buffer as Tagged)[SLAB];
  if (slab !== undefined) drop(slab);
}

function drop(slab: Slab): void {
  slab.keepers -= 1;
  const size = slab.memory.length;
  if (slab.keepers !== 0 || idleBytes + size > IDLE_BYTES) return;
  idleBytes += size;
  const list = idle.get(size);
  if (list === undefined) idle.set(size, [slab]);
  else list.push(slab);
}

/**
 * Makes every write of lent bytes on `socket` keep their slab until the kernel has them, or the write has failed: Node
 * calls a write's callback in both cases.
 */
export function watchWrites<S extends Socket>(socket: S): S {
  const write = socket.write as (this: Socket, ...parts: unknown[]) => boolean;
  const watched = function (this: Socket, chunk: unknown, ...rest: unknown[]): boolean {
    const slab = chunk instanceof Uint8Array ? (chunk.buffer as Tagged)[SLAB] : undefined;
    if (slab === undefined) return write.call(this, chunk, ...rest);
    slab.keepers += 1;
    const given = rest.at(-1);
    return write.call(this, chunk, (error?: Error | null) => {
      drop(slab);
      if (typeof given === 'function') given(error);
    });
  };
  socket.write = watched as S['write'];
  return socket;
}

/** For tests: bytes of slabs that wait to be lent. */
export function idleSlabBytes(): number {
  return idleBytes;
}
