/**
 * The records that wait for one destination: its own files, so that one that is away takes no room of others. They have the form
 * of a journal. Writing begins a new file at each start: what a kill has cut is never continued.
 */
import { type FileHandle, mkdir, open, readdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { FoundJournal } from '../../keeper/journal-reader.ts';
import { SEAL_BYTES, sealLine } from '../../store/disk/journal-line.ts';
import { segmentsIn } from '../spool.ts';

const SEGMENT_BYTES = 4 << 20;

export class Outbox {
  readonly dir: string;
  readonly #found: FoundJournal;
  #handle: FileHandle | null = null;
  #written = 0;
  #bytes = 0;
  #floor = '';

  private constructor(dir: string) {
    this.dir = dir;
    this.#found = { journal: 'outbox', dir, worker: 1 };
  }

  static async open(dir: string): Promise<Outbox> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const outbox = new Outbox(dir);
    await outbox.measure();
    return outbox;
  }

  /** For a feed. */
  get journals(): readonly FoundJournal[] {
    return [this.#found];
  }

  floorOf(): string {
    return this.#floor;
  }

  /** Bytes of its files, sent records of unfinished files included. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Resolves when the lines (JSON texts of records) are on the disk. */
  async append(texts: readonly string[]): Promise<void> {
    if (this.#handle === null || this.#written >= SEGMENT_BYTES) await this.#begin();
    const room = texts.reduce((sum, text) => sum + Buffer.byteLength(text) + SEAL_BYTES + 1, 0);
    const buffer = Buffer.allocUnsafe(room);
    let at = 0;
    for (const text of texts) at = sealLine(buffer, at, at + buffer.write(text, at, 'utf8'));
    const lines = buffer.subarray(0, at);
    await this.#handle?.appendFile(lines);
    await this.#handle?.datasync();
    this.#written += at;
    this.#bytes += at;
  }

  /** Removes the files before the one that is read. */
  async forgetBefore(segment: string): Promise<void> {
    for (const name of await segmentsIn(this.dir)) {
      if (name < segment) await unlink(join(this.dir, name));
    }
    await this.measure();
  }

  /** Gives up the oldest file, unless it is the one that is written. Answers whether there was one. */
  async giveUpOldest(): Promise<boolean> {
    const names = (await segmentsIn(this.dir)).filter((name) => name >= this.#floor);
    const [oldest, next] = names;
    if (oldest === undefined || next === undefined) return false;
    const { size } = await stat(join(this.dir, oldest));
    this.#floor = next;
    this.#bytes -= size;
    return true;
  }

  /** When its oldest file was last written, milliseconds since the epoch; null where it is the one that is written. */
  async oldestWrite(): Promise<number | null> {
    const [oldest, next] = (await segmentsIn(this.dir)).filter((name) => name >= this.#floor);
    if (oldest === undefined || next === undefined) return null;
    return (await stat(join(this.dir, oldest))).mtimeMs;
  }

  async measure(): Promise<void> {
    let bytes = 0;
    for (const name of await segmentsIn(this.dir)) {
      if (name >= this.#floor) bytes += (await stat(join(this.dir, name))).size;
    }
    this.#bytes = bytes;
  }

  async close(): Promise<void> {
    await this.#handle?.close();
    this.#handle = null;
  }

  async #begin(): Promise<void> {
    await this.#handle?.close();
    const last = (await readdir(this.dir))
      .filter((name) => name.endsWith('.journal'))
      .sort()
      .at(-1);
    const number = last === undefined ? 1 : Number.parseInt(last, 10) + 1;
    this.#handle = await open(join(this.dir, `${String(number).padStart(12, '0')}.journal`), 'ax', 0o600);
    this.#written = 0;
  }
}
