/** The files of a directory that a running server or log keeper writes to. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Path and bytes of every file below a directory. What goes away on the way is passed over, a directory too: a recursive
 * `readdir` fails on that. The directory itself must exist, so that a wrong path is not an empty one.
 */
export async function filesBelow(dir: string): Promise<{ path: string; bytes: Buffer }[]> {
  const found: { path: string; bytes: Buffer }[] = [];
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    try {
      if (entry.isDirectory()) found.push(...(await filesBelow(path)));
      else if (entry.isFile()) found.push({ path, bytes: await readFile(path) });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
  return found;
}
