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
/** Copies of the control store until one fits the log files beside it. */
const ATTEMPTS = 5;

/**
 * `backup DIRECTORY`: copies the data of a node to a new directory, beside a running server too: whole, or not at all. Left
 * out are the master key, which must not lie beside what it opens, the keys of the first run, and what is only temporary.
 *
 * The order keeps the copy whole: records first while they wait in the spool, then the store with the log files that it lists, which
 * have all that left it meanwhile (a record that is in both counts once), then the files, which are there before the store names them.
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
    if (embedded) await copyStores(dataDir, copy);
    else await copyNew(join(dataDir, 'logs'), join(copy, 'logs'));
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

/**
 * The control store, and every log file that it lists. The keeper makes one file of many while they are copied: then the store of
 * that time is copied again.
 */
async function copyStores(dataDir: string, copy: string): Promise<void> {
  const names = ['control.db'];
  // Of a version before the log keeper, while its records move into log files.
  if (await stat(join(dataDir, 'logs.db')).catch(() => null)) names.push('logs.db');
  for (let attempt = 1; ; attempt++) {
    await copyNew(join(dataDir, 'logs'), join(copy, 'logs'));
    for (const name of names) {
      await rm(join(copy, name), { force: true });
      copyDatabase(join(dataDir, name), join(copy, name));
      await chmod(join(copy, name), 0o600);
    }
    await copyNew(join(dataDir, 'logs'), join(copy, 'logs'));
    const there = new Set(await readdir(join(copy, 'logs')));
    if (listedFiles(join(copy, 'control.db')).every((name) => there.has(name))) return;
    if (attempt === ATTEMPTS) throw new Error('log files are replaced all the time. Try again later');
  }
}

/** Names of the log files that a copy of the control store lists. */
function listedFiles(path: string): string[] {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    const known = database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'log_files'").get();
    if (known === undefined) return [];
    const rows = database.prepare("SELECT id FROM log_files WHERE status = 'live'").all();
    return rows.map(({ id }) => `${id}.parquet`);
  } finally {
    database.close();
  }
}

/** Log files, which never change: those that are not copied yet. */
async function copyNew(from: string, to: string): Promise<void> {
  await makeDirectory(to, 0o700);
  const there = new Set(await readdir(to));
  const names = await readdir(from).catch(() => []);
  for (const name of names.filter((each) => each.endsWith('.parquet') && !there.has(each))) {
    await copyIfThere(join(from, name), join(to, name));
  }
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
    else if (entry.isFile() && !entry.name.startsWith('.tmp-')) await copyIfThere(source, copy);
  }
}

async function copyIfThere(source: string, copy: string): Promise<void> {
  await copyFile(source, copy, constants.COPYFILE_FICLONE).catch((error: unknown) => {
    if (errorCode(error) !== 'ENOENT') throw error;
  });
}
