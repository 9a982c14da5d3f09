/** Suites outside the test runner (`server/test/slow`, `bench`): none fails by chance, and none hangs in silence. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { until, within } from './support/watchdog.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const WATCHDOG = fileURLToPath(new URL('./support/watchdog.ts', import.meta.url));
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
const suites = Object.entries(scripts).flatMap(([name, command]) => {
  const path = /^node ((?:server\/test\/slow|bench)\/[\w-]+\.ts)$/.exec(command)?.[1];
  return path === undefined ? [] : [{ name, path }];
});

describe('suites outside the test runner', () => {
  it.each(suites)('$name says where it is, and ends when it is stuck', ({ path }) => {
    expect(readFileSync(join(ROOT, path), 'utf8')).toMatch(/\bwatchdog\(/);
  });

  it('and what they start listen on ports that the system gives', () => {
    expect(suites.length).toBeGreaterThan(9);
    const folders = ['server/test/slow', 'server/test/support', 'bench'];
    const sources = folders.flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => join(folder, name)),
    );
    // A number that is made up may be another's port; one of a connection, too, while the server is away.
    const made = /SLUICE_PORT:(?! '0')|\bport\w* = .*(\bpid\b|\bnext\(\)|random)/i;
    expect(sources.filter((path) => made.test(readFileSync(join(ROOT, path), 'utf8')))).toEqual([]);
  });
});

interface Ended {
  readonly code: number | null;
  readonly out: string;
}

/** A suite of these lines; `signal` is sent when it has begun its phase. */
function run(lines: string, signal: NodeJS.Signals | null = null): Promise<Ended> {
  const source = `import { watchdog } from ${JSON.stringify(WATCHDOG)};
    const watch = watchdog('suite', () => 'two requests are under way');
    setInterval(() => undefined, 1_000);
    ${lines}`;
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=module-typescript', '--eval', source];
  const child = spawn(process.execPath, args, { cwd: dirname(WATCHDOG), stdio: ['ignore', 'pipe', 'ignore'] });
  let out = '';
  child.stdout.on('data', (data) => {
    out += data;
    if (signal !== null && out.includes('the round')) child.kill(signal);
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, out })));
}

describe('the watchdog of a suite', () => {
  it('ends a phase that makes no progress, and prints its name and what is under way', async () => {
    const { code, out } = await run(`watch.phase('the round', 10);`);
    expect(out).toMatch(/no progress for \d+ s in phase "the round".*two requests are under way/s);
    expect(code).toBe(1);
  });

  it('prints the same when a signal ends the suite', async () => {
    const { code, out } = await run(`watch.phase('the round');`, 'SIGTERM');
    expect(out).toMatch(/ended by SIGTERM in phase "the round".*two requests are under way/s);
    expect(code).toBe(1);
  });

  it('prints the same for an error that is not caught', async () => {
    const { code, out } = await run(`watch.phase('the round'); await Promise.reject(new Error('broken'));`);
    expect(out).toMatch(/failed in phase "the round".*two requests are under way/s);
    expect(code).toBe(1);
  });

  it('names what was waited for', async () => {
    const never = new Promise<void>(() => undefined);
    await expect(within(5, 'the store', never)).rejects.toThrow('the store: nothing within 0.005 s');
    await expect(until(5, 'an answer', () => false, 1)).rejects.toThrow('an answer: not within 0.005 s');
    expect(await within(60_000, 'the store', Promise.resolve('here'))).toBe('here');
    await until(60_000, 'an answer', () => true);
  });
});
