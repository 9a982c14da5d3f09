import { randomInt } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { JournalPosition } from '../ports.ts';
import { errorCode } from './files.ts';
import type { Journal, SegmentInfo } from './journal.ts';
import { copyRecord } from './journal-line.ts';

/** Where lines go: at least once, each batch together with the reader's position. */
export interface ShipTarget {
  /** Stores the lines (UTF-8, each ended by a line feed) and the position in one transaction. */
  insert(journal: string, lines: Buffer, position: JournalPosition): Promise<void>;
  position(journal: string): Promise<JournalPosition | null>;
  /**
   * Makes what was inserted survive a power cut; false when that is not possible right now. Journal segments are removed
   * after it. A store whose commit already means that leaves it out.
   */
  settle?(): Promise<boolean>;
}

export interface ShipperOptions {
  /** The journal's directory. */
  readonly dir: string;
  readonly journal: Journal;
  /** What takes each batch together with its position. */
  readonly sink: ShipTarget;
  readonly clock: Clock;
  readonly log: Log;
  /** Pause between looks for new records, milliseconds. */
  readonly everyMs?: number;
  /** Most records in one `sink.insert`. */
  readonly batch?: number;
  /** Looks only after `wake`, and until all is shipped. */
  readonly onDemand?: boolean;
}

export interface ShipperStats {
  readonly shipped: number;
  /** Unfinished lines at the end of segments whose process died: their requests had not completed. */
  readonly torn: number;
  /** Damaged lines anywhere else, and segments somebody removed. */
  readonly corrupt: number;
  /** Records the sink refused for good; they are in `rejected.jsonl` in the journal's directory. */
  readonly rejected: number;
  /** Failed inserts in a row; 0 while the sink works. */
  readonly failures: number;
}

/** Moves records from the journal to the sink, in order, each exactly once. */
export interface Shipper extends Closable {
  readonly stats: ShipperStats;
  /** Something was appended: looks after `everyMs`. */
  wake(): void;
  /** Resolves when everything appended before the call is in the sink; rejects when the shipper is closed first. */
  drain(): Promise<void>;
}

const CHUNK = 1 << 20;
const LINE_FEED = 0x0a;
/** Lines checked before other work gets its turn: about a quarter of a millisecond. */
const SLICE = 250;
const BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;
/** After so many failures of a sink that otherwise answers, a batch is split to find the record at fault. */
const PATIENCE = 4;

interface Batch {
  readonly segment: string;
  /** Where the first line begins. */
  readonly start: number;
  /** The records without their checksums, each with a line feed. */
  readonly bytes: Buffer;
  /** End of each line in `bytes`, and in its segment. */
  readonly cuts: readonly number[];
  readonly ends: readonly number[];
}

interface Waiter {
  readonly target: JournalPosition;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** Whether the store is at fault and not a record: on a full disk it may take the position alone, and no record. */
function isStoreAway(error: unknown): boolean {
  return error instanceof SluiceError && error.kind === 'unavailable';
}

const NO_LINES = Buffer.alloc(0);

class JournalShipper implements Shipper {
  readonly #dir: string;
  readonly #journal: Journal;
  readonly #sink: ShipTarget;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #everyMs: number;
  readonly #batch: number;
  readonly #onDemand: boolean;

  /** Null until the sink has told where it stands. */
  #at: { segment: string; offset: number } | null = null;
  #file: { name: string; handle: FileHandle } | null = null;
  #buffer = Buffer.allocUnsafeSlow(CHUNK);
  #waiters: Waiter[] = [];
  #running: Promise<void> | null = null;
  #again = false;
  /** Shipped segments whose files still stand. */
  #finished: string[] = [];
  #readFailures = 0;
  #closed = false;
  #wake: (() => void) | null = null;
  #cancelTick: (() => void) | null = null;
  #stats = { shipped: 0, torn: 0, corrupt: 0, rejected: 0, failures: 0 };

  constructor(options: ShipperOptions) {
    this.#dir = options.dir;
    this.#journal = options.journal;
    this.#sink = options.sink;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#everyMs = options.everyMs ?? 200;
    this.#batch = options.batch ?? 1000;
    this.#onDemand = options.onDemand ?? false;
    this.#kick();
  }

  get stats(): ShipperStats {
    return this.#stats;
  }

  wake(): void {
    if (this.#closed || this.#running !== null || this.#cancelTick !== null) return;
    this.#cancelTick = this.#clock.after(this.#everyMs, () => this.#kick());
  }

  drain(): Promise<void> {
    if (this.#closed) return Promise.reject(new Error('the journal shipper is closed'));
    this.#journal.flush();
    const target = this.#journal.tail();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ target, resolve, reject });
      this.#kick();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTick?.();
    this.#wake?.();
    await this.#running;
    await this.#closeFile();
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Error('the journal shipper was closed'));
  }

  #kick(): void {
    if (this.#closed) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#cancelTick?.();
    this.#cancelTick = null;
    this.#running = this.#run().finally(() => {
      this.#running = null;
      if (this.#closed) return;
      if (this.#again) {
        this.#again = false;
        this.#kick();
      } else if (!this.#onDemand || this.#journal.depth() > 0) {
        this.wake();
      }
    });
  }

  async #run(): Promise<void> {
    try {
      this.#at ??= await this.#start();
      while (this.#at && !this.#closed && (await this.#step(this.#at))) {
        this.#settle();
        // Not once per segment: a backlog of many small ones costs the sink one sync for several.
        if (this.#finished.length >= 4) await this.#clean();
      }
      this.#settle();
      await this.#clean();
    } catch (error) {
      // Reading failed; the position has not moved, so the next look tries the same bytes again.
      if (this.#readFailures++ === 0) {
        this.#log.error('journal could not be read', { error, segment: this.#at?.segment });
      }
      await this.#closeFile().catch(() => undefined);
      await this.#pause(this.#readFailures);
    }
    this.#settle();
  }

  #settle(): void {
    const at = this.#at;
    if (!at || this.#waiters.length === 0) return;
    this.#waiters = this.#waiters.filter(({ target, resolve }) => {
      const reached = at.segment > target.segment || (at.segment === target.segment && at.offset >= target.offset);
      if (reached) resolve();
      return !reached;
    });
  }

  /** Where to go on: the sink's position, checked against the files that are really there. */
  async #start(): Promise<{ segment: string; offset: number } | null> {
    const stored = await this.#untilItWorks('position', () => this.#sink.position(this.#journal.name));
    if (stored === undefined) return null;
    const segments = this.#journal.segments();
    const first = segments[0];
    if (!first) return null;
    if (!stored) return { segment: first.name, offset: 0 };
    const found = segments.find((segment) => segment.name >= stored.segment);
    if (!found || (found.name === stored.segment && stored.offset > found.size)) {
      // The files are older than the sink (a restored backup): records it knows already are skipped by it.
      this.#log.warn('journal files are older than the log store, all of them are shipped again', { ...stored });
      return { segment: first.name, offset: 0 };
    }
    for (const segment of segments) {
      if (segment.name >= found.name) break;
      this.#journal.shippedTo({ segment: segment.name, offset: segment.size });
      this.#finished.push(segment.name);
    }
    this.#journal.shippedTo(stored);
    return { segment: found.name, offset: found.name === stored.segment ? stored.offset : 0 };
  }

  /** Ships one batch or moves to the next segment. False when there is nothing more for now. */
  async #step(at: { segment: string; offset: number }): Promise<boolean> {
    const segments = this.#journal.segments();
    const index = segments.findIndex((segment) => segment.name === at.segment);
    const segment = segments[index];
    const next = segments[index < 0 ? 0 : index + 1];
    if (segment && at.offset < segment.size) {
      const { batch, end } = await this.#read(segment, at.offset).catch((error: unknown) => {
        if (errorCode(error) !== 'ENOENT' || segment.live) throw error;
        this.#stats.corrupt++;
        this.#log.error('journal segment was removed by somebody else, its records are lost', {
          segment: segment.name,
        });
        return {
          batch: { segment: segment.name, start: at.offset, bytes: NO_LINES, cuts: [], ends: [] },
          end: segment.size,
        };
      });
      this.#readFailures = 0;
      if (batch.ends.length > 0 && !(await this.#deliver(batch))) return false;
      at.offset = end;
      this.#journal.shippedTo(at);
      return true;
    }
    if (!next || segment?.live) return false;
    await this.#closeFile();
    at.segment = next.name;
    at.offset = 0;
    if (segment) this.#finished.push(segment.name);
    return true;
  }

  /** Removes finished segments once the sink has what was in them for good. */
  async #clean(): Promise<void> {
    if (this.#finished.length === 0 || this.#closed) return;
    try {
      if (this.#sink.settle && !(await this.#sink.settle())) return;
      for (const name of this.#finished.splice(0)) await this.#remove(name);
    } catch (error) {
      // They stay until the next look; the sink's own troubles show at the next insert.
      this.#log.debug('the log store could not settle', { error });
    }
  }

  async #read(segment: SegmentInfo, from: number): Promise<{ batch: Batch; end: number }> {
    const length = Math.min(this.#buffer.length, segment.size - from);
    const handle = await this.#open(segment.name);
    const { bytesRead } = await handle.read(this.#buffer, 0, length, from);
    const buffer = this.#buffer;
    const bytes = Buffer.allocUnsafeSlow(bytesRead);
    let used = 0;
    const cuts: number[] = [];
    const ends: number[] = [];
    let at = 0;
    for (let seen = 0; ends.length < this.#batch; seen++) {
      if (seen > 0 && seen % SLICE === 0) await new Promise((resolve) => setImmediate(resolve));
      const feed = buffer.indexOf(LINE_FEED, at);
      // Past `bytesRead` the buffer holds what an earlier read left there.
      if (feed < 0 || feed >= bytesRead) break;
      const start = at;
      at = feed + 1;
      const copied = copyRecord(buffer, start, feed, bytes, used);
      if (copied >= 0) {
        used = copied;
        cuts.push(used);
        ends.push(from + at);
      } else if (!segment.live && from + at === segment.size) {
        this.#stats.torn++;
      } else {
        this.#stats.corrupt++;
        this.#log.error('journal line is damaged and skipped', { segment: segment.name, end: from + at });
      }
    }
    const batch: Batch = { segment: segment.name, start: from, bytes: bytes.subarray(0, used), cuts, ends };
    if (at > 0) return { batch, end: from + at };
    if (from + bytesRead >= segment.size || bytesRead === 0) {
      // No line feed up to the end: the process died while it wrote this line.
      this.#stats.torn++;
      return { batch, end: segment.size };
    }
    // One line fills the whole buffer; at most a segment, because a larger record has its own segment.
    this.#buffer = Buffer.allocUnsafeSlow(this.#buffer.length * 2);
    return { batch, end: from };
  }

  /** True when the batch is in the sink or set aside; false when the shipper was closed first. */
  async #deliver(batch: Batch): Promise<boolean> {
    const position: JournalPosition = { segment: batch.segment, offset: batch.ends.at(-1) ?? batch.start };
    const patience = batch.ends.length > 1 ? PATIENCE : 2 * PATIENCE;
    for (let failures = 0; ; ) {
      if (this.#closed) return false;
      try {
        // After a failure the insert may have been committed and only the answer lost.
        if (failures > 0 && (await this.#alreadyThere(position))) break;
        await this.#sink.insert(this.#journal.name, batch.bytes, position);
        break;
      } catch (error) {
        failures++;
        this.#complain('insert', error, batch.ends.length);
        const blamed = batch.ends.length > 1 || !isStoreAway(error);
        if (failures >= patience && blamed && (await this.#takesWrites(batch))) return await this.#isolate(batch);
        await this.#pause(failures);
      }
    }
    this.#recovered();
    this.#stats.shipped += batch.ends.length;
    return true;
  }

  /** A sink that is up but refuses a batch: halves are tried, and a record refused alone is set aside. */
  async #isolate(batch: Batch): Promise<boolean> {
    const { segment, start, bytes, cuts, ends } = batch;
    if (ends.length > 1) {
      const middle = ends.length >> 1;
      const split = ends[middle - 1] ?? start;
      const cut = cuts[middle - 1] ?? 0;
      const first = {
        segment,
        start,
        bytes: bytes.subarray(0, cut),
        cuts: cuts.slice(0, middle),
        ends: ends.slice(0, middle),
      };
      const second = {
        segment,
        start: split,
        bytes: bytes.subarray(cut),
        cuts: cuts.slice(middle).map((end) => end - cut),
        ends: ends.slice(middle),
      };
      return (await this.#deliver(first)) && (await this.#deliver(second));
    }
    const handle = await open(join(this.#dir, 'rejected.jsonl'), 'a', 0o600);
    try {
      await handle.writeFile(bytes);
      await handle.datasync();
    } finally {
      await handle.close();
    }
    this.#stats.rejected++;
    this.#log.error('the log store refuses a record, it was moved to rejected.jsonl', { segment, start });
    return true;
  }

  async #alreadyThere(position: JournalPosition): Promise<boolean> {
    const stored = await this.#sink.position(this.#journal.name);
    return stored !== null && stored.segment === position.segment && stored.offset === position.offset;
  }

  /** Writing the position alone works, so it is the records that are refused, not a full or read-only store. */
  async #takesWrites(batch: Batch): Promise<boolean> {
    try {
      await this.#sink.insert(this.#journal.name, NO_LINES, { segment: batch.segment, offset: batch.start });
      return true;
    } catch {
      return false;
    }
  }

  /** Undefined when the shipper was closed first. */
  async #untilItWorks<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
    for (let failures = 1; !this.#closed; failures++) {
      try {
        const result = await call();
        this.#recovered();
        return result;
      } catch (error) {
        this.#complain(what, error, 0);
        await this.#pause(failures);
      }
    }
    return undefined;
  }

  #complain(what: string, error: unknown, records: number): void {
    // One line when it begins; the growing backlog is visible as the journal's depth.
    if (this.#stats.failures++ === 0) {
      this.#log.warn('the log store does not take records, they stay in the journal', { what, error, records });
    }
  }

  #recovered(): void {
    if (this.#stats.failures > 0) this.#log.info('the log store takes records again');
    this.#stats.failures = 0;
  }

  /** Exponential back-off with jitter; ends early on close. */
  #pause(failures: number): Promise<void> {
    const ceiling = Math.min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** Math.min(failures - 1, 10));
    return new Promise((resolve) => {
      const cancel = this.#clock.after(randomInt(ceiling / 2, ceiling + 1), resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
      if (this.#closed) this.#wake();
    });
  }

  async #open(name: string): Promise<FileHandle> {
    if (this.#file?.name === name) return this.#file.handle;
    await this.#closeFile();
    const handle = await open(join(this.#dir, name), 'r');
    this.#file = { name, handle };
    return handle;
  }

  async #closeFile(): Promise<void> {
    const file = this.#file;
    this.#file = null;
    await file?.handle.close();
  }

  async #remove(name: string): Promise<void> {
    this.#journal.release(name);
    await unlink(join(this.#dir, name)).catch((error: unknown) => {
      // Left behind it costs space only: the next start finds it before the stored position and tries again.
      if (errorCode(error) !== 'ENOENT')
        this.#log.warn('shipped journal segment could not be removed', { error, name });
    });
  }
}

/** Begins shipping at once: first what earlier starts left, then what is appended. */
export function startShipper(options: ShipperOptions): Shipper {
  return new JournalShipper(options);
}
