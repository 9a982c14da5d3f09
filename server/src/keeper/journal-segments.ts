/** What is still in journals: a record that is to be gone must be in none of their segments. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { OUTGOING } from '../store/disk/journal-line.ts';

const SEGMENT = /\.(?:journal|bodies)$/;
const FOLDER = /^(?:journal|bodies)/;

/** Segments with something in them, of records and of bodies, by their paths below `spool`; those that wait for a collector too. */
export async function journalSegments(spool: string): Promise<string[]> {
  const found: string[] = [];
  for (const folder of await readdir(spool).catch(() => [])) {
    if (!FOLDER.test(folder)) continue;
    for (const below of [folder, join(folder, OUTGOING)]) {
      for (const name of await readdir(join(spool, below)).catch(() => [])) {
        const path = join(below, name);
        if (SEGMENT.test(name) && (await sizeOf(join(spool, path))) > 0) found.push(path);
      }
    }
  }
  return found;
}

/** Whether a segment waits for a collector, and for nothing else. */
export const isOutgoing = (path: string): boolean => path.split(/[\\/]/).at(-2) === OUTGOING;

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}
