/** Shared log files with real keeper processes, which are killed at random moments. */
import { once } from 'node:events';
import { afterEach, expect, it } from 'vitest';
import { type SharingNode, startSharingNodes } from '../../test/support/log-fleet.ts';
import { recent, recordOfNow } from '../../test/support/log-keeper.ts';

let nodes: SharingNode[] = [];
afterEach(async () => {
  for (const node of nodes.splice(0)) await node.close();
});

const measures = [{ as: 'distinct', of: 'distinct', column: 'id' } as const, { as: 'all', of: 'count' } as const];
const pause = (ms: number) => once(process, 'nothing', { signal: AbortSignal.timeout(ms) }).catch(() => undefined);

it('twenty kills of keepers of two nodes lose no record and double none, and both nodes answer the same', async () => {
  nodes = await startSharingNodes(['a', 'b']);
  const [a, b] = nodes as [SharingNode, SharingNode];
  let written = 0;
  for (let kill = 0; kill < 20; kill++) {
    for (const node of nodes) {
      await node.write(...Array.from({ length: 40 }, () => recordOfNow(++written, { node: `run-${node.name}` })));
      node.keeper.wake();
    }
    // Within the start, a flush, an upload, a merge or what follows it.
    await pause(200 + ((kill * 137) % 700));
    await (kill % 2 === 0 ? a : b).kill();
    await (kill % 2 === 0 ? a : b).restart();
  }
  await a.keeper.flush();
  await b.keeper.flush();
  await expect
    .poll(
      async () => {
        const answers = await Promise.all(nodes.map((node) => node.keeper.groups(recent(), { by: [], measures })));
        return answers.map(({ summary, incomplete }) => ({ ...summary, incomplete }));
      },
      { timeout: 30_000 },
    )
    .toEqual([
      { distinct: written, all: written, incomplete: [] },
      { distinct: written, all: written, incomplete: [] },
    ]);
  const files = await a.tables.systemRead((tx) => tx.list('log_files', { where: { remove_at: 0 } }));
  expect(files.reduce((sum, { records }) => sum + records, 0)).toBe(written);
  const hours = await a.tables.systemRead((tx) => tx.list('log_hours', {}));
  expect(hours.reduce((sum, { requests }) => sum + requests, 0)).toBe(written);
  const query = { columns: ['id', 'time'], order: 'newest', limit: 200, behind: null } as const;
  expect((await a.keeper.page(recent(), query)).rows).toEqual((await b.keeper.page(recent(), query)).rows);
}, 180_000);
