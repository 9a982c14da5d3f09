import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

export interface FakeUpstream {
  readonly port: number;
  /** `http://127.0.0.1:port` */
  readonly url: string;
  readonly received: Received[];
  /** Sockets open now. */
  readonly open: number;
  /** Decides the answer of the next requests. */
  answer: (request: Received, response: ServerResponse) => void | Promise<void>;
  stop(): Promise<void>;
}

/** A provider on loopback that keeps what it receives and answers as told. */
export function startUpstream(answer: FakeUpstream['answer']): Promise<FakeUpstream> {
  const received: Received[] = [];
  let open = 0;
  const server: Server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const entry = {
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(parts),
      };
      received.push(entry);
      void upstream.answer(entry, response);
    });
  });
  server.on('connection', (socket) => {
    open += 1;
    socket.on('close', () => {
      open -= 1;
    });
  });
  const upstream: FakeUpstream = {
    port: 0,
    url: '',
    received,
    get open() {
      return open;
    },
    answer,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      resolve(Object.defineProperties(upstream, { port: { value: port }, url: { value: `http://127.0.0.1:${port}` } }));
    });
  });
}

/** Sends an answer as JSON. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length });
  response.end(bytes);
}

/** Sends whole events at once. */
export function sendEvents(response: ServerResponse, events: readonly string[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(events.join(''));
}
