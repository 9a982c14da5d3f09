/** A receiver of batches of requests on loopback: checks each call as a careful program would, and says what it was sent. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface LogReceiver {
  readonly url: string;
  /** `host:port`. */
  readonly host: string;
  /** What was wrong with calls; a test that leaves any has failed. */
  readonly faults: string[];
  readonly calls: { readonly headers: IncomingHttpHeaders; readonly text: string; readonly path: string }[];
  /** How many calls came, refused ones too. */
  tries: number;
  /** What comes next is answered so; null: 200. */
  refuse: { readonly status: number; readonly headers?: Record<string, string>; readonly body?: string } | null;
  /** Calls are taken and answered nothing. */
  hang: boolean;
  /** Called with each batch that is taken, before it is answered; false: the connection is cut in place of an answer. */
  taken: (() => boolean) | null;
  /** Receivers know it by `whsec_…`; null: signatures are not looked at. */
  secret: string | null;
  /** Of all calls that were answered 200. */
  records(): Record<string, unknown>[];
  close(): Promise<void>;
}

export async function startLogReceiver(): Promise<LogReceiver> {
  const server: Server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      receiver.tries += 1;
      const { refuse } = receiver;
      if (receiver.hang) return;
      if (refuse !== null) {
        response.writeHead(refuse.status, refuse.headers);
        response.end(refuse.body);
        return;
      }
      const text = Buffer.concat(parts).toString('utf8');
      const fault = request.method !== 'POST' ? 'is no POST' : faultIn(text, request.headers, receiver.secret);
      if (fault !== null) receiver.faults.push(fault);
      receiver.calls.push({ headers: request.headers, text, path: request.url ?? '' });
      if (receiver.taken?.() === false) return void request.socket.destroy();
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end('{"taken":true}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const receiver: LogReceiver = {
    url: `http://127.0.0.1:${port}`,
    host: `127.0.0.1:${port}`,
    faults: [],
    calls: [],
    tries: 0,
    refuse: null,
    hang: false,
    taken: null,
    secret: null,
    records: () => receiver.calls.flatMap(({ text }) => JSON.parse(text).data.records as Record<string, unknown>[]),
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return receiver;
}

function faultIn(text: string, headers: IncomingHttpHeaders, secret: string | null): string | null {
  let body: { type?: unknown; timestamp?: unknown; data?: { destination_id?: unknown; records?: unknown } };
  try {
    body = JSON.parse(text);
  } catch {
    return 'has a body that is no JSON';
  }
  if (body.type !== 'logs.batch' || typeof body.timestamp !== 'string') return 'is no batch of requests';
  if (typeof body.data?.destination_id !== 'string') return 'names no destination';
  if (!Array.isArray(body.data.records) || body.data.records.length === 0) return 'has no records';
  if (headers['content-type'] !== 'application/json') return 'has another content type';
  if (!/^[0-9a-f]{32}$/.test(String(headers['webhook-id']))) return 'has no id';
  if (secret === null) return null;
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${text}`;
  const wanted = createHmac('sha256', key).update(signed).digest();
  const given = String(headers['webhook-signature']).split(' ');
  const right = given.some((one) => {
    const mac = Buffer.from(one.replace(/^v1,/, ''), 'base64');
    return mac.length === wanted.length && timingSafeEqual(mac, wanted);
  });
  return right ? null : 'is not signed with the secret';
}
