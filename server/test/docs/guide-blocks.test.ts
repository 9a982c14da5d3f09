/**
 * Every command of the README and the guides can be copied as it stands: what it uses, the page sets or makes earlier. A
 * shell runs all of them, with programs in the place of `curl`, `node` and `npm` that look at what they are given.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = new URL('../../../', import.meta.url);
const PAGES = ['README.md', ...(await readdir(new URL('docs/guides/', ROOT))).map((name) => `docs/guides/${name}`)];

/** What a page may use without setting it: the variables of the README, and a provider's key that only the reader has. */
const GIVEN = ['SLUICE_URL', 'SLUICE_API_KEY', 'SLUICE_ADMIN_KEY', 'SLUICE_WORKSPACE', 'OPENAI_API_KEY'];
/** Blocks of settings whose values only the reader knows, by a line of theirs. */
const OF_THE_READER = [/^export SLUICE_DATABASE_URL=/m, /^SLUICE_DATA_DIR=\S+ npm start/m];

interface Block {
  readonly language: string;
  readonly text: string;
}

const blocksOf = (page: string): Block[] =>
  [...page.matchAll(/^ *```(\w*)\n(.*?)^ *```$/gms)].map(([, language = '', text = '']) => ({ language, text }));

/** Fails for a file that is named and not there; says what the next command may read out of it. */
const CURL = `#!/bin/sh
for arg in "$@"; do
  case "$arg" in
    @*|*=@*) file="\${arg#*@}"; [ -f "$file" ] || echo "no file $file" >&2 ;;
  esac
done
echo '{"id": "x", "slug": "x", "key": "x", "status": "completed"}'
`;
const NOTHING = '#!/bin/sh\necho x\n';

let bin = '';

beforeAll(async () => {
  bin = await mkdtemp(join(tmpdir(), 'sluice-blocks-'));
  for (const [name, text] of Object.entries({ curl: CURL, node: NOTHING, npm: NOTHING, sleep: NOTHING })) {
    await writeFile(join(bin, name), text);
    await chmod(join(bin, name), 0o755);
  }
});

afterAll(() => rm(bin, { recursive: true, force: true }));

/** What the shell and the programs complain about. */
async function complaints(script: string): Promise<string> {
  const cwd = await mkdtemp(join(tmpdir(), 'sluice-block-'));
  try {
    await mkdir(join(cwd, 'node_modules/.bin'), { recursive: true });
    await writeFile(join(cwd, 'node_modules/.bin/node'), NOTHING, { mode: 0o755 });
    const env = { PATH: `${bin}:/usr/bin:/bin`, HOME: cwd, ...Object.fromEntries(GIVEN.map((name) => [name, 'x'])) };
    const shell = spawn('bash', ['-u'], { cwd, env });
    let said = '';
    shell.stdout.resume();
    shell.stderr.on('data', (bytes) => (said += bytes));
    shell.stdin.end(script);
    await once(shell, 'close');
    return said;
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}

describe.each(PAGES)('the commands of %s', (name) => {
  it('are marked as such, and hold nothing that a reader would have to replace', async () => {
    const blocks = blocksOf(await readFile(new URL(name, ROOT), 'utf8'));
    const isShell = ({ text }: Block) => /^\s*(?:curl|npm|export|node|[A-Z_]+=\S* )/m.test(text);
    const known = blocks.filter(({ text }) => !OF_THE_READER.some((pattern) => pattern.test(text)));
    expect(known.filter((block) => isShell(block) && block.language === '')).toEqual([]);
    const commands = known.filter(({ language }) => language === 'sh').flatMap(({ text }) => text.split('\n'));
    expect(commands.filter((line) => /<[a-z][a-z ]*>|…/i.test(line.replace(/#.*$/, '')))).toEqual([]);
    // One name for one thing on every page.
    expect(
      commands.filter(
        (line) => /\$\{?(?:SLUICE|ADMIN|KEY|BASE|WORKSPACE|TOKEN)\b/.test(line) && name !== 'docs/guides/nodes.md',
      ),
    ).toEqual([]);
  });

  it('use only what the page sets or makes before', async () => {
    const blocks = blocksOf(await readFile(new URL(name, ROOT), 'utf8'));
    const script = blocks.filter(({ language }) => language === 'sh').map(({ text }) => text);
    expect(await complaints(script.join('\n'))).toBe('');
  });
});

it('a variable that is not set and a file that is not made are found', async () => {
  expect(await complaints('curl $NOWHERE/files')).toContain('NOWHERE: unbound variable');
  expect(await complaints('curl x -F file=@lines.jsonl')).toContain('no file lines.jsonl');
  expect(await complaints('echo 1 > lines.jsonl\ncurl $SLUICE_URL -F file=@lines.jsonl')).toBe('');
});

it('a page that uses the variables of the README leads to them', async () => {
  const missing: string[] = [];
  for (const name of PAGES) {
    const page = await readFile(new URL(name, ROOT), 'utf8');
    const used = blocksOf(page).some(({ language, text }) => language === 'sh' && text.includes('$SLUICE_URL'));
    if (used && !/README\.md#variables-of-the-guides|export SLUICE_URL=/.test(page)) missing.push(name);
  }
  expect(missing).toEqual([]);
});

/** Settings of several machines, which only the reader knows. */
const NO_SHELL = ['docs/guides/nodes.md'];

it('a guide begins with its task and an example that can be copied, before any reference', async () => {
  const faults: string[] = [];
  for (const name of PAGES.filter((page) => page !== 'README.md')) {
    const lines = (await readFile(new URL(name, ROOT), 'utf8')).split('\n');
    const at = lines.findIndex((line) => line.startsWith('```'));
    const table = lines.findIndex((line) => line.startsWith('|'));
    if (at === -1 || at > 15) faults.push(`${name}: the first example is not within 15 lines`);
    else if (lines[at] !== '```sh' && !NO_SHELL.includes(name)) faults.push(`${name}: the first example is no command`);
    if (table !== -1 && table < at) faults.push(`${name}: a table comes before the first example`);
  }
  expect(faults).toEqual([]);
});
