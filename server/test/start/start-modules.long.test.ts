import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { killAll, startProcess } from '../support/process.ts';

afterAll(killAll);

/** Of the sources. `npm start` reads most of them as one bundle; where it runs them, each costs about 0.7 ms of CPU, and memory. */
const MOST_MODULES = 1_275;
const MOST_BYTES = 6_820_000;

it('a start reads what it needs: no client, compiler or adapter that is not used', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-modules-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const list = join(dir, 'modules.json');
  const hook = new URL('../support/children/list-modules.ts', import.meta.url);
  const server = await startProcess(dir, { NODE_OPTIONS: `--import=${hook.href}`, LIST_MODULES: list });
  await fetch(`${server.url}/readyz`);
  server.child.kill('SIGINT');
  await server.ended;
  const loaded = (JSON.parse(readFileSync(list, 'utf8')) as string[])
    .map((url) => fileURLToPath(url.split('?')[0] ?? ''))
    // Prices are read once the server is ready, sooner or later on another machine.
    .filter((path) => !path.includes('genai-prices'));
  const packages = new Map<string, number>();
  for (const path of loaded) {
    const name = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? 'sluice';
    packages.set(name, (packages.get(name) ?? 0) + 1);
  }
  const most = [...packages].sort((one, other) => other[1] - one[1]).slice(0, 10);
  const bytes = loaded.reduce((sum, path) => sum + statSync(path).size, 0);
  expect(loaded.length, `${loaded.length}: ${most.map((entry) => entry.join(' ')).join(', ')}`).toBeLessThan(
    MOST_MODULES,
  );
  expect(loaded.length).toBeGreaterThan(300);
  expect(bytes).toBeLessThan(MOST_BYTES);
  for (const unused of [
    'undici',
    'ajv',
    '@aws-sdk',
    'ioredis',
    'pg',
    'nodemailer',
    'gpt-tokenizer',
    'eld',
    'google-libphonenumber',
    'jose',
    're2js',
  ])
    expect(packages.has(unused), unused).toBe(false);
}, 60_000);
