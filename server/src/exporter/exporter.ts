/**
 * The server's side of the process that sends telemetry: starts it, again when it died, and ends it. Serving requests depends on
 * none of it: records wait below the journals.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Channel, type Message } from '../keeper/messages.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { type FamilyValues, Slices } from '../telemetry/metrics/family-values.ts';
import type { ExporterSettings, ExporterState } from './messages.ts';
import type { Period } from './otlp/metrics.ts';

export interface ExporterOptions {
  readonly settings: ExporterSettings;
  /** Variables by which certificates are found; nothing else of the environment is handed on. */
  readonly environment: Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly log: Log;
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

  constructor(options: ExporterOptions) {
    this.#options = options;
    this.#started = options.clock.now();
    this.#start();
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
    this.#cancelRestart?.();
    const running = this.#running;
    if (running === null) return;
    const { child, channel } = running;
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    const finished = channel.call('finish').catch(() => undefined);
    const late = new Promise<void>((resolve) => this.#options.clock.after(FINISH_MS, resolve));
    await Promise.race([finished, late, gone]);
    // What it has not sent is in the spool.
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await gone;
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
      },
    );
    child.on('message', (message: Message) => {
      if (!('ready' in message)) return void channel.receive(message);
      // Not as an argument, which every user of the machine can read: the settings hold secrets.
      channel.call('start', settings).catch((error: unknown) => {
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
