import { type FileHandle, mkdir, open, readdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { base62 } from '../../kernel/id.ts';
import type { Held, Scratch } from '../ports.ts';
import { isDiskFull, spaceKeeper, writeStream } from './files.ts';

/** Older ones belong to a process that was killed where an open file cannot be unlinked. */
const STALE_MS = 24 * 60 * 60_000;

/** Scratch files in `dir`, unlinked as soon as they are open: a killed process leaves nothing behind. */
export async function openDiskScratch(options: {
  readonly dir: string;
  readonly clock: Clock;
  /** Free bytes below which nothing is held; 0 or absent: any. */
  readonly reserveBytes?: number;
}): Promise<Scratch> {
  const { dir, clock, reserveBytes = 0 } = options;
  const hasSpace = spaceKeeper(dir, reserveBytes);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    const found = await stat(path).catch(() => null);
    if (found && found.mtimeMs < clock.now() - STALE_MS) await unlink(path).catch(() => undefined);
  }
  return {
    async hold(body) {
      const path = join(dir, base62(22));
      let handle: FileHandle | null = null;
      let linked = true;
      const remove = async () => {
        if (linked) await unlink(path).catch(() => undefined);
      };
      try {
        handle = await open(path, 'wx+', 0o600);
        linked = await unlink(path).then(
          () => false,
          () => true,
        );
        await writeStream(handle, body, hasSpace);
        return held(handle, (await handle.stat()).size, remove);
      } catch (error) {
        body.destroy();
        await handle?.close().catch(() => undefined);
        await remove();
        if (!isDiskFull(error)) throw error;
        throw new SluiceError(
          'unavailable',
          'The upload could not be kept because the disk is full. Try again later.',
          {
            cause: error,
          },
        );
      }
    },
  };
}

function held(handle: FileHandle, bytes: number, remove: () => Promise<void>): Held {
  let open = true;
  return {
    bytes,
    read: (): Readable => handle.createReadStream({ start: 0, autoClose: false, highWaterMark: 64 * 1024 }),
    async close() {
      if (!open) return;
      open = false;
      await handle.close();
      await remove();
    },
  };
}
