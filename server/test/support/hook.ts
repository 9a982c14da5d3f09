/** A receiver of webhooks on loopback. What it answers is decided call by call. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HookCall {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Hook {
  readonly url: string;
  readonly calls: HookCall[];
  /** Answers a call; leaving the response open lets it hang. */
  answer: (call: HookCall, response: ServerResponse) => void;
  close(): Promise<void>;
}

export async function hook(): Promise<Hook> {
  const calls: HookCall[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const { url: path = '', headers } = request;
      const call = { path, headers, body: Buffer.concat(parts).toString('utf8') };
      calls.push(call);
      made.answer(call, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const made: Hook = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    answer: (_call, response) => response.writeHead(204).end(),
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return made;
}
