/** Reads the segments of a journal that another process writes: whole lines only, each checked against its checksum. */
import { type FileHandle, open, readdir, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../store/disk/files.ts';
import { copyRecord } from '../store/disk/journal-line.ts';
import type { LogPosition } from './catalog.ts';

/** The journal of records of an older version (`import.ts`): no process writes it. */
export const IMPORTED = 'journal-imported';

/** The journal of one process. */
export interface FoundJournal {
  readonly dir: string;
  /** Its stable name. */
  readonly journal: string;
  /** The number of the process, from 1. */
  readonly worker: number;
}

const SEGMENT = /^\d{12}\.journal$/;
const CHUNK = 4 << 20;
const LINE_FEED = 0x0a;

export interface JournalChunk {
  /** JSON texts, each with its line feed. */
  readonly lines: Buffer;
  readonly records: number;
  /** Lines that are not what was written. */
  readonly damaged: number;
}

/** A lone half of a surrogate pair, which JSON of JavaScript writes as an escape and other readers refuse. */
const HALF = Buffer.from('\\ud', 'latin1');
const HALF_UPPER = Buffer.from('\\uD', 'latin1');

export class JournalReader {
  readonly dir: string;
  readonly journal: string;
  readonly worker: number;
  #at: LogPosition | null;
  #buffer: Buffer;

  /** @param chunk bytes that are read at once; a line may be longer */
  constructor({ dir, journal, worker }: FoundJournal, at: LogPosition | null, chunk = CHUNK) {
    this.#buffer = Buffer.allocUnsafeSlow(chunk);
    this.dir = dir;
    this.journal = journal;
    this.worker = worker;
    this.#at = at;
  }

  /** Everything before it was read; null before the first byte. */
  get position(): LogPosition | null {
    return this.#at;
  }

  /** The next lines, at most some megabytes; null when all that is written has been read. */
  async next(): Promise<JournalChunk | null> {
    // Listed before it is read: a segment with another behind it is not written to any more.
    const names = await segmentsOf(this.dir);
    for (;;) {
      const at = this.#at;
      const name = at === null ? names[0] : names.find((each) => each >= at.segment);
      if (name === undefined) return null;
      const from = at?.segment === name ? at.offset : 0;
      const chunk = await this.#read(name, from);
      if (chunk !== null) return chunk;
      const later = names.find((each) => each > name);
      if (later === undefined) return null;
      this.#at = { journal: this.journal, segment: later, offset: 0 };
    }
  }

  /** The next lines, those of several chunks together until there are so many bytes of them. */
  async batch(bytes: number): Promise<JournalChunk | null> {
    const chunks: JournalChunk[] = [];
    for (let read = 0; read < bytes; ) {
      const chunk = await this.next();
      if (chunk === null) break;
      chunks.push(chunk);
      read += chunk.lines.length;
    }
    if (chunks.length < 2) return chunks[0] ?? null;
    const total = (of: 'records' | 'damaged') => chunks.reduce((sum, chunk) => sum + chunk[of], 0);
    return {
      lines: Buffer.concat(chunks.map(({ lines }) => lines)),
      records: total('records'),
      damaged: total('damaged'),
    };
  }

  /** Reads again from an earlier position on. */
  back(to: LogPosition | null): void {
    this.#at = to;
  }

  /**
   * Lets go of what comes before a place, of a journal that nobody writes. The last segment stays, empty: a process that gets this
   * number again goes on behind its name.
   */
  async abandon({ segment, offset }: LogPosition): Promise<void> {
    const names = await segmentsOf(this.dir);
    for (const name of names) if (name < segment) await unlink(join(this.dir, name)).catch(unlessGone);
    const last = join(this.dir, segment);
    if (names.at(-1) !== segment || (await stat(last)).size > offset) return;
    // Not emptied in place: what still sends it to a collector has a second name for it.
    await writeFile(`${last}.unfinished`, '', { mode: 0o600 });
    await rename(`${last}.unfinished`, last);
  }

  async #read(name: string, from: number): Promise<JournalChunk | null> {
    const handle = await open(join(this.dir, name), 'r').catch(unlessGone);
    // The process that writes the journal has let go of it meanwhile: it is in files.
    if (handle === undefined) return null;
    try {
      const bytes = await this.#fill(handle, from);
      const end = this.#buffer.subarray(0, bytes).lastIndexOf(LINE_FEED) + 1;
      if (end === 0) return null;
      const chunk = this.#lines(end);
      this.#at = { journal: this.journal, segment: name, offset: from + end };
      return chunk;
    } finally {
      await handle.close();
    }
  }

  /** Reads a chunk, or the whole of a line that is larger. */
  async #fill(handle: FileHandle, from: number): Promise<number> {
    for (;;) {
      const { bytesRead } = await handle.read(this.#buffer, 0, this.#buffer.length, from);
      if (bytesRead < this.#buffer.length || this.#buffer.includes(LINE_FEED)) return bytesRead;
      this.#buffer = Buffer.allocUnsafeSlow(this.#buffer.length * 2);
    }
  }

  #lines(end: number): JournalChunk {
    const lines = Buffer.allocUnsafeSlow(end);
    let used = 0;
    let records = 0;
    let damaged = 0;
    for (let at = 0; at < end; ) {
      const feed = this.#buffer.indexOf(LINE_FEED, at);
      const to = copyRecord(this.#buffer, at, feed, lines, used);
      if (to < 0) damaged++;
      else {
        used = to;
        records++;
      }
      at = feed + 1;
    }
    return { lines: wellFormed(lines.subarray(0, used)), records, damaged };
  }
}

function wellFormed(lines: Buffer): Buffer {
  if (!lines.includes(HALF) && !lines.includes(HALF_UPPER)) return lines;
  const texts = lines.toString('utf8').split('\n');
  return Buffer.from(
    texts
      .map((text) =>
        /\\ud/i.test(text)
          ? JSON.stringify(JSON.parse(text), (_, value) => (typeof value === 'string' ? value.toWellFormed() : value))
          : text,
      )
      .join('\n'),
  );
}

async function segmentsOf(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => SEGMENT.test(name)).sort();
}

function unlessGone(error: unknown): undefined {
  if (errorCode(error) !== 'ENOENT') throw error;
  return undefined;
}

/** The journals below `spool`, those of workers that are no more too. */
export async function journalsIn(spool: string): Promise<FoundJournal[]> {
  const found: FoundJournal[] = [];
  for (const folder of await readdir(spool).catch(() => [])) {
    const match = /^journal(?:-(\d+))?$/.exec(folder);
    if (match === null && folder !== IMPORTED) continue;
    const dir = join(spool, folder);
    const journal = (await readFile(join(dir, 'journal-id'), 'utf8').catch(() => '')).trim();
    if (journal !== '')
      found.push({ dir, journal, worker: match === null ? Number.POSITIVE_INFINITY : Number(match[1] ?? 1) });
  }
  return found;
}
