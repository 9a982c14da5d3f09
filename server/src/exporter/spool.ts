/**
 * What is to be sent: a second name (a hard link) of each segment of the journals, in a folder below the journal. So records wait for a
 * collector as long as they must, whatever the log store has done with the segment; they take no room twice.
 */
import { link, mkdir, readdir, rm, stat, statfs, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type FoundJournal, journalsIn } from '../keeper/journal-reader.ts';
import type { Log } from '../kernel/log.ts';
import { errorCode } from '../store/disk/files.ts';
import { OUTGOING } from '../store/disk/journal-line.ts';

const SEGMENT = /^\d{12}\.journal$/;

/** Nothing is sent any more: the room of what waited is given back. */
export async function removeOutgoing(spool: string): Promise<void> {
  for (const { dir } of await journalsIn(spool)) {
    await rm(join(dir, OUTGOING), { recursive: true, force: true });
  }
}

async function openFolder(dir: string): Promise<string> {
  const outgoing = join(dir, OUTGOING);
  const made = await mkdir(outgoing, { recursive: true, mode: 0o700 });
  if (made === undefined) return outgoing;
  for (const name of await segmentsIn(dir)) {
    await link(join(dir, name), join(outgoing, name)).catch((error: unknown) => {
      // The journal was first, or the log store has the segment by now.
      if (!['EEXIST', 'ENOENT'].includes(errorCode(error) ?? '')) throw error;
    });
  }
  return outgoing;
}

/** Names of a folder's segments, oldest first. */
export async function segmentsIn(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => SEGMENT.test(name)).sort();
}

export interface ExportSpoolOptions {
  /** Directory below which the journals are. */
  readonly spool: string;
  /** Bytes that may wait; above it the oldest segments are given up. */
  readonly maxBytes: number;
  /** The same where the disk has fewer free bytes than this: records of requests need them. */
  readonly reserveBytes: number;
  readonly log: Log;
  /** Free bytes of the disk. */
  readonly freeBytes?: (spool: string) => Promise<number>;
}

async function freeBytesOf(spool: string): Promise<number> {
  const { bavail, bsize } = await statfs(spool);
  return bavail * bsize;
}

export class ExportSpool {
  readonly #options: Required<ExportSpoolOptions>;
  #journals: readonly FoundJournal[] = [];
  /** Of each journal the first segment that is still sent. */
  readonly #floors = new Map<string, string>();
  #bytes = 0;

  constructor(options: ExportSpoolOptions) {
    this.#options = { freeBytes: freeBytesOf, ...options };
  }

  /** The journals, each with the folder of its second names for one. */
  get journals(): readonly FoundJournal[] {
    return this.#journals;
  }

  /** Bytes that wait, as far as they were there at the last look. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Segments with a lower name are given up; empty: none. */
  floorOf(journal: string): string {
    return this.#floors.get(journal) ?? '';
  }

  /**
   * Finds journals, removes the segments that all are through with, and gives up the oldest where there are too many.
   * Answers whether it gave up any.
   * @param needs the first segment of a journal that a feed still reads; null: none does
   */
  async look(needs: (journal: string) => string | null): Promise<boolean> {
    const { spool, maxBytes, reserveBytes, freeBytes, log } = this.#options;
    const found: FoundJournal[] = [];
    for (const journal of await journalsIn(spool)) {
      // Those of no worker hold records of an earlier version, which are moved to another store.
      if (Number.isFinite(journal.worker)) found.push({ ...journal, dir: await openFolder(journal.dir) });
    }
    this.#journals = found;
    const waiting: { journal: string; next: string; bytes: number; since: number }[] = [];
    this.#bytes = 0;
    for (const { journal, dir } of found) {
      const names = await segmentsIn(dir);
      const needed = needs(journal);
      for (const [i, name] of names.entries()) {
        const next = names[i + 1];
        if (needed !== null && name < needed && next !== undefined) {
          await unlink(join(dir, name));
          continue;
        }
        const { size, mtimeMs } = await stat(join(dir, name));
        this.#bytes += size;
        if (next !== undefined) waiting.push({ journal, next, bytes: size, since: mtimeMs });
      }
    }
    const missing = reserveBytes === 0 ? 0 : reserveBytes - (await freeBytes(spool));
    let excess = Math.max(this.#bytes - maxBytes, missing);
    let gaveUp = false;
    for (const { journal, next, bytes } of waiting.sort((one, other) => one.since - other.since)) {
      if (excess <= 0) break;
      excess -= bytes;
      if (next <= this.floorOf(journal)) continue;
      this.#floors.set(journal, next);
      gaveUp = true;
      log.warn('more records wait to be sent than there is room for, the oldest are given up', { journal });
    }
    return gaveUp;
  }
}
