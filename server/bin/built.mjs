// The built server: one minified bundle of the sources and of what every start loads, with a file for each part that is
// loaded later. It costs a start less time and memory than a thousand files. `npm start` runs it where it was built from
// exactly the sources that are there, and the sources otherwise.
// Plain JavaScript with nothing but node:*, because it must also run where the development dependencies are absent.
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const folder = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
/** Packages of which every start needs the whole, and theirs. All others stay where they are and are loaded when needed. */
const BUNDLED = ['@fastify/send', 'fastify', 'ipaddr.js', 'pino', 'zod'];

/** SHA-256 over everything the bundle is made from: sources, this file, and the versions in the lockfile. */
export function sourceHash(root = folder) {
  const hash = createHash('sha256');
  const add = (name, file) => hash.update(`${name}\0`).update(readFileSync(file)).update('\0');
  const names = readdirSync(path.join(root, 'src'), { recursive: true })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => name.split(path.sep).join('/'))
    .sort();
  for (const name of names) add(name, path.join(root, 'src', name));
  add('built.mjs', fileURLToPath(import.meta.url));
  const lock = path.join(root, '..', 'package-lock.json');
  if (existsSync(lock)) add('lock', lock);
  return hash.digest('hex');
}

/** The folder of a build, by the hash of its sources. */
const folderOf = (hash, root) => path.join(root, 'dist', hash.slice(0, 16));

/** URL of what a server runs that was built from exactly these sources; null where there is none. Never throws. */
export function builtMain(root = folder) {
  try {
    const main = path.join(folderOf(sourceHash(root), root), 'main.mjs');
    return existsSync(main) ? pathToFileURL(main).href : null;
  } catch {
    return null;
  }
}

/**
 * Builds the server where it can, and says nothing: the sources run as well. Nothing is built where Rolldown, which Vite
 * brings, is not installed, or NODE_ENV is `production`. Answers `current`, `built` or `missing`. Never throws.
 */
export async function ensureBuilt(root = folder, say = console.error) {
  let staging = null;
  try {
    if (builtMain(root) !== null) return 'current';
    const bundler = process.env.NODE_ENV === 'production' ? null : await loadBundler();
    if (bundler === null) return 'missing';
    const target = folderOf(sourceHash(root), root);
    mkdirSync(path.dirname(target), { recursive: true });
    // Built beside its place and moved there in one step: a server that starts meanwhile sees all of it or nothing.
    staging = mkdtempSync(path.join(root, 'dist', '.building-'));
    // mkdtemp lets in the owner alone, but the server may run as another user than the one who built.
    chmodSync(staging, 0o755);
    await bundle(bundler, root, staging);
    renameSync(staging, target);
    removeOlder(root, target);
    return 'built';
  } catch (error) {
    // Another start has put the same build there meanwhile.
    if (builtMain(root) !== null) return 'current';
    say(
      `The server runs from its sources, because it could not be built (${String(error?.message ?? error).split('\n')[0]}).`,
    );
    return 'missing';
  } finally {
    if (staging) rmSync(staging, { recursive: true, force: true });
  }
}

async function loadBundler() {
  try {
    return (await import('rolldown')).rolldown;
  } catch (error) {
    if (error?.code === 'ERR_MODULE_NOT_FOUND') return null;
    throw error;
  }
}

async function bundle(rolldown, root, directory) {
  const { dependencies, optionalDependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const apart = Object.keys({ ...dependencies, ...optionalDependencies }).filter((name) => !BUNDLED.includes(name));
  const input = { main: path.join(root, 'src', 'main.ts') };
  const build = await rolldown({
    input,
    platform: 'node',
    onLog: () => undefined,
    external: (id) => id.startsWith('node:') || apart.some((name) => id === name || id.startsWith(`${name}/`)),
    plugins: [sourceUrls(root, directory), asciiOnly()],
  });
  try {
    await build.write({
      dir: directory,
      format: 'esm',
      // Names stay, for stacks.
      minify: { compress: true, mangle: false, codegen: { removeWhitespace: true } },
      comments: false,
      sourcemap: true,
      sourcemapExcludeSources: true,
      entryFileNames: '[name].mjs',
      chunkFileNames: '[name]-[hash].mjs',
    });
  } finally {
    await build.close();
  }
}

/** Code that asks where it is gets the place of its source: threads, child processes and data files are found from there. */
function sourceUrls(root, directory) {
  const sources = path.join(root, 'src') + path.sep;
  return {
    name: 'source-urls',
    transform(code, id) {
      if (!id.startsWith(sources) || !code.includes('import.meta.url')) return null;
      const from = path.relative(directory, id).split(path.sep).join('/');
      const url = `new URL(${JSON.stringify(from)}, import.meta.url).href`;
      return { code: code.replaceAll('import.meta.url', url), map: null };
    },
  };
}

/** V8 holds a text with a single character above Latin-1 in two bytes a character, which doubles the whole bundle. */
function asciiOnly() {
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return {
    name: 'ascii-only',
    generateBundle(_options, files) {
      // Without comments such characters are in literals only, where an escape means the same.
      for (const file of Object.values(files))
        if (file.type === 'chunk') file.code = file.code.replace(/[^\0-\x7f]/g, escaped);
    },
  };
}

/** Keeps the build before this one: a server that still runs it loads parts of it later. */
function removeOlder(root, newest) {
  const dist = path.join(root, 'dist');
  const others = readdirSync(dist)
    .filter((name) => /^[0-9a-f]{16}$/.test(name))
    .map((name) => path.join(dist, name))
    .filter((directory) => directory !== newest)
    .sort((one, other) => statSync(other).mtimeMs - statSync(one).mtimeMs);
  for (const directory of others.slice(1)) rmSync(directory, { recursive: true, force: true });
}

if (process.argv[1] && fileURLToPath(import.meta.url) === realpathSync(process.argv[1])) {
  const made = await ensureBuilt();
  if (process.argv.includes('--must') && made === 'missing') process.exitCode = 1;
}
