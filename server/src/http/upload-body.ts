import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import { giveAway } from '../kernel/given-away.ts';

export interface UploadBodyOptions {
  readonly clock: Clock;
  /** Milliseconds a client may take for the next chunk while one is waited for. Default 30 000. */
  readonly idleMs?: number;
  /** Called with the size of every chunk. */
  readonly onBytes?: (bytes: number) => void;
}

const IDLE_MS = 30_000;

/**
 * The body of an upload as it arrives, never held whole: the socket is read only as fast as this stream is. It ends
 * only after a body that is complete; a client that leaves is `client_closed`, one that stalls `timeout`. The
 * request itself stays usable for the answer when this stream is destroyed.
 */
export function uploadBody(request: IncomingMessage, options: UploadBodyOptions): Readable {
  const coding = request.headers['content-encoding'];
  if (coding !== undefined && coding !== 'identity') {
    throw new SluiceError('bad_call', 'Send the upload without content coding.');
  }
  const idleMs = options.idleMs ?? IDLE_MS;
  const gone = () => new SluiceError('client_closed', 'The client closed the connection.');
  let over = false;
  const out: Readable = new Readable({
    highWaterMark: 64 * 1024,
    read() {
      if (over) return;
      deadline.reset(idleMs);
      request.resume();
    },
    destroy(error, done) {
      stop();
      done(error);
    },
  });
  const deadline = deadlinesOf(options.clock).start(idleMs, () =>
    out.destroy(new SluiceError('timeout', `No byte of the upload arrived for ${idleMs} ms.`)),
  );
  // Counted only while somebody waits for the client.
  deadline.cancel();
  const onData = (chunk: Buffer) => {
    options.onBytes?.(chunk.length);
    if (out.push(chunk)) {
      deadline.reset(idleMs);
    } else {
      // While nobody reads here, the client is not to blame for the pause.
      deadline.cancel();
      request.pause();
    }
  };
  const onEnd = () => {
    if (!request.complete) return onGone();
    stop();
    out.push(null);
  };
  const onGone = () => {
    if (!request.complete) out.destroy(gone());
  };
  function stop(): void {
    over = true;
    deadline.cancel();
    request.off('data', onData);
    request.off('end', onEnd);
    request.off('close', onGone);
    request.pause();
  }
  request.on('data', onData);
  request.on('end', onEnd);
  // Left in place: an error event without a listener would end the process.
  request.on('error', onGone);
  request.on('close', onGone);
  request.pause();
  if (request.destroyed && !request.readableEnded) queueMicrotask(onGone);
  return giveAway(out);
}
