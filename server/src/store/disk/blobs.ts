import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, opendir, readdir, rename, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Clock, systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { base62 } from '../../kernel/id.ts';
import type { BlobStat, Blobs, StoredBlob, TenantContext } from '../ports.ts';
import { errorCode, isDiskFull, spaceKeeper, syncDirectory, writeStream } from './files.ts';

export interface DiskBlobsOptions {
  readonly dir: string;
  readonly clock?: Clock;
  /** Free bytes below which nothing more is stored; 0 or absent: any. */
  readonly reserveBytes?: number;
}

/** One path segment that means the same on every file system: no separators, no leading dot, not too long. */
const KEY = /^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$/;
const ORGANISATION = /^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/;
/** Unfinished files older than this belong to nobody: a living `put` keeps their time of change fresh. */
const STALE_MS = 60 * 60_000;
/** The same while writers of this process live, one of which may have had nothing to write for long. */
const LONG_STALE_MS = 24 * STALE_MS;

function statOf(found: { size: number; mtimeMs: number }): BlobStat {
  return { bytes: found.size, createdAt: Math.floor(found.mtimeMs) };
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

class DiskBlobs implements Blobs {
  readonly #root: string;
  readonly #unfinished: string;
  readonly #clock: Clock;
  readonly #hasSpace: () => Promise<void>;

  constructor(root: string, unfinished: string, clock: Clock, hasSpace: () => Promise<void>) {
    this.#hasSpace = hasSpace;
    this.#root = root;
    this.#unfinished = unfinished;
    this.#clock = clock;
  }

  /** Removes what killed processes left half-written. */
  async removeStale(olderThanMs: number): Promise<void> {
    for (const name of await readdir(this.#unfinished)) {
      const path = join(this.#unfinished, name);
      const found = await stat(path).catch(() => null);
      if (found && found.mtimeMs < this.#clock.now() - olderThanMs) await unlink(path).catch(() => undefined);
    }
  }

  async put(tenant: TenantContext, key: string, body: Readable): Promise<BlobStat> {
    const path = this.#path(tenant, key);
    const temporary = join(this.#unfinished, base62(22));
    let handle: FileHandle | null = null;
    try {
      await mkdir(path.folder, { recursive: true, mode: 0o700 });
      handle = await open(temporary, 'wx', 0o600);
      await writeStream(handle, body, this.#hasSpace);
      await handle.sync();
      const found = statOf(await handle.stat());
      await handle.close();
      handle = null;
      await rename(temporary, path.file);
      await syncDirectory(path.folder);
      return found;
    } catch (error) {
      body.destroy();
      await handle?.close().catch(() => undefined);
      await unlink(temporary).catch(() => undefined);
      if (!isDiskFull(error)) throw error;
      throw new SluiceError('unavailable', 'The file could not be stored because the disk is full. Try again later.', {
        cause: error,
      });
    }
  }

  async get(tenant: TenantContext, key: string, range?: { start: number; end?: number }): Promise<Readable | null> {
    const { start = 0, end } = range ?? {};
    for (const bound of [start, end ?? 0]) {
      if (!Number.isSafeInteger(bound) || bound < 0)
        throw new RangeError('a range bound must be a whole number from 0');
    }
    const path = this.#path(tenant, key);
    let handle: FileHandle;
    try {
      handle = await open(path.file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return null;
      throw error;
    }
    if (end !== undefined && end < start) {
      await handle.close();
      return Readable.from([]);
    }
    return handle.createReadStream({ start, ...(end === undefined ? {} : { end }) });
  }

  async stat(tenant: TenantContext, key: string): Promise<BlobStat | null> {
    try {
      return statOf(await stat(this.#path(tenant, key).file));
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return null;
      throw error;
    }
  }

  async delete(tenant: TenantContext, key: string): Promise<boolean> {
    const path = this.#path(tenant, key);
    try {
      await unlink(path.file);
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return false;
      throw error;
    }
    await syncDirectory(path.folder);
    return true;
  }

  async *all(): AsyncGenerator<StoredBlob> {
    // Asked now and then by whoever looks for what was left behind: after a quick restart nothing was stale yet.
    await this.removeStale(LONG_STALE_MS);
    for (const organisationId of await namesIn(join(this.#root, 'blobs'))) {
      if (!ORGANISATION.test(organisationId)) continue;
      const folder = join(this.#root, 'blobs', organisationId);
      for await (const { name } of await opendir(folder)) {
        if (!KEY.test(name)) continue;
        // It may be gone by now.
        const found = await lstat(join(folder, name)).catch(() => null);
        if (found?.isFile()) yield { organisationId, key: name, createdAt: statOf(found).createdAt };
      }
    }
  }

  async close(): Promise<void> {}

  #path(tenant: TenantContext, key: string): { folder: string; file: string } {
    if (!ORGANISATION.test(tenant.organisationId)) throw new RangeError('not an organisation id');
    if (!KEY.test(key)) throw new RangeError('a blob key has 1 to 200 letters, digits, dots, hyphens and underscores');
    const folder = join(this.#root, 'blobs', tenant.organisationId);
    return { folder, file: join(folder, key) };
  }
}

/** Blobs as files under `dir/blobs/<organisation>/<key>`. Files a killed process left half-written are removed. */
export async function openDiskBlobs({ dir, clock = systemClock, reserveBytes = 0 }: DiskBlobsOptions): Promise<Blobs> {
  const unfinished = join(dir, 'unfinished');
  await mkdir(unfinished, { recursive: true, mode: 0o700 });
  const blobs = new DiskBlobs(dir, unfinished, clock, spaceKeeper(dir, reserveBytes));
  await blobs.removeStale(STALE_MS);
  return blobs;
}
