import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import { createServer } from './node-http-import.ts';
import { hardenServer } from './server-options.ts';

export const LOOPBACK = '127.0.0.1';

/**
 * Names by which programs of this machine call it. A page in a browser of this machine may have another name point here, and
 * would read the answer as its own.
 */
const OWN_NAME = /^(?:127\.0\.0\.1|localhost)(?::\d{1,5})?$/i;

export interface LoopbackListener extends Closable {
  readonly address: AddressInfo;
}

/** Answers GET of one path to programs of this machine, without a credential. Rejects when the port cannot be had. */
export async function listenOnLoopback(
  port: number,
  path: string,
  clock: Clock,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<LoopbackListener> {
  const server = createServer((request, response) => {
    const fault = faultOf(request, path);
    if (fault === null) return answer(request, response);
    response.writeHead(fault, { connection: 'close', 'content-length': 0 });
    response.end();
  });
  hardenServer(server, { clock });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, LOOPBACK, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new SluiceError('internal', 'The listener for metrics does not listen on a port.');
  return {
    address,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function faultOf({ method, url = '', headers }: IncomingMessage, path: string): number | null {
  if (!OWN_NAME.test(headers.host ?? '')) return 403;
  if (url.split('?', 1)[0] !== path) return 404;
  return method === 'GET' ? null : 405;
}
