/**
 * Moves the records of an older version into log files, slice by slice and each record once, whenever it is killed. A slice
 * becomes a segment of a journal that no process writes, which the keeper reads like any other. Its rows go when it is in files.
 */
import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { readOrCreate, syncDirectory } from '../store/disk/files.ts';
import { SEAL_BYTES, sealLine } from '../store/disk/journal-line.ts';
import type { JournalPosition, OldLogs, OldRecord, RecordKey } from '../store/ports.ts';
import { IMPORTED, journalsIn } from './journal-reader.ts';

export interface ImportOptions {
  readonly old: OldLogs;
  /** Directory below which the journals are. */
  readonly spool: string;
  /** How far a journal is in files; null: not at all. */
  readonly keptTo: (journal: string) => Promise<JournalPosition | null>;
  /** Resolves when everything that is in journals now is in files. */
  readonly flush: () => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly sliceRecords?: number;
}

/** What is in the segment that was written last, so that its rows can be removed and are never written twice. */
interface Slice {
  readonly segment: string;
  readonly bytes: number;
  readonly keys: readonly RecordKey[];
}

const SLICE_RECORDS = 20_000;
/** Records that are held at once. */
const PAGE = 500;
const AGAIN_MS = 10_000;
const NOTE = 'slice.json';

/** Where the journals of this machine are in an older version's store, so that nothing of them is read again. */
export async function takeOverPositions(
  spool: string,
  old: Pick<OldLogs, 'position'>,
  note: (journal: string, position: JournalPosition) => Promise<void>,
): Promise<void> {
  for (const { journal } of await journalsIn(spool)) {
    const position = await old.position(journal);
    if (position !== null) await note(journal, position);
  }
}

/** Resolves when no record is left, or the signal ends it. Answers how many it moved. */
export async function importOldLogs(options: ImportOptions): Promise<number> {
  const { old, spool, log, clock, signal } = options;
  const dir = join(spool, IMPORTED);
  if ((await readSlice(dir)) === null && (await old.read(null, 1)).length === 0) {
    await old.end();
    return 0;
  }
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const journal = (await readOrCreate(join(dir, 'journal-id'), () => `${uuidv7(clock)}\n`)).trim();
  let moved = 0;
  while (!signal.aborted) {
    const slice = await readSlice(dir);
    try {
      if (slice === null) {
        if (await writeSlice(options, dir, journal)) continue;
        await old.end();
        if (moved > 0) log.info('the records of an older version are in log files', { records: moved });
        return moved;
      }
      if (!(await isKept(options, journal, slice))) await options.flush();
      if (await isKept(options, journal, slice)) {
        await old.remove(slice.keys);
        await unlink(join(dir, NOTE));
        moved += slice.keys.length;
      } else if (!(await readdir(dir)).includes(slice.segment)) {
        // It was killed before the segment had its name: no record of it was read.
        await unlink(join(dir, NOTE));
      }
    } catch (error) {
      if (signal.aborted) return moved;
      log.warn('records of an older version wait, they could not be moved into log files yet', { error });
      await new Promise<void>((resolve) => {
        clock.after(AGAIN_MS, resolve);
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }
  return moved;
}

async function isKept({ keptTo }: ImportOptions, journal: string, slice: Slice): Promise<boolean> {
  const kept = await keptTo(journal);
  if (kept === null || kept.segment < slice.segment) return false;
  return kept.segment > slice.segment || kept.offset >= slice.bytes;
}

async function readSlice(dir: string): Promise<Slice | null> {
  const text = await readFile(join(dir, NOTE), 'utf8').catch(() => null);
  return text === null ? null : (JSON.parse(text) as Slice);
}

/** False when there are no records. The note of what is in it comes before its name. */
async function writeSlice(options: ImportOptions, dir: string, journal: string): Promise<boolean> {
  const { old, keptTo, sliceRecords = SLICE_RECORDS } = options;
  const names = (await readdir(dir)).filter((name) => name.endsWith('.journal'));
  const last = [(await keptTo(journal))?.segment ?? '', ...names].sort().at(-1) ?? '';
  const segment = `${String(Number.parseInt(last, 10) + 1 || 1).padStart(12, '0')}.journal`;
  const keys: RecordKey[] = [];
  let bytes = 0;
  const unfinished = join(dir, 'segment.unfinished');
  const handle = await open(unfinished, 'w', 0o600);
  try {
    while (keys.length < sliceRecords) {
      const rows = await old.read(keys.at(-1) ?? null, Math.min(PAGE, sliceRecords - keys.length));
      if (rows.length === 0) break;
      const lines = sealed(rows);
      await handle.writeFile(lines);
      bytes += lines.length;
      for (const { key } of rows) keys.push(key);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  if (keys.length === 0) {
    await unlink(unfinished);
    return false;
  }
  await writeNote(dir, { segment, bytes, keys });
  await rename(unfinished, join(dir, segment));
  await syncDirectory(dir);
  return true;
}

async function writeNote(dir: string, slice: Slice): Promise<void> {
  const handle = await open(join(dir, `${NOTE}.unfinished`), 'w', 0o600);
  try {
    await handle.writeFile(JSON.stringify(slice));
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(join(dir, `${NOTE}.unfinished`), join(dir, NOTE));
  await syncDirectory(dir);
}

/** The lines of a journal. */
function sealed(rows: readonly OldRecord[]): Buffer {
  const sizes = rows.map(({ line }) => Buffer.byteLength(line));
  const buffer = Buffer.allocUnsafeSlow(sizes.reduce((sum, size) => sum + size + SEAL_BYTES + 1, 0));
  let at = 0;
  for (const { line } of rows) at = sealLine(buffer, at, at + buffer.write(line, at));
  return buffer.subarray(0, at);
}
