/** When `npm start` runs a built server, and when the sources. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { builtMain, ensureBuilt } from '../../bin/built.mjs';

const SERVER = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
let root = '';
const said: string[] = [];
const build = () => ensureBuilt(root, (line) => void said.push(line));
const source = (name: string, text: string) => writeFileSync(join(root, 'src', name), text);
const builds = () => readdirSync(join(root, 'dist'));

/** What a program prints that imports what was built. */
async function printed(): Promise<string> {
  const main = builtMain(root);
  if (main === null) throw new Error('nothing is built');
  const names = new URL('../../bin/source-names.mjs', import.meta.url).href;
  const program = `import { nameSources } from '${names}'; nameSources(); await import('${main}');`;
  return (await run(process.execPath, ['--input-type=module', '-e', program])).stdout;
}

beforeEach(() => {
  // Below `server/dist`, which is where stacks of a built server are looked up.
  mkdirSync(join(SERVER, 'dist'), { recursive: true });
  root = mkdtempSync(join(SERVER, 'dist', '.test-'));
  mkdirSync(join(root, 'src'));
  writeFileSync(join(root, 'package.json'), '{"type":"module","dependencies":{}}');
  source('main.ts', "import './part.ts';\n");
  source('part.ts', 'console.log(1 as number);\n');
  said.length = 0;
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

it('a build is run only as long as the sources are the ones that it was made from', async () => {
  expect(builtMain(root)).toBeNull();
  expect(await build()).toBe('built');
  expect(await printed()).toBe('1\n');
  expect(await build()).toBe('current');
  source('part.ts', 'console.log(2 as number);\n');
  expect(builtMain(root)).toBeNull();
  expect(await build()).toBe('built');
  expect(await printed()).toBe('2\n');
  source('part.test.ts', 'a test is no part of a server');
  expect(await build()).toBe('current');
});

it('the build before this one stays, for a server that still runs it, and older ones go', async () => {
  for (const text of ['one', 'two', 'three']) {
    source('part.ts', `console.log('${text}');\n`);
    expect(await build()).toBe('built');
  }
  expect(builds()).toHaveLength(2);
  expect(await printed()).toBe('three\n');
});

it('sources that cannot be built are run as they are, and one line says why', async () => {
  source('part.ts', 'console.log(;\n');
  expect(await build()).toBe('missing');
  expect(said).toEqual([
    expect.stringMatching(/^The server runs from its sources, because it could not be built \(.+\)\.$/),
  ]);
  expect(builtMain(root)).toBeNull();
  expect(builds()).toEqual([]);
});

it('a built file finds what lies beside its source, keeps every character, and its errors name lines of the source', async () => {
  mkdirSync(join(root, 'src', 'deep'));
  source('deep/data.txt', 'data');
  source('main.ts', "export {};\nawait import('./deep/part.ts');\n");
  const lines = [
    "import { readFileSync } from 'node:fs';",
    'interface Nothing {}',
    'export const nothing: Nothing = {};',
    "console.log(readFileSync(new URL('./data.txt', import.meta.url), 'utf8'));",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the file that is built
    "console.log(JSON.stringify(['… → 😀', `ß${1}→`, /^[→😀]$/u.test('😀')]));",
    `export const many = ['${'→'.repeat(500)}'];`,
    ...Array.from({ length: 20 }, (_, i) => `export const more${i} = [${i}];`),
    "console.log(new Error('x').stack);",
    ...Array.from({ length: 200 }, (_, i) => `export const last${i} = [${i}];`),
  ];
  source('deep/part.ts', lines.join('\n'));
  expect(await build()).toBe('built');
  const [data, texts, error, at] = (await printed()).split('\n');
  expect(data).toBe('data');
  expect(JSON.parse(texts ?? '')).toEqual(['… → 😀', 'ß1→', true]);
  expect(error).toBe('Error: x');
  expect(at).toContain(`${join(root, 'src', 'deep', 'part.ts')}:27:`);
});
