/** The tables on PostgreSQL keep nothing that was sealed. */
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { migratedDatabase } from '../../../test/support/postgres.ts';
import { systemClock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { silentLog } from '../../kernel/log.ts';
import { isSealed, sealStored } from '../../resources/seal-stored.ts';
import { organisationRow } from '../conformance/rows.ts';
import { type EnvelopeVault, openVault } from '../envelope.ts';
import { loadKeyring } from '../keyring.ts';
import type { Tables } from '../ports.ts';
import { openPostgresTables } from './tables.ts';

const CANARY = 'canary-4e1c7a90';
const id = uuidv7(systemClock);

let tables: Tables;
let vault: EnvelopeVault;
let client: pg.Client;

beforeAll(async () => {
  const url = await migratedDatabase();
  tables = await openPostgresTables({ url, log: silentLog });
  await tables.migrate();
  const keyring = await loadKeyring({
    masterKey: randomBytes(32).toString('base64'),
    masterKeyFile: '/nonexistent',
    create: false,
  });
  vault = openVault({ keyring, tables, clock: systemClock });
  client = new pg.Client(url);
  await client.connect();
});
afterAll(async () => {
  await client?.end();
  await vault?.close();
  await tables?.close();
});

/** How many files of the database hold the text, after all of its pages are written. */
async function holding(text: string): Promise<number> {
  await client.query('CHECKPOINT');
  const { rows } = await client.query(
    `SELECT current_setting('data_directory') AS root, regexp_replace(pg_relation_filepath('meta'), '/[^/]*$', '') AS folder`,
  );
  const folder = join(String(rows[0]?.root), String(rows[0]?.folder));
  const contents = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name))));
  return contents.filter((bytes) => bytes.includes(text)).length;
}

it('what an older version stored in clear is in no table after the start that seals it; a start that is held up tries again', async () => {
  await tables.systemWrite((tx) => tx.insert('organisations', organisationRow(id)));
  const settings = { block_inline_config: false, alerts: { webhook_url: `https://hooks.example/${CANARY}` } };
  await tables.systemWrite((tx) => tx.update('organisations', { id }, { settings }));
  expect(await holding(CANARY)).toBeGreaterThan(0);

  await client.query('BEGIN; SELECT 1 FROM organisations LIMIT 1');
  await sealStored(tables, vault, silentLog);
  await client.query('COMMIT');
  expect(JSON.stringify(await tables.systemRead((tx) => tx.list('organisations', {})))).not.toContain(CANARY);
  expect([await isSealed(tables), (await holding(CANARY)) > 0]).toEqual([false, true]);

  await sealStored(tables, vault, silentLog);
  expect([await isSealed(tables), await holding(CANARY)]).toEqual([true, 0]);
});
