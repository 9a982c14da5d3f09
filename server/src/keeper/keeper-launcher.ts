/**
 * The server's side of the log keeper: starts its process when it is first needed, starts it again when it died, and asks
 * it. Serving requests depends on none of it: without a keeper records wait in the journal, and questions are 503.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { BodyStore } from './body-keeper.ts';
import { bodyAnswers } from './body-messages.ts';
import type { LogCatalog, SharedLogFiles } from './catalog.ts';
import type { LogStoreAddress } from './clickhouse/store.ts';
import type { ErasingParts } from './erasing.ts';
import { KeeperClient, type KeeperHealth, keeperAway, type LogKeeperStatus } from './keeper-client.ts';
import { Channel, type KeeperSettings, type Message } from './messages.ts';
import { sharedAnswers } from './shared-messages.ts';

export interface LogKeeperOptions extends KeeperSettings {
  readonly catalog: LogCatalog;
  /** The files of all nodes; null: the files of this one are on its disk alone. With `cacheBytes`. */
  readonly shared?: SharedLogFiles | null;
  /** Keys and blobs of kept bodies. */
  readonly bodies: BodyStore;
  /** Removes the feedback on traces of an organisation; answers how many there were. */
  readonly forgetFeedback: ErasingParts['forgetFeedback'];
  readonly clock: Clock;
  readonly log: Log;
  /** Where records go that do not stay on this machine; null: they stay. */
  readonly store?: LogStoreAddress | null;
  /** Variables of the environment that its process has, and no others. */
  readonly env?: Readonly<Record<string, string>>;
  /** Why its engine cannot load on this machine; null: it is there, as far as is known. */
  readonly missing?: string | null;
}

const PROGRAM = fileURLToPath(new URL('./process.ts', import.meta.url));
const FIRST_BACKOFF_MS = 1_000;
const MOST_BACKOFF_MS = 30_000;
const STEADY_MS = 60_000;
/** A keeper that sends records elsewhere rests no longer. */
const REST_MS = 60_000;
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

/** Keepers that one question is asked of, where each comes to rest at that moment. */
const MOST_ASKED = 3;

/** A keeper ended because it was idle or large. It does so only while it works on nothing. */
class Rested extends Error {}

export class LogKeeper extends KeeperClient implements Closable {
  readonly #options: LogKeeperOptions;
  #running: { readonly child: ChildProcess; readonly channel: Channel; readonly ready: Promise<void> } | null = null;
  #status: LogKeeperStatus = 'resting';
  #restarts = 0;
  #gaps = 0;
  #failures = 0;
  #retryAt = 0;
  #cancelRestart: (() => void) | null = null;
  #closed = false;

  constructor(options: LogKeeperOptions) {
    super();
    this.#options = options;
    if (options.missing) this.#isMissing(options.missing);
  }

  get status(): LogKeeperStatus {
    return this.#status;
  }

  /** How often it died since the start. */
  get restarts(): number {
    return this.#restarts;
  }

  /** Records that it missed in the sequences of the processes, since the start. */
  get gaps(): number {
    return this.#gaps;
  }

  /** Process id; null while it rests. */
  get pid(): number | null {
    return this.#running?.child.pid ?? null;
  }

  wake(): void {
    if (this.#running === null && this.#status !== 'missing' && this.#cancelRestart === null && !this.#closed) {
      this.#start();
    }
  }

  async health(): Promise<KeeperHealth> {
    const running = this.#running !== null && this.#status === 'running';
    const state = running ? await this.ask('state').catch(() => null) : null;
    return { status: this.#status, restarts: this.#restarts, gaps: this.#gaps, state: state as KeeperHealth['state'] };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelRestart?.();
    const child = this.#running?.child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    // It holds no truth: the journals and the list of files do.
    child.kill('SIGKILL');
    await gone;
  }

  /** What a keeper had not begun when it came to rest is asked of the next one. */
  async ask(name: string, ...args: readonly unknown[]): Promise<unknown> {
    for (let asked = 1; ; asked++) {
      try {
        return await this.#ask(name, ...args);
      } catch (error) {
        if (!(error instanceof Rested)) throw error;
        if (asked === MOST_ASKED) throw keeperAway(1);
      }
    }
  }

  async #ask(name: string, ...args: readonly unknown[]): Promise<unknown> {
    if (this.#closed || this.#status === 'missing') throw keeperAway(null);
    if (this.#running === null) {
      const wait = this.#retryAt - this.#options.clock.now();
      if (this.#cancelRestart !== null) throw keeperAway(Math.max(1, Math.ceil(wait / 1_000)));
      this.#start();
    }
    const running = this.#running;
    if (running === null) throw keeperAway(1);
    await running.ready;
    return running.channel.call(name, ...args);
  }

  #start(): void {
    const {
      catalog,
      shared = null,
      bodies,
      forgetFeedback,
      log,
      store = null,
      env = {},
      clock: _,
      missing: __,
      ...settings
    } = this.#options;
    const child = fork(PROGRAM, [JSON.stringify({ ...settings, remote: store !== null })], {
      env,
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const channel = new Channel(
      (message) => {
        if (child.connected) child.send(message, () => undefined);
      },
      {
        ...bodyAnswers(bodies),
        store: () => store,
        ...sharedAnswers(shared),
        load: () => catalog.load(),
        forgetFeedback,
        commit: (change: Parameters<LogCatalog['commit']>[0]) => catalog.commit(change),
        gap: (records: number) => {
          this.#gaps += records;
        },
        log: (level: keyof Log, message: string, fields: object) => {
          if (LEVELS.includes(level)) log[level](message, { ...fields, part: 'log keeper' });
        },
      },
    );
    let tell: { resolve(): void; reject(error: Error): void } | null = null;
    const ready = new Promise<void>((resolve, reject) => {
      tell = { resolve, reject };
    });
    ready.catch(() => undefined);
    child.on('message', (message: Message) => {
      if (!('ready' in message)) return void channel.receive(message);
      if (message.ready) {
        this.#status = 'running';
        tell?.resolve();
        return;
      }
      this.#isMissing(message.why);
    });
    const ended = (code: number | null): void => {
      if (this.#running?.child !== child) return;
      this.#running = null;
      const rests = code === 0 && !this.#closed && this.#status !== 'missing';
      const error = rests ? new Rested() : keeperAway(this.#status === 'missing' ? null : 1);
      tell?.reject(error);
      channel.end(error);
      if (this.#closed || this.#status === 'missing') return;
      if (code === 0) this.#rested();
      else this.#died(code);
    };
    child.once('error', () => ended(null));
    child.once('exit', (code) => ended(code));
    this.#running = { child, channel, ready };
    // One that lived for a minute is not the one that dies at once.
    this.#options.clock.after(STEADY_MS, () => {
      if (this.#running?.child === child) this.#failures = 0;
    });
    this.#unhold(child);
  }

  /** A server that has nothing else to do may end. */
  #unhold(child: ChildProcess): void {
    child.unref();
    child.channel?.unref();
  }

  #isMissing(why: string): void {
    this.#status = 'missing';
    this.#options.log.warn(
      'logs cannot be asked on this machine because their engine does not load, records stay in the journal',
      { why },
    );
  }

  #rested(): void {
    this.#status = 'resting';
    const { store, clock } = this.#options;
    // Files may wait for it still.
    if (store) clock.after(REST_MS, () => this.wake());
    // It has ended because it had become large.
    if (this.#options.shared && !this.#closed) this.#start();
  }

  #died(code: number | null): void {
    const { clock, log } = this.#options;
    this.#restarts++;
    this.#status = 'failing';
    const wait = Math.min(FIRST_BACKOFF_MS * 2 ** this.#failures++, MOST_BACKOFF_MS);
    this.#retryAt = clock.now() + wait;
    log.warn('the log keeper died and is started again', { code, wait_ms: wait });
    this.#cancelRestart = clock.after(wait, () => {
      this.#cancelRestart = null;
      if (!this.#closed) this.#start();
    });
  }
}
