/**
 * The second journal: what is kept of bodies, on its way to the log keeper. Unlike records, bodies may be lost: they are dropped
 * first when the disk has no room, and no answer waits for them. Each write is sealed with a key of its segment.
 */
import { type FileHandle, mkdir, open, readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import { SEALED_MORE, sealBytes } from '../../kernel/sealed-bytes.ts';
import { readOrCreate } from './files.ts';

export interface SegmentKey {
  /** Names the key, and tells nothing of it. */
  readonly id: string;
  /** 32 bytes. */
  readonly key: Buffer;
}

export interface BodyJournalOptions {
  /** Directory of this journal alone; made with the first frame. */
  readonly dir: string;
  readonly clock: Clock;
  readonly log: Log;
  /** The key of a segment, by the name of the journal and of the segment. */
  readonly keyOf: (journal: string, segment: string) => SegmentKey;
  /** Bytes on the disk, above which frames are dropped. */
  readonly maxBytes?: number;
  readonly segmentBytes?: number;
  /** Bytes in memory that wait for the disk, above which frames are dropped. */
  readonly holdBytes?: number;
  /** Free bytes of the disk below which frames are dropped. */
  readonly reserveBytes?: number;
}

/** `<milliseconds since the epoch>.bodies`, so that no name comes again; its first line says which key opens it. */
const SEGMENT = /^(\d{15})\.bodies$/;
/** Sealed and written at once. */
const GROUP_BYTES = 1 << 20;
/** How often the room is looked at while frames come. */
const LOOK_MS = 2_000;
/** A segment that nothing was added to for so long gets nothing more: its reader may remove it. */
const RETIRE_MS = 60_000;
/** And no segment is written to for longer than this: what is erased is to be gone from the journal as well. */
const RENEW_MS = 600_000;
const LENGTH_BYTES = 4;
/** A group of no bytes: the segment ends here, and its reader may remove it. */
const END = Buffer.alloc(LENGTH_BYTES);

interface LiveSegment {
  readonly file: FileHandle;
  readonly segment: string;
  readonly key: Buffer;
  /** Of the clock that never goes back. */
  readonly since: number;
  size: number;
}

export class BodyJournal implements Closable {
  readonly #options: Required<BodyJournalOptions>;
  /** Plain groups that wait, oldest first; the last one is added to. */
  #groups: { bytes: Buffer; used: number }[] = [];
  #waiting = 0;
  #spare: Buffer | null = null;
  #running: Promise<void> | null = null;
  #scheduled = false;
  #name: string | null = null;
  #live: LiveSegment | null = null;
  #next = 1;
  /** On the disk, as far as is known. */
  #depth = 0;
  #noRoom = false;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #dropped = 0;
  #cancelRetire: (() => void) | null = null;
  #closed = false;

  constructor(options: BodyJournalOptions) {
    this.#options = {
      maxBytes: 1 << 30,
      segmentBytes: 16 << 20,
      holdBytes: 32 << 20,
      reserveBytes: 256 << 20,
      ...options,
    };
  }

  /** Frames that were dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Bytes that wait for the disk. */
  get waiting(): number {
    return this.#waiting;
  }

  depth(): number {
    return this.#depth;
  }

  /** Copies a frame, which is its parts one behind the other. False where there is no room: it is dropped. */
  append(...frame: readonly Buffer[]): boolean {
    let bytes = 0;
    for (const part of frame) bytes += part.length;
    if (this.#closed || this.#noRoom || this.#waiting + bytes > this.#options.holdBytes) {
      this.#dropped += 1;
      this.#schedule();
      return false;
    }
    let group = this.#groups.at(-1);
    if (group === undefined || group.used + bytes > group.bytes.length) {
      group = { bytes: this.#take(bytes), used: 0 };
      this.#groups.push(group);
    }
    for (const part of frame) {
      part.copy(group.bytes, group.used);
      group.used += part.length;
    }
    this.#waiting += bytes;
    this.#schedule();
    return true;
  }

  /** Resolves when everything that was added by now is written, or given up. */
  async flush(): Promise<void> {
    do {
      this.#write();
      await this.#running;
    } while (this.#groups.length > 0 || this.#running !== null);
  }

  async close(): Promise<void> {
    await this.flush();
    this.#closed = true;
    await this.#retire();
  }

  #take(bytes: number): Buffer {
    const spare = this.#spare;
    if (spare === null || bytes > spare.length) return Buffer.allocUnsafeSlow(Math.max(bytes, GROUP_BYTES));
    this.#spare = null;
    return spare;
  }

  #schedule(): void {
    if (this.#scheduled || this.#running !== null) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#write();
    });
  }

  #write(): void {
    if (this.#running !== null) return;
    this.#running = this.#writeNext().finally(() => {
      this.#running = null;
      if (this.#groups.length > 0) this.#schedule();
    });
  }

  async #writeNext(): Promise<void> {
    const group = this.#groups.shift();
    try {
      await this.#look();
      if (group !== undefined) await this.#writeGroup(group.bytes.subarray(0, group.used));
    } catch (error) {
      this.#dropped += 1;
      if (!this.#noRoom) this.#options.log.warn('bodies of requests cannot be written, they are dropped', { error });
      this.#noRoom = true;
      await this.#retire();
    }
    if (group === undefined) return;
    this.#waiting -= group.used;
    if (group.bytes.length === GROUP_BYTES) this.#spare = group.bytes;
  }

  async #writeGroup(plain: Buffer): Promise<void> {
    if (this.#noRoom) {
      this.#dropped += 1;
      return;
    }
    const bytes = LENGTH_BYTES + plain.length + SEALED_MORE;
    if (this.#live !== null && this.#isOver(this.#live, bytes)) await this.#retire();
    const live = this.#live ?? (await this.#begin());
    this.#live = live;
    const length = Buffer.allocUnsafe(LENGTH_BYTES);
    length.writeUInt32LE(bytes - LENGTH_BYTES);
    const sealed = sealBytes(live.key, `${this.#name}/${live.segment}/${live.size}`, plain);
    const { bytesWritten } = await live.file.writev([length, ...sealed], live.size);
    if (bytesWritten !== bytes) throw new Error('the disk took a part of a write only');
    live.size += bytes;
    this.#depth += bytes;
    this.#cancelRetire?.();
    this.#cancelRetire = this.#options.clock.after(RETIRE_MS, () => {
      if (this.#running === null) this.#running = this.#retire().finally(() => this.#ran());
    });
  }

  #isOver({ size, since }: LiveSegment, more: number): boolean {
    const { segmentBytes, clock } = this.#options;
    return size + more > segmentBytes || clock.monotonic() - since >= RENEW_MS;
  }

  #ran(): void {
    this.#running = null;
    if (this.#groups.length > 0) this.#schedule();
  }

  async #begin(): Promise<LiveSegment> {
    const { dir, clock, keyOf } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    this.#name ??= (await readOrCreate(join(dir, 'journal-id'), () => `${uuidv7(clock)}\n`)).trim();
    this.#next = Math.max(this.#next, clock.now());
    for (const name of await readdir(dir)) this.#next = Math.max(this.#next, Number(SEGMENT.exec(name)?.[1] ?? 0) + 1);
    const segment = `${String(this.#next).padStart(15, '0')}.bodies`;
    const { id, key } = keyOf(this.#name, segment);
    const file = await open(join(dir, segment), 'wx', 0o600);
    this.#next += 1;
    const head = Buffer.from(`${JSON.stringify({ version: 1, key: id })}\n`);
    await file.write(head, 0, head.length, 0);
    return { file, segment, key, since: clock.monotonic(), size: head.length };
  }

  async #retire(): Promise<void> {
    this.#cancelRetire?.();
    this.#cancelRetire = null;
    const live = this.#live;
    this.#live = null;
    // Without it the reader waits until it is sure that nothing more comes.
    await live?.file.write(END, 0, END.length, live.size).catch(() => undefined);
    await live?.file.close().catch(() => undefined);
  }

  /** Looks at the disk now and then: others take from it, and the reader removes what it has read. */
  async #look(): Promise<void> {
    const { dir, clock, log, maxBytes, reserveBytes } = this.#options;
    if (clock.monotonic() - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = clock.monotonic();
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(dir);
    let depth = 0;
    for (const name of await readdir(dir)) {
      if (SEGMENT.test(name)) depth += (await stat(join(dir, name)).catch(() => ({ size: 0 }))).size;
    }
    this.#depth = depth;
    const noRoom = depth > maxBytes || bavail * bsize < reserveBytes;
    if (noRoom !== this.#noRoom) {
      if (noRoom) log.warn('no room for bodies of requests, they are dropped', { bytes: depth });
      else log.info('bodies of requests are kept again', { dropped: this.#dropped });
    }
    this.#noRoom = noRoom;
  }
}
