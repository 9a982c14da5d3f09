import { type FileHandle, link, mkdir, open, readFile, rename, stat, statfs, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { base62 } from '../../kernel/id.ts';
import { detachMemory, isTransferable } from '../../kernel/transferable-stream.ts';

/** The `code` of a Node.js system error (`ENOENT`, `ENOSPC`, …), or null for anything else. */
export function errorCode(error: unknown): string | null {
  if (typeof error !== 'object' || error === null || !('code' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}

/** True when the disk, a quota or a file-size limit refused the bytes. */
export function isDiskFull(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG';
}

/** Makes created, renamed and removed names of a directory durable. Windows has no such call and needs none. */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Makes a directory and its missing parents, or takes the one that is there. Node's own recursive `mkdir` never ends
 * below a directory that takes none, as `/proc`. Throws an Error whose message says what is in the way.
 */
export async function makeDirectory(path: string, mode: number): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await mkdir(path, { mode });
      return;
    } catch (error) {
      const found = await stat(path).catch(() => null);
      if (found?.isDirectory()) return;
      const parent = dirname(path);
      if (found !== null) throw new Error(`${path} is not a directory`, { cause: error });
      if (errorCode(error) !== 'ENOENT') throw error;
      if (attempt > 1 || parent === path) throw new Error(`no directory can be made in ${parent}`, { cause: error });
      await makeDirectory(parent, mode);
    }
  }
}

/** A name beside `path` that no other writer uses. */
export function temporaryName(path: string): string {
  return join(dirname(path), `.tmp-${base62(16)}`);
}

async function writeDurably(path: string, text: string): Promise<void> {
  const handle: FileHandle = await open(path, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Text of a small file, creating it with `make()` (mode 0600, durable) when it is missing. Two processes that race both
 * get the text of the one that came first; no process ever sees half a file.
 */
export async function readOrCreate(path: string, make: () => string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
  }
  const temporary = temporaryName(path);
  try {
    await writeDurably(temporary, make());
    try {
      // A link, unlike a rename, never replaces what another process put there first.
      await link(temporary, path);
    } catch (error) {
      const code = errorCode(error);
      // File systems without hard links (exFAT, some network shares) leave rename as the only atomic way.
      if (code !== 'EEXIST') await rename(temporary, path);
    }
    await syncDirectory(dirname(path));
  } finally {
    await unlink(temporary).catch(() => undefined);
  }
  return await readFile(path, 'utf8');
}

/** Bytes written between two looks at the free space. */
const LOOK_BYTES = 16 << 20;

/**
 * Asks whether the disk of `dir` has more than `reserveBytes` free. Throws SluiceError('unavailable') below: records, and
 * everybody else's data, need the rest. 0 asks nothing.
 */
export function spaceKeeper(dir: string, reserveBytes: number): () => Promise<void> {
  return async () => {
    if (reserveBytes === 0) return;
    const { bavail, bsize } = await statfs(dir);
    if (bavail * bsize >= reserveBytes) return;
    throw new SluiceError(
      'unavailable',
      'The file could not be stored because the disk of this server is nearly full. Try again later.',
      { detail: `less than SLUICE_DISK_RESERVE (${reserveBytes} bytes) is free in ${dir}` },
    );
  };
}

/** Writes a stream to its end at the handle's position; asks `hasSpace` first and now and then. */
export async function writeStream(handle: FileHandle, body: Readable, hasSpace: () => Promise<void>): Promise<void> {
  const givenAway = isTransferable(body);
  await hasSpace();
  let unasked = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    const bytes = piece.length;
    await handle.writeFile(piece);
    if (givenAway) detachMemory(piece);
    unasked += bytes;
    if (unasked < LOOK_BYTES) continue;
    unasked = 0;
    await hasSpace();
  }
}
