import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { booksOf, budgetKey, eventually, settledBooks } from '../../../test/support/budgets.ts';
import { booksStore, limitSpecWith, ORGANISATION, WORKSPACE } from '../../../test/support/ledger-node.ts';
import { startServer } from '../../../test/support/server.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { compose } from '../../compose.ts';
import { loadConfig } from '../../config.ts';
import { type Clock, systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { openJournal } from '../../store/disk/journal.ts';
import { openLazyJournal } from '../../store/disk/lazy-journal.ts';
import { lineOf, settlementSink } from './journal.ts';
import { createLedger } from './ledger.ts';

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hello' }], max_tokens: 8 };
const STOP = { noticeMs: 0, drainMs: 1000 };

describe('the journal of settlements', () => {
  it('a server where nothing is limited has no folder for it', async () => {
    const server = await startServer();
    onTestFinished(() => server.stop());
    const folder = join(server.dataDir, 'spool', 'ledger');
    for (let i = 0; i < 3; i++) expect((await server.call('/chat/completions', CHAT)).status).toBe(200);
    expect(existsSync(folder)).toBe(false);
    const { key } = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1000 } });
    expect((await server.call('/chat/completions', CHAT, { 'x-gateway-api-key': key })).status).toBe(200);
    expect(existsSync(folder)).toBe(true);
  }, 60_000);

  it('neither the ledger nor the journal starts a timer before the first request with a limit', async () => {
    const root = mkdtempSync(join(tmpdir(), 'sluice-lazy-'));
    onTestFinished(() => rmSync(root, { recursive: true, force: true }));
    const dir = join(root, 'ledger');
    let timers = 0;
    const clock: Clock = {
      ...systemClock,
      after(ms, fn) {
        timers += 1;
        return systemClock.after(ms, fn);
      },
    };
    const tables = await booksStore('sqlite');
    const sink = settlementSink({ tables, clock });
    const journal = await openLazyJournal({ dir, sink, clock, log: silentLog, everyMs: 5 });
    const ledger = createLedger({ tables, journal: journal.open, clock, log: silentLog, node: 'n' });
    onTestFinished(async () => {
      await ledger.close();
      await journal.close();
      await tables.close();
    });
    const tenant = systemTenant(ORGANISATION, WORKSPACE);
    await ledger.maintain();
    await journal.drain();
    expect([timers, existsSync(dir)]).toEqual([0, false]);
    await ledger.reserve(tenant, WORKSPACE, [{ spec: limitSpecWith(), amount: 1, bounded: true }]);
    expect([timers > 0, existsSync(dir)]).toEqual([true, true]);
  });

  it('lines that an earlier run or version left are in the store after a start, once, without a request', async () => {
    const server = await startServer();
    const { dataDir, first } = server;
    onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
    const { id, key } = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1000 } });
    expect((await server.call('/chat/completions', CHAT, { 'x-gateway-api-key': key })).status).toBe(200);
    const before = await settledBooks(server, id);
    await server.running.stop(STOP);
    const db = new DatabaseSync(join(dataDir, 'control.db'), { readOnly: true });
    const row = db.prepare('SELECT id, window_no FROM usage_buckets WHERE owner_id = ?').get(id);
    db.close();

    const dir = join(dataDir, 'spool', 'ledger');
    const journal = await openJournal({ dir, clock: systemClock, log: silentLog });
    const used = { used: 7, carry: 0, requests: 1, unpriced: 0 };
    const bucket = { workspaceId: first.workspace_id, bucket: String(row?.id), window: Number(row?.window_no) };
    const line = lineOf({ ...bucket, lease: '', reserved: 0, ...used, giveBack: false });
    for (let i = 0; i < 3; i++) await new Promise<void>((resolve) => journal.append(line, resolve));
    // An earlier version wrote the list alone, with its checksum in front.
    const { settled } = JSON.parse(line) as { settled: unknown[] };
    const old = JSON.stringify(settled);
    const next = String(Number(journal.tail().segment.slice(0, 12)) + 1).padStart(12, '0');
    await journal.close();
    await writeFile(join(dir, `${next}.journal`), `${crc32(old).toString(16).padStart(8, '0')} ${old}\n`);

    const env = { SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0', SLUICE_LOG_LEVEL: 'error' };
    for (let starts = 0; starts < 2; starts++) {
      const again = await compose(loadConfig([], env, dataDir), silentLog);
      const books = await eventually(
        () => booksOf(server, id),
        (now) => now.used >= before.used + 28,
      );
      await again.stop(STOP);
      expect(books.used).toBe(before.used + 28);
    }
    expect(booksOf(server, id)).toEqual({ ...before, used: before.used + 28 });
  }, 60_000);
});
