import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import { markTransferable } from '../kernel/transferable-stream.ts';
import { RateFloor } from './rate-floor.ts';

export interface UploadBodyOptions {
  readonly clock: Clock;
  /** Milliseconds a client may take for the next chunk while one is waited for. Default 30 000. */
  readonly idleMs?: number;
  /**
   * Bytes a second the client must reach of the time it is waited for: on average after the first 10 s, and in each
   * minute. Default 1024.
   */
  readonly minRate?: number;
  /** Called with the size of every chunk. */
  readonly onBytes?: (bytes: number) => void;
}

const IDLE_MS = 30_000;
const GRACE_MS = 10_000;
const WINDOW_MS = 60_000;

/**
 * The body of an upload as it arrives, never held whole: the socket is read only as fast as this stream is. It ends
 * only after a body that is complete; a client that leaves is `client_closed`, one that stalls or drips `timeout`: a byte
 * now and then would hold a connection and a file of the disk for ever. The request itself stays usable for the answer when this stream is destroyed.
 */
export function uploadBody(request: IncomingMessage, options: UploadBodyOptions): Readable {
  const coding = request.headers['content-encoding'];
  if (coding !== undefined && coding !== 'identity') {
    throw new SluiceError('malformed_call', 'Send the upload without content coding.');
  }
  const idleMs = options.idleMs ?? IDLE_MS;
  const minRate = options.minRate ?? 1024;
  // A pause is no drip: the window is wider than the longest.
  const floor = new RateFloor(minRate, WINDOW_MS);
  const { clock } = options;
  let received = 0;
  /** Time the client was waited for, and since when it is waited for now; -1: it is not. */
  let waited = 0;
  let since = -1;
  const wait = () => {
    if (since < 0) since = clock.monotonic();
    deadline.reset(idleMs);
  };
  const rest = () => {
    if (since >= 0) waited += clock.monotonic() - since;
    since = -1;
    deadline.cancel();
  };
  const gone = () => new SluiceError('client_closed', 'The client closed the connection.');
  let over = false;
  const out: Readable = new Readable({
    highWaterMark: 64 * 1024,
    read() {
      if (over) return;
      wait();
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
    received += chunk.length;
    rest();
    const slow = waited > GRACE_MS && received < (waited / 1000) * minRate;
    if (slow || !floor.keeps(waited, received)) {
      out.destroy(new SluiceError('timeout', 'The upload arrives too slowly.'));
    } else if (out.push(chunk)) {
      wait();
    } else {
      // While nobody reads here, the client is not to blame for the pause.
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
  return markTransferable(out);
}
