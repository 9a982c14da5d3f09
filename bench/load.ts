/**
 * Closed-loop load from one process: `connections` sockets, each sends the next request when the answer is complete.
 * Talks HTTP/1.1 over plain sockets, so that the load costs little beside what is measured. Driven over IPC.
 */
import { connect, type Socket } from 'node:net';

export interface Job {
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly connections: number;
  readonly requests: number;
  /** Where in the body each request writes a number of its own; null: all are the same. */
  readonly count?: { readonly at: number; readonly digits: number; readonly from: number } | null;
}

export interface Result {
  readonly seconds: number;
  readonly requests: number;
  readonly failures: number;
  /** Milliseconds until the answer was complete, and until its first body byte. */
  readonly p50: number;
  readonly p99: number;
  readonly first50: number;
}

const END = Buffer.from('\r\n\r\n');
const LAST_CHUNK = Buffer.from('\r\n0\r\n');
/** Milliseconds without a byte after which an answer counts as failed: a lost one must not hold up the whole run. */
const SILENCE_MS = 10_000;

/** Whether a read ends a chunked body. Trailers may follow the last chunk; proxies write both with the last event. */
const isLast = (read: Buffer): boolean =>
  read.length >= 5 &&
  read.subarray(read.length - 4).equals(END) &&
  (read.indexOf(LAST_CHUNK) !== -1 || read.subarray(0, 3).equals(LAST_CHUNK.subarray(2)));

function run(job: Job): Promise<Result> {
  const body = Buffer.from(job.body);
  const head = [
    `POST ${job.path} HTTP/1.1`,
    `host: 127.0.0.1:${job.port}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
    ...Object.entries(job.headers).map(([name, value]) => `${name}: ${value}`),
    '',
    '',
  ].join('\r\n');
  const message = Buffer.concat([Buffer.from(head), body]);
  const { count } = job;
  const numbered = (): Buffer => {
    if (count == null) return message;
    const own = Buffer.from(message);
    own.write(
      String(count.from + started).padStart(count.digits, '0'),
      message.length - body.length + count.at,
      'latin1',
    );
    return own;
  };
  const total: number[] = [];
  const first: number[] = [];
  let failures = 0;
  let started = 0;
  const begin = performance.now();

  const worker = () =>
    new Promise<void>((resolve) => {
      let socket: Socket;
      let sentAt = 0;
      let firstAt = 0;
      let status = 0;
      let need = -1;
      let chunked = false;
      let held: Buffer = Buffer.alloc(0);
      let inBody = false;

      const next = () => {
        if (started >= job.requests) {
          socket.destroy();
          resolve();
          return;
        }
        started += 1;
        sentAt = performance.now();
        firstAt = 0;
        inBody = false;
        held = Buffer.alloc(0);
        socket.write(numbered());
      };
      const finish = () => {
        const now = performance.now();
        total.push(now - sentAt);
        first.push((firstAt || now) - sentAt);
        if (status !== 200) failures += 1;
        next();
      };
      const data = (chunk: Buffer) => {
        let rest = chunk;
        if (!inBody) {
          held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
          const at = held.indexOf(END);
          if (at === -1) return;
          const text = held.toString('latin1', 0, at).toLowerCase();
          status = Number(text.slice(9, 12));
          chunked = text.includes('transfer-encoding: chunked');
          need = chunked ? -1 : Number(/content-length: (\d+)/.exec(text)?.[1] ?? 0);
          rest = held.subarray(at + 4);
          inBody = true;
        }
        if (rest.length > 0 && firstAt === 0) firstAt = performance.now();
        if (chunked) {
          if (isLast(rest)) finish();
        } else {
          need -= rest.length;
          if (need <= 0) finish();
        }
      };
      const open = () => {
        sentAt = 0;
        socket = connect(job.port, '127.0.0.1', next);
        socket.setNoDelay(true);
        socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error('silence')));
        socket.on('data', data);
        socket.on('error', () => {
          failures += 1;
        });
        socket.on('close', () => {
          // Counts as a request that was sent, so that the load of a proxy that is gone ends.
          if (sentAt === 0) started += 1;
          if (started < job.requests) open();
          else resolve();
        });
      };
      open();
    });

  return Promise.all(Array.from({ length: job.connections }, worker)).then(() => {
    total.sort((a, b) => a - b);
    first.sort((a, b) => a - b);
    const at = (list: number[], q: number) => list[Math.min(list.length - 1, Math.floor(list.length * q))] ?? 0;
    return {
      seconds: (performance.now() - begin) / 1000,
      requests: total.length,
      failures,
      p50: at(total, 0.5),
      p99: at(total, 0.99),
      first50: at(first, 0.5),
    };
  });
}

process.on('message', (job: Job) => {
  run(job).then((result) => process.send?.(result));
});
