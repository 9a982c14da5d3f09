import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Where the console's build is. */
export const CONSOLE_DIST = fileURLToPath(new URL('../../../console/dist', import.meta.url));

/** Asked whenever it matters: the console may be built while the server runs. */
export function isConsoleBuilt(dist = CONSOLE_DIST): boolean {
  return existsSync(path.join(dist, 'index.html'));
}
