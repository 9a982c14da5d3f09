import { randomInt } from 'node:crypto';
import { Redis, type RedisOptions } from 'ioredis';
import { systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';

/** Longest a command may wait for its answer, milliseconds: what a request can lose to a server that hangs. */
export const COMMAND_TIMEOUT_MS = 20;
/** Longest `openRedis` waits for the first connection before it goes on without. */
const FIRST_CONNECT_MS = 2_000;
/** Silence after which the connection is given up: from then on commands fail at once until a new one is ready. */
const HUNG_AFTER_MS = 150;

/**
 * With these a command fails in 0–5 ms when the server is down; the defaults make every request wait up to 4 s. The
 * time-out here is for the client's own commands at connecting: `run` has a stricter one.
 */
const OPTIONS: RedisOptions = {
  commandTimeout: 1_000,
  connectTimeout: 1_000,
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  keepAlive: 5_000,
  retryStrategy: (times) => randomInt(25, Math.min(500, 50 * 2 ** Math.min(times, 5)) + 1),
  // After a failover the former primary refuses writes; a new connection finds the new one.
  reconnectOnError: (error) => error.message.startsWith('READONLY'),
};

function checkUrl(url: string): void {
  const protocol = URL.canParse(url) ? new URL(url).protocol : '';
  if (protocol === 'redis:' || protocol === 'rediss:') return;
  throw new SluiceError(
    'validation',
    'SLUICE_REDIS_URL must look like redis://[user:password@]host:port[/database], or rediss://… for TLS',
    { param: 'SLUICE_REDIS_URL' },
  );
}

/** One connection that reconnects for ever and says in the log once when it is lost and once when it is back. */
export class Connection {
  readonly client: Redis;
  /** How often it was made anew: a server that restarts or fails over may have lost what it knew. */
  session = 0;
  /** Why the last connection ended or was not made; empty before. */
  reason = '';
  #lastAnswer = 0;
  /** When the first command was sent that nothing has been answered since; null while the server answers. */
  #silentSince: number | null = null;
  #closed = false;

  readonly #timeoutMs: number;

  constructor(url: string, log: Log, use: string, timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    checkUrl(url);
    this.client = new Redis(url, { ...OPTIONS, connectionName: `sluice-${use}` });
    let lost = false;
    // Without a listener ioredis prints errors itself; the reason is kept for the next `close`.
    this.client.on('error', (error: Error) => {
      // Node gives one error for each address of a name, and no message for the whole.
      this.reason = error.message || String((error as AggregateError).errors?.[0]?.message ?? error);
    });
    this.client.on('close', () => {
      if (lost || this.#closed) return;
      lost = true;
      log.warn('redis is not reachable', { use, reason: this.reason });
    });
    this.client.on('ready', () => {
      this.session++;
      this.#silentSince = null;
      if (lost) log.info('redis is reachable again', { use });
      lost = false;
    });
  }

  /** Resolves at the first connection, the first failure or after two seconds, whichever comes first. */
  firstConnect(): Promise<void> {
    if (this.client.status === 'ready') return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = systemClock.after(FIRST_CONNECT_MS, settle);
      const { client } = this;
      client.on('ready', settle).on('close', settle);
      function settle(): void {
        cancel();
        client.off('ready', settle).off('close', settle);
        resolve();
      }
    });
  }

  /** Runs a command, waits at most the time-out for its answer, and notices a server that accepts but does not answer. */
  run<T>(command: (client: Redis) => Promise<T>): Promise<T> {
    const sentAt = systemClock.monotonic();
    return new Promise((resolve, reject) => {
      // The immediate lets answers be read first that arrived while this process itself was busy.
      const cancel = systemClock.after(this.#timeoutMs, () => setImmediate(expire));
      const expire = (): void => {
        if (settled) return;
        reject(new Error('redis did not answer in time'));
        if (this.#lastAnswer >= sentAt) return;
        this.#silentSince ??= sentAt;
        if (systemClock.monotonic() - this.#silentSince < HUNG_AFTER_MS) return;
        this.#silentSince = null;
        this.client.disconnect(true);
      };
      let settled = false;
      const settle = (): void => {
        settled = true;
        cancel();
      };
      command(this.client).then(
        (result) => {
          settle();
          this.#lastAnswer = systemClock.monotonic();
          this.#silentSince = null;
          resolve(result);
        },
        (error: unknown) => {
          settle();
          reject(error);
        },
      );
    });
  }

  close(): void {
    this.#closed = true;
    this.client.disconnect();
  }
}
