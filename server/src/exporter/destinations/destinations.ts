/**
 * Log destinations of all organisations on this node: one reader of the journals puts each record into the outbox of the
 * destinations that want it. From there on each is on its own.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { rowOf } from '../../telemetry/log-columns.ts';
import type { DestinationPlan, DestinationState } from '../../telemetry/log-destination.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import type { LogRecord } from '../../telemetry/record.ts';
import { type Delivery, Feed } from '../feed.ts';
import type { ExportSpool } from '../spool.ts';
import { Runner, type RunnerParts } from './runner.ts';

export interface DestinationOptions extends RunnerParts {
  /** Of the outboxes, and of the file that says how far the journals were read. */
  readonly dir: string;
  readonly spool: ExportSpool;
  /** Bytes that may wait for all of them. */
  readonly maxBytes: number;
  /** Milliseconds that a record may wait; 0: without end. */
  readonly keepMs: number;
}

interface Wanted {
  readonly text: string;
  readonly by: readonly Runner[];
}

const MOST_ROUTED = 2_000;
const TIDY_MS = 5_000;

export class Destinations {
  readonly #options: DestinationOptions;
  readonly #feed: Feed<Wanted>;
  readonly #runners = new Map<string, Runner>();
  #byOrganisation = new Map<string, Runner[]>();
  #changing: Promise<unknown> = Promise.resolve();
  #closed = false;
  #cancel: () => void = () => undefined;

  private constructor(options: DestinationOptions) {
    this.#options = options;
    const { dir, spool, clock, log } = options;
    this.#feed = new Feed<Wanted>({
      name: 'journals',
      dir,
      spool,
      clock,
      log,
      ready: (record, text) => this.#route(record, text),
      most: MOST_ROUTED,
      idle: (began) => {
        for (const runner of this.#runners.values()) runner.routed(began);
      },
      deliver: (batch) => this.#deliver(batch),
    });
  }

  /** Destinations that `plans` does not name are gone, with what waited for them. */
  static async start(options: DestinationOptions, plans: readonly DestinationPlan[]): Promise<Destinations> {
    await mkdir(options.dir, { recursive: true, mode: 0o700 });
    const destinations = new Destinations(options);
    await destinations.change(plans);
    await destinations.#feed.start();
    destinations.#tidyLater();
    return destinations;
  }

  /** The first segment of a journal that is still read; null: none was. */
  needs(journal: string): string | null {
    return this.#feed.needs(journal);
  }

  /** Segments of the journals were given up. */
  wake(): void {
    this.#feed.wake();
  }

  get states(): DestinationState[] {
    return [...this.#runners.values()].map(({ state }) => state);
  }

  /** Bytes that wait in the outboxes. */
  get bytes(): number {
    return [...this.#runners.values()].reduce((sum, { outbox }) => sum + outbox.bytes, 0);
  }

  /** Takes the destinations as they are now. */
  change(plans: readonly DestinationPlan[]): Promise<void> {
    const next = this.#changing.then(() => this.#change(plans));
    this.#changing = next.catch((error: unknown) =>
      this.#options.log.error('log destinations could not be changed', { error: String(error) }),
    );
    return next;
  }

  /** Sends what is there; what is not accepted then waits for the next start. */
  async finish(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#changing;
    await this.#feed.finish();
    await Promise.all([...this.#runners.values()].map((runner) => runner.finish()));
  }

  async #change(plans: readonly DestinationPlan[]): Promise<void> {
    if (this.#closed) return;
    const { dir } = this.#options;
    const wanted = new Set(plans.map(({ id }) => id));
    const gone = [...this.#runners.values()].filter(({ plan }) => !wanted.has(plan.id));
    for (const runner of gone) this.#runners.delete(runner.plan.id);
    this.#index();
    await Promise.all(gone.map((runner) => runner.remove()));
    for (const entry of await readdir(dir, { withFileTypes: true })) {
      if (entry.isDirectory() && !wanted.has(entry.name))
        await rm(join(dir, entry.name), { recursive: true, force: true });
    }
    for (const plan of plans) {
      const runner = this.#runners.get(plan.id);
      if (runner !== undefined) await runner.change(plan);
      else this.#runners.set(plan.id, await Runner.start(plan, this.#options, dir));
    }
    this.#index();
  }

  #index(): void {
    this.#byOrganisation = Map.groupBy(this.#runners.values(), ({ plan }) => plan.organisationId);
  }

  #route(record: LogRecord, text: string): readonly Wanted[] {
    const runners = this.#byOrganisation.get(record.organisation_id ?? '');
    if (runners === undefined) return [];
    let made: LogRow | null = null;
    const row = () => {
      made ??= rowOf(record);
      return made;
    };
    const by = runners.filter((runner) => runner.takes(record, row));
    return by.length === 0 ? [] : [{ text, by }];
  }

  async #deliver(batch: readonly Wanted[]): Promise<Delivery> {
    const texts = new Map<Runner, string[]>();
    for (const { text, by } of batch) {
      for (const runner of by) {
        const of = texts.get(runner);
        if (of === undefined) texts.set(runner, [text]);
        else of.push(text);
      }
    }
    try {
      // One that was removed meanwhile has no files to write to.
      const there = [...texts].filter(([runner]) => this.#runners.get(runner.plan.id) === runner);
      await Promise.all(there.map(([runner, some]) => runner.append(some)));
      return { kind: 'accepted' };
    } catch (error) {
      return { kind: 'later', why: `records for log destinations cannot be written: ${String(error)}`, afterMs: null };
    }
  }

  #tidyLater(): void {
    this.#cancel = this.#options.clock.after(TIDY_MS, () => {
      this.#tidy()
        .catch((error: unknown) =>
          this.#options.log.error('what was sent to log destinations stays on the disk', { error: String(error) }),
        )
        .finally(() => {
          if (!this.#closed) this.#tidyLater();
        });
    });
  }

  /** Who has the most gives up first: a destination that is away takes no room of others. */
  async #tidy(): Promise<void> {
    const { keepMs, maxBytes, clock, log } = this.#options;
    const before = keepMs === 0 ? 0 : clock.now() - keepMs;
    for (const runner of this.#runners.values()) await runner.tidy(before);
    for (const runner of [...this.#runners.values()].sort((a, b) => b.outbox.bytes - a.outbox.bytes)) {
      while (this.bytes > maxBytes && (await runner.giveUp())) {
        log.warn('more records wait for log destinations than there is room for, the oldest are given up', {
          destination_id: runner.plan.id,
        });
      }
    }
  }
}
