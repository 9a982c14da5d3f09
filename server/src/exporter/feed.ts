/**
 * Brings every record to one destination, in the order of the journals, at least once. How far it came is in a file, so a
 * destination that was away, or a process that was killed, is no loss; one destination waits for no other.
 */
import { createReadStream } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type FoundJournal, JournalReader } from '../keeper/journal-reader.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { LogRecord } from '../telemetry/record.ts';
import { type ExportSpool, segmentsIn } from './spool.ts';

/** What became of a batch. `later`: the same batch is tried again, no sooner than asked (milliseconds). */
export type Delivery =
  | { readonly kind: 'accepted' }
  | { readonly kind: 'refused'; readonly why: string }
  | { readonly kind: 'later'; readonly why: string; readonly afterMs: number | null };

/** `T`: what a record becomes before it is sent; a record may be several. */
export interface FeedOptions<T> {
  /** Of the file that says how far it came: letters, digits and hyphens. */
  readonly name: string;
  /** Where that file is. */
  readonly dir: string;
  readonly spool: Pick<ExportSpool, 'journals' | 'floorOf'>;
  readonly clock: Clock;
  readonly log: Log;
  /** Empty: the record is not sent. Throws for one that cannot be. `text`: as it is in the journal. */
  ready(record: LogRecord, text: string): readonly T[];
  /** Of one batch, unless a single record is more. */
  readonly most: number;
  /** Never rejects. */
  deliver(batch: readonly T[]): Promise<Delivery>;
  /** True: nothing is sent now. Not asked at the end. */
  readonly holds?: () => boolean;
  /** All that was written before `began` (milliseconds since the epoch) has been read. */
  readonly idle?: (began: number) => void;
  /** After everything was sent: milliseconds until it looks again, unless it is woken. */
  readonly idleMs?: number;
  readonly mostBackoffMs?: number;
  /** Bytes that are read at once; a line may be longer. */
  readonly chunkBytes?: number;
}

export interface FeedState {
  /** Records that were accepted. */
  readonly sent: number;
  /** Records that the destination refused, or that could not be made ready for it. */
  readonly refused: number;
  /** Records that were given up because too many waited. */
  readonly lost: number;
  /** Null: the last call was accepted. */
  readonly failure: string | null;
}

/** Everything before `offset`, and `done` records behind it, are settled. */
interface Place {
  readonly segment: string;
  readonly offset: number;
  readonly done: number;
}

interface Stored {
  readonly places: Readonly<Record<string, Place>>;
  readonly sent: number;
  readonly refused: number;
  readonly lost: number;
}

const IDLE_MS = 1_000;
const FIRST_BACKOFF_MS = 1_000;
const MOST_BACKOFF_MS = 30_000;
/** Of what a destination asks to wait. */
const MOST_HINT_MS = 300_000;
const LINE_FEED = 0x0a;

const BEGIN: Place = { segment: '', offset: 0, done: 0 };

/** How many lines are behind a place, up to a segment or to the end. */
async function linesBehind(dir: string, place: Place, before: string | null): Promise<number> {
  let lines = -place.done;
  for (const name of await segmentsIn(dir)) {
    if (name < place.segment || (before !== null && name >= before)) continue;
    const start = name === place.segment ? place.offset : 0;
    for await (const part of createReadStream(join(dir, name), { start }) as AsyncIterable<Buffer>) {
      for (let at = part.indexOf(LINE_FEED); at >= 0; at = part.indexOf(LINE_FEED, at + 1)) lines += 1;
    }
  }
  return lines;
}

export class Feed<T> {
  readonly #options: FeedOptions<T>;
  readonly #file: string;
  readonly #readers = new Map<string, JournalReader>();
  #places = new Map<string, Place>();
  #sent = 0;
  #refused = 0;
  #lost = 0;
  #failure: string | null = null;
  #failures = 0;
  #closing = false;
  #fresh = false;
  #idle = false;
  #wake: (() => void) | null = null;
  #running: Promise<void> | null = null;

  constructor(options: FeedOptions<T>) {
    this.#options = options;
    this.#file = join(options.dir, `${options.name}.json`);
  }

  get state(): FeedState {
    return { sent: this.#sent, refused: this.#refused, lost: this.#lost, failure: this.#failure };
  }

  /** The first segment of a journal that it still needs; null: it has read none. */
  needs(journal: string): string | null {
    return this.#places.get(journal)?.segment ?? null;
  }

  async start(): Promise<void> {
    await this.load();
    this.#running = this.#run();
  }

  /** Reads how far it came, before it is started. */
  async load(): Promise<void> {
    const text = await readFile(this.#file, 'utf8').catch(() => null);
    if (text === null) return;
    const stored = JSON.parse(text) as Stored;
    this.#places = new Map(Object.entries(stored.places));
    this.#sent = stored.sent;
    this.#refused = stored.refused;
    this.#lost = stored.lost;
  }

  /** Records that are not settled, before it is started. */
  async backlog(): Promise<number> {
    let records = 0;
    for (const { journal, dir } of this.#options.spool.journals) {
      records += await linesBehind(dir, this.#places.get(journal) ?? BEGIN, null);
    }
    return records;
  }

  /** Looks again before its wait is over, also that of a destination that is away. */
  wake(): void {
    this.#fresh = true;
    this.#wake?.();
  }

  /** There is more to send: it looks at once, unless its destination is away. */
  nudge(): void {
    this.#fresh = true;
    if (this.#idle) this.#wake?.();
  }

  /** Sends what is there, each batch once; what is not accepted then waits for the next start. */
  async finish(): Promise<void> {
    this.#closing = true;
    this.#wake?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { log, name, clock, idle, idleMs = IDLE_MS } = this.#options;
    for (;;) {
      const began = clock.now();
      this.#fresh = false;
      // Everything that was written before the end was known of is still read.
      const last = this.#closing;
      try {
        const held = !last && this.#options.holds?.() === true;
        const more = held ? false : await this.#pass();
        if (last && (!more || this.#failure !== null)) return;
        if (more) continue;
        if (!held) idle?.(began);
        if (this.#fresh) continue;
        this.#idle = true;
        await this.#pause(idleMs);
        this.#idle = false;
      } catch (error) {
        log.error('records to be sent could not be read', { feed: name, error: String(error) });
        if (last) return;
        await this.#pause(IDLE_MS);
      }
    }
  }

  /** One piece of each journal. Answers whether there was any. */
  async #pass(): Promise<boolean> {
    let more = false;
    for (const journal of this.#options.spool.journals) {
      await this.#giveUp(journal);
      if (await this.#piece(journal)) more = true;
      if (this.#closing && this.#failure !== null) break;
    }
    return more;
  }

  async #piece(found: FoundJournal): Promise<boolean> {
    const { journal } = found;
    const place = this.#places.get(journal);
    const at = place === undefined ? null : { journal, segment: place.segment, offset: place.offset };
    const reader = this.#readers.get(journal) ?? new JournalReader(found, at, this.#options.chunkBytes);
    this.#readers.set(journal, reader);
    const from = reader.position;
    const chunk = await reader.next();
    const to = reader.position;
    if (chunk === null || to === null) return false;
    const settled = await this.#send(journal, from ?? { segment: '', offset: 0 }, chunk.lines, place?.done ?? 0);
    // The rest is read again.
    if (!settled) this.#readers.delete(journal);
    else await this.#moveTo(journal, { segment: to.segment, offset: to.offset, done: 0 });
    return true;
  }

  /** False: it was ended, or the rest was given up meanwhile. */
  async #send(
    journal: string,
    { segment, offset }: Pick<Place, 'segment' | 'offset'>,
    lines: Buffer,
    skip: number,
  ): Promise<boolean> {
    const { most } = this.#options;
    let done = 0;
    let records = 0;
    let batch: T[] = [];
    const flush = async (): Promise<boolean> => {
      if (batch.length > 0 && !(await this.#settle(journal, batch, records))) return false;
      await this.#moveTo(journal, { segment, offset, done });
      batch = [];
      records = 0;
      return true;
    };
    for (let start = 0; start < lines.length; ) {
      const feed = lines.indexOf(LINE_FEED, start);
      const ready = done < skip ? [] : this.#ready(lines.toString('utf8', start, feed));
      start = feed + 1;
      if (batch.length + ready.length > most && !(await flush())) return false;
      done += 1;
      batch.push(...ready);
      if (ready.length > 0) records += 1;
    }
    return flush();
  }

  #ready(text: string): readonly T[] {
    try {
      return this.#options.ready(JSON.parse(text) as LogRecord, text);
    } catch (error) {
      this.#refused += 1;
      this.#options.log.error('a record cannot be sent, it is left out', { error: String(error) });
      return [];
    }
  }

  /** Tries a batch until it is accepted or refused. */
  async #settle(journal: string, batch: readonly T[], records: number): Promise<boolean> {
    const { log, name, spool } = this.#options;
    for (;;) {
      const result = await this.#options.deliver(batch);
      if (result.kind === 'later') {
        this.#failure = result.why;
        log.warn('records could not be sent, they are tried again', { feed: name, why: result.why });
        if (this.#closing) return false;
        const { mostBackoffMs = MOST_BACKOFF_MS } = this.#options;
        const backoff = Math.min(FIRST_BACKOFF_MS * 2 ** this.#failures, mostBackoffMs);
        this.#failures += 1;
        await this.#pause(Math.max(backoff, Math.min(result.afterMs ?? 0, MOST_HINT_MS)));
        if (spool.floorOf(journal) > (this.needs(journal) ?? '')) return false;
        continue;
      }
      this.#failures = 0;
      this.#failure = null;
      if (result.kind === 'accepted') this.#sent += records;
      else {
        this.#refused += records;
        log.error('records were refused and are not sent again', {
          feed: name,
          records,
          why: result.why,
        });
      }
      return true;
    }
  }

  /** Skips what is given up, and counts it. */
  async #giveUp({ journal, dir }: FoundJournal): Promise<void> {
    const floor = this.#options.spool.floorOf(journal);
    const place = this.#places.get(journal) ?? BEGIN;
    if (floor === '' || place.segment >= floor) return;
    const lines = await linesBehind(dir, place, floor);
    this.#lost += lines;
    this.#readers.delete(journal);
    this.#options.log.error('records were given up before they could be sent', {
      feed: this.#options.name,
      records: lines,
    });
    await this.#moveTo(journal, { segment: floor, offset: 0, done: 0 });
  }

  async #moveTo(journal: string, place: Place): Promise<void> {
    this.#places.set(journal, place);
    const journals = new Set(this.#options.spool.journals.map(({ journal: name }) => name));
    const known = [...this.#places].filter(([name]) => journals.has(name));
    const stored: Stored = {
      places: Object.fromEntries(known),
      sent: this.#sent,
      refused: this.#refused,
      lost: this.#lost,
    };
    const unfinished = `${this.#file}.unfinished`;
    await writeFile(unfinished, JSON.stringify(stored), { mode: 0o600 });
    await rename(unfinished, this.#file);
  }

  #pause(ms: number): Promise<void> {
    if (this.#closing) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#options.clock.after(ms, () => this.#wake?.());
      this.#wake = () => {
        cancel();
        this.#wake = null;
        resolve();
      };
    });
  }
}
