/** Where the server of a data directory can be reached, for commands that run beside it: `server-url` while it listens. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const fileIn = (dataDir: string): string => join(dataDir, 'server-url');

/** Notes the URL until the process ends. One that is killed leaves it to the next start. */
export function noteAddress(dataDir: string, url: string): void {
  const file = fileIn(dataDir);
  writeFileSync(file, `${url}\n`, { mode: 0o600 });
  process.once('exit', () => rmSync(file, { force: true }));
}

/** The URL of the server that runs, or was killed; null where none is noted. */
export function readAddress(dataDir: string): string | null {
  try {
    const url = readFileSync(fileIn(dataDir), 'utf8').trim();
    return URL.canParse(url) ? url : null;
  } catch {
    return null;
  }
}
