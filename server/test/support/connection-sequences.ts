import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { createServer as createTls } from 'node:tls';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import type { Upstream } from '../../src/http/upstream.ts';
import type { WireControl } from '../../src/kernel/wire.ts';
import { client, LONG, raw, serve } from './wire.ts';

/**
 * Drawn sequences of calls on few connections: answers of any size and framing, cut, pipelined or closed behind their
 * end, and readers that pause, resume late or leave. Afterwards every connection must serve calls or be closed.
 */

/** How one answer is sent. */
interface Answer {
  readonly framing: 'length' | 'chunked' | 'close' | 'empty';
  readonly gzip: boolean;
  readonly interim: boolean;
  /** Bytes of the body, before compression. */
  readonly size: number;
  /** Bytes of one chunk of the framing, and of one write (0: all at once). */
  readonly chunk: number;
  readonly write: number;
  readonly behind: 'nothing' | 'a byte' | 'an answer' | 'the end';
  /** Sends this part of the bytes only, then closes; 1: all. */
  readonly part: number;
}

/** How its reader behaves. */
interface Reader {
  readonly pauseFirst: boolean;
  /** Pauses at each so many chunks; 0: never. */
  readonly pauseEach: number;
  /** Turns of the event loop until it resumes; -1: before `pause` has returned to the connection. */
  readonly turns: number;
  /** Leaves at this chunk; 0: never. */
  readonly leaveAt: number;
}

const answer: fc.Arbitrary<Answer> = fc.record({
  framing: fc.constantFrom('length', 'chunked', 'chunked', 'close', 'empty'),
  gzip: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  interim: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  size: fc.constantFrom(0, 1, 300, 5_000, 70_000, 400_000),
  chunk: fc.constantFrom(64, 1_000, 50_000, 500_000),
  write: fc.constantFrom(0, 0, 1_000, 65_536, 100_000),
  behind: fc.constantFrom('nothing', 'nothing', 'nothing', 'nothing', 'nothing', 'a byte', 'an answer', 'the end'),
  part: fc.oneof(
    { weight: 9, arbitrary: fc.constant(1) },
    { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
  ),
});

const reader: fc.Arbitrary<Reader> = fc.record({
  pauseFirst: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  pauseEach: fc.constantFrom(0, 1, 1, 2, 3),
  turns: fc.constantFrom(-1, 0, 1, 2, 5),
  leaveAt: fc.constantFrom(0, 0, 0, 0, 0, 1, 2, 4),
});

const sequence = fc.record({
  secure: fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  calls: fc.array(fc.record({ answer, reader, together: fc.boolean() }), { minLength: 1, maxLength: 6 }),
});

const CONNECTIONS = 2;
/** Only a call that hangs waits for this long. */
const WATCHDOG_MS = 10_000;
const PATTERN = Buffer.from(Array.from({ length: 400_000 }, (_, k) => 33 + (k % 89)));

function bytesOf(plan: Answer): Buffer {
  const body = plan.framing === 'empty' ? Buffer.alloc(0) : PATTERN.subarray(0, plan.size);
  // Stored, not compressed: a body that shrinks too much is refused.
  const sent = plan.gzip && plan.framing !== 'empty' ? gzipSync(body, { level: 0 }) : body;
  const interim = plan.interim ? 'HTTP/1.1 103 Early Hints\r\n\r\n' : '';
  const coding = sent === body ? '' : 'content-encoding: gzip\r\n';
  const parts: Buffer[] = [];
  const head = (status: string, framing: string) =>
    parts.push(Buffer.from(`${interim}HTTP/1.1 ${status}\r\n${coding}${framing}\r\n`));
  if (plan.framing === 'empty') head('204 No Content', '');
  else if (plan.framing === 'length') head('200 OK', `content-length: ${sent.length}\r\n`);
  else if (plan.framing === 'close') head('200 OK', 'connection: close\r\n');
  else head('200 OK', 'transfer-encoding: chunked\r\n');
  if (plan.framing === 'chunked') {
    for (let at = 0; at < sent.length; at += plan.chunk) {
      const piece = sent.subarray(at, at + plan.chunk);
      parts.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'));
    }
    parts.push(Buffer.from('0\r\n\r\n'));
  } else parts.push(sent);
  if (plan.behind === 'a byte') parts.push(Buffer.from('x'));
  if (plan.behind === 'an answer') parts.push(Buffer.from('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong'));
  return Buffer.concat(parts);
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

async function transmit(socket: Socket, plan: Answer): Promise<void> {
  const all = bytesOf(plan);
  const bytes = plan.part === 1 ? all : all.subarray(0, Math.floor(all.length * plan.part));
  const step = plan.write === 0 ? bytes.length : plan.write;
  for (let at = 0; at < bytes.length && !socket.destroyed; at += step) {
    socket.write(bytes.subarray(at, at + step));
    if (at + step < bytes.length) await turn();
  }
  if (plan.part !== 1 || plan.framing === 'close' || plan.behind === 'the end') socket.end();
}

/** Whether a connection that carried the answer is in order after it. */
const clean = (plan: Answer) => plan.part === 1 && (plan.behind === 'nothing' || plan.behind === 'the end');

class Upstreams {
  readonly plans = new Map<string, Answer>();
  /** Probes that wait until as many connections are seen to serve. */
  readonly #probes: Socket[] = [];
  #wanted = 0;

  expect(probes: number): void {
    this.#wanted = probes;
    this.#probes.length = 0;
  }

  take(socket: Socket, text: string): void {
    const path = /^\S+ (\S+)/.exec(text)?.[1] ?? '';
    const plan = this.plans.get(path);
    if (plan !== undefined) void transmit(socket, plan);
    else {
      this.#probes.push(socket);
      if (this.#probes.length < this.#wanted) return;
      for (const each of this.#probes.splice(0)) each.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nprobe');
    }
  }
}

interface Outcome {
  readonly ended: 'whole' | 'failed' | 'left';
  readonly body: Buffer;
}

function call(upstream: Upstream, origin: string, path: string, how: Reader | null): Promise<Outcome> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let seen = 0;
    let paused = false;
    const done = (ended: Outcome['ended']) => resolve({ ended, body: Buffer.concat(chunks) });
    const resumeLater = async (control: WireControl, turns: number) => {
      for (let k = 0; k < turns; k++) await turn();
      paused = false;
      control.resume();
    };
    let control: WireControl | null = null;
    control = upstream.dispatch(
      {
        method: 'POST',
        origin,
        path,
        headers: [],
        body: [Buffer.from('{}')],
        organisationId: 'org',
        storedCredential: false,
      },
      {
        onHead() {},
        onData(chunk) {
          chunks.push(chunk);
          seen++;
          if (control === null || how === null) return;
          if (how.leaveAt === seen) {
            control.abort();
            done('left');
          } else if (how.pauseEach > 0 && seen % how.pauseEach === 0 && !paused) {
            paused = true;
            control.pause();
            void resumeLater(control, how.turns);
          }
        },
        onEnd: () => done('whole'),
        onError: () => done('failed'),
      },
      LONG,
    );
    if (how?.pauseFirst) {
      paused = true;
      control.pause();
      void resumeLater(control, Math.max(1, how.turns));
    }
  });
}

async function inTime<T>(work: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} hangs`)), WATCHDOG_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs `runs` drawn sequences; throws at the first that leaves a call or a connection stuck. */
export async function runConnectionSequences(runs: number): Promise<void> {
  const server = new Upstreams();
  const fixture = (name: string) => readFileSync(new URL(`../../src/http/__fixtures__/${name}`, import.meta.url));
  const plain = await raw((socket, text) => server.take(socket, text));
  const secure = await serve(
    createTls({ cert: fixture('test-server.pem'), key: fixture('test-server.key') }, (socket) => {
      socket.on('error', () => {});
      socket.on('data', (data) => server.take(socket, data.toString('latin1')));
    }),
  );
  const ca = fixture('test-ca.pem');
  let id = 0;
  await fc.assert(
    fc.asyncProperty(sequence, async (drawn) => {
      const place = drawn.secure ? secure : plain;
      const origin = `${drawn.secure ? 'https' : 'http'}://127.0.0.1:${place.port}`;
      const upstream = client({ limits: { connections: CONNECTIONS }, ...(drawn.secure ? { ca } : {}) });
      const before: Promise<void>[] = [];
      // After bytes that nobody asked for, or a cut, a later call may fail; it must still end.
      const allClean = drawn.calls.every((each) => clean(each.answer));
      try {
        for (const [at, { answer: plan, reader: how, together }] of drawn.calls.entries()) {
          const path = `/${++id}`;
          server.plans.set(path, plan);
          const ran = inTime(call(upstream, origin, path, how), `call ${at}`).then(({ ended, body }) => {
            server.plans.delete(path);
            const wanted = plan.framing === 'empty' ? PATTERN.subarray(0, 0) : PATTERN.subarray(0, plan.size);
            if (ended === 'failed' && allClean) throw new Error(`call ${at} failed`);
            if (ended === 'whole' && allClean && !body.equals(wanted)) throw new Error(`call ${at} got other bytes`);
          });
          before.push(ran);
          if (!together) await ran;
        }
        await Promise.all(before);
        // Each connection of the pool serves one of these, all at the same time.
        // A probe on a connection that is just being closed is repeated, and would count twice.
        const wanted = drawn.calls.every((each) => each.answer.part === 1 && each.answer.behind === 'nothing')
          ? CONNECTIONS
          : 1;
        server.expect(wanted);
        const probes = Array.from({ length: wanted }, () =>
          inTime(call(upstream, origin, '/probe', null), 'a call afterwards'),
        );
        for (const { ended, body } of await Promise.all(probes)) {
          if (allClean && (ended !== 'whole' || body.toString() !== 'probe'))
            throw new Error('a call afterwards failed');
        }
        const { inFlight } = upstream.stats();
        if (inFlight !== 0) throw new Error(`${inFlight} calls are still counted`);
      } finally {
        await inTime(upstream.close(), 'closing');
      }
    }),
    { numRuns: runs, endOnFailure: true },
  );
}
