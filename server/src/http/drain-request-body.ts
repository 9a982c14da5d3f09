import type { IncomingMessage } from 'node:http';
import type { Clock } from '../kernel/clock.ts';
import { deadlinesOf } from '../kernel/deadlines.ts';

const LINGER_MS = 2_000;
const LINGER_BYTES = 16 * 1024 * 1024;

/**
 * Reads and forgets what still comes of a request that was answered early, then calls `done` once: a connection that is
 * closed while its client writes is reset, and the client sees a broken pipe instead of the answer. A client
 * that has not stopped after some seconds or megabytes is cut off.
 */
export function drainRequestBody(request: IncomingMessage, clock: Clock, done: () => void): void {
  let bytes = 0;
  let over = false;
  const stop = () => {
    if (over) return;
    over = true;
    deadline.cancel();
    request.off('data', onData);
    request.off('end', stop);
    request.off('close', stop);
    done();
  };
  const onData = (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES) stop();
  };
  const deadline = deadlinesOf(clock).start(LINGER_MS, stop);
  request.on('data', onData);
  request.on('end', stop);
  request.on('close', stop);
  if (request.destroyed || request.readableEnded) stop();
  else request.resume();
}
