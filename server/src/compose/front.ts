import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { refuse } from '../admin/respond.ts';
import type { Express } from '../gateway/plane.ts';
import { createApp } from '../http/app.ts';
import { KnownPaths } from '../http/known-paths.ts';
import { SluiceError } from '../kernel/errors.ts';
import { unparsedBody } from '../operations/dialects/errors.ts';
import type { Common } from './common.ts';

/** The listener of this process: its routes are registered before it listens. */
export class Front {
  readonly app: FastifyInstance;
  /** Routes that are asked before the router. */
  readonly express: Express = new Map();
  /** The paths of those routes, for clients that misspell one. */
  readonly paths = new KnownPaths(() => this.publicUrl());
  readonly #publicUrl: string | null;
  #address: AddressInfo | null = null;
  #metrics: AddressInfo | null = null;
  #connections = 0;
  readonly #stopping = new AbortController();

  constructor({ config, clock, log, accessLog }: Pick<Common, 'config' | 'clock' | 'log' | 'accessLog'>) {
    this.#publicUrl = config.publicUrl;
    this.app = createApp({
      clock,
      express: this.express,
      headerAliases: config.headerAliases,
      trustedProxies: config.trustedProxies,
      paths: this.paths,
      refuse: (request, response, error) => refuse(request, response, error, log, accessLog),
      unparsedBody,
      draining: () => this.draining,
    });
    this.app.server.on('connection', (socket) => {
      this.#connections += 1;
      socket.once('close', () => {
        this.#connections -= 1;
      });
    });
  }

  /** Rejects when the address cannot be listened on. */
  async listen(host: string, port: number): Promise<void> {
    await this.app.listen({ host, port });
    const address = this.app.server.address();
    if (address === null || typeof address === 'string')
      throw new SluiceError('internal', 'The server does not listen on a port.');
    this.#address = address;
  }

  /** Where it listens, `http://127.0.0.1:8787`; empty until it does. */
  url(): string {
    if (this.#address === null) return '';
    const { family, address, port } = this.#address;
    return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
  }

  /** How others reach it, for links: the setting, else where it listens. */
  publicUrl(): string {
    return this.#publicUrl ?? this.url();
  }

  /** What no call of ours may reach. */
  listeners(): readonly AddressInfo[] {
    return [this.#address, this.#metrics].filter((address) => address !== null);
  }

  /** The own listener for metrics is there. */
  alsoListens(address: AddressInfo): void {
    this.#metrics = address;
  }

  /** Connections of clients that are open. */
  get connections(): number {
    return this.#connections;
  }

  /** True once it stops: it is not ready, and its answers close their connections. */
  get draining(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Aborted once it stops. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  drain(): void {
    this.#stopping.abort();
  }
}
