/** Works on large bodies in a separate thread: see `jobs.ts` and `thread.ts`. */
import { parentPort } from 'node:worker_threads';
import { type Job, perform, type Reply } from './jobs.ts';

/** Shorter results are copied: they may lie in memory that Node shares between Buffers. */
const MOVED_BYTES = 64 * 1024;

/** Memory of a reply that can be given away. */
function owned(reply: Reply): ArrayBuffer[] {
  if ('failure' in reply) return [];
  const { done } = reply;
  const all: readonly Uint8Array[] =
    'made' in done && typeof done.made === 'object' && done.made !== null
      ? done.made.parts
      : 'bytes' in done && done.bytes !== null
        ? [done.bytes]
        : [];
  const memory = new Set<ArrayBuffer>();
  for (const { buffer, byteLength } of all)
    if (buffer instanceof ArrayBuffer && byteLength > MOVED_BYTES && byteLength === buffer.byteLength)
      memory.add(buffer);
  return [...memory];
}

parentPort?.on('message', (job: Job) => {
  const reply = perform(job);
  parentPort?.postMessage(reply, owned(reply));
});
