/**
 * Keep-alive connections to one origin over HTTP/1.1, one request at a time on each. The kernel's bytes are copied once,
 * and views of that copy go to the call, without a stream or a general parser between
 * (docs/decisions/2026-11-22-own-client-towards-upstreams.md).
 */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Clock } from '../kernel/clock.ts';
import { detachMemory } from '../kernel/transferable-stream.ts';
import { borrowBuffer, keepBuffer, returnBuffer } from './buffer-pool.ts';
import type { Connect } from './connect.ts';
import { ResponseFault, ResponseParser, type ResponseSink } from './response-parser.ts';

/** Up to this size head and body are put together: one small copy is cheaper than a vector of buffers. */
const JOIN_BYTES = 4 * 1024;
/** A larger body is written in slices of this size: the kernel copies several megabytes in one write, for milliseconds. */
const SLICE_BYTES = 256 * 1024;
const READ_BYTES = 64 * 1024;
/**
 * Bytes of an answer from which on large parts of it are read into lent memory. Fresh memory outside of the heap brings on a full
 * collection of garbage for each 64 MB, of 10 ms and more.
 */
const LENT_FROM = 256 * 1024;
/** Smaller parts lie in memory that Node shares between Buffers. */
const LEAST_LENT = 4 * 1024;
/** Memory that is lent is at least as large. */
const SLAB_BYTES = 16 * 1024;
/** How long before the upstream would close an idle connection it is not trusted any more. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
const MAX_KEEP_ALIVE_MS = 600_000;

/**
 * What the kernel's bytes are read into, for all connections: a reader copies them before it does anything else, so the
 * next read finds it free.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BYTES);

/** Why a call got no whole answer. */
export interface Failure {
  /** What the connection failed with, an `AnswerFault`, or what a callback of the call threw. */
  readonly error: unknown;
  /** The connection has answered other calls before. */
  readonly reused: boolean;
  /** At least one byte of the answer had come. */
  readonly started: boolean;
}

/** One request, and whoever wants its answer. Callbacks stop with `onEnd`, `onFailure` or `abandon`. */
export interface PooledCall {
  /** Request line and headers with the blank line. */
  readonly head: string;
  readonly body: readonly Buffer[] | null;
  readonly bodyBytes: number;
  readonly headOnly: boolean;
  /** Given up while it waited. */
  readonly done: boolean;
  /** Its reader wants nothing yet: the connection it is sent on begins paused. */
  readonly paused: boolean;
  /** Bytes that its reader takes at once, at most. */
  readonly pieceBytes: number;
  /** The request is being written. */
  onSent(connection: Connection): void;
  onInterim(): void;
  onHead(status: number, headers: string[]): void;
  onData(chunk: Buffer): void;
  /** See `WireHandler`. */
  onLent(chunk: Buffer): boolean;
  /** Its reader takes lent memory. */
  readonly takesLent: boolean;
  onEnd(): void;
  onFailure(failure: Failure): void;
}

export interface PoolOptions {
  readonly origin: URL;
  readonly connect: Connect;
  readonly clock: Clock;
  /** Connections at once. */
  readonly connections: number;
  /** How long an idle connection is kept when the upstream does not say, milliseconds. */
  readonly keepAliveMs: number;
}

/** The connections of one organisation to one origin. */
export class ConnectionPool {
  readonly #options: PoolOptions;
  readonly #idle: Connection[] = [];
  readonly #all = new Set<Connection>();
  readonly #waiting: PooledCall[] = [];
  #connecting = 0;
  /** Connections being made for one call each. */
  #apart = 0;
  #closed = false;
  #whenEmpty: (() => void) | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Sends the call on an idle connection, else when one becomes free or is made. */
  run(call: PooledCall): void {
    const connection = this.#takeIdle();
    if (connection !== undefined) {
      connection.send(call);
      return;
    }
    this.#waiting.push(call);
    this.#connectForWaiting();
  }

  /** Sends the call on a new connection, which is closed after it. */
  runApart(call: PooledCall): void {
    this.#apart++;
    this.#open((error, connection) => {
      this.#apart--;
      if (connection === null) {
        if (!call.done) call.onFailure({ error, reused: false, started: false });
      } else if (call.done) connection.destroy();
      else {
        connection.single = true;
        connection.send(call);
      }
      this.#checkEmpty();
    });
  }

  /** Closes what has been idle for too long. */
  sweep(): void {
    const now = this.#options.clock.monotonic();
    for (const connection of this.#idle.filter(({ idleUntil }) => idleUntil <= now)) connection.destroy();
  }

  /** Takes no more calls; resolves when those that run or wait have ended. */
  close(): Promise<void> {
    this.#closed = true;
    for (const connection of [...this.#idle]) connection.destroy();
    return new Promise((resolve) => {
      this.#whenEmpty = resolve;
      this.#checkEmpty();
    });
  }

  destroy(): void {
    for (const connection of [...this.#all]) connection.destroy();
  }

  #takeIdle(): Connection | undefined {
    const now = this.#options.clock.monotonic();
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined || connection.idleUntil > now) return connection;
      connection.destroy();
    }
  }

  /** A call that waits was given up. */
  forget(call: PooledCall): void {
    const at = this.#waiting.indexOf(call);
    if (at >= 0) this.#waiting.splice(at, 1);
    this.#checkEmpty();
  }

  #connectForWaiting(): void {
    while (this.#connecting < this.#waiting.length && this.#all.size + this.#connecting < this.#options.connections) {
      this.#connecting++;
      this.#open((error, connection) => {
        this.#connecting--;
        if (connection !== null) {
          this.ready(connection);
          return;
        }
        this.#waiting.shift()?.onFailure({ error, reused: false, started: false });
        this.#connectForWaiting();
        this.#checkEmpty();
      });
    }
  }

  #open(opened: (error: unknown, connection: Connection | null) => void): void {
    const { hostname, protocol, port } = this.#options.origin;
    const { clock } = this.#options;
    const began = clock.monotonic();
    let connection: Connection | null = null;
    let early = false;
    const onread = {
      buffer: READ_BUFFER,
      callback: (bytes: number): boolean => {
        if (connection !== null) return connection.read(bytes);
        early = true;
        return true;
      },
    };
    this.#options.connect({ hostname, protocol, port, onread }, (error, socket) => {
      if (socket === null) return opened(error, null);
      if (early) {
        socket.destroy();
        return opened(new ResponseFault('begins before it was asked'), null);
      }
      // Its `close` event may have passed: nothing would ever end the call it is given.
      if (socket.destroyed) return opened(closedError(), null);
      connection = new Connection(socket, this, this.#options.keepAliveMs, clock);
      connection.connectMs = clock.monotonic() - began;
      this.#all.add(connection);
      opened(null, connection);
    });
  }

  /** A connection waits for its next call. */
  ready(connection: Connection): void {
    const call = this.#waiting.shift();
    if (call !== undefined) connection.send(call);
    else if (this.#closed) connection.destroy();
    else this.#idle.push(connection);
  }

  /** A connection is no more. */
  gone(connection: Connection): void {
    this.#all.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
    this.#connectForWaiting();
    this.#checkEmpty();
  }

  #checkEmpty(): void {
    if (this.#whenEmpty === null || this.#waiting.length > 0 || this.#all.size + this.#connecting + this.#apart > 0)
      return;
    this.#whenEmpty();
    this.#whenEmpty = null;
  }
}

/** One socket, and the call it serves. */
export class Connection implements ResponseSink {
  readonly #socket: Socket;
  readonly #pool: ConnectionPool;
  readonly #keepAliveMs: number;
  readonly #clock: Clock;
  readonly #parser = new ResponseParser(this);
  #call: PooledCall | null = null;
  #answered = 0;
  #started = false;
  /** Bytes of the answer so far. */
  #received = 0;
  /** Lent memory of which the parser may not have read everything, and whether its reader keeps a part of it. */
  #lent: Buffer | null = null;
  #keptLent = false;
  #error: unknown = null;
  #ended = false;
  #gone = false;
  #paused = false;
  /** Slices of the body are still to be written. */
  #unsent = false;
  /** Closed after its call. */
  single = false;
  /** How long it took to make, milliseconds; 0 once it has served a call. */
  connectMs = 0;
  /** Monotonic time until which it may be used again. */
  idleUntil = 0;

  constructor(socket: Socket, pool: ConnectionPool, keepAliveMs: number, clock: Clock) {
    this.#socket = socket;
    this.#pool = pool;
    this.#keepAliveMs = keepAliveMs;
    this.#clock = clock;
    socket.on('error', (error) => {
      this.#error ??= error;
    });
    // Of a TLS socket, Node hands bytes to a stream only.
    if (socket instanceof TLSSocket) socket.on('data', (chunk: Buffer) => this.#takeChunk(chunk));
    socket.on('end', () => this.#onEnd());
    socket.on('close', () => this.#onClose());
  }

  get full(): boolean {
    return this.#paused;
  }

  get pieceBytes(): number {
    return this.#call?.pieceBytes ?? Number.POSITIVE_INFINITY;
  }

  send(call: PooledCall): void {
    const socket = this.#socket;
    this.#call = call;
    this.#started = false;
    this.#received = 0;
    this.#parser.begin(call.headOnly);
    call.onSent(this);
    this.connectMs = 0;
    if (this.#call !== call) return;
    if (call.paused) this.pause();
    const { head, body, bodyBytes } = call;
    if (body === null || bodyBytes === 0) socket.write(head, 'latin1');
    else if (bodyBytes <= JOIN_BYTES) {
      const message = Buffer.allocUnsafe(head.length + bodyBytes);
      let at = message.write(head, 0, 'latin1');
      for (const part of body) at += part.copy(message, at);
      socket.write(message);
    } else if (bodyBytes > SLICE_BYTES) {
      socket.write(Buffer.from(head, 'latin1'));
      this.#sendSlices(call, body);
    } else {
      socket.cork();
      socket.write(Buffer.from(head, 'latin1'));
      for (const part of body) if (part.length > 0) socket.write(part);
      socket.uncork();
    }
  }

  /** Writes a large body, each slice in a turn of the event loop for itself. What an early answer leaves of it is not sent. */
  #sendSlices(call: PooledCall, body: readonly Buffer[]): void {
    const socket = this.#socket;
    const slices = slicesOf(body);
    const drops = body.map(keepBuffer);
    let at = 0;
    this.#unsent = true;
    const next = (): void => {
      const slice = this.#call === call && !socket.destroyed ? slices[at++] : undefined;
      if (slice === undefined) {
        for (const drop of drops) drop();
        return;
      }
      if (at === slices.length) this.#unsent = false;
      socket.write(slice, () => setImmediate(next));
    };
    next();
  }

  /** `onread` of the socket. */
  read(bytes: number): boolean {
    const lent = this.#lends(bytes);
    const chunk = lent ? slabOf(bytes) : Buffer.allocUnsafe(bytes);
    READ_BUFFER.copy(chunk, 0, 0, bytes);
    if (lent) this.#takeLent(chunk);
    else this.#take(chunk);
    return !this.#paused;
  }

  /** A chunk whose memory is not shared. */
  #takeChunk(chunk: Buffer): void {
    if (!this.#lends(chunk.length)) {
      this.#take(chunk);
      return;
    }
    const copy = slabOf(chunk.length);
    chunk.copy(copy);
    detachMemory(chunk);
    this.#takeLent(copy);
  }

  #lends(bytes: number): boolean {
    return bytes >= LEAST_LENT && this.#received >= LENT_FROM && this.#lent === null && this.#call?.takesLent === true;
  }

  #takeLent(chunk: Buffer): void {
    this.#lent = chunk;
    this.#keptLent = false;
    this.#take(chunk);
  }

  #take(chunk: Buffer): void {
    if (this.#call === null) {
      // Bytes without a request.
      this.destroy();
      return;
    }
    this.#started = true;
    this.#received += chunk.length;
    this.#parse(chunk);
  }

  pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    // Before what waited is parsed: that may end the answer, and a connection must not get its next call unread.
    if (!this.#ended) this.#socket.resume();
    if (this.#parser.waiting) {
      this.#parse(null);
      if (this.#paused || this.#call === null) return;
    }
    if (this.#ended) this.#onEnd();
  }

  /** Gives the call up: the upstream sees its connection closed. */
  abandon(call: PooledCall): void {
    if (this.#call !== call) return;
    this.#call = null;
    this.destroy();
  }

  destroy(): void {
    this.#socket.destroy();
    this.#leave();
  }

  // What the parser finds.

  onInterim(): void {
    this.#call?.onInterim();
  }

  onHead(status: number, headers: string[]): void {
    this.#call?.onHead(status, headers);
  }

  onData(chunk: Buffer): void {
    if (this.#lent === null) this.#call?.onData(chunk);
    else if (this.#call?.onLent(chunk) === false) this.#keptLent = true;
  }

  onEnd(): void {
    const call = this.#call;
    if (call === null) return;
    this.#call = null;
    this.#answered++;
    call.onEnd();
  }

  /** Reads on in what arrived, or in what waited for the reader. */
  #parse(chunk: Buffer | null): void {
    try {
      if (chunk === null) this.#parser.more();
      else this.#parser.push(chunk);
    } catch (error) {
      this.#fail(error);
      this.destroy();
      return;
    }
    if (this.#lent !== null && !this.#parser.waiting) {
      // What a reader has kept of it is left to the garbage collector.
      if (!this.#keptLent) returnBuffer(this.#lent);
      this.#lent = null;
    }
    if (this.#parser.done && this.#call === null && !this.#gone) this.#release();
  }

  /** The answer is whole: the next call's turn, unless one side wants to close. */
  #release(): void {
    const { reusable, idleSeconds } = this.#parser;
    const keep =
      idleSeconds === null ? this.#keepAliveMs : Math.min(idleSeconds * 1000 - KEEP_ALIVE_MARGIN_MS, MAX_KEEP_ALIVE_MS);
    const socket = this.#socket;
    // An upstream that answered before it read everything has not agreed to read what is left.
    if (
      !reusable ||
      keep <= 0 ||
      this.single ||
      this.#ended ||
      socket.destroyed ||
      this.#unsent ||
      socket.writableLength > 0
    ) {
      this.destroy();
      return;
    }
    if (this.#paused) {
      this.#paused = false;
      socket.resume();
    }
    this.idleUntil = this.#clock.monotonic() + keep;
    this.#pool.ready(this);
  }

  #onEnd(): void {
    this.#ended = true;
    // What came before the end is still to be read.
    if (this.#parser.waiting) return;
    this.#parser.close();
    if (this.#call !== null) this.#fail(this.#error ?? closedError());
    this.destroy();
  }

  #onClose(): void {
    if (this.#call !== null && !(this.#ended && this.#parser.waiting)) {
      this.#fail(this.#error ?? closedError());
    }
    this.#leave();
  }

  #fail(error: unknown): void {
    const call = this.#call;
    if (call === null) return;
    this.#call = null;
    call.onFailure({ error, reused: this.#answered > 0, started: this.#started });
  }

  #leave(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#pool.gone(this);
  }
}

const slabOf = (bytes: number): Buffer => borrowBuffer(Math.max(bytes, SLAB_BYTES)).subarray(0, bytes);

function slicesOf(body: readonly Buffer[]): Buffer[] {
  const slices: Buffer[] = [];
  for (const part of body)
    for (let at = 0; at < part.length; at += SLICE_BYTES) slices.push(part.subarray(at, at + SLICE_BYTES));
  return slices;
}

function closedError(): Error {
  return Object.assign(new Error('the other side closed the connection'), { code: 'ECLOSED' });
}
