import { createBrotliDecompress, createInflate, createInflateRaw } from 'node:zlib';
import { GzipFrame } from './gzip-frame.ts';

export type Coding = 'identity' | 'gzip' | 'deflate' | 'br';

/** The one coding a `content-encoding` header names; null when it names several or an unknown one. */
export function codingOf(header: string | readonly string[] | undefined): Coding | null {
  if (header === undefined) return 'identity';
  if (typeof header !== 'string') return null;
  switch (header.trim().toLowerCase()) {
    case '':
    case 'identity':
      return 'identity';
    case 'gzip':
    case 'x-gzip':
      return 'gzip';
    case 'deflate':
      return 'deflate';
    case 'br':
      return 'br';
    default:
      return null;
  }
}

/** Above this many decoded bytes the ratio counts. */
const RATIO_FREE_BYTES = 64 * 1024;
/** Decoded bytes per encoded byte. */
const MAX_RATIO = 20;

/** Why decoding stopped. `limit`: more than `maxBytes`; `ratio`: compressed too strongly; `corrupt`: anything else. */
class DecodeError extends Error {
  readonly reason: 'limit' | 'ratio' | 'corrupt';

  constructor(reason: DecodeError['reason'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'DecodeError';
    this.reason = reason;
  }
}

/** Decodes one coding as it arrives. Every decoded byte is counted before it is handed on. */
export interface Decoder {
  /** True while the decoder has more than it can take; the source is paused meanwhile. */
  readonly full: boolean;
  write(chunk: Buffer): void;
  end(): void;
  pause(): void;
  resume(): void;
  destroy(): void;
}

function damaged(cause?: unknown): DecodeError {
  return new DecodeError('corrupt', 'The compressed body is damaged or cut', cause);
}

export function createDecoder(
  coding: Exclude<Coding, 'identity'>,
  on: {
    readonly maxBytes: number;
    onData(chunk: Buffer): void;
    onEnd(): void;
    /** Corrupt, cut, too large, too strongly compressed, or followed by other data. Called once, nothing after it. */
    onError(error: DecodeError): void;
    onPressure(full: boolean): void;
  },
): Decoder {
  const options = { chunkSize: 16 * 1024 };
  const frame = coding === 'gzip' ? new GzipFrame() : null;
  const stream =
    frame !== null
      ? createInflateRaw(options)
      : coding === 'deflate'
        ? createInflate(options)
        : createBrotliDecompress(options);
  let encoded = 0;
  let fed = 0;
  let decoded = 0;
  let ended = false;
  let full = false;
  let over = false;

  function fail(error: DecodeError): void {
    if (over) return;
    over = true;
    stream.destroy();
    on.onError(error);
  }

  stream.on('data', (chunk: Buffer) => {
    if (over) return;
    decoded += chunk.length;
    if (decoded > on.maxBytes) return fail(new DecodeError('limit', 'The decoded body is too large'));
    if (decoded > RATIO_FREE_BYTES && decoded > encoded * MAX_RATIO) {
      return fail(new DecodeError('ratio', `The body is compressed more than ${MAX_RATIO} times`));
    }
    frame?.decoded(chunk);
    on.onData(chunk);
  });
  stream.on('drain', () => {
    full = false;
    if (!over) on.onPressure(false);
  });
  stream.on('end', () => {
    if (over) return;
    // One that ends before its source does has left something unread.
    if (!ended || stream.bytesWritten < fed) {
      return fail(new DecodeError('corrupt', 'There is data after the compressed body'));
    }
    if (frame !== null && !frame.matches(decoded)) return fail(damaged());
    over = true;
    on.onEnd();
  });
  stream.on('error', (error) => fail(damaged(error)));

  return {
    get full() {
      return full;
    },
    write(chunk) {
      if (over) return;
      encoded += chunk.length;
      const bytes = frame === null ? chunk : frame.strip(chunk);
      if (bytes === null) return fail(damaged());
      if (bytes.length === 0) return;
      fed += bytes.length;
      if (!stream.write(bytes) && !full) {
        full = true;
        on.onPressure(true);
      }
    },
    end() {
      if (over) return;
      ended = true;
      stream.end();
    },
    pause() {
      stream.pause();
    },
    resume() {
      stream.resume();
    },
    destroy() {
      over = true;
      stream.destroy();
    },
  };
}
