import { connect } from 'node:net';

export interface RawAnswer {
  readonly status: number;
  /** Lower-case names; a repeated name keeps its last value. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Whether the body ended as its framing says. */
  readonly whole: boolean;
  readonly milliseconds: number;
}

/** What became of the bytes: an answer, or null when the server closed the connection without one. */
export interface RawOutcome {
  readonly answer: RawAnswer | null;
  /** Neither an answer nor a close within the time allowed. */
  readonly hung: boolean;
}

interface Head {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly length: number;
}

function parseHead(bytes: Buffer): Head | null {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const [first = '', ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  return { status: Number(first.split(' ')[1]), headers, length: end + 4 };
}

/** The decoded body when the bytes hold all of it, else null. */
function chunkedBody(bytes: Buffer): Buffer | null {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const line = bytes.indexOf('\r\n', at);
    if (line < 0) return null;
    const size = Number.parseInt(bytes.toString('latin1', at, line), 16);
    if (Number.isNaN(size) || bytes.length < line + 4 + size) return null;
    if (size === 0) return Buffer.concat(parts);
    parts.push(bytes.subarray(line + 2, line + 2 + size));
    at = line + 4 + size;
  }
}

function parseBody(head: Head, bytes: Buffer, method: string): Buffer | null {
  if (method === 'HEAD' || head.status === 204 || head.status === 304) return Buffer.alloc(0);
  if (head.headers['transfer-encoding'] === 'chunked') return chunkedBody(bytes);
  const length = Number(head.headers['content-length'] ?? Number.NaN);
  return bytes.length >= length ? bytes.subarray(0, length) : null;
}

/**
 * Sends `bytes` over a connection of their own and reads one answer by its framing. With `half` the sending side is
 * closed after the bytes, as by a client that has no more to say.
 */
export function exchange(
  port: number,
  bytes: Buffer,
  options: { readonly method: string; readonly half: boolean; readonly timeoutMs: number },
): Promise<RawOutcome> {
  return new Promise((resolve) => {
    const began = performance.now();
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let received: Buffer = Buffer.alloc(0);
    let head: Head | null = null;
    const done = (body: Buffer | null, hung = false) => {
      clearTimeout(timer);
      socket.removeAllListeners();
      socket.on('error', () => {});
      socket.destroy();
      resolve({
        hung,
        answer:
          head === null
            ? null
            : {
                status: head.status,
                headers: head.headers,
                body: body ?? received.subarray(head.length),
                whole: body !== null,
                milliseconds: performance.now() - began,
              },
      });
    };
    const timer = setTimeout(() => done(null, true), options.timeoutMs);
    socket.on('data', (chunk) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      head ??= parseHead(received);
      // An interim answer only invites the body, which is on its way already.
      if (head !== null && head.status === 100) {
        received = received.subarray(head.length);
        head = parseHead(received);
      }
      const body = head === null ? null : parseBody(head, received.subarray(head.length), options.method);
      if (body !== null) done(body);
    });
    socket.on('error', () => done(null));
    socket.on('close', () => done(null));
    if (options.half) socket.end(bytes);
    else socket.write(bytes);
  });
}
