import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openDataDir } from './data-dir.ts';

const HOLDER = fileURLToPath(new URL('../../../test/support/children/hold-data-dir.ts', import.meta.url));

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-data-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

describe('data directory', () => {
  it('is made for its owner alone, and keeps its node id over restarts', async () => {
    const path = join(folder(), 'a', 'b');
    const first = await openDataDir(path);
    expect(statSync(path).mode & 0o777).toBe(0o700);
    for (const name of readdirSync(path)) expect([name, statSync(join(path, name)).mode & 0o077]).toEqual([name, 0]);
    await first.close();
    await first.close();
    const second = await openDataDir(path);
    expect(second.nodeId).toBe(first.nodeId);
    expect(second.nodeId).toMatch(/^[0-9a-f-]{36}$/);
    await second.close();
  });

  it('refuses a second server with one line that says what to do, in one process and in two', async () => {
    const path = folder();
    const held = await openDataDir(path);
    const refusal = {
      kind: 'conflict',
      message: expect.stringMatching(/Another Sluice server is using .* SLUICE_DATA_DIR/),
    };
    await expect(openDataDir(path)).rejects.toMatchObject(refusal);
    await held.close();
    const child = spawn(process.execPath, [HOLDER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    onTestFinished(() => void child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    await expect(openDataDir(path)).rejects.toMatchObject(refusal);
  });

  it('a killed server leaves nothing that blocks the next start', async () => {
    const path = folder();
    for (let i = 0; i < 3; i++) {
      const child = spawn(process.execPath, [HOLDER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
      await once(child.stdout, 'data');
      child.kill('SIGKILL');
      await once(child, 'exit');
      await (await openDataDir(path)).close();
    }
  });

  it('names the directory when it cannot be used', async () => {
    const file = join(folder(), 'file');
    writeFileSync(file, '');
    await expect(openDataDir(file)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(file),
    });
    const damaged = folder();
    writeFileSync(join(damaged, 'node-id'), 'x');
    await expect(openDataDir(damaged)).rejects.toThrow(/node-id/);
    writeFileSync(
      join(damaged, 'lock.db'),
      'this is not a database, but long enough to be looked at as one'.repeat(20),
    );
    await expect(openDataDir(damaged)).rejects.toMatchObject({ kind: 'unavailable' });
  });
});
