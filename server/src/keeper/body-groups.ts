/** Reads the journal of bodies that another process writes: whole groups only, each opened with the key of its segment. */
import { type FileHandle, open, readdir, readFile, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { openBytes, SEALED_MORE } from '../kernel/sealed-bytes.ts';

/** The key of a segment; null when there is none any more. */
export type KeyOf = (journal: string, segment: string, keyId: string) => Promise<Buffer | null>;

export interface BodyGroup {
  readonly segment: string;
  /** Frames (`telemetry/bodies/frame.ts`). */
  readonly bytes: Buffer;
}

const SEGMENT = /^\d{15}\.bodies$/;
const HEAD_BYTES = 1_024;
const LENGTH_BYTES = 4;
/** No group is larger: what says so is torn or damaged. */
const MOST_BYTES = 64 << 20;
const LINE_FEED = 0x0a;

interface Place {
  readonly segment: string;
  offset: number;
  /** Null before its head is read, and where nothing opens it. */
  readonly key: Buffer | null;
  /** Its writer has ended it. */
  ended: boolean;
}

export class BodyGroups {
  readonly #dir: string;
  readonly #journal: string;
  readonly #keyOf: KeyOf;
  #at: Place | null = null;
  #damaged = 0;

  private constructor(dir: string, journal: string, keyOf: KeyOf) {
    this.#dir = dir;
    this.#journal = journal;
    this.#keyOf = keyOf;
  }

  /** Null where no journal is yet. */
  static async open(dir: string, keyOf: KeyOf): Promise<BodyGroups | null> {
    const journal = (await readFile(join(dir, 'journal-id'), 'utf8').catch(() => '')).trim();
    return journal === '' ? null : new BodyGroups(dir, journal, keyOf);
  }

  /** Segments whose rest could not be read. */
  get damaged(): number {
    return this.#damaged;
  }

  /** The segment that is read; null before the first. */
  get segment(): string | null {
    return this.#at?.segment ?? null;
  }

  /** The next group; null when all that is written has been read. */
  async next(): Promise<BodyGroup | null> {
    // Listed before it is read: a segment with another behind it is not written to any more.
    const names = await this.#segments();
    for (;;) {
      const name = this.#nameIn(names);
      if (name === undefined) return null;
      const last = name === names.at(-1);
      const handle = await open(join(this.#dir, name), 'r').catch(() => null);
      try {
        const group = handle === null ? null : await this.#read(handle, name, last);
        if (group !== null) return group;
      } finally {
        await handle?.close();
      }
      const later = names.find((each) => each > name);
      if (later === undefined) return null;
      this.#at = { segment: later, offset: 0, key: null, ended: false };
    }
  }

  /** Removes segments that were read whole and lie before the first one that is needed. The last goes when it is ended, or idle since a time. */
  async removeRead(needed: string | null, idleSince: number): Promise<void> {
    const at = this.#at;
    if (at === null) return;
    for (const name of await this.#segments()) {
      if (name > at.segment || (needed !== null && name >= needed)) return;
      const path = join(this.#dir, name);
      if (name === at.segment && !at.ended) {
        const { mtimeMs, size } = await stat(path);
        if (mtimeMs >= idleSince || size > at.offset) return;
      }
      await unlink(path).catch(() => undefined);
    }
  }

  /** A clock that went back makes names before that of the last one, which is gone by then. */
  #nameIn(names: readonly string[]): string | undefined {
    const { segment } = this.#at ?? { segment: '' };
    return names.find((each) => each >= segment) ?? names[0];
  }

  async #segments(): Promise<string[]> {
    return (await readdir(this.#dir).catch(() => [])).filter((name) => SEGMENT.test(name)).sort();
  }

  async #read(handle: FileHandle, name: string, last: boolean): Promise<BodyGroup | null> {
    if (this.#at?.segment !== name || this.#at.key === null) {
      const begun = await this.#begin(handle, name);
      if (begun === null) return null;
      this.#at = begun;
    }
    const at = this.#at;
    if (at.key === null) return null;
    const length = Buffer.alloc(LENGTH_BYTES);
    const { bytesRead } = await handle.read(length, 0, LENGTH_BYTES, at.offset);
    if (bytesRead < LENGTH_BYTES) return null;
    const size = length.readUInt32LE(0);
    if (size === 0) {
      at.ended = true;
      return null;
    }
    if (size < SEALED_MORE || size > MOST_BYTES) return this.#cut(last);
    const sealed = Buffer.allocUnsafe(size);
    const { bytesRead: came } = await handle.read(sealed, 0, size, at.offset + LENGTH_BYTES);
    if (came < size) return null;
    try {
      const bytes = openBytes(at.key, `${this.#journal}/${name}/${at.offset}`, sealed);
      at.offset += LENGTH_BYTES + size;
      return { segment: name, bytes };
    } catch {
      return this.#cut(last);
    }
  }

  /** The rest of the segment is not what was written. Of the last one it may still be on its way. */
  #cut(last: boolean): null {
    if (!last) this.#damaged += 1;
    return null;
  }

  async #begin(handle: FileHandle, name: string): Promise<Place | null> {
    const head = Buffer.alloc(HEAD_BYTES);
    const { bytesRead } = await handle.read(head, 0, HEAD_BYTES, 0);
    const end = head.subarray(0, bytesRead).indexOf(LINE_FEED);
    if (end < 0) return null;
    const { key } = JSON.parse(head.toString('utf8', 0, end)) as { readonly key: string };
    return { segment: name, offset: end + 1, key: await this.#keyOf(this.#journal, name, key), ended: false };
  }
}
