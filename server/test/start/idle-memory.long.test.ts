import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { killAll, startBuilt, stopProcess } from '../support/process.ts';

afterAll(killAll);

/** Megabytes. What holds them: the code of Node.js 58, objects and sources 40, the thread of the control store and others 30. */
const MOST_IDLE = 145;
/** Until what a start asked of threads is done, and they have ended. */
const WITHIN_S = 30;

it.runIf(process.platform === 'linux')(
  'a server that nothing is asked of holds no thread, garbage, arena or compiled code of its start',
  async () => {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-idle-'));
    onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
    const flags = { NODE_OPTIONS: '--max-semi-space-size=8', NODE_COMPILE_CACHE: join(dir, 'compiled') };
    await stopProcess(await startBuilt(dir, flags), 'SIGINT');
    const { child } = await startBuilt(dir, flags);
    expect(readFileSync(`/proc/${child.pid}/environ`, 'utf8').split('\0')).toContain('MALLOC_ARENA_MAX=2');
    const held = () => {
      const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
      return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
    };
    for (let seconds = 0; seconds < WITHIN_S && !(held() <= MOST_IDLE); seconds++) await sleep(1_000);
    expect(held()).toBeLessThanOrEqual(MOST_IDLE);
  },
  120_000,
);
