import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { effectiveSettings, loadConfig } from '../../src/config.ts';
import { parseConfig } from '../../src/resources/configs/schema.ts';
import { killAll, runCommand, startByNpm } from '../support/process.ts';
import { startServer } from '../support/server.ts';

const README = new URL('../../../README.md', import.meta.url);
const GUIDES = new URL('../../../docs/guides/', import.meta.url);

afterAll(killAll);

/** The blocks of a guide that are commands, as one script. */
const commandsOf = (guide: string): string =>
  [...guide.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, commands]) => commands).join('\n');

/** Guides, and how many of their commands are refused on purpose. */
const RUN: [string, number][] = [
  ['admin-api.md', 1],
  ['api-keys.md', 0],
  ['cache.md', 0],
  ['data-protection.md', 0],
  ['deployments.md', 0],
  ['files-batches-fine-tuning.md', 0],
  ['find-a-request.md', 0],
  ['guardrails.md', 0],
  ['jwt.md', 0],
  ['limits.md', 0],
  ['log-destinations.md', 0],
  ['log-exports.md', 0],
  ['organisation-settings.md', 0],
  ['providers.md', 0],
  ['routing.md', 0],
  ['secrets-with-clouds.md', 0],
  ['secrets-with-vault.md', 0],
  ['spend.md', 0],
  ['workspaces.md', 0],
];
/** The block of the README that sets what the guides use. */
const VARIABLES = /^```sh\n(export SLUICE_URL=.*?)^```$/ms;

interface Run {
  readonly code: number | null;
  readonly printed: string;
  readonly faults: string;
}

/** Runs commands in a directory beside the data of a fresh server, with the variables of the README and what it tells readers to set. */
async function run(commands: string): Promise<Run> {
  const variables = VARIABLES.exec(await readFile(README, 'utf8'))?.[1] ?? '';
  expect(variables).toContain('http://127.0.0.1:8787/v1');
  const server = await startServer();
  const directory = await mkdtemp(join(tmpdir(), 'sluice-guide-'));
  try {
    await symlink(server.dataDir, join(directory, 'data'));
    const path = `${join(process.execPath, '..')}:${process.env.PATH}`;
    const shell = spawn('bash', ['-eu'], { cwd: directory, env: { ...process.env, PATH: path } });
    let printed = '';
    let faults = '';
    shell.stdout.on('data', (bytes) => (printed += bytes));
    shell.stderr.on('data', (bytes) => (faults += bytes));
    shell.stdin.end(
      [
        variables,
        'export OPENAI_API_KEY=sk-0123456789',
        // Without its progress on standard error.
        'curl() { command curl -s "$@"; }',
        `npm() { command npm --silent --prefix ${fileURLToPath(new URL('.', README))} "$@"; }`,
        commands,
      ]
        .join('\n')
        .replaceAll('http://127.0.0.1:8787', server.url),
    );
    const [code] = await once(shell, 'close');
    return { code, printed, faults };
  } finally {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

const refusals = (printed: string): number => printed.match(/"error":\{/g)?.length ?? 0;

it.each(RUN)(
  'the commands of %s are run as they stand and print the statuses they say',
  async (name, refused) => {
    const commands = commandsOf(await readFile(new URL(name, GUIDES), 'utf8'));
    expect(commands).toContain('$SLUICE_URL');
    const { code, printed, faults } = await run(commands);
    expect([code, faults]).toEqual([0, '']);
    expect(refusals(printed), printed).toBe(refused);
    const said = [...commands.matchAll(/# (\d{3})$/gm)].map(([, status]) => status);
    // The answer before a status may end without a line break.
    expect([...printed.matchAll(/(?:^|\})(\d{3})$/gm)].map(([, status]) => status)).toEqual(said);
    expect(printed).not.toBe('');
  },
  90_000,
);

/** Guides whose first commands are run elsewhere: `nodes-guide.long.test.ts`, `cli.long.test.ts`, `otlp.test.ts`. */
const ELSEWHERE = ['console.md', 'nodes.md', 'upgrades.md', 'telemetry.md', 'clickhouse.md'];

it.each(
  readdirSync(GUIDES).filter(
    (name) => name.endsWith('.md') && !ELSEWHERE.includes(name) && !RUN.some(([other]) => other === name),
  ),
)(
  'the first commands of %s run as they stand',
  async (name) => {
    const [, first = ''] = /^```sh\n(.*?)^```$/ms.exec(await readFile(new URL(name, GUIDES), 'utf8')) ?? [];
    const { code, printed, faults } = await run(first);
    expect([code, faults], printed).toEqual([0, '']);
    expect(refusals(printed), printed).toBe(0);
    expect(printed).not.toBe('');
  },
  90_000,
);

it.each([
  ['routing.md', 1],
  ['streams.md', 3],
  ['cache.md', 1],
] as const)('the configs of %s are taken as they stand', async (name, least) => {
  const guide = await readFile(new URL(name, GUIDES), 'utf8');
  const configs = [...guide.matchAll(/^```json\n(.*?)^```$/gms)].map(([, text]) => JSON.parse(text ?? '') as unknown);
  expect(configs.length).toBeGreaterThanOrEqual(least);
  for (const config of configs) expect(parseConfig(config, { checkHost: () => null })).toEqual({ ok: true, config });
});

it('npm start with its flags, as the README and the guides have them, serves the first request of the README', async () => {
  const readme = await readFile(README, 'utf8');
  const request = /^## First request$.*?^```sh\n(curl .*?)^```$/ms.exec(readme)?.[1] ?? '';
  expect(request).toContain('./data/first-run.json');
  const directory = await mkdtemp(join(tmpdir(), 'sluice-readme-'));
  const server = await startByNpm(tmpdir(), { SLUICE_DRAIN_SECONDS: '1' }, [
    '--port',
    '0',
    '--data-dir',
    join(directory, 'data'),
  ]);
  try {
    const path = `${join(process.execPath, '..')}:${process.env.PATH}`;
    const shell = spawn('bash', ['-eu'], { cwd: directory, env: { ...process.env, PATH: path } });
    let printed = '';
    shell.stdout.on('data', (bytes) => (printed += bytes));
    shell.stdin.end(request.replace('http://127.0.0.1:8787', server.url));
    expect((await once(shell, 'close'))[0]).toBe(0);
    expect(printed).toContain('Hello');
    expect(printed.endsWith('data: [DONE]\n\n')).toBe(true);
  } finally {
    server.child.kill('SIGTERM');
    await server.ended;
    await rm(directory, { recursive: true, force: true });
  }
}, 60_000);

it('the first command of the README listens and keeps its data where it says', async () => {
  const readme = await readFile(README, 'utf8');
  expect(readme).toMatch(/^npm ci && npm start +#.* on http:\/\/127\.0\.0\.1:8787, data in \.\/data$/m);
  expect(loadConfig([], {}, tmpdir())).toMatchObject({
    host: '127.0.0.1',
    port: 8787,
    dataDir: join(process.cwd(), 'data'),
  });
});

it('every command, script and setting that the README and the guides name exists', async () => {
  const pages = [README, ...(await readdir(GUIDES)).map((name) => new URL(name, GUIDES))];
  const text = (await Promise.all(pages.map((page) => readFile(page, 'utf8')))).join('\n');
  const found = (pattern: RegExp) => [...new Set([...text.matchAll(pattern)].map(([, name = '']) => name))];
  const { scripts } = JSON.parse(await readFile(new URL('../../../package.json', import.meta.url), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const known = new Set(effectiveSettings([], {}, tmpdir()).map(({ name }) => String(name)));
  const help = (await runCommand([], {}, tmpdir())).out;
  const commands = found(/npm run sluice -- ([a-z][a-z-]*)/g);
  const settings = found(/\b((?:SLUICE|BLOCK)_[A-Z_]+)\b/g).filter(
    (name) => !/^SLUICE_(?:URL|URL_B|API_KEY|ADMIN_KEY|WORKSPACE)$/.test(name),
  );
  expect(commands.length).toBeGreaterThan(5);
  expect(settings.length).toBeGreaterThan(20);
  expect(commands.filter((name) => !help.includes(`npm run sluice -- ${name}`))).toEqual([]);
  expect(found(/npm run ([a-z:-]+)/g).filter((name) => !(name in scripts))).toEqual([]);
  // How names of variables begin that secrets may be read from.
  expect(settings.filter((name) => !known.has(name) && name !== 'SLUICE_SECRET_')).toEqual([]);
});
