import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseConfig } from '../src/resources/configs/schema.ts';
import { startServer } from './support/server.ts';

const GUIDES = new URL('../../docs/guides/', import.meta.url);

/** The blocks of a guide that are commands, as one script. */
const commandsOf = (guide: string): string =>
  [...guide.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, commands]) => commands).join('\n');

/** Guides, and how many of their commands are refused on purpose. */
const RUN: [string, number][] = [
  ['admin-api.md', 1],
  ['guardrails.md', 0],
];

it.each(RUN)(
  'the commands of %s are run as they stand and print the statuses they say',
  async (name, refused) => {
    const commands = commandsOf(await readFile(new URL(name, GUIDES), 'utf8'));
    expect(commands).toContain('http://127.0.0.1:8787/v1');
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
      shell.stdin.end(commands.replace('http://127.0.0.1:8787/v1', `${server.url}/v1`));
      const [code] = await once(shell, 'close');
      expect([code, faults]).toEqual([0, '']);
      expect(printed.split('"error":{"code"').length - 1).toBe(refused);
      const said = [...commands.matchAll(/# (\d{3})$/gm)].map(([, status]) => status);
      // The answer before a status may end without a line break.
      expect([...printed.matchAll(/(?:^|\})(\d{3})$/gm)].map(([, status]) => status)).toEqual(said);
      expect(said.length).toBeGreaterThan(0);
    } finally {
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    }
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
