import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const MB = 1024 * 1024;
/** Blocks of a common file system: a file takes whole ones. */
const BLOCK = 4096;
/** Checks of passkeys take 6.5 MB of it, detection of languages 8.8 MB. The runtime and the log engine come on top. */
const MOST_OF_OURS = 55 * MB;
/** The engine of the log store: one native library for the platform, 69 MB in version 1.5.6. It is optional. */
const MOST_OF_LOG_ENGINE = 76 * MB;
const LOG_ENGINE = 'node_modules/@duckdb/';

interface Locked {
  readonly dev?: boolean;
  readonly link?: boolean;
  readonly os?: readonly string[];
}

/** Bytes on disk of a package, without those of packages nested in it. */
function sizeOf(folder: string): number {
  let sum = BLOCK;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) sum += entry.name === 'node_modules' ? 0 : sizeOf(path);
    else sum += Math.ceil(statSync(path).size / BLOCK) * BLOCK;
  }
  return sum;
}

/** Of a platform's packages only that of this platform is there. */
function installedSize(path: string): number {
  const folder = join(ROOT, path);
  return existsSync(folder) ? sizeOf(folder) : 0;
}

it('an installation without development dependencies stays small beside its Node.js', () => {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, Locked>;
  };
  const sizes = Object.entries(packages)
    .filter(([path, { dev, link, os }]) => path.startsWith('node_modules/') && !dev && !link && os === undefined)
    .filter(([path]) => !path.startsWith(LOG_ENGINE))
    .map(([path]) => [path.replace('node_modules/', ''), sizeOf(join(ROOT, path))] as const)
    .sort((one, other) => other[1] - one[1]);
  const sum = sizes.reduce((total, [, size]) => total + size, 0);
  const largest = sizes.slice(0, 12).map(([name, size]) => `${name} ${(size / MB).toFixed(1)}`);
  expect(sizes.length).toBeGreaterThan(50);
  expect(sum, `${(sum / MB).toFixed(1)} MB; the largest: ${largest.join(', ')}`).toBeLessThan(MOST_OF_OURS);
  const engine = Object.keys(packages)
    .filter((path) => path.startsWith(LOG_ENGINE) && !path.endsWith('-musl'))
    .reduce((total, path) => total + installedSize(path), 0);
  expect(engine, `${(engine / MB).toFixed(1)} MB of the log engine`).toBeLessThan(MOST_OF_LOG_ENGINE);
});
