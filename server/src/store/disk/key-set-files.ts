/** The last key set of each organisation, one file each: public keys, by which tokens are verified after a start. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode, makeDirectory, temporaryName } from './files.ts';

const ID = /^[0-9a-f-]{36}$/;

export interface KeySetFiles {
  /** Null where there is none. */
  read(organisationId: string): Promise<string | null>;
  /** A reader sees the whole text or the one before. */
  write(organisationId: string, text: string): Promise<void>;
}

/** @param dir made with the first set that is kept */
export function keySetFiles(dir: string): KeySetFiles {
  const pathOf = (organisationId: string) => {
    if (!ID.test(organisationId)) throw new Error('no id of an organisation');
    return join(dir, `${organisationId}.json`);
  };
  return {
    async read(organisationId) {
      try {
        return await readFile(pathOf(organisationId), 'utf8');
      } catch (error) {
        if (errorCode(error) === 'ENOENT') return null;
        throw error;
      }
    },
    async write(organisationId, text) {
      const path = pathOf(organisationId);
      await makeDirectory(dir, 0o700);
      const temporary = temporaryName(path);
      await writeFile(temporary, text, { mode: 0o600 });
      await rename(temporary, path);
    },
  };
}
