/** The file of the control store keeps nothing that was sealed, replaced or removed. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { silentLog } from '../../kernel/log.ts';
import { sealStored } from '../../resources/seal-stored.ts';
import { organisationRow } from '../conformance/rows.ts';
import { openVault } from '../envelope.ts';
import { loadKeyring } from '../keyring.ts';
import type { Tables } from '../ports.ts';
import { openSqliteTables } from './tables.ts';

const CANARY = 'canary-7f3b9d2e';
const id = uuidv7(systemClock);
const FILLER = 'x'.repeat(3_000);

let dir = '';
let tables: Tables;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-erase-'));
  tables = await openSqliteTables({ file: join(dir, 'control.db'), log: silentLog });
  await tables.migrate();
  await tables.systemWrite((tx) => tx.insert('organisations', organisationRow(id)));
});
afterEach(async () => {
  await tables.close();
  await rm(dir, { recursive: true, force: true });
});

/** Names of the files that hold the text. */
async function holding(text: string): Promise<string[]> {
  const names = await readdir(dir);
  const contents = await Promise.all(names.map((name) => readFile(join(dir, name))));
  return names.filter((_, k) => contents[k]?.includes(text));
}

async function openedVault() {
  const masterKey = randomBytes(32).toString('base64');
  const keyring = await loadKeyring({ masterKey, masterKeyFile: '/nonexistent', create: false });
  return openVault({ keyring, tables, clock: systemClock });
}

/** What an older version wrote: it overwrote nothing. */
function writtenBefore(): void {
  const db = new DatabaseSync(join(dir, 'control.db'), { timeout: 5_000 });
  const settings = (tail: string) =>
    JSON.stringify({ block_inline_config: false, alerts: { webhook_url: `https://hooks.example/${CANARY}-${tail}` } });
  const set = db.prepare('UPDATE organisations SET settings = ? WHERE id = ?');
  set.run(settings(`replaced-${FILLER}`), id);
  set.run(settings('stored'), id);
  db.prepare("INSERT INTO meta (key, value) VALUES ('gone', ?)").run(`${CANARY}-removed-${FILLER.repeat(4)}`);
  db.exec("DELETE FROM meta WHERE key = 'gone'");
  db.close();
}

it('what an older version stored in clear is gone from every file after the start that seals it', async () => {
  writtenBefore();
  expect(await holding(CANARY)).not.toEqual([]);
  const vault = await openedVault();
  await sealStored(tables, vault, silentLog);
  const rows = await tables.systemRead((tx) => tx.list('organisations', {}));
  expect(JSON.stringify(rows)).toContain('slc1.');
  expect(await holding(CANARY)).toEqual([]);
  await vault.close();
});

it('the mark of the sealing is written after the file is clean, so that a start in between is taken up', async () => {
  writtenBefore();
  const vault = await openedVault();
  await sealStored(withAnotherProcess(tables), vault, silentLog);
  expect(await holding(CANARY)).not.toEqual([]);
  await sealStored(tables, vault, silentLog);
  expect(await holding(CANARY)).toEqual([]);
  await vault.close();
});

it('what is replaced or removed from then on is overwritten', async () => {
  await tables.systemWrite((tx) => tx.insert('meta', { key: 'one', value: `${CANARY}-${FILLER}` }));
  await tables.systemWrite((tx) => tx.update('meta', { key: 'one' }, { value: 'short' }));
  await tables.systemWrite((tx) => tx.insert('meta', { key: 'two', value: `${CANARY}-${FILLER.repeat(4)}` }));
  await tables.systemWrite((tx) => tx.remove('meta', { key: 'two' }));
  await tables.close();
  expect(await holding(CANARY)).toEqual([]);
});

/** The real store while another process is in the way. */
function withAnotherProcess(real: Tables): Tables {
  return new Proxy(real, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (name === 'eraseRemoved') return async () => false;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
