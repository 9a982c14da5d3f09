/**
 * The server's side of the process that sends telemetry: starts it, again when it died, and ends it. Serving requests depends on
 * none of it: records wait below the journals.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ListenAddress } from '../http/egress-guard.ts';
import { Channel, type Message } from '../keeper/messages.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { DestinationHost, DestinationPlan, DestinationState } from '../telemetry/log-destination.ts';
import { type FamilyValues, Slices } from '../telemetry/metrics/family-values.ts';
import type { ExporterSettings, ExporterState } from './messages.ts';
import type { Period } from './otlp/metrics.ts';

export interface ExporterOptions {
  readonly settings: ExporterSettings;
  /** Variables by which certificates are found; nothing else of the environment is handed on. */
  readonly environment: Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly log: Log;
  /** Before the process starts, and after it has ended because nothing is sent any more. */
  readonly onStop?: () => Promise<void>;
}

/** The log destinations of tenants, and what the process asks the server about them. */
export interface DestinationFeed {
  readonly plans: readonly DestinationPlan[];
  readonly listeners: readonly ListenAddress[];
  readonly host: DestinationHost;
}

const PROGRAM = fileURLToPath(new URL('./process.ts', import.meta.url));
const FIRST_BACKOFF_MS = 1_000;
const MOST_BACKOFF_MS = 30_000;
const STEADY_MS = 60_000;
const STATE_MS = 1_000;
/** At the end, how long what is left may take on its way. */
const FINISH_MS = 5_000;
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

/** Cells of one message: it is written in a fraction of a millisecond. */
const PART = 64;

/** Copies: the cells of this process are counted in while they are written. */
function partOf({ name, labels, cells }: FamilyValues, at: number): FamilyValues {
  const some = cells.slice(at, at + PART);
  return { name, labels, cells: some.map((cell) => ({ labels: cell.labels, values: Array.from(cell.values) })) };
}

export class Exporter implements Closable {
  readonly #options: ExporterOptions;
  readonly #started: number;
  #running: { readonly child: ChildProcess; readonly channel: Channel } | null = null;
  #failures = 0;
  #cancelRestart: (() => void) | null = null;
  #closed = false;
  #destinations: DestinationFeed | null = null;
  #lastStates: readonly DestinationState[] = [];
  #changing: Promise<void> = Promise.resolve();

  /** Starts the process where the settings name a collector, else with the first log destination. */
  constructor(options: ExporterOptions) {
    this.#options = options;
    this.#started = options.clock.now();
    if (this.#collects) this.#start();
  }

  /** What the process said of the log destinations when it was asked last. */
  get destinations(): readonly DestinationState[] {
    return this.#lastStates;
  }

  /** Whether there is anything to send. */
  get active(): boolean {
    return this.#collects || this.#fed;
  }

  get #collects(): boolean {
    const { traces, metrics } = this.#options.settings;
    return traces !== null || metrics !== null;
  }

  get #fed(): boolean {
    return (this.#destinations?.plans.length ?? 0) > 0;
  }

  /** Takes the log destinations as they are now; the process runs while there is any. Never rejects. */
  setDestinations(feed: DestinationFeed): Promise<void> {
    this.#changing = this.#changing.then(() => this.#feed(feed));
    return this.#changing;
  }

  async #feed(feed: DestinationFeed): Promise<void> {
    if (this.#closed) return;
    const before = this.#fed;
    this.#destinations = feed;
    if (!before && !this.#fed) return;
    if (this.#running === null) {
      if (this.#cancelRestart === null) this.#start();
      return;
    }
    await this.#running.channel
      .call('destinations', feed.plans, feed.listeners)
      .catch((error: unknown) => this.#options.log.error('log destinations were not taken', { error: String(error) }));
    if (!this.active) await this.#end();
  }

  /** Process id; null while it is started again. */
  get pid(): number | null {
    return this.#running?.child.pid ?? null;
  }

  /** Null when the process does not answer within a second, as while it is started. Never rejects. */
  async state(): Promise<ExporterState | null> {
    const { promise: late, resolve } = Promise.withResolvers<null>();
    const cancel = this.#options.clock.after(STATE_MS, () => resolve(null));
    const told = this.#running?.channel.call('state').catch(() => null) ?? null;
    const state = (await Promise.race([told, late])) as ExporterState | null;
    cancel();
    if (state !== null) this.#lastStates = state.destinations?.states ?? [];
    return state;
  }

  /** Hands on the numbers of the server; resolves when they were sent, or could not be. */
  async push(families: readonly FamilyValues[]): Promise<void> {
    const channel = this.#running?.channel;
    if (channel === undefined) return;
    const { clock } = this.#options;
    const period: Period = { start: this.#started, now: clock.now() };
    const slices = new Slices(clock);
    const send = (part: readonly FamilyValues[], last: boolean) =>
      channel.call('metrics', part, last, period).catch(() => undefined);
    for (const family of families) {
      for (let at = 0; at < family.cells.length; at += PART) {
        void send([partOf(family, at)], false);
        if (slices.due()) await slices.next();
      }
    }
    await send([], true);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#end();
  }

  async #end(): Promise<void> {
    this.#cancelRestart?.();
    this.#cancelRestart = null;
    const running = this.#running;
    if (running === null) return;
    const { child, channel } = running;
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    const finished = channel.call('finish').catch(() => undefined);
    const late = new Promise<void>((resolve) => this.#options.clock.after(FINISH_MS, resolve));
    await Promise.race([finished, late, gone]);
    // What it has not sent is in the spool.
    this.#running = null;
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await gone;
    if (!this.#closed) await this.#options.onStop?.();
  }

  #start(): void {
    const { settings, environment, clock, log } = this.#options;
    const child = fork(PROGRAM, [], {
      env: { ...environment },
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const channel = new Channel(
      (message) => {
        if (child.connected) child.send(message, () => undefined);
      },
      {
        log: (level: keyof Log, message: string, fields: object) => {
          if (LEVELS.includes(level)) log[level](message, { ...fields, part: 'telemetry' });
        },
        terms: (id: string) => this.#host().terms(id),
        bodies: (...asked: Parameters<DestinationHost['bodies']>) => this.#host().bodies(...asked),
        past: (...asked: Parameters<DestinationHost['past']>) => this.#host().past(...asked),
        parquet: (...asked: Parameters<DestinationHost['parquet']>) => this.#host().parquet(...asked),
        settled: (state: DestinationState) => this.#host().settled(state),
        left: (id: string) => this.#host().left(id),
        leftSettled: (...asked: Parameters<DestinationHost['leftSettled']>) => this.#host().leftSettled(...asked),
      },
    );
    child.on('message', (message: Message) => {
      if (!('ready' in message)) return void channel.receive(message);
      // Not as an argument, which every user of the machine can read: the settings hold secrets.
      const begun = async () => {
        await channel.call('start', settings);
        const fed = this.#destinations;
        if (fed !== null && this.#fed) await channel.call('destinations', fed.plans, fed.listeners);
      };
      begun().catch((error: unknown) => {
        log.error('telemetry is not sent', { error: String(error) });
        child.kill('SIGKILL');
      });
    });
    const ended = (code: number | null): void => {
      if (this.#running?.child !== child) return;
      this.#running = null;
      channel.end(new Error('the process that sends telemetry ended'));
      if (!this.#closed) this.#died(code);
    };
    child.once('error', () => ended(null));
    child.once('exit', (code) => ended(code));
    this.#running = { child, channel };
    // One that lived for a minute is not the one that dies at once.
    clock.after(STEADY_MS, () => {
      if (this.#running?.child === child) this.#failures = 0;
    });
    child.unref();
    child.channel?.unref();
  }

  #host(): DestinationHost {
    if (this.#destinations === null) throw new Error('there are no log destinations');
    return this.#destinations.host;
  }

  #died(code: number | null): void {
    const { clock, log } = this.#options;
    const wait = Math.min(FIRST_BACKOFF_MS * 2 ** this.#failures++, MOST_BACKOFF_MS);
    log.warn('the process that sends telemetry died and is started again', { code, wait_ms: wait });
    this.#cancelRestart = clock.after(wait, () => {
      this.#cancelRestart = null;
      if (!this.#closed) this.#start();
    });
  }
}
