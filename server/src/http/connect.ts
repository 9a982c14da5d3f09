import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { Lru } from '../kernel/lru.ts';
import { addressBytes, sameAddress } from './addresses.ts';
import { watchWrites } from './buffer-pool.ts';

/** The connect function that undici or a pool of ours calls for each new connection. */
export type Connect = (
  target: {
    readonly hostname: string;
    readonly protocol: string;
    readonly port: string;
    /** Gets the bytes in place of the socket's stream; a TLS socket ignores it. */
    readonly onread?: OnReadOpts | undefined;
  },
  callback: (...result: [null, Socket | TLSSocket] | [Error, null]) => void,
) => void;

const TCP_MS = 5_000;
const TLS_MS = 5_000;
const MAX_TRIES = 4;

/** Resolves with a connected socket, or rejects; afterwards the socket carries none of our listeners. */
function opened<T extends Socket>(socket: T, event: 'connect' | 'secureConnect', ms: number, clock: Clock): Promise<T> {
  return new Promise((resolve, reject) => {
    const settle = (error: Error | null) => {
      stop();
      socket.off(event, onOpen);
      socket.off('error', settle);
      socket.off('close', onClose);
      if (error === null) {
        resolve(socket);
        return;
      }
      socket.destroy();
      reject(error);
    };
    const onOpen = () => settle(null);
    const onClose = () => settle(new Error('closed'));
    const stop = clock.after(ms, () => settle(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' })));
    // For good: an error between now and undici's own listener, or after giving up, must not be an uncaught exception.
    socket.on('error', () => {});
    socket.once(event, onOpen);
    socket.once('error', settle);
    socket.once('close', onClose);
  });
}

/**
 * Connects to a checked literal address, never to a name: the name serves for SNI, the certificate and `Host` only.
 * TCP first, then the peer's address is checked again, then TLS over that socket.
 */
export function createConnect(options: {
  readonly clock: Clock;
  readonly log: Log;
  readonly ca: ConnectionOptions['ca'];
  /** Checked addresses of the host; throws a `SluiceError`. */
  readonly addresses: (hostname: string, port: number) => Promise<readonly string[]>;
  /** Whether a connected peer is allowed. */
  readonly mayStay: (remote: string, hostname: string, port: number) => boolean;
}): Connect {
  const { clock, log } = options;
  const sessions = new Lru<string, Buffer>({ maxEntries: 64 });
  let turn = 0;

  async function tcp(hostname: string, port: number, onread: OnReadOpts | undefined): Promise<Socket> {
    const all = await options.addresses(hostname, port);
    // IPv4 comes first in the list and is most often routed; within it calls take turns.
    const v4 = all.filter((address) => isIP(address) === 4);
    const v6 = all.filter((address) => isIP(address) === 6);
    const at = v4.length > 0 ? turn++ % v4.length : 0;
    const order = [...v4.slice(at), ...v4.slice(0, at), ...v6].slice(0, MAX_TRIES);
    const end = clock.monotonic() + TCP_MS;
    let failure: unknown = new Error('no address');
    for (const address of order) {
      const left = end - clock.monotonic();
      if (left <= 0) break;
      try {
        const socket = await opened(
          connectTcp({
            host: address,
            port,
            autoSelectFamily: false,
            noDelay: true,
            keepAlive: true,
            ...(onread && { onread }),
          }),
          'connect',
          left,
          clock,
        );
        const remote = socket.remoteAddress ?? '';
        const wanted = addressBytes(address);
        const actual = addressBytes(remote);
        if (!wanted || !actual || !sameAddress(wanted, actual) || !options.mayStay(remote, hostname, port)) {
          socket.destroy();
          log.error('connected peer is not the checked address', { host: hostname, port });
          throw new SluiceError('malformed_call', `The host ${hostname} is not reachable`);
        }
        return socket;
      } catch (error) {
        if (error instanceof SluiceError) throw error;
        failure = error;
      }
    }
    throw new SluiceError('upstream_unreachable', `No connection to ${hostname} could be made`, { detail: failure });
  }

  async function tls(socket: Socket, hostname: string, port: number): Promise<TLSSocket> {
    const key = `${hostname}:${port}`;
    const literal = isIP(hostname) !== 0;
    try {
      const secure = connectTls({
        socket,
        host: hostname,
        // SNI carries names only; the certificate is compared with `host` for an address.
        ...(literal ? {} : { servername: hostname }),
        ALPNProtocols: ['http/1.1'],
        minVersion: 'TLSv1.2',
        rejectUnauthorized: true,
        ca: options.ca,
        session: sessions.get(key),
      });
      secure.on('session', (session) => sessions.set(key, session));
      return await opened(secure, 'secureConnect', TLS_MS, clock);
    } catch (error) {
      sessions.delete(key);
      socket.destroy();
      throw new SluiceError('upstream_tls', `No secure connection to ${hostname} could be made`, { detail: error });
    }
  }

  return (target, callback) => {
    const hostname = target.hostname.replace(/^\[|\]$/g, '');
    const secure = target.protocol === 'https:';
    const port = target.port ? Number(target.port) : secure ? 443 : 80;
    const { onread } = target;
    tcp(hostname, port, secure ? undefined : onread)
      .then((socket): Socket | Promise<Socket> => (secure ? tls(socket, hostname, port) : socket))
      .then(
        (socket) => callback(null, watchWrites(socket)),
        (error) =>
          callback(
            error instanceof Error
              ? error
              : new SluiceError('upstream_unreachable', 'No connection', { detail: error }),
            null,
          ),
      );
  };
}
