/**
 * Memory for request bodies, used again. A fresh Buffer of 100 KB for every request is memory outside V8's heap: it
 * brings on a full garbage collection every hundred requests, which costs more than everything else such a request
 * does. Slabs are lent by `borrowBuffer`, kept by every socket that still has bytes of them to send (`watchWrites`), and used
 * again only when nobody keeps them: bytes of one caller must never be overwritten while they are on their way.
 */
import type { Socket } from 'node:net';

const SMALLEST = 16 * 1024;
const LARGEST = 1024 * 1024;
/** Bytes of idle slabs kept at most; more are left to the garbage collector. */
const IDLE_BYTES = 16 * 1024 * 1024;
/**
 * The same for those that threads share: two of the largest bodies. A fresh one of 31 MB costs 8,000 page faults, and its end a full
 * garbage collection of 20 ms, in which nobody is served.
 */
const IDLE_SHARED_BYTES = 64 * 1024 * 1024;

const SLAB = Symbol('slab');

interface Slab {
  readonly memory: Buffer;
  /** The borrower, and every write that has not reached the kernel. */
  keepers: number;
}

type Tagged = ArrayBufferLike & { [SLAB]?: Slab };

const idle = new Map<number, Slab[]>();
/** Bytes of idle slabs: of small ones, and of those that threads share. */
const idleBytes = { own: 0, shared: 0 };

const kindOf = (size: number): keyof typeof idleBytes => (size > LARGEST ? 'shared' : 'own');

/**
 * A Buffer of `length` bytes with undefined content, from a slab when the size is worth it. A larger one lies in
 * memory that another thread can read, too.
 */
export function borrowBuffer(length: number): Buffer {
  if (length < SMALLEST) return Buffer.allocUnsafeSlow(length);
  const size = 2 ** Math.ceil(Math.log2(length));
  let slab = idle.get(size)?.pop();
  if (slab === undefined) {
    // The system gives memory only for what is written of a slab, whatever its size.
    const memory = size > LARGEST ? Buffer.from(new SharedArrayBuffer(size)) : Buffer.allocUnsafeSlow(size);
    slab = { memory, keepers: 0 };
    (slab.memory.buffer as Tagged)[SLAB] = slab;
  } else idleBytes[kindOf(size)] -= size;
  slab.keepers = 1;
  return slab.memory.subarray(0, length);
}

/** The borrower is done with a Buffer of `borrowBuffer`; any other Buffer is left alone. Must be called once at most. */
export function returnBuffer(buffer: Buffer): void {
  const slab = (buffer.buffer as Tagged)[SLAB];
  if (slab !== undefined) drop(slab);
}

/**
 * Keeps lent bytes beyond `returnBuffer`, and gives what ends that. It must be called once at most; never calling it leaves the memory
 * to the garbage collector.
 */
export function keepBuffer(buffer: Uint8Array): () => void {
  const slab = (buffer.buffer as Tagged)[SLAB];
  if (slab === undefined) return NOTHING;
  slab.keepers += 1;
  return () => drop(slab);
}

const NOTHING = () => undefined;

/** Whether the memory goes back to the pool after its last user. */
export function isLent(buffer: Uint8Array): boolean {
  return (buffer.buffer as Tagged)[SLAB] !== undefined;
}

function drop(slab: Slab): void {
  slab.keepers -= 1;
  const size = slab.memory.length;
  const kind = kindOf(size);
  const most = kind === 'shared' ? IDLE_SHARED_BYTES : IDLE_BYTES;
  if (slab.keepers !== 0 || idleBytes[kind] + size > most) return;
  idleBytes[kind] += size;
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
export function idleBufferBytes(): number {
  return idleBytes.own + idleBytes.shared;
}
