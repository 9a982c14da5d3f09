import { chmodSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import { makeDirectory, readOrCreate } from './files.ts';

export interface DataDir extends Closable {
  /** Absolute. */
  readonly path: string;
  /** Stable over restarts. A copied directory carries it along, so two servers must not run on copies of one. */
  readonly nodeId: string;
}

/**
 * The lock is an exclusive transaction on an empty database: the operating system drops it with the process, however
 * that ends, so a left-over file never blocks a start.
 */
function takeLock(path: string): DatabaseSync {
  const file = join(path, 'lock.db');
  const database = new DatabaseSync(file);
  try {
    // SQLite makes it as the umask says; the folder may have been opened by hand.
    chmodSync(file, 0o600);
    database.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE');
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** The error of a data directory that no server can use: which, why and what to do. `path` is absolute. */
export function unusableDataDir(path: string, why: string, cause?: unknown): SluiceError {
  return new SluiceError(
    'unavailable',
    `The data directory ${path} cannot be used (${why}). ` +
      'Point SLUICE_DATA_DIR at a directory on a local disk that this user may write.',
    { cause },
  );
}

/**
 * Makes the data directory (mode 0700) when it is missing and holds it for this process until `close`.
 *
 * `lock: false` is for a worker whose primary process holds the directory.
 *
 * Throws SluiceError('conflict') when another server holds it, and SluiceError('unavailable') when it cannot be used;
 * both messages name the directory and what to do.
 */
export async function openDataDir(path: string, options: { readonly lock?: boolean } = {}): Promise<DataDir> {
  const absolute = resolve(path);
  const unusable = (error: unknown) =>
    unusableDataDir(absolute, error instanceof Error ? error.message : String(error), error);
  try {
    await makeDirectory(absolute, 0o700);
  } catch (error) {
    throw unusable(error);
  }
  let lock: DatabaseSync | null;
  try {
    lock = options.lock === false ? null : takeLock(absolute);
  } catch (error) {
    if (!/locked/i.test(error instanceof Error ? error.message : '')) throw unusable(error);
    throw new SluiceError(
      'conflict',
      `Another Sluice server is using the data directory ${absolute}. Stop it, or give this one another directory with SLUICE_DATA_DIR.`,
      { cause: error },
    );
  }
  try {
    const nodeId = (await readOrCreate(join(absolute, 'node-id'), () => `${uuidv7(systemClock)}\n`)).trim();
    if (!/^[0-9a-f-]{36}$/.test(nodeId)) throw new Error('the file node-id is damaged, remove it');
    return {
      path: absolute,
      nodeId,
      async close() {
        if (lock?.isOpen) lock.close();
      },
    };
  } catch (error) {
    lock?.close();
    throw unusable(error);
  }
}
