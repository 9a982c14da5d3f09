/** What `first-run.json` offers, with and without a console. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { firstRun } from '../../src/first-run.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { temporaryTables } from '../support/tables.ts';

it.each([
  [true, expect.stringMatching(/^http:\/\/x\/console\/sign-in#\w+$/)],
  [false, null],
])('with a console (%s) first-run.json has a sign-in link, without one it has none', async (console, link) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sluice-first-file-'));
  const tables = await temporaryTables();
  try {
    const clock = new TestClock();
    await firstRun({ tables, clock, dataDir, publicUrl: 'http://x', blockInlineConfig: false, console });
    const file = JSON.parse(await readFile(join(dataDir, 'first-run.json'), 'utf8')) as Record<string, unknown>;
    expect(file).toMatchObject({ base_url: 'http://x/v1', console_url: link });
    const links = await tables.systemRead((tx) => tx.count('console_sessions'));
    expect(links).toBe(console ? 1 : 0);
  } finally {
    await tables.close();
    await rm(dataDir, { recursive: true, force: true });
  }
});
