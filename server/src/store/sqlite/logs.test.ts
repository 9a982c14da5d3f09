import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { silentLog } from '../../kernel/log.ts';
import { joined, logRecord, logsConformance } from '../conformance/logs.ts';
import { type LogSink, unsafeTenant } from '../ports.ts';
import { openSqliteLogs } from './logs.ts';

logsConformance('sqlite', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-sqlite-'));
  const opened: LogSink[] = [];
  const another = async () => {
    const logs = await openSqliteLogs({ file: join(dir, 'logs.db'), log: silentLog });
    opened.push(logs);
    return logs;
  };
  return {
    logs: await another(),
    another,
    close: async () => {
      for (const logs of opened) await logs.close();
      rmSync(dir, { recursive: true });
    },
  };
});

it('a slow search does not delay an insert', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-sqlite-'));
  const logs = await openSqliteLogs({ file: join(dir, 'logs.db'), log: silentLog });
  await logs.migrate();
  const lines = Array.from({ length: 20_000 }, (_, i) => JSON.stringify(logRecord(i)));
  await logs.insert('j', joined(...lines), { segment: '1', offset: 0 });
  let searching = true;
  const searches = Promise.all(
    Array.from({ length: 60 }, () =>
      logs.list(unsafeTenant('org-a', null), { limit: 1, offset: 15_000, traceId: undefined }),
    ),
  ).then(() => {
    searching = false;
  });
  for (let i = 1; i <= 3; i++) {
    await logs.insert('j', joined(JSON.stringify(logRecord(20_000 + i))), { segment: '1', offset: i });
  }
  expect(searching).toBe(true);
  await searches;
  expect(await logs.count()).toBe(20_003);
  await logs.close();
  rmSync(dir, { recursive: true });
});
