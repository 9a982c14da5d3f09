import { constants } from 'node:fs';
import { chmod, copyFile, mkdir, readdir, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { errorCode, makeDirectory, syncDirectory, temporaryName } from '../store/disk/files.ts';
import type { Output } from './output.ts';
import { wordsOf } from './words.ts';

const USAGE = 'usage: npm run sluice -- backup DIRECTORY [settings]';
/** Longest wait for a database that is just being written, milliseconds. */
const BUSY_MS = 10_000;

/**
 * `backup DIRECTORY`: copies the data of a node to a new directory, beside a running server too: whole, or not at all. Left
 * out are the master key, which must not lie beside what it opens, the keys of the first run, and what is only temporary.
 *
 * The order keeps the copy whole: records first while they wait in the spool, then the stores, which have all that left it
 * meanwhile (a record that is in both is stored once), then the files, which are there before the store names them.
 */
export async function backup(args: readonly string[], output: Output): Promise<void> {
  const { plain, settings } = wordsOf(args, []);
  const [target, ...more] = plain;
  if (target === undefined || more.length > 0) throw new SluiceError('validation', USAGE);
  const { dataDir, databaseUrl, blobs, masterKey, masterKeyFile } = loadConfig(settings);
  const embedded = databaseUrl === null;
  if (embedded) await mustExist(join(dataDir, 'control.db'), 'check SLUICE_DATA_DIR, or start Sluice once first');
  else await mustExist(join(dataDir, 'node-id'), 'check SLUICE_DATA_DIR');
  const place = resolve(target);
  if (await stat(place).catch(() => null))
    throw new SluiceError('conflict', `${place} exists already. Name a new directory.`);
  if (await isInside(place, dataDir))
    throw new SluiceError(
      'conflict',
      `${place} is inside the data directory ${dataDir}, and would be lost with it. Name a directory elsewhere, best on another disk.`,
    );
  await makeDirectory(dirname(place), 0o777).catch((error: Error) => {
    throw new SluiceError('unavailable', `${place} cannot be made: ${error.message}. Name another directory.`, {
      cause: error,
    });
  });
  const copy = temporaryName(place);
  await mkdir(copy, { mode: 0o700 });
  try {
    await copyTree(join(dataDir, 'spool'), join(copy, 'spool'));
    if (embedded) for (const name of ['control.db', 'logs.db']) copyDatabase(join(dataDir, name), join(copy, name));
    if (embedded) for (const name of ['control.db', 'logs.db']) await chmod(join(copy, name), 0o600);
    if (blobs === null) await copyTree(join(dataDir, 'blobs'), join(copy, 'blobs'));
    await copyFile(join(dataDir, 'node-id'), join(copy, 'node-id'));
    await rename(copy, place);
    await syncDirectory(dirname(place));
  } catch (error) {
    await rm(copy, { recursive: true, force: true });
    throw new SluiceError('unavailable', `The backup failed, and nothing of it was kept: ${(error as Error).message}`, {
      cause: error,
    });
  }
  output.out(`The data of this node is in ${place}, as of ${new Date(systemClock.now()).toISOString()}.\n`);
  if (!embedded) output.out('The store is PostgreSQL: back it up with pg_dump after this (docs/guides/upgrades.md).\n');
  if (blobs !== null) output.out('Files are in an object store, which keeps its own copies.\n');
  output.out(
    masterKey === null
      ? `The master key is not in it: keep ${masterKeyFile} in another place. No stored credential opens without it.\n`
      : 'The master key is not in it: keep SLUICE_MASTER_KEY in another place. No stored credential opens without it.\n',
  );
}

/** Whether a path that need not exist would be below a directory, whatever links lead to either. */
async function isInside(path: string, directory: string): Promise<boolean> {
  const real = await realpath(directory);
  for (let at = path; ; at = dirname(at)) {
    const found = await realpath(at).catch(() => null);
    if (found !== null) return `${found}${sep}`.startsWith(`${real}${sep}`);
    if (at === dirname(at)) return false;
  }
}

async function mustExist(path: string, advice: string): Promise<void> {
  await stat(path).catch(() => {
    throw new SluiceError('not_found', `There is no ${path}: ${advice}.`);
  });
}

/** One consistent snapshot, whoever writes meanwhile. */
function copyDatabase(from: string, to: string): void {
  const database = new DatabaseSync(from, { readOnly: true, timeout: BUSY_MS });
  try {
    database.prepare('VACUUM INTO ?').run(to);
  } finally {
    database.close();
  }
}

/** Files that go meanwhile are left out: a segment of the spool has reached the store, a blob was deleted. */
async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  const entries = await readdir(from, { withFileTypes: true }).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  });
  for (const entry of entries) {
    const [source, copy] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await copyTree(source, copy);
    else if (entry.isFile() && !entry.name.startsWith('.tmp-'))
      await copyFile(source, copy, constants.COPYFILE_FICLONE).catch((error: unknown) => {
        if (errorCode(error) !== 'ENOENT') throw error;
      });
  }
}
