/**
 * The yardstick: a bare proxy of `node:http` and undici `dispatch` that looks the key up in a Map and parses the body
 * once. Everything Sluice does beyond this has to be paid for. Arguments: upstream port. Prints its own port.
 */
import { createServer } from 'node:http';
import { Pool } from 'undici';

const pool = new Pool(`http://127.0.0.1:${process.argv[2]}`, { connections: 256, pipelining: 1 });
const keys = new Map([['bench-key', { name: 'bench' }]]);

const server = createServer((request, response) => {
  if (!keys.has(String(request.headers['x-gateway-api-key']))) {
    response.writeHead(401).end();
    return;
  }
  const parts: Buffer[] = [];
  request.on('data', (part: Buffer) => parts.push(part));
  request.on('end', () => {
    const body = parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
    const parsed = JSON.parse(body.toString('utf8')) as { model?: string };
    if (parsed.model === undefined) {
      response.writeHead(400).end();
      return;
    }
    pool.dispatch(
      {
        method: 'POST',
        path: '/v1/chat/completions',
        headers: { 'content-type': 'application/json', authorization: 'Bearer x' },
        body,
      },
      {
        onRequestStart() {},
        onResponseStart(controller, status, headers) {
          const {
            connection: _connection,
            'keep-alive': _keepAlive,
            'transfer-encoding': _transfer,
            ...rest
          } = headers;
          response.writeHead(status, rest as Record<string, string>);
          response.on('drain', () => controller.resume());
        },
        onResponseData(controller, chunk) {
          if (!response.write(chunk)) controller.pause();
        },
        onResponseEnd() {
          response.end();
        },
        onResponseError() {
          response.destroy();
        },
      },
    );
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' ? address?.port : 0 }));
});
