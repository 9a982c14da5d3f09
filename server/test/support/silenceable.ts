import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A way to PostgreSQL on which notices can be made to disappear: their connection stays open and says nothing more. */
export async function silenceable(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let silent = false;
  let swallowed = 0;
  const server = createServer((client) => {
    const store = connect(Number(port), hostname);
    let listens = false;
    client.on('data', (bytes: Buffer) => {
      listens ||= bytes.includes('LISTEN ');
      store.write(bytes);
    });
    store.on('data', (bytes: Buffer) => {
      if (silent && listens) swallowed += 1;
      else client.write(bytes);
    });
    for (const [one, other] of [
      [client, store],
      [store, client],
    ] as const) {
      sockets.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    silence() {
      silent = true;
    },
    /** Pieces that did not get through. */
    swallowed: () => swallowed,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
