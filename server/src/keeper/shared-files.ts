/**
 * The files of all nodes, as the keeper of one sees them. It brings those that are asked for to its own disk, where the engine
 * reads them, and gives away what this node has written. While the blob store is away, that waits here.
 */
import { rename, stat, unlink } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { LogCoverage } from '../telemetry/log-query.ts';
import type { LogFile, LogNode, SharedLogFiles } from './catalog.ts';

export interface SharedFilesOptions {
  readonly store: SharedLogFiles;
  /** Of this keeper. */
  readonly node: string;
  /** Where a file is on this disk, and where it is written until it is whole. */
  readonly pathOf: (id: string) => string;
  readonly unfinishedOf: (id: string) => string;
  /** Of all files on this disk. Those that no other node can read yet stay above it. */
  readonly cacheBytes: number;
  /** A question reads this file. */
  readonly isPinned: (id: string) => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

interface Here {
  readonly bytes: number;
  /** No other place has it. */
  readonly only: boolean;
}

/** A list that was read so long ago is read again for a question. */
const FRESH_MS = 500;
/** A question waits so long for files, which come even if it does not have them. */
const PATIENCE_MS = 8_000;
const AT_ONCE = 8;
/** After a failure the blob store is not asked for so long. */
const PAUSE_MS = 5_000;
const ANNOUNCE_MS = 2_000;
/** A node that has said nothing for so long is away, and one whose records are so old is late. */
const AWAY_MS = 15_000;
/** A node that cannot reach the control store serves no longer than this. */
const SERVES_MS = 10 * 60_000;
const LEAD_AGAIN_MS = 10_000;
/** Ranges so close to each other are said as one. */
const NEAR_MS = 60_000;

type Range = LogCoverage['incomplete'][number];

export class SharedFiles {
  readonly #options: SharedFilesOptions;
  /** The file that was asked for longest ago comes first. */
  readonly #here = new Map<string, Here>();
  readonly #coming = new Map<string, Promise<void>>();
  #bytes = 0;
  #bytesComing = 0;
  #nodes: readonly LogNode[] = [];
  #at: number | null = null;
  #readAt = Number.NEGATIVE_INFINITY;
  #pausedUntil = Number.NEGATIVE_INFINITY;
  #failing = false;
  #announcedAt = Number.NEGATIVE_INFINITY;
  #noLeadUntil = Number.NEGATIVE_INFINITY;

  constructor(options: SharedFilesOptions) {
    this.#options = options;
  }

  /** Files of this node alone have reached the limit: no further one may be made. */
  get isFull(): boolean {
    let bytes = 0;
    for (const here of this.#here.values()) if (here.only) bytes += here.bytes;
    return bytes >= this.#options.cacheBytes;
  }

  has(id: string): boolean {
    return this.#here.has(id);
  }

  /** The file is on this disk. */
  keep({ id, bytes, place }: Pick<LogFile, 'id' | 'bytes' | 'place'>): void {
    this.forget(id);
    this.#here.set(id, { bytes, only: place === 'disk' });
    this.#bytes += bytes;
  }

  /** The file is on this disk no more. */
  forget(id: string): void {
    this.#bytes -= this.#here.get(id)?.bytes ?? 0;
    this.#here.delete(id);
  }

  /**
   * What has changed in the list, to be applied to it; null: it was read just now. Rejects while the list cannot be read.
   *
   * @param again reads it in any case
   */
  async news(again = false): Promise<((files: readonly LogFile[]) => LogFile[]) | null> {
    const { store, clock } = this.#options;
    const asked = clock.now();
    if (!again && asked - this.#readAt < FRESH_MS) return null;
    const { partial, files, gone, nodes, at } = await store.news(this.#at);
    this.#at = at;
    this.#nodes = nodes;
    this.#readAt = asked;
    return (known) => {
      const all = new Map(partial ? known.map((file) => [file.id, file]) : []);
      for (const id of gone) all.delete(id);
      for (const file of files) all.set(file.id, file);
      return [...all.values()];
    };
  }

  /** Brings files to this disk, the newest first; resolves when they are there, or after some seconds. */
  async bring(files: readonly LogFile[]): Promise<void> {
    const missing: LogFile[] = [];
    for (const file of files) {
      const here = this.#here.get(file.id);
      if (here === undefined) {
        if (file.place === 'store') missing.push(file);
        continue;
      }
      this.#here.delete(file.id);
      this.#here.set(file.id, here);
    }
    if (missing.length === 0) return;
    missing.sort((one, other) => other.maxTime - one.maxTime);
    const turn = async () => {
      for (let file = missing.shift(); file !== undefined; file = missing.shift()) await this.#come(file);
    };
    const all = Promise.all(Array.from({ length: AT_ONCE }, turn));
    let cancel = () => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.#options.clock.after(PATIENCE_MS, resolve);
    });
    await Promise.race([all, late]);
    cancel();
  }

  /**
   * Gives files of this node to all, and tells how far its records are in them. Never rejects.
   *
   * @param completeTo all that was recorded before is in files, among them these
   * @param given called when a file is in the blob store
   */
  async deliver(own: readonly LogFile[], completeTo: number, given: (id: string) => void): Promise<void> {
    const { store, pathOf, clock, log } = this.#options;
    const all = own.length === 0 || (await this.#upload(own, pathOf, given));
    const now = clock.now();
    if (now - this.#announcedAt < ANNOUNCE_MS && !(all && own.length > 0)) return;
    try {
      await store.announce(all ? completeTo : null);
      this.#announcedAt = now;
    } catch (error) {
      log.debug('how far the records of this node are in files could not be written down', { error });
    }
  }

  /** Whether this node may replace files now. */
  async lead(): Promise<boolean> {
    const { store, clock } = this.#options;
    if (clock.now() < this.#noLeadUntil) return false;
    const leads = await store.lead();
    if (!leads) this.#noLeadUntil = clock.now() + LEAD_AGAIN_MS;
    return leads;
  }

  /**
   * What an answer of now lacks.
   *
   * @param completeTo up to when it has all of this node
   * @param lacking files of the range that are not on this disk
   */
  coverage(
    from: number,
    to: number,
    completeTo: number,
    lacking: readonly LogFile[],
  ): Pick<LogCoverage, 'completeTo' | 'incomplete'> {
    const now = this.#options.clock.now();
    let complete = completeTo;
    const ranges: Range[] = lacking.map(({ minTime, maxTime, place, node }) => {
      return { from: minTime, to: maxTime, ...(place === 'disk' ? { node } : {}) };
    });
    for (const { node, completeTo: until, seenAt } of this.#nodes) {
      if (node === this.#options.node) continue;
      const silent = now - seenAt >= AWAY_MS;
      if (!silent && now - until < AWAY_MS) {
        complete = Math.min(complete, until);
        continue;
      }
      const end = silent ? Math.min(now, seenAt + SERVES_MS) : now;
      if (until < to && end > from) ranges.push({ from: Math.max(from, until), to: Math.min(to, end), node });
    }
    return { completeTo: complete, incomplete: joined(ranges) };
  }

  async #upload(
    own: readonly LogFile[],
    pathOf: (id: string) => string,
    given: (id: string) => void,
  ): Promise<boolean> {
    const { store, clock } = this.#options;
    if (clock.now() < this.#pausedUntil) return false;
    try {
      for (const { id, bytes } of own) {
        await store.upload(id, pathOf(id));
        if (this.#here.has(id)) this.#here.set(id, { bytes, only: false });
        given(id);
      }
      this.#works();
      return true;
    } catch (error) {
      this.#fails(error);
      return false;
    }
  }

  #come(file: LogFile): Promise<void> {
    const { clock } = this.#options;
    if (this.#here.has(file.id) || clock.now() < this.#pausedUntil) return Promise.resolve();
    const coming =
      this.#coming.get(file.id) ??
      this.#download(file)
        .catch((error: unknown) => this.#fails(error))
        .finally(() => this.#coming.delete(file.id));
    this.#coming.set(file.id, coming);
    return coming;
  }

  async #download({ id, bytes }: LogFile): Promise<void> {
    const { store, pathOf, unfinishedOf, log } = this.#options;
    if (!(await this.#makeRoom(bytes))) return;
    const unfinished = unfinishedOf(id);
    try {
      const there = await store.download(id, unfinished);
      if (there && (await stat(unfinished)).size === bytes) {
        await rename(unfinished, pathOf(id));
        this.keep({ id, bytes, place: 'store' });
      } else log.error('the blob store has not the bytes of a log file', { id });
      this.#works();
    } finally {
      this.#bytesComing -= bytes;
      await unlink(unfinished).catch(() => undefined);
    }
  }

  /** Takes the room for a file that will come; false where files that are read, or are nowhere else, take it all. */
  async #makeRoom(bytes: number): Promise<boolean> {
    const { cacheBytes, isPinned, pathOf } = this.#options;
    const fits = () => this.#bytes + this.#bytesComing + bytes <= cacheBytes;
    for (const [id, { only }] of [...this.#here]) {
      if (fits()) break;
      if (only || isPinned(id)) continue;
      this.forget(id);
      await unlink(pathOf(id)).catch(() => undefined);
    }
    if (!fits()) return false;
    this.#bytesComing += bytes;
    return true;
  }

  #works(): void {
    if (this.#failing) this.#options.log.info('log files are in the blob store again');
    this.#failing = false;
  }

  #fails(error: unknown): void {
    const { clock, log } = this.#options;
    this.#pausedUntil = clock.now() + PAUSE_MS;
    if (!this.#failing) log.warn('the blob store of log files cannot be used, files wait on this disk', { error });
    this.#failing = true;
  }
}

/** Of each node, ranges that are near each other become one. */
function joined(ranges: readonly Range[]): Range[] {
  const found: Range[] = [];
  for (const range of [...ranges].sort((one, other) => one.from - other.from)) {
    const at = found.findLastIndex(({ node }) => node === range.node);
    const before = found[at];
    if (before === undefined || range.from > before.to + NEAR_MS) found.push(range);
    else found[at] = { ...before, to: Math.max(before.to, range.to) };
  }
  return found;
}
