import { expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { TcpProxy } from '../../../test/support/proxy.ts';
import { silentLog } from '../../kernel/log.ts';
import { joined, logRecord, logsConformance } from '../conformance/logs.ts';
import type { LogSink } from '../ports.ts';
import { openPostgresLogs } from './logs.ts';

logsConformance('postgres', async () => {
  const url = await postgresDatabase();
  const opened: LogSink[] = [];
  const another = async () => {
    const logs = await openPostgresLogs({ url, log: silentLog });
    opened.push(logs);
    return logs;
  };
  return {
    logs: await another(),
    another,
    close: async () => {
      for (const logs of opened) await logs.close();
    },
  };
});

it('a store that goes away in the middle refuses the batch, and stores it once when it is back', async () => {
  const url = new URL(await postgresDatabase());
  const proxy = await TcpProxy.start(Number(url.port));
  url.port = String(proxy.port);
  const logs = await openPostgresLogs({ url: url.href, log: silentLog });
  await logs.migrate();
  const lines = [1, 2, 3].map((seq) => JSON.stringify(logRecord(seq)));
  const position = { segment: '1', offset: 1 };
  await logs.insert('j', joined(...lines.slice(0, 2)), { segment: '1', offset: 0 });
  const cut = logs.insert('j', joined(...lines), position).then(
    () => 'stored',
    (error: unknown) => error,
  );
  await proxy.down();
  const unavailable = expect.objectContaining({ name: 'SluiceError', kind: 'unavailable' });
  expect(['stored', unavailable]).toContainEqual(await cut);
  await expect(logs.insert('j', joined(...lines), position)).rejects.toEqual(unavailable);
  await expect(logs.count()).rejects.toEqual(unavailable);
  await proxy.up();
  await logs.insert('j', joined(...lines), position);
  expect(await logs.count()).toBe(3);
  expect(await logs.position('j')).toEqual(position);
  await logs.close();
  await proxy.close();
});
