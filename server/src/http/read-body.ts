import type { IncomingMessage } from 'node:http';
import type { Clock } from '../kernel/clock.ts';
import { type Deadline, deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Turns } from '../kernel/turns.ts';
import type { BodyBudget } from './body-budget.ts';
import { borrowBuffer, returnBuffer } from './buffer-pool.ts';
import { createDecoder, type Decoder } from './decode.ts';
import { RateFloor } from './rate-floor.ts';

export interface ReadBodyOptions {
  /** Decoded bytes. */
  readonly limit: number;
  readonly clock: Clock;
  /** Bytes a second the body must reach in each 10 s. Default 1024. */
  readonly minRate?: number;
  /** Where the bytes are counted while they arrive, and whose turns a large body is read in. The receiver releases its size in the end. */
  readonly budget?: BodyBudget;
  /** Whose bytes they are: the organisation of the caller. */
  readonly holder?: string;
}

const GRACE_MS = 10_000;
const CHECK_MS = 2_000;
/** Up to this declared length the buffer is made at once; a longer one is believed when an eighth has arrived. */
const EAGER_BYTES = 1024 * 1024;
/** After a refusal this much more is read and thrown away, so that the client gets to see the answer. */
const LINGER_BYTES = 1024 * 1024;
const LINGER_MS = 2_000;

/** Bytes that are read at once: a socket is read up to thirty times in a row otherwise, 2 MB of each connection. */
const FIRST_BYTES = 256 * 1024;
/** Bytes that are read in each turn after those, which is one read of a socket: a quarter of a millisecond. */
const TURN_BYTES = 64 * 1024;
/** How many of a body of unknown length make room for so many times as many. */
const GROWTH = 4;

const EMPTY = Buffer.alloc(0);

/** Reads the rest of a body in turns, whatever else reads it. */
export function readInTurns(request: IncomingMessage, turns: Turns, holder: string): void {
  let left = FIRST_BYTES;
  request.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left > 0) return;
    left = TURN_BYTES;
    request.pause();
    turns.take(holder, () => request.resume());
  });
}

/**
 * Whether a request has a body of which something is still to come: its connection must close after an answer. Node says
 * `complete` only when it has parsed on, so a request without a body is not complete while its listeners run.
 */
export function hasUnreadBody(request: IncomingMessage): boolean {
  if (request.complete) return false;
  const { headers } = request;
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Reads a whole request body. Rejects with a `SluiceError`: over the limit (at once when the length is declared),
 * `timeout` when it comes too slowly, `client_closed` when the client goes away, `malformed_call` for a content coding other
 * than one gzip, or a damaged one. A body that came as one chunk is not copied; another may
 * be lent memory, which `returnBuffer` of `buffer-pool.ts` returns after its last reader.
 */
export function readBody(request: IncomingMessage, options: ReadBodyOptions): Promise<Buffer> {
  const { headers } = request;
  const { limit } = options;
  const length = headers['content-length'];
  const declared = length === undefined ? -1 : Number(length);
  if (declared > limit) return refuseUnread(request, options.clock, tooLarge(options));
  if (declared === 0 || (declared < 0 && headers['transfer-encoding'] === undefined)) return Promise.resolve(EMPTY);
  const coding = headers['content-encoding'];
  if (coding !== undefined && coding !== 'identity' && coding !== 'gzip') {
    return refuseUnread(
      request,
      options.clock,
      new SluiceError('malformed_call', 'Send the body without content coding, or with a single gzip'),
    );
  }
  return new Promise((resolve, reject) => {
    new Reader(request, options, declared, coding === 'gzip', resolve, reject);
  });
}

function tooLarge({ limit }: ReadBodyOptions): SluiceError {
  return new SluiceError('too_large', `The body is larger than the limit of ${limit} bytes`);
}

const NO_PARTS: Buffer[] = [];

/** The reader of a request, kept on it: the listeners are the same functions for all requests. */
const READER = Symbol('reader');
type Watched = IncomingMessage & { [READER]?: Reader };

function onData(this: Watched, chunk: Buffer): void {
  this[READER]?.take(chunk);
}

function onEnd(this: Watched): void {
  this[READER]?.end();
}

function onGone(this: Watched): void {
  this[READER]?.gone();
}

class Reader {
  readonly #request: IncomingMessage;
  readonly #options: ReadBodyOptions;
  readonly #declared: number;
  readonly #resolve: (body: Buffer) => void;
  readonly #reject: (error: SluiceError) => void;
  readonly #deadline: Deadline;
  /** Made when the body takes longer than most. */
  #floor: RateFloor | null = null;
  #began = -1;
  #received = 0;
  /** Bytes that may be received before others have their turn. */
  #until = FIRST_BYTES;
  /** Bytes counted in the budget. */
  #held = 0;
  /** What came before there was room for the whole. It is copied to its front little by little. */
  #parts: Buffer[] = NO_PARTS;
  /** Bytes of `#parts` that are copied: of those before the first one that is left, and of that one. */
  #copied = 0;
  #copiedOfFirst = 0;
  #whole: Buffer | null = null;
  #done = false;
  #decoder: Decoder | null = null;

  constructor(
    request: IncomingMessage,
    options: ReadBodyOptions,
    declared: number,
    gzip: boolean,
    resolve: (body: Buffer) => void,
    reject: (error: SluiceError) => void,
  ) {
    this.#request = request;
    this.#options = options;
    this.#declared = declared;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#deadline = deadlinesOf(options.clock).start(GRACE_MS, () => this.#look());
    if (gzip) this.#decoder = this.#gunzip();
    (request as Watched)[READER] = this;
    request.on('data', onData);
    request.on('end', onEnd);
    request.on('error', onGone);
    request.on('close', onGone);
    // A reader that comes late would wait for events that have passed.
    if (request.destroyed && !request.readableEnded) queueMicrotask(() => this.gone());
  }

  /** Whether the body comes fast enough; looked at from time to time. */
  #look(): void {
    const { clock } = this.#options;
    if (this.#floor === null) {
      this.#floor = new RateFloor(this.#options.minRate ?? 1024, GRACE_MS);
      this.#began = clock.monotonic() - GRACE_MS;
    }
    if (!this.#floor.keeps(clock.monotonic() - this.#began, this.#received)) {
      this.#fail(new SluiceError('timeout', 'The body arrives too slowly'), true);
    } else {
      this.#deadline.reset(CHECK_MS);
    }
  }

  end(): void {
    if (this.#done) return;
    if (!this.#request.complete) this.gone();
    else if (this.#decoder !== null) this.#decoder.end();
    else this.#finish();
  }

  gone(): void {
    if (this.#done || this.#request.complete) return;
    this.#fail(new SluiceError('client_closed', 'The client closed the connection'), false);
  }

  take(chunk: Buffer): void {
    if (this.#done) return;
    if (this.#decoder === null) {
      this.#take(chunk);
      return;
    }
    this.#received += chunk.length;
    if (this.#received > this.#options.limit) {
      this.#decoder.destroy();
      this.#fail(tooLarge(this.#options), true);
    } else {
      this.#decoder.write(chunk);
    }
  }

  #take(chunk: Buffer): void {
    this.#received += chunk.length;
    const declared = this.#declared;
    if (this.#received > this.#options.limit) {
      this.#fail(tooLarge(this.#options), true);
      return;
    }
    if (!this.#hold(this.#received)) return;
    if (chunk.length === declared) {
      this.#whole = chunk;
      return;
    }
    this.#store(chunk, this.#received);
    if (this.#received >= this.#until) this.#giveWay();
  }

  /** Puts a chunk where it belongs. `size`: bytes of the body with it. */
  #store(chunk: Buffer, size: number): void {
    if (this.#whole === null || size > this.#whole.length) this.#makeRoom(size, chunk.length);
    const whole = this.#whole;
    if (whole === null) {
      this.#keep(chunk);
      return;
    }
    const copied = chunk.copy(whole, size - chunk.length);
    const large = whole.length > EAGER_BYTES;
    if (large) free(chunk);
    this.#catchUp(large ? 2 * copied : Number.POSITIVE_INFINITY);
  }

  /** Makes room for a body of which as much has come as it takes to believe how long it is, or will be. */
  #makeRoom(size: number, added: number): void {
    const declared = this.#decoder === null ? this.#declared : -1;
    if (declared > EAGER_BYTES ? size * 8 < declared : declared < 0 && size <= EAGER_BYTES) return;
    this.#catchUp(Number.POSITIVE_INFINITY);
    if (this.#whole !== null) this.#parts = [this.#whole.subarray(0, size - added)];
    this.#copied = 0;
    this.#whole = borrowBuffer(declared > 0 ? declared : Math.min(this.#options.limit, GROWTH * size));
  }

  /** Copies so many bytes of what came before there was room: all 4 MB in one turn would take 4 ms. */
  #catchUp(bytes: number): void {
    const whole = this.#whole;
    for (let left = bytes; whole !== null && left > 0; ) {
      const first = this.#parts[0];
      if (first === undefined) return;
      const copied = first.copy(
        whole,
        this.#copied,
        this.#copiedOfFirst,
        Math.min(first.length, this.#copiedOfFirst + left),
      );
      left -= copied;
      this.#copied += copied;
      this.#copiedOfFirst += copied;
      if (this.#copiedOfFirst < first.length) return;
      this.#copiedOfFirst = 0;
      this.#parts.shift();
      if (whole.length > EAGER_BYTES) {
        returnBuffer(first);
        free(first);
      }
    }
  }

  #giveWay(): void {
    const { budget, holder = '' } = this.#options;
    if (budget === undefined || this.#received === this.#declared) return;
    this.#until = this.#received + TURN_BYTES;
    this.#request.pause();
    budget.turns.take(holder, () => this.#request.resume());
  }

  #hold(size: number): boolean {
    const { budget, holder = '' } = this.#options;
    if (budget === undefined) return true;
    if (budget.grow(holder, this.#held, size)) {
      this.#held = size;
      return true;
    }
    const message =
      'Too many large requests of your organisation are under way; try again when some of them have ended.';
    this.#fail(new SluiceError('out_of_service', message, { retryAfter: 1 }), true);
    return false;
  }

  #gunzip(): Decoder {
    const request = this.#request;
    let size = 0;
    return createDecoder('gzip', {
      maxBytes: this.#options.limit,
      onData: (chunk) => {
        size += chunk.length;
        if (this.#done || !this.#hold(size)) return;
        this.#store(chunk, size);
      },
      onEnd: () => {
        if (this.#done) return;
        this.#received = size;
        this.#finish();
      },
      onError: (error) => {
        const refusal =
          error.reason === 'limit'
            ? tooLarge(this.#options)
            : new SluiceError('malformed_call', `${error.message}; send one complete gzip stream`);
        this.#fail(refusal, true);
      },
      onPressure: (full) => {
        if (this.#done) return;
        if (full) request.pause();
        else request.resume();
      },
    });
  }

  #keep(chunk: Buffer): void {
    if (this.#parts === NO_PARTS) this.#parts = [chunk];
    else this.#parts.push(chunk);
  }

  #finish(): void {
    if (this.#done) return;
    this.#done = true;
    this.#deadline.cancel();
    const whole = this.#whole;
    if (whole === null) {
      const [only] = this.#parts;
      this.#resolve(only !== undefined && this.#parts.length === 1 ? only : Buffer.concat(this.#parts, this.#received));
    } else this.#complete(whole.length === this.#received ? whole : whole.subarray(0, this.#received));
  }

  /** Copies what is left to be copied, in turns, and gives the body. */
  #complete(body: Buffer): void {
    const { budget, holder = '' } = this.#options;
    this.#catchUp(budget === undefined ? Number.POSITIVE_INFINITY : FIRST_BYTES);
    if (this.#parts.length === 0) this.#resolve(body);
    else budget?.turns.take(holder, () => this.#complete(body));
  }

  #fail(error: SluiceError, linger: boolean): void {
    if (this.#done) return;
    this.#done = true;
    this.#deadline.cancel();
    for (const part of this.#parts) returnBuffer(part);
    if (this.#whole !== null) returnBuffer(this.#whole);
    this.#parts = NO_PARTS;
    this.#whole = null;
    this.#options.budget?.release(this.#options.holder ?? '', this.#held);
    if (linger) discard(this.#request, this.#options.clock);
    this.#reject(error);
  }
}

/**
 * Frees what was copied at once: chunks of 31 MB that wait for the garbage collector bring on a full collection, of 20 ms. Only
 * where the memory holds this chunk alone; it is empty from then on.
 */
function free({ buffer, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) buffer.transfer(0);
}

/**
 * Closing a socket with unread data resets it, and the client may lose the answer. So a little more is read and thrown
 * away; a client that still sends after that is cut off.
 */
export function discard(request: IncomingMessage, clock: Clock): void {
  const { socket } = request;
  let left = LINGER_BYTES;
  const deadline = deadlinesOf(clock).start(LINGER_MS, () => socket.destroySoon());
  const onData = (chunk: Buffer) => {
    left -= chunk.length;
    if (left >= 0) return;
    request.off('data', onData);
    socket.destroySoon();
  };
  request.on('data', onData);
  request.once('end', () => deadline.cancel());
  request.once('close', () => deadline.cancel());
  request.resume();
}

function refuseUnread(request: IncomingMessage, clock: Clock, error: SluiceError): Promise<Buffer> {
  // A client that waits for `100 Continue` has sent nothing: reading would invite it.
  if (request.headers.expect === undefined) discard(request, clock);
  return Promise.reject(error);
}
