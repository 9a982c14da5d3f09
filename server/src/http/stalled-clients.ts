import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { deadlinesOf } from '../kernel/deadlines.ts';

/** Node's handle of a socket: what the kernel has not taken of the write in progress. */
interface Writing extends Socket {
  readonly _handle?: { readonly writeQueueSize?: number } | null;
}

/** What waits to be sent on a connection when it was last looked at. */
interface Stall {
  flushed: number;
  queued: number;
  since: number;
}

/**
 * Destroys connections whose client takes nothing of its answer for `ms`. The timeout of Node's sockets is twice as long
 * for them: it starts over when the first write was taken in part. Here the bytes that the kernel took count, looked at
 * twelve times in `ms`; what fits into the buffers of the kernel is not seen as waiting.
 */
export function cutStalledClients(server: Server, clock: Clock, ms: number): void {
  const sockets = new Set<Writing>();
  const stalls = new Map<Writing, Stall>();
  const every = Math.max(1, Math.floor(ms / 12));
  const look = () => {
    const now = clock.monotonic();
    for (const socket of sockets) {
      const waiting = socket.writableLength;
      if (waiting === 0) {
        stalls.delete(socket);
        continue;
      }
      const flushed = socket.bytesWritten - waiting;
      const queued = socket._handle?.writeQueueSize ?? 0;
      const stall = stalls.get(socket);
      if (stall === undefined) stalls.set(socket, { flushed, queued, since: now });
      else if (stall.flushed !== flushed || stall.queued !== queued) {
        stall.flushed = flushed;
        stall.queued = queued;
        stall.since = now;
      } else if (now - stall.since >= ms) socket.destroy();
    }
    if (sockets.size > 0) deadline.reset(every);
    else running = false;
  };
  let running = true;
  const deadline = deadlinesOf(clock).start(every, look);
  server.on('connection', (socket: Writing) => {
    sockets.add(socket);
    socket.once('close', () => {
      sockets.delete(socket);
      stalls.delete(socket);
    });
    if (running) return;
    running = true;
    deadline.reset(every);
  });
}
