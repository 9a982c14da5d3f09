import * as nodeFs from 'node:fs';
import { mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { JournalPosition } from '../ports.ts';
import { errorCode, isDiskFull, readOrCreate, syncDirectory } from './files.ts';
import { OUTGOING, SEAL_BYTES, sealLine } from './journal-line.ts';

/** The system calls of the write path; tests hand in ones that fail. */
export type JournalIo = Pick<
  typeof nodeFs,
  'openSync' | 'writeSync' | 'ftruncateSync' | 'linkSync' | 'fdatasync' | 'close'
>;

export interface JournalOptions {
  /** Directory of this journal alone; made when missing. One process at a time (see `data-dir.ts`). */
  readonly dir: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Longest time between a write and its `fdatasync`, milliseconds. */
  readonly syncEveryMs?: number;
  /** A segment is closed and a new one started before it would grow past this. */
  readonly segmentBytes?: number;
  /** Above this many bytes not yet shipped, records are dropped and counted. The disk holds at most one segment more. */
  readonly maxBytes?: number;
  /** Bytes of records that are held in memory while the disk takes none; above it they are dropped and counted. */
  readonly holdBytes?: number;
  readonly io?: JournalIo;
}

export interface SegmentInfo {
  readonly name: string;
  /** Bytes of whole groups: a reader never looks past it, because what follows may still be taken back. */
  readonly size: number;
  /** True for the one segment that is still written to. */
  readonly live: boolean;
}

/**
 * Append-only files before the log store. A record whose `done` has run survives the death of the process at once
 * (it is in the kernel's page cache) and a power cut after at most `syncEveryMs` (`fdatasync`).
 *
 * One line per record, with its checksum as last member (`journal-line.ts`): a segment is a file of NDJSON. Every start begins a new
 * segment, so a line torn by a kill is only at the end of a segment that is not written to any more.
 */
export interface Journal extends Closable {
  /** Stable over restarts: the key of the reader's position in the sink. */
  readonly name: string;
  /** Records given up since the start: over `holdBytes` while the disk took none, or over `maxBytes`. */
  readonly dropped: number;
  /** Records in memory that the disk has not taken yet. A killed process loses them. */
  readonly held: number;
  /**
   * True from a failed write until one works, and while more than `maxBytes` wait. The disk is tried again by itself, so it
   * ends within `PROBE_MS` of there being room, also when nothing is appended.
   */
  readonly failing: boolean;
  /**
   * Queues a JSON object, which is `line` and `tail` one behind the other. It has at least one member, and no line breaks; anything
   * else throws TypeError. All lines of one event-loop turn become one `write`; then every `done` runs, also those of held and
   * dropped records. Never throws for reasons of the disk.
   */
  append(line: string, done: () => void, tail?: string): void;
  /** Bytes that are not in the sink yet. */
  depth(): number;
  /** Writes the queue now instead of at the end of the turn. */
  flush(): void;
  /** Writes the queue and waits until everything written so far is on disk. */
  sync(): Promise<void>;
  /** End of what is written. */
  tail(): JournalPosition;
  /** For the reader: oldest first, the live one last. */
  segments(): readonly SegmentInfo[];
  /** For the reader: everything before `position` is in the sink. */
  shippedTo(position: JournalPosition): void;
  /** For the reader: the segment is finished with and its file is gone or about to go. */
  release(segment: string): void;
  /** Begins another segment, unless the live one is empty: then the reader can let go of what is in it. */
  renew(): void;
}

interface Segment {
  readonly name: string;
  fd: number | null;
  size: number;
  shipped: number;
  synced: boolean;
}

/** `<number>.journal`, so names sort in the order of writing. */
const SEGMENT = /^(\d{12})\.journal$/;
const GROUP_BYTES = 1 << 20;
const SYNC_BYTES = 256 << 10;
/** After a failed write the disk is tried again no sooner than this, */
const RETRY_MS = 100;
/** and by itself this often, with as many bytes: room for one record alone would be gone at once. */
const PROBE_MS = 1_000;
/** Part of `maxBytes` that may still wait when records are taken again. */
const ROOM = 0.9;
const PROBE = Buffer.alloc(64 << 10);
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

class DiskJournal implements Journal {
  readonly name: string;
  readonly #dir: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #io: JournalIo;
  readonly #syncEveryMs: number;
  readonly #segmentBytes: number;
  readonly #maxBytes: number;
  readonly #holdBytes: number;

  #segments: Segment[];
  #retired: Segment[] = [];
  #live: Segment | null = null;
  #nextNumber: number;
  #depth = 0;

  #buffer = Buffer.allocUnsafeSlow(GROUP_BYTES);
  #used = 0;
  #queued = 0;
  #done: (() => void)[] = [];
  #scheduled = false;
  readonly #onImmediate = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  #dropped = 0;
  /** Groups that could not be written, oldest first. */
  #held: { readonly bytes: Buffer; readonly records: number }[] = [];
  #heldBytes = 0;
  #heldRecords = 0;
  /** The disk takes no bytes. */
  #broken = false;
  /** More than `maxBytes` wait for the sink. */
  #full = false;
  #retryAt = 0;
  #cancelProbe: (() => void) | null = null;
  #unsynced = 0;
  #directoryDirty = false;
  #cancelTimer: (() => void) | null = null;
  #syncing: Promise<void> | null = null;
  #closing: Promise<void> | null = null;

  constructor(options: Required<JournalOptions>, name: string, segments: Segment[], nextNumber: number) {
    this.name = name;
    this.#dir = options.dir;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#io = options.io;
    this.#syncEveryMs = options.syncEveryMs;
    this.#segmentBytes = options.segmentBytes;
    this.#maxBytes = options.maxBytes;
    this.#holdBytes = options.holdBytes;
    this.#segments = segments;
    this.#nextNumber = nextNumber;
    for (const segment of segments) this.#depth += segment.size;
  }

  get dropped(): number {
    return this.#dropped;
  }

  get held(): number {
    return this.#heldRecords;
  }

  get failing(): boolean {
    return this.#broken || this.#full;
  }

  depth(): number {
    return this.#depth;
  }

  append(line: string, done: () => void, tail = ''): void {
    if (line.includes('\n') || tail.includes('\n')) throw new TypeError('a journal line must not contain a line break');
    const text = tail === '' ? line : tail;
    if (line.charCodeAt(0) !== OPEN_BRACE || text.charCodeAt(text.length - 1) !== CLOSE_BRACE || line === '{}')
      throw new TypeError('a journal line must be a JSON object with members');
    this.#done.push(done);
    if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(this.#onImmediate);
    }
    if (this.#closing) {
      this.#dropped++;
      return;
    }
    // UTF-8 needs at most three bytes per UTF-16 unit.
    const room = (line.length + tail.length) * 3 + SEAL_BYTES;
    if (this.#used + room > this.#buffer.length) this.#makeRoom(room);
    const buffer = this.#buffer;
    const start = this.#used;
    let end = start + buffer.write(line, start);
    if (tail !== '') end += buffer.write(tail, end);
    const bytes = end + SEAL_BYTES - start;
    if (this.#depth + bytes > this.#maxBytes) {
      if (!this.#full) this.#log.warn('journal is full, records are dropped', { bytes: this.#depth });
      this.#full = true;
      this.#dropped++;
      return;
    }
    this.#used = sealLine(buffer, start, end);
    this.#queued++;
    this.#depth += bytes;
  }

  /** Writes what the buffer holds; a record larger than the whole buffer gets a larger buffer for this once. */
  #makeRoom(room: number): void {
    this.#writeGroup();
    if (room > this.#buffer.length) this.#buffer = Buffer.allocUnsafeSlow(room);
  }

  flush(): void {
    if (this.#used > 0) this.#writeGroup();
    if (this.#done.length === 0) return;
    const done = this.#done;
    this.#done = [];
    for (const callback of done) {
      try {
        callback();
      } catch (error) {
        this.#log.error('a journal callback failed', { error });
      }
    }
  }

  #writeGroup(): void {
    const bytes = this.#used;
    const records = this.#queued;
    const buffer = this.#buffer;
    this.#used = 0;
    this.#queued = 0;
    if (buffer.length > GROUP_BYTES) this.#buffer = Buffer.allocUnsafeSlow(GROUP_BYTES);
    if (bytes === 0) return;
    const written = this.#retryHeld() && this.#tryWrite(buffer, bytes);
    if (!written) this.#hold(buffer.subarray(0, bytes), records);
  }

  /** Keeps what the disk does not take, or gives it up above the bound. */
  #hold(group: Buffer, records: number): void {
    if (this.#heldBytes + group.length > this.#holdBytes) {
      this.#dropped += records;
      this.#depth -= group.length;
      return;
    }
    this.#held.push({ bytes: Buffer.from(group), records });
    this.#heldBytes += group.length;
    this.#heldRecords += records;
  }

  /** Writes what is held, in order. True when nothing is left. */
  #retryHeld(): boolean {
    for (let group = this.#held[0]; group !== undefined; group = this.#held[0]) {
      const { bytes, records } = group;
      if (!this.#tryWrite(bytes, bytes.length)) return false;
      this.#held.shift();
      this.#heldBytes -= bytes.length;
      this.#heldRecords -= records;
    }
    return true;
  }

  #tryWrite(buffer: Buffer, bytes: number): boolean {
    if (this.#broken && this.#clock.monotonic() < this.#retryAt) return false;
    let segment = this.#live;
    try {
      if (segment === null || (segment.size > 0 && segment.size + bytes > this.#segmentBytes)) {
        segment = this.#rotate();
      }
      const fd = segment.fd;
      if (fd === null) return false;
      this.#write(fd, buffer, bytes);
    } catch (error) {
      this.#failed(segment, error);
      return false;
    }
    segment.size += bytes;
    segment.synced = false;
    this.#works();
    this.#unsynced += bytes;
    this.#scheduleSync();
    return true;
  }

  #write(fd: number, buffer: Buffer, bytes: number): void {
    let at = 0;
    while (at < bytes) at += this.#io.writeSync(fd, buffer, at, bytes - at);
  }

  #works(): void {
    if (!this.#broken) return;
    this.#broken = false;
    this.#cancelProbe?.();
    this.#cancelProbe = null;
    this.#log.info('journal is writing again', { dropped: this.#dropped });
  }

  /** Tries the disk although nothing is appended: callers that are refused while it fails append nothing. */
  #probe(): void {
    this.#cancelProbe = null;
    if (!this.#broken || this.#closing) return;
    this.#retryAt = 0;
    if (this.#held.length > 0) this.#retryHeld();
    else this.#tryRoom();
    if (this.#broken) this.#scheduleProbe();
  }

  /** Bytes that are taken back at once: past the recorded size no reader sees them. */
  #tryRoom(): void {
    let segment = this.#live;
    try {
      segment ??= this.#rotate();
      const { fd, size } = segment;
      if (fd === null) return;
      this.#write(fd, PROBE, PROBE.length);
      this.#io.ftruncateSync(fd, size);
    } catch (error) {
      this.#failed(segment, error);
      return;
    }
    this.#works();
  }

  #scheduleProbe(): void {
    this.#cancelProbe ??= this.#clock.after(PROBE_MS, () => this.#probe());
  }

  /** Takes back the half of a group that reached the disk, so no reader takes it for a record that was kept. */
  #failed(segment: Segment | null, error: unknown): void {
    if (!this.#broken) this.#log.error('journal cannot write, records are held in memory', { error });
    this.#broken = true;
    this.#retryAt = this.#clock.monotonic() + RETRY_MS;
    this.#scheduleProbe();
    if (segment === null || segment.fd === null) return;
    try {
      this.#io.ftruncateSync(segment.fd, segment.size);
    } catch {
      // The torn bytes stay, but only at the end of a segment that is not written to again, past its recorded size.
      this.#live = null;
    }
  }

  /** Opens the next segment. Throws what the file system throws. */
  #rotate(): Segment {
    const name = `${String(this.#nextNumber).padStart(12, '0')}.journal`;
    const fd = this.#io.openSync(join(this.#dir, name), 'ax', 0o600);
    this.#nextNumber++;
    this.#directoryDirty = true;
    this.#linkOutgoing(name);
    const segment: Segment = { name, fd, size: 0, shipped: 0, synced: true };
    this.#segments.push(segment);
    this.#live = segment;
    return segment;
  }

  /** Before its first record: those that send records elsewhere find all of them under the second name. */
  #linkOutgoing(name: string): void {
    try {
      this.#io.linkSync(join(this.#dir, name), join(this.#dir, OUTGOING, name));
    } catch (error) {
      // Without the folder none are sent.
      if (errorCode(error) === 'ENOENT') return;
      this.#log.error('records of this journal segment are not sent elsewhere', { error, segment: name });
    }
  }

  /** The first segment of this start. A full disk is no reason not to start: it is tried again with the first record. */
  begin(): void {
    try {
      this.#rotate();
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      this.#failed(null, error);
    }
  }

  #scheduleSync(): void {
    if (this.#syncing) return;
    if (this.#unsynced >= SYNC_BYTES) {
      this.#startSync();
    } else if (this.#cancelTimer === null && this.#unsynced > 0) {
      this.#cancelTimer = this.#clock.after(this.#syncEveryMs, () => this.#startSync());
    }
  }

  #startSync(): Promise<void> {
    if (this.#syncing) return this.#syncing;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#unsynced = 0;
    this.#syncing = this.#syncAll().finally(() => {
      this.#syncing = null;
      if (!this.#closing) this.#scheduleSync();
    });
    return this.#syncing;
  }

  async #syncAll(): Promise<void> {
    if (this.#directoryDirty) {
      this.#directoryDirty = false;
      await syncDirectory(this.#dir).catch((error: unknown) => {
        this.#directoryDirty = true;
        this.#log.error('journal directory could not be synced', { error });
      });
    }
    for (const segment of [...this.#retired, ...this.#segments]) {
      const fd = segment.fd;
      if (fd === null) continue;
      const live = segment === this.#live;
      if (!segment.synced) {
        segment.synced = true;
        const error = await new Promise<Error | null>((resolve) => this.#io.fdatasync(fd, resolve));
        if (error) {
          this.#log.error('journal segment could not be synced', { error, segment: segment.name });
          // The kernel reports lost pages once only, so later records go to a file that has not lost any.
          if (segment === this.#live) this.#live = null;
        }
      }
      if (!live) {
        segment.fd = null;
        await new Promise<void>((resolve) => this.#io.close(fd, () => resolve()));
      }
    }
    this.#retired = this.#retired.filter((segment) => segment.fd !== null);
  }

  async sync(): Promise<void> {
    this.flush();
    // A sync already under way may have begun before the last write.
    if (this.#syncing) await this.#syncing;
    await this.#startSync();
  }

  tail(): JournalPosition {
    const last = this.#segments.at(-1);
    return last ? { segment: last.name, offset: last.size } : { segment: '', offset: 0 };
  }

  segments(): readonly SegmentInfo[] {
    return this.#segments.map((segment) => ({
      name: segment.name,
      size: segment.size,
      live: segment === this.#live,
    }));
  }

  shippedTo(position: JournalPosition): void {
    const segment = this.#segments.find((one) => one.name === position.segment);
    if (!segment || position.offset <= segment.shipped) return;
    const offset = Math.min(position.offset, segment.size);
    this.#depth -= offset - segment.shipped;
    segment.shipped = offset;
    this.#hasRoom();
  }

  release(name: string): void {
    const segment = this.#segments.find((one) => one.name === name);
    if (!segment || segment === this.#live) return;
    this.#depth -= segment.size - segment.shipped;
    this.#hasRoom();
    this.#segments = this.#segments.filter((one) => one !== segment);
    if (segment.fd === null) return;
    // A sync may be using the descriptor right now, so only a sync closes it.
    this.#retired.push(segment);
    if (!this.#closing) void this.#startSync();
  }

  renew(): void {
    if (this.#live === null || this.#live.size === 0 || this.#closing) return;
    try {
      this.#rotate();
    } catch (error) {
      this.#log.debug('a journal segment could not be begun, the one before is written on', { error });
      return;
    }
    void this.#startSync();
  }

  /** A record fits again, with some to spare: else each one shipped would let one in. */
  #hasRoom(): void {
    if (!this.#full || this.#depth > this.#maxBytes * ROOM) return;
    this.#full = false;
    this.#log.info('journal takes records again', { dropped: this.#dropped });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.sync();
    this.#cancelProbe?.();
    this.#retryAt = 0;
    if (!this.#retryHeld()) {
      this.#log.error('journal cannot write, records are lost', { records: this.#heldRecords });
      this.#dropped += this.#heldRecords;
      this.#cancelProbe?.();
    }
    this.#cancelTimer?.();
    this.#live = null;
    await this.#syncAll();
  }
}

/** Opens the journal in `dir` and begins a new segment. Throws when the directory cannot be used at all. */
export async function openJournal(options: JournalOptions): Promise<Journal> {
  const { dir, clock } = options;
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const name = (await readOrCreate(join(dir, 'journal-id'), () => `${uuidv7(clock)}\n`)).trim();
  if (!/^[\w-]{8,64}$/.test(name)) throw new Error(`${join(dir, 'journal-id')} does not hold a journal id`);
  const segments: Segment[] = [];
  let nextNumber = 1;
  for (const file of (await readdir(dir)).sort()) {
    const number = SEGMENT.exec(file)?.[1];
    if (number === undefined) continue;
    const { size } = await stat(join(dir, file));
    segments.push({ name: file, fd: null, size, shipped: 0, synced: true });
    nextNumber = Number(number) + 1;
  }
  const journal = new DiskJournal(
    {
      syncEveryMs: 50,
      segmentBytes: 16 << 20,
      maxBytes: 256 << 20,
      holdBytes: 32 << 20,
      io: nodeFs,
      ...options,
    },
    name,
    segments,
    nextNumber,
  );
  journal.begin();
  await syncDirectory(dir);
  return journal;
}
