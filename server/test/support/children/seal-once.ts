/**
 * Seals one value in the store given by arguments (engine, file or URL, master key, organisation) as soon as a line
 * arrives on standard input, and prints the envelope.
 */
import { once } from 'node:events';
import { systemTenant } from '../../../src/auth/tenant.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../../src/kernel/log.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { openVault } from '../../../src/store/envelope.ts';
import { loadKeyring } from '../../../src/store/keyring.ts';
import { openPostgresTables } from '../../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../../src/store/sqlite/tables.ts';

const [engine = '', place = '', masterKey = '', organisation = ''] = process.argv.slice(2);
const tables =
  engine === 'sqlite'
    ? await openSqliteTables({ file: place, log: silentLog })
    : await openPostgresTables({ url: place, log: silentLog });
const keyring = await loadKeyring({ masterKey, masterKeyFile: '', create: false });
const vault = openVault({ keyring, tables, clock: systemClock });
await tables.ping();
process.stdout.write('ready\n');
await once(process.stdin, 'data');
const place1 = { table: 'integrations', column: 'key', row: 'row-1' };
process.stdout.write(await vault.seal(systemTenant(organisation), place1, new Secret('sk-shared')));
await vault.close();
await tables.close();
process.exit(0);
