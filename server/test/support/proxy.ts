import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { within } from './watchdog.ts';

const LIMIT_MS = 30_000;

/** A TCP proxy on loopback that can be taken down and up again on the same port, as a lost store is. */
export class TcpProxy {
  readonly port: number;
  readonly #target: number;
  #server: Server | null;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, port: number, target: number) {
    this.#server = server;
    this.port = port;
    this.#target = target;
  }

  static async start(target: number): Promise<TcpProxy> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
    const address = server.address();
    const proxy = new TcpProxy(server, typeof address === 'object' && address ? address.port : 0, target);
    server.on('connection', (socket) => proxy.#relay(socket));
    return proxy;
  }

  /** Ends every connection and refuses new ones. */
  async down(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = null;
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of this.#sockets) socket.resetAndDestroy();
    await within(LIMIT_MS, `the proxy on port ${this.port} going down`, closed);
  }

  async up(): Promise<void> {
    const end = performance.now() + LIMIT_MS;
    for (;;) {
      const server = createServer((socket) => this.#relay(socket)).listen(this.port, '127.0.0.1');
      try {
        await once(server, 'listening');
        this.#server = server;
        return;
      } catch (error) {
        // A connection that was made meanwhile may have this very port as its end.
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || performance.now() > end) throw error;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  close(): Promise<void> {
    return this.down();
  }

  #relay(client: Socket): void {
    const server = connect(this.#target, '127.0.0.1');
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  }
}
