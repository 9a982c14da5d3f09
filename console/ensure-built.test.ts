import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { ensureBuilt, isCurrent, sourceHash } from './ensure-built.mjs';

const made: string[] = [];
afterEach(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** The console's sources outside the repository, where no development dependency can be found. */
function copy(): string {
  const root = mkdtempSync(path.join(tmpdir(), 'sluice-console-'));
  made.push(root);
  for (const name of [
    'guides.ts',
    'index.html',
    'package.json',
    'reference.ts',
    'tsconfig.json',
    'vite.config.ts',
    'src',
  ]) {
    cpSync(path.join(import.meta.dirname, name), path.join(root, name), { recursive: true });
  }
  return root;
}

const said: string[] = [];
const say = (line: string) => void said.push(line);

test('npm test runs against a console built from the sources as they are', () => {
  expect(isCurrent()).toBe(true);
});

test('a missing or outdated console is built, a current one is left alone', async () => {
  // Inside the console folder, so that Vite, React and their types are found.
  const root = mkdtempSync(path.join(import.meta.dirname, '.dist-test-'));
  made.push(root);
  writeFileSync(
    path.join(root, 'index.html'),
    '<div id="root"></div><script type="module" src="/src/main.ts"></script>',
  );
  writeFileSync(path.join(root, 'package.json'), '{"type":"module"}');
  for (const name of ['guides.ts', 'reference.ts']) writeFileSync(path.join(root, name), 'export {};\n');
  writeFileSync(path.join(root, 'tsconfig.json'), '{}');
  writeFileSync(path.join(root, 'vite.config.ts'), 'export default {};\n');
  mkdirSync(path.join(root, 'src'));
  writeFileSync(path.join(root, 'src', 'main.ts'), 'document.title = "one";\n');
  said.length = 0;
  expect(await ensureBuilt(root, say)).toBe('built');
  expect(said).toEqual(['Building the console: it was not built yet.']);
  expect(await ensureBuilt(root, say)).toBe('current');
  expect(said).toHaveLength(1);
  const before = readFileSync(path.join(root, 'dist', 'index.html'), 'utf8');
  expect(process.env.NODE_ENV).not.toBe('production');
  said.length = 0;
  writeFileSync(path.join(root, 'src', 'main.ts'), 'document.title = ;\n');
  expect(await ensureBuilt(root, say)).toBe('kept');
  expect(said).toEqual([
    'Building the console: its sources have changed.',
    expect.stringMatching(/^The console could not be rebuilt.*main\.ts.*$/),
  ]);
  writeFileSync(path.join(root, 'src', 'main.ts'), 'document.title = "two";\n');
  expect(isCurrent(root)).toBe(false);
  expect(await ensureBuilt(root, say)).toBe('built');
  expect(readFileSync(path.join(root, 'dist', 'index.html'), 'utf8')).not.toBe(before);
});

test('a build that fails is reported in one line and the older build stays', async () => {
  const root = copy();
  mkdirSync(path.join(root, 'dist'));
  writeFileSync(path.join(root, 'dist', 'index.html'), 'older');
  // A file where the sources should be: reading them fails, as it does on a damaged checkout.
  rmSync(path.join(root, 'src'), { recursive: true });
  writeFileSync(path.join(root, 'src'), '');
  mkdirSync(path.join(root, 'dist', 'assets'));
  writeFileSync(path.join(root, 'dist', '.stamp'), 'older');
  said.length = 0;
  expect(await ensureBuilt(root, say)).toBe('kept');
  expect(said).toHaveLength(1);
  expect(said[0]).toMatch(/^The console could not be rebuilt, so an older build is served \(.+\)\.$/);
  expect(readFileSync(path.join(root, 'dist', 'index.html'), 'utf8')).toBe('older');
});

test('test files do not make a build outdated, sources do', () => {
  const root = copy();
  const before = sourceHash(root);
  writeFileSync(path.join(root, 'src', 'new.test.ts'), 'x');
  expect(sourceHash(root)).toBe(before);
  writeFileSync(path.join(root, 'src', 'new.ts'), 'x');
  expect(sourceHash(root)).not.toBe(before);
});

test('without development dependencies the start goes on: one line when there is no console, none when there is', () => {
  const root = copy();
  cpSync(path.join(import.meta.dirname, 'ensure-built.mjs'), path.join(root, 'ensure-built.mjs'));
  const start = () => spawnSync(process.execPath, [path.join(root, 'ensure-built.mjs')], { encoding: 'utf8' });
  expect(start()).toMatchObject({
    status: 0,
    stdout: '',
    stderr:
      'Sluice starts without its console: it is not built, and Vite is not installed (npm ci && npm run console builds it).\n',
  });
  const must = spawnSync(process.execPath, [path.join(root, 'ensure-built.mjs'), '--must']);
  expect(must.status).toBe(1);
  mkdirSync(path.join(root, 'dist'));
  writeFileSync(path.join(root, 'dist', 'index.html'), 'older');
  expect(start()).toMatchObject({ status: 0, stdout: '', stderr: '' });
});

test('in production nothing is built, and what is there is served', async () => {
  const root = copy();
  const before = process.env.NODE_ENV;
  process.env.NODE_ENV = 'production';
  said.length = 0;
  try {
    expect(await ensureBuilt(root, say)).toBe('missing');
    expect(said).toEqual([expect.stringContaining('NODE_ENV is production')]);
  } finally {
    process.env.NODE_ENV = before;
  }
});

test('an old Node.js builds nothing and says which one is needed', async () => {
  const root = copy();
  said.length = 0;
  expect(await ensureBuilt(root, say, '20.20.2')).toBe('missing');
  expect(said).toEqual([expect.stringMatching(/needs Node\.js 24 or newer, and this is 20\.20\.2 \(npm run console/)]);
  expect(existsSync(path.join(root, 'dist'))).toBe(false);
});

test('a folder that cannot be written to stops nothing', async () => {
  const root = copy();
  chmodSync(root, 0o555);
  said.length = 0;
  const outcome = await ensureBuilt(root, say);
  chmodSync(root, 0o755);
  // The super-user may write anywhere; then the build itself fails, because React is not to be found from there.
  expect(outcome).toBe('missing');
  expect(said).toEqual([expect.stringMatching(/^Building/), expect.stringMatching(/could not be built/)]);
  expect(existsSync(path.join(root, 'dist'))).toBe(false);
});

test('npm run console builds as npm start does, so that the tests of the console accept the build', () => {
  const scripts = (file: string) =>
    (JSON.parse(readFileSync(path.join(import.meta.dirname, file), 'utf8')) as { scripts: Record<string, string> })
      .scripts;
  expect(scripts('../package.json').console).toBe('node console/ensure-built.mjs --must');
  expect(scripts('package.json').build).toBe('node ensure-built.mjs --must');
});
