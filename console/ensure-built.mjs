// Builds the console when console/dist is missing or older than its sources. Runs before `npm start` and `npm test`, so
// it never stops either: where it cannot build, it says so in one line and the server starts with what there is.
// Plain JavaScript with nothing but node:*, because it must also run where the development dependencies are absent.
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';

const folder = path.dirname(fileURLToPath(import.meta.url));
const STAMP = '.stamp';
/** Reads the TypeScript of the settings as it is. */
const OLDEST_NODE = 24;

/** SHA-256 over everything the bundle is made from: sources, guides, settings, and the versions in the lockfile. */
export function sourceHash(root = folder) {
  const hash = createHash('sha256');
  const files = ['guides.ts', 'index.html', 'package.json', 'reference.ts', 'tsconfig.json', 'vite.config.ts'];
  for (const entry of readdirSync(path.join(root, 'src'), { recursive: true, withFileTypes: true })) {
    if (entry.isFile() && !/\.test\.tsx?$/.test(entry.name)) {
      files.push(path.relative(root, path.join(entry.parentPath, entry.name)));
    }
  }
  const repository = path.join(root, '..');
  for (const name of ['README.md', 'docs/glossary.md', 'docs/guardrail-coverage.md', 'docs/limit-coverage.md'])
    if (existsSync(path.join(repository, name))) files.push(path.join('..', name));
  const guides = path.join(repository, 'docs', 'guides');
  if (existsSync(guides)) files.push(...readdirSync(guides).map((name) => path.join('..', 'docs', 'guides', name)));
  const names = files.map((name) => name.split(path.sep).join('/')).sort();
  for (const name of names)
    hash
      .update(`${name}\0`)
      .update(readFileSync(path.join(root, name)))
      .update('\0');
  const lock = path.join(repository, 'package-lock.json');
  if (existsSync(lock)) {
    const { packages = {} } = JSON.parse(readFileSync(lock, 'utf8'));
    const built = ['react', 'react-dom', 'vite', 'wouter', '@tanstack/react-query', '@tanstack/react-virtual'];
    for (const name of [...built, 'lucide-react', 'marked', '@scalar/fastify-api-reference'])
      hash.update(`${packages[`node_modules/${name}`]?.version}\0`);
  }
  return hash.digest('hex');
}

/** True when console/dist was built from exactly these sources. */
export function isCurrent(root = folder) {
  const stamp = path.join(root, 'dist', STAMP);
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === sourceHash(root);
}

/** Whether `ensureBuilt` has something to do or to say. Never throws. */
export function mayBeBuilt(root = folder) {
  try {
    return !isCurrent(root);
  } catch {
    return true;
  }
}

/**
 * Makes console/dist current if it can, and says so first. Where Vite is not installed, or NODE_ENV is `production`, nothing
 * is built: such an installation brings its build along. Answers what happened: `current`, `built`, `kept` (an older build
 * stays) or `missing` (there is none). Never throws.
 */
export async function ensureBuilt(root = folder, say = console.error, node = process.versions.node) {
  const dist = path.join(root, 'dist');
  const built = existsSync(path.join(dist, 'index.html'));
  let staging = null;
  const environment = process.env.NODE_ENV;
  try {
    if (isCurrent(root)) return 'current';
    const production = environment === 'production';
    const vite = production ? null : await loadVite();
    if (!vite) {
      if (built) return 'kept';
      const reason = production ? 'NODE_ENV is production' : 'Vite is not installed';
      say(`Sluice starts without its console: it is not built, and ${reason} (npm ci && npm run console builds it).`);
      return 'missing';
    }
    if (Number.parseInt(node, 10) < OLDEST_NODE) {
      const what = built ? 'An older build of the console is served' : 'Sluice starts without its console';
      say(
        `${what}: building it needs Node.js ${OLDEST_NODE} or newer, and this is ${node} (npm run console brings its own).`,
      );
      return built ? 'kept' : 'missing';
    }
    say(`Building the console: ${built ? 'its sources have changed' : 'it was not built yet'}.`);
    const stamp = sourceHash(root);
    // Built beside dist and moved into place in one step: a server or test run that starts meanwhile sees the old build
    // or the new one, never half of it.
    staging = mkdtempSync(path.join(root, '.dist-'));
    // mkdtemp lets in the owner alone, but the server may run as another user than the one who built.
    chmodSync(staging, 0o755);
    process.env.NODE_ENV = 'production';
    // The native loader imports the settings as they are; the default one writes a bundled copy into node_modules.
    await vite.build({
      root,
      configFile: path.join(root, 'vite.config.ts'),
      configLoader: 'native',
      logLevel: 'silent',
      build: { outDir: staging },
    });
    writeFileSync(path.join(staging, STAMP), stamp);
    moveIntoPlace(staging, dist);
    return 'built';
  } catch (error) {
    // Vite heads its message with a line that says only that there was an error.
    const reason = stripVTControlCharacters(String(error?.message ?? error))
      .split('\n')
      .filter((line) => line.trim() !== '')
      .slice(0, 3)
      .join(' ');
    say(
      built
        ? `The console could not be rebuilt, so an older build is served (${reason}).`
        : `Sluice starts without its console, which could not be built (${reason}).`,
    );
    return built ? 'kept' : 'missing';
  } finally {
    // Only the build is for production: the server that runs next in this process is as it was started.
    if (environment === undefined) delete process.env.NODE_ENV;
    else process.env.NODE_ENV = environment;
    if (staging) rmSync(staging, { recursive: true, force: true });
  }
}

async function loadVite() {
  try {
    return await import('vite');
  } catch (error) {
    if (error?.code === 'ERR_MODULE_NOT_FOUND') return null;
    throw error;
  }
}

function moveIntoPlace(staging, dist) {
  const old = `${staging}-old`;
  if (existsSync(dist)) renameSync(dist, old);
  try {
    renameSync(staging, dist);
  } catch (error) {
    // Another run put its own build there between the two moves; it is as good as this one.
    if (!existsSync(dist)) throw error;
  }
  rmSync(old, { recursive: true, force: true });
}

if (process.argv[1] && fileURLToPath(import.meta.url) === realpathSync(process.argv[1])) {
  const made = await ensureBuilt();
  // `npm run console` was asked for the build, and for nothing else.
  if (process.argv.includes('--must') && made !== 'current' && made !== 'built') process.exitCode = 1;
}
