/**
 * The log keeper: turns journals into Parquet files by day, and answers questions over the files and the newest records, which
 * are in none. It holds no truth: journals and the list of files survive whatever kills it, and a new one goes on there.
 */
import { mkdir, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../store/disk/files.ts';
import type { LogCoverage } from '../telemetry/log-query.ts';
import type { LogFile, LogPosition } from './catalog.ts';
import { NO_CHANGE, UNFINISHED } from './catalog.ts';
import { type Connection, literal, rowsOf } from './engine.ts';
import { JournalReader, journalsIn } from './journal-reader.ts';
import type { KeeperOptions, KeeperState } from './keeper-options.ts';
import { byDay, MERGE_FILES, someOf } from './merge-plan.ts';
import { type RowsThatStay, writeParquet } from './parquet-file.ts';
import { Pins } from './pins.ts';
import { type Pinned, relationOf } from './queries.ts';
import { Sender } from './remote-file-sender.ts';
import { SharedFiles } from './shared-files.ts';
import { SharedMerge } from './shared-merge.ts';
import { LogTail } from './tail.ts';

const FLUSH_RECORDS = 200_000;
const FLUSH_BYTES = 64 << 20;
const FLUSH_MS = 60_000;
/** Where files go elsewhere: so few records, or so long, until they are sent. */
const SENT_RECORDS = 10_000;
const SENT_MS = 5_000;
/** Questions in the meantime send none. */
const SETTLED_MS = 1_000;
/** Files that could not be sent take so much of the disk; then records stay in the journals, which have a bound. */
const MOST_WAITING_BYTES = 1 << 30;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** A record that may be recorded again is of the last days. */
const KNOWN_MS = 2 * DAY_MS;
/** A question waits no longer than this for what is not read yet. */
const PATIENCE_MS = 2_000;
const ENDING = '.parquet';
/** Under its name, or on the way to it. */
const A_FILE = /^[0-9a-f-]{36}\.(?:parquet|unfinished)$/;
/**
 * Bytes that become rows at once: each time costs 30 ms, whatever their number. They begin small, so that a keeper that dies over
 * and over, or has little room on the disk, gets on all the same.
 */
const FIRST_BATCH_BYTES = 1 << 20;
const MOST_BATCH_BYTES = 32 << 20;

export class Keeper {
  readonly #options: Required<KeeperOptions>;
  readonly #shared: SharedFiles | null;
  readonly #connection: Connection;
  readonly #readers = new Map<string, JournalReader>();
  /** Where each journal is read from after a restart. */
  readonly #kept = new Map<string, LogPosition>();
  #files: LogFile[] = [];
  #tail: LogTail;
  /** What is being written to a file: still asked, not added to. */
  #leaving: LogTail | null = null;
  readonly #pins: Pins;
  #work: Promise<unknown> = Promise.resolve();
  #reading: Promise<void> | null = null;
  /** The one behind it. */
  #nextReading: Promise<void> | null = null;
  #completeTo = 0;
  /** Records that were read by then are in files. */
  #flushedTo = 0;
  /** Null: files stay here. */
  readonly #sender: Sender | null;
  #settling: Promise<unknown> = Promise.resolve();
  #settledAt = Number.NEGATIVE_INFINITY;
  #delivering: Promise<void> | null = null;
  readonly #sharedMerge: SharedMerge | null;
  /** Files of the blob store whose bytes on this disk could not be read once. */
  readonly #suspects = new Set<string>();
  #damagedLines = 0;
  #batchBytes = FIRST_BATCH_BYTES;
  /** The last number of each process's sequence that is in files. */
  readonly #sequences = new Map<string, number>();
  #rejected = 0;

  private constructor(options: Required<KeeperOptions>, connection: Connection, tail: LogTail) {
    this.#options = options;
    this.#pins = new Pins(options.log);
    const { shared, node, dir, clock, log } = options;
    this.#shared =
      shared &&
      new SharedFiles({
        ...shared,
        node,
        clock,
        log,
        pathOf: (id) => this.#pathOf(id),
        unfinishedOf: (id) => join(dir, id + UNFINISHED),
        isPinned: (id) => this.#pins.has(id),
      });
    this.#sharedMerge =
      shared &&
      this.#shared &&
      new SharedMerge({
        files: this.#shared,
        store: shared.store,
        engine: options.engine,
        hold: (ids) => this.#pins.hold(ids),
        write: (rows, day, level, connection) => this.#write(rows, day, level, connection),
        replace: (old, add) => this.#serial(async () => void (await this.#replace(old, add))),
        pathOf: (id) => this.#pathOf(id),
        clock,
        log,
      });
    this.#connection = connection;
    this.#tail = tail;
    this.#sender =
      options.elsewhere &&
      new Sender({
        elsewhere: options.elsewhere,
        files: () => this.#files.filter(({ damaged }) => !damaged),
        pathOf: (id) => this.#pathOf(id),
        sent: (file) => this.#serial(async () => void (await this.#replace([file], []))),
        failed: () => this.findDamaged(),
      });
  }

  /** Reads the list of files and removes what an earlier keeper left unfinished. */
  static async open(options: KeeperOptions): Promise<Keeper> {
    const all = {
      flushBytes: FLUSH_BYTES,
      elsewhere: null,
      shared: null,
      onRepeated: () => undefined,
      ...(options.elsewhere
        ? { flushRecords: SENT_RECORDS, flushMs: SENT_MS }
        : { flushRecords: FLUSH_RECORDS, flushMs: FLUSH_MS }),
      ...options,
    };
    await mkdir(all.dir, { recursive: true, mode: 0o700 });
    const connection = await all.engine.connect();
    const keeper = new Keeper(all, connection, await LogTail.make(connection, all.dir));
    const { files, positions } = await all.catalog.load();
    keeper.#files = [...files];
    for (const position of positions) keeper.#kept.set(position.journal, position);
    const known = new Set(files.map(({ id }) => id + ENDING));
    const there = await readdir(all.dir);
    for (const name of there) {
      const ours = name.endsWith(ENDING) || name.endsWith(UNFINISHED);
      if (ours && !known.has(name)) await unlink(join(all.dir, name));
    }
    for (const file of files) if (there.includes(file.id + ENDING)) keeper.#shared?.keep(file);
    return keeper;
  }

  get state(): KeeperState {
    return {
      tail: this.#tail.records + (this.#leaving?.records ?? 0),
      files: this.#files.length,
      waitingBytes: this.#files.reduce((sum, { bytes }) => sum + bytes, 0),
      damagedFiles: this.#files.filter(({ damaged }) => damaged).length,
      damagedLines: this.#damagedLines,
      rejected: this.#rejected,
    };
  }

  /** Reads what is written, and does what is due: a flush, a merge. Answers whether there was anything to do. */
  async tick(): Promise<boolean> {
    const before = this.#tail.records;
    await this.#read();
    const { clock } = this.#options;
    const since = this.#tail.since;
    if (since !== null && clock.now() - since >= this.#limits().flushMs) {
      await this.#flushNow();
      void this.#deliver();
      return true;
    }
    void this.#deliver();
    // Half a line of a process that was killed while it wrote must not wait here for ever.
    if (this.#tail.records === 0) await this.#serial(() => this.#flush());
    // A file is sent as it is: one that was made of it would be stored beside it.
    if (this.#sender !== null) void this.#sender.send().catch(() => undefined);
    else if (await this.#merge()) return true;
    return this.#tail.records !== before;
  }

  /** Everything that is written by now goes to files. */
  async flush(): Promise<void> {
    await this.#flushNow();
    await this.#delivering;
    await this.#deliver();
  }

  /** Resolves when nothing is under way beside the ticks: no upload, no merge. */
  async settled(): Promise<void> {
    await this.#delivering;
    await this.#sharedMerge?.settled();
  }

  async #flushNow(): Promise<void> {
    await this.#readNow();
    await this.#serial(() => this.#flush());
  }

  /** Files and tables with records of this range. Records that are written by now are among them, unless they are very many. */
  async pin(from: number, to: number): Promise<Pinned> {
    const { clock } = this.#options;
    const asked = clock.now();
    await Promise.race([this.#readNow(), new Promise<void>((resolve) => clock.after(PATIENCE_MS, resolve))]);
    const files = this.#files.filter(({ minTime, maxTime }) => maxTime >= from && minTime < to);
    const asWritten = this.#completeTo;
    let good = files.filter(({ damaged }) => !damaged);
    const tails = [this.#tail, this.#leaving].filter((tail) => tail !== null && tail.records > 0) as LogTail[];
    // An empty table: a relation needs at least one.
    if (tails.length === 0) tails.push(this.#tail);
    const names = [...good.map(({ id }) => id), ...tails.map(({ name }) => name)];
    const release = this.#pins.hold(names);
    const shared = this.#shared;
    let lacking: LogFile[] = [];
    if (shared !== null) {
      await shared.bring(good);
      lacking = good.filter(({ id }) => !shared.has(id));
      good = good.filter(({ id }) => shared.has(id));
    }
    const completeTo = Math.min(asked, asWritten);
    const coverage = shared?.coverage(from, to, completeTo, lacking) ?? { completeTo, incomplete: [] };
    const unread = files.filter(({ damaged }) => damaged);
    return {
      shared: shared !== null,
      files: good.map(({ id, minTime, maxTime, records }) => ({
        path: this.#pathOf(id),
        minTime,
        maxTime,
        rows: records,
      })),
      tails: tails.map(({ name }) => name),
      completeTo: coverage.completeTo,
      incomplete: [...unread.map(({ minTime, maxTime }) => ({ from: minTime, to: maxTime })), ...coverage.incomplete],
      release,
    };
  }

  /**
   * Sends what is written by now, unless that was done a moment ago, and waits for it a moment. Answers what is in the store
   * elsewhere then.
   */
  async settle(): Promise<LogCoverage> {
    const { clock } = this.#options;
    if (clock.now() - this.#settledAt >= SETTLED_MS) {
      this.#settledAt = clock.now();
      this.#settling = this.flush()
        .then(() => this.#sender?.send())
        .catch(() => undefined);
    }
    await Promise.race([this.#settling, new Promise<void>((resolve) => clock.after(PATIENCE_MS, resolve))]);
    return {
      completeTo: this.#flushedTo,
      incomplete: this.#files.map(({ minTime, maxTime }) => ({ from: minTime, to: maxTime })),
    };
  }

  /** A question failed: files that cannot be read are set aside. True when there were any. */
  async findDamaged(): Promise<boolean> {
    const damaged: string[] = [];
    const connection = await this.#options.engine.connect();
    let fetchedAgain = false;
    for (const { id, damaged: known, place } of this.#files) {
      if (known || (this.#shared !== null && !this.#shared.has(id))) continue;
      const sql = `SELECT count(*) FROM (SELECT * FROM read_parquet(${literal(this.#pathOf(id))}))`;
      const whole = await rowsOf(connection, { sql, values: [] }).then(
        () => true,
        () => false,
      );
      if (whole) continue;
      if (this.#shared === null || place === 'disk' || this.#suspects.has(id)) damaged.push(id);
      else {
        // The copy on this disk may be at fault: the next question brings another one.
        this.#suspects.add(id);
        this.#shared.forget(id);
        await unlink(this.#pathOf(id)).catch(() => undefined);
        fetchedAgain = true;
      }
    }
    connection.closeSync();
    if (damaged.length === 0) return fetchedAgain;
    this.#options.log.error('files of logs cannot be read and are left out of answers', { files: damaged });
    await this.#options.catalog.commit({ ...NO_CHANGE, damaged });
    this.#files = this.#files.map((file) => (damaged.includes(file.id) ? { ...file, damaged: true } : file));
    return true;
  }

  /** Removes the files whose records are all from before a time. Answers how many records went. */
  forgetBefore(time: number): Promise<number> {
    return this.#serial(async () => {
      const old = this.#files.filter((file) => file.maxTime < time && this.#mayReplace(file));
      if (old.length === 0 || (this.#shared !== null && !(await this.#shared.lead()))) return 0;
      await this.#replace(old, []);
      return old.reduce((sum, { records }) => sum + records, 0);
    });
  }

  /** Writes files anew that have records of before a time, one after the other. Resolves when the former ones are gone. */
  async rewrite(before: number, rest: RowsThatStay): Promise<void> {
    const seen = new Set<string>();
    const gone: Promise<void>[] = [];
    for (;;) {
      const next = this.#files.find(({ id, minTime, damaged }) => !damaged && minTime < before && !seen.has(id));
      if (next === undefined) return void (await Promise.all(gone));
      await this.#serial(async () => {
        seen.add(next.id);
        if (!this.#files.includes(next)) return;
        const rows = await rest(this.#connection, relationOf([{ path: this.#pathOf(next.id) }], []));
        if (rows === null) return;
        const written = await this.#write(rows, next.day, next.level);
        if (written.records === 0) await unlink(this.#pathOf(written.id));
        gone.push(...(await this.#replace([next], written.records === 0 ? [] : [written])));
      });
    }
  }

  /** The same of files in the blob store, for all nodes; those that wait on the disk of their node stay as they are. */
  async rewriteShared(before: number, rest: RowsThatStay): Promise<void> {
    await this.#sharedMerge?.rewrite(async () => {
      await this.#serial(() => this.#readNews(true));
      return this.#files.filter(({ place, damaged, minTime }) => place === 'store' && !damaged && minTime < before);
    }, rest);
  }

  /** Whether this disk has no file that is in the list no more, and none that is being written. */
  async isClear(): Promise<boolean> {
    await this.#serial(() => this.#readNews(true));
    const listed = new Set(this.#files.map(({ id }) => id + ENDING));
    return (await readdir(this.#options.dir)).every((name) => !A_FILE.test(name) || listed.has(name));
  }

  async close(): Promise<void> {
    await this.#work.catch(() => undefined);
    await this.settled();
    this.#connection.closeSync();
  }

  /** Numbers of a process's sequence that are in no record, of what has been written since the start. */
  async #countGaps(tail: LogTail): Promise<void> {
    for (const { node, first, last, records } of await tail.sequences()) {
      const before = this.#sequences.get(node);
      const missing = last - first + 1 - records + (before === undefined ? 0 : first - before - 1);
      if (missing > 0) {
        this.#options.onGap(missing);
        this.#options.log.error('records of requests are missing', { node, missing, before: first });
      }
      if (last > 1) this.#sequences.set(node, last);
    }
  }

  /** While the store elsewhere is away, files are few and large. */
  #limits(): { readonly flushRecords: number; readonly flushMs: number } {
    const { flushRecords, flushMs } = this.#options;
    if (this.#sender === null || !this.#sender.isAway) return { flushRecords, flushMs };
    return { flushRecords: Math.max(flushRecords, FLUSH_RECORDS), flushMs: Math.max(flushMs, FLUSH_MS) };
  }

  /** Only one thing at a time changes files or tables. */
  #serial<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#work.then(work, work);
    this.#work = next.catch(() => undefined);
    return next;
  }

  #read(): Promise<void> {
    this.#reading ??= this.#serial(() => this.#readAll()).finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  /** Reads everything that is written by now: a reading under way may have passed some of it. */
  #readNow(): Promise<void> {
    if (this.#reading === null) return this.#read();
    this.#nextReading ??= this.#reading
      .catch(() => undefined)
      .then(() => {
        this.#nextReading = null;
        return this.#read();
      });
    return this.#nextReading;
  }

  async #readAll(): Promise<void> {
    const { spool, flushBytes, clock, log } = this.#options;
    const began = clock.now();
    if (this.#sender !== null && this.state.waitingBytes >= MOST_WAITING_BYTES) return;
    await this.#readNews();
    for (const found of await journalsIn(spool)) {
      const { journal } = found;
      const reader = this.#readers.get(journal) ?? new JournalReader(found, this.#kept.get(journal) ?? null);
      this.#readers.set(journal, reader);
      for (;;) {
        const batch = await this.#addBatch(reader, began);
        if (batch === null) break;
        const { damaged, rejected } = batch;
        if (damaged > 0) {
          this.#damagedLines += damaged;
          log.error('journal lines are damaged and skipped', { journal, lines: damaged });
        }
        if (rejected > 0) {
          this.#rejected += rejected;
          log.error('records do not have the form of a record, they were moved to rejected.ndjson', {
            records: rejected,
          });
        }
        if (this.#tail.records >= this.#limits().flushRecords || this.#tail.bytes >= flushBytes) await this.#flush();
      }
    }
    this.#completeTo = began;
    if (this.#tail.records === 0) this.#flushedTo = began;
  }

  /** What other nodes have changed in the list. Without an answer of the control store it stays as it was, or this rejects. */
  async #readNews(must = false): Promise<void> {
    const shared = this.#shared;
    if (shared === null) return;
    try {
      const apply = await shared.news(must);
      if (apply === null) return;
      const before = this.#files;
      this.#files = apply(before);
      const listed = new Set(this.#files.map(({ id }) => id));
      for (const { id } of before) if (!listed.has(id)) this.#leave(id);
    } catch (error) {
      if (must) throw error;
      this.#options.log.debug('the list of log files could not be read', { error });
    }
  }

  /** Files in which a record may be that is recorded again: those of all nodes are brought first. */
  async #known(): Promise<string> {
    const since = this.#options.clock.now() - KNOWN_MS;
    await this.#shared?.bring(this.#files.filter(({ maxTime, damaged }) => !damaged && maxTime >= since));
    return relationOf(this.#goodFiles(), []);
  }

  /** Gives what this node has written to all; a turn at a time. */
  #deliver(): Promise<void> {
    const shared = this.#shared;
    if (shared === null) return Promise.resolve();
    if (this.#delivering !== null) return this.#delivering;
    const own = this.#files.filter(({ place, node }) => place === 'disk' && node === this.#options.node);
    const given = (id: string) => {
      this.#files = this.#files.map((file) => (file.id === id ? { ...file, place: 'store' } : file));
    };
    this.#delivering = shared.deliver(own, this.#flushedTo, given).finally(() => {
      this.#delivering = null;
    });
    return this.#delivering;
  }

  /** What another node has on its own disk is for that node. */
  #mayReplace({ place, node }: LogFile): boolean {
    return this.#shared === null || place === 'store' || node === this.#options.node;
  }

  /** Reads lines into the tail; null when there are none. What fails on the way to it is read again: a flush must not pass it. */
  async #addBatch(reader: JournalReader, now: number): Promise<{ damaged: number; rejected: number } | null> {
    const before = reader.position;
    try {
      const chunk = await reader.batch(this.#batchBytes);
      if (chunk === null) return null;
      const { damaged, records } = chunk;
      const rejected = records === 0 ? 0 : await this.#tail.add(chunk, () => this.#known(), now);
      const repeated = this.#tail.takeRepeated();
      if (repeated.length > 0) this.#options.onRepeated(repeated);
      this.#batchBytes = Math.min(this.#batchBytes * 2, MOST_BATCH_BYTES);
      return { damaged, rejected };
    } catch (error) {
      reader.back(before);
      this.#batchBytes = FIRST_BATCH_BYTES;
      throw error;
    }
  }

  /** The tail becomes a file of each day it has records of. Files and places in the journals are noted at once. */
  async #flush(): Promise<void> {
    const tail = this.#tail;
    const readTo = this.#completeTo;
    const moved = [...this.#readers.values()].flatMap(({ journal, position }) => {
      const from = this.#kept.get(journal) ?? null;
      if (position === null || (from?.segment === position.segment && from.offset === position.offset)) return [];
      return [{ from, to: position }];
    });
    if (tail.records === 0 && moved.length === 0) {
      this.#flushedTo = readTo;
      return;
    }
    if (this.#shared?.isFull) throw new Error('log files that no other node can read yet have reached their limit');
    this.#leaving = tail;
    this.#tail = await LogTail.make(this.#connection, this.#options.dir);
    try {
      const add: LogFile[] = [];
      for (const day of await tail.days()) {
        add.push(await this.#write(`SELECT * FROM ${tail.name} WHERE "time" // ${DAY_MS} = ${day}`, day, 0));
      }
      const hours = await tail.hours();
      await this.#options.catalog.commit({ ...NO_CHANGE, add, moved, hours });
      await this.#countGaps(tail);
      this.#files = [...this.#files, ...add];
      for (const file of add) this.#shared?.keep(file);
      this.#leaving = null;
      this.#flushedTo = readTo;
    } catch (error) {
      // The records are in the journal still, and in the table: the next flush takes both.
      await this.#tail.takeBack(tail);
      this.#leaving = null;
      throw error;
    } finally {
      void this.#pins.remove(tail.name, () => tail.drop());
    }
    for (const { to } of moved) this.#kept.set(to.journal, to);
    for (const { to } of moved) {
      const reader = this.#readers.get(to.journal);
      if (reader !== undefined && reader.worker > this.#options.workers) await reader.abandon(to);
    }
  }

  async #write(rows: string, day: number, level: number, connection = this.#connection): Promise<LogFile> {
    const { dir, newId } = this.#options;
    const id = newId();
    const facts = await writeParquet(connection, rows, join(dir, id + UNFINISHED), this.#pathOf(id));
    await syncDirectory(dir);
    return {
      id,
      day,
      level,
      ...facts,
      damaged: false,
      node: this.#options.node,
      place: 'disk',
    };
  }

  /** Makes one file of many of a day: when there are eight, or the day has been over for an hour. */
  #merge(): Promise<boolean> {
    if (this.#sharedMerge !== null) return Promise.resolve(this.#sharedMerge.begin(this.#files));
    return this.#serial(async () => {
      const now = this.#options.clock.now();
      for (const [day, files] of byDay(this.#files)) {
        const small = someOf(files);
        const over = now >= (day + 1) * DAY_MS + HOUR_MS;
        if (small.length < 2 || (small.length < MERGE_FILES && !over)) continue;
        const paths = small.map(({ id }) => ({ path: this.#pathOf(id) }));
        const merged = await this.#write(`SELECT * FROM ${relationOf(paths, [])}`, day, 1);
        await this.#replace(small, [merged]);
        return true;
      }
      return false;
    });
  }

  /** Answers when each of the former files is gone: a question may read it still. */
  async #replace(old: readonly LogFile[], add: readonly LogFile[]): Promise<Promise<void>[]> {
    const remove = old.map(({ id }) => id);
    await this.#options.catalog.commit({ ...NO_CHANGE, add, remove });
    this.#files = [...this.#files.filter(({ id }) => !remove.includes(id)), ...add];
    for (const file of add) this.#shared?.keep(file);
    return remove.map((id) => this.#leave(id));
  }

  /** A file that is in the list no more goes once no question reads it. */
  async #leave(id: string): Promise<void> {
    if (this.#shared !== null && !this.#shared.has(id)) return;
    await this.#pins.remove(id, () => {
      this.#shared?.forget(id);
      return unlink(this.#pathOf(id));
    });
  }

  #goodFiles(): { path: string }[] {
    const shared = this.#shared;
    const there = this.#files.filter(({ id, damaged }) => !damaged && (shared === null || shared.has(id)));
    return there.map(({ id }) => ({ path: this.#pathOf(id) }));
  }

  #pathOf(id: string): string {
    return join(this.#options.dir, id + ENDING);
  }
}
