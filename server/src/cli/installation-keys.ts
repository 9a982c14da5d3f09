import { maskKey, parseKey } from '../auth/key-format.ts';
import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { createOperatorKey } from '../resources/organisations.ts';
import { openVault } from '../store/envelope.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

const USAGE =
  'usage: npm run sluice -- operator-key list | rotate | revoke ID [settings], or npm run sluice -- master-key status | rewrap [settings]';
const VERBS = { 'operator-key': ['list', 'rotate', 'revoke'], 'master-key': ['status', 'rewrap'] };
/** Data keys that are wrapped in one transaction. */
const BATCH = 100;

/**
 * Keys of the installation, beside running servers, too. `operator-key` is about operator keys: a new one
 * and the ones before are valid until those are revoked. `master-key` is about the one that data keys are
 * wrapped with. Throws SluiceError for a wrong command line.
 */
export async function installationKeys(
  command: keyof typeof VERBS,
  args: readonly string[],
  output: Output,
): Promise<void> {
  const { plain, settings } = wordsOf(args, []);
  const [verb = '', id] = plain;
  if (!VERBS[command].includes(verb) || plain.length !== (verb === 'revoke' ? 2 : 1))
    throw new SluiceError('validation', USAGE);
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    if (verb === 'list') await list(tables, output);
    else if (verb === 'rotate') await rotate(tables, output);
    else if (id !== undefined) await revoke(tables, id, output);
    else {
      const keyring = await storedKeyring(config);
      const vault = openVault({ keyring, tables, clock: systemClock });
      try {
        await vault.verify();
        if (verb === 'rewrap') {
          let wrapped = 0;
          for (let n = BATCH; n > 0; wrapped += n) n = await vault.rewrap(BATCH);
          output.out(`${wrapped} data keys are wrapped with the newest master key now.\n`);
        }
        for (const { kekId, available, dataKeys } of await vault.status()) {
          output.out(
            `master key ${kekId}: ${dataKeys} data keys${available ? '' : '; not given, they cannot be opened'}\n`,
          );
        }
      } finally {
        await vault.close();
      }
    }
  } finally {
    await tables.close();
  }
}

async function list(tables: Tables, output: Output): Promise<void> {
  const rows = await tables.systemRead((tx) => tx.list('operator_keys', { orderBy: [['created_at', 'asc']] }));
  for (const { id, created_at } of rows) {
    output.out(`${id}  made ${new Date(created_at).toISOString()}  slc_opr_${maskKey(id)}\n`);
  }
}

async function rotate(tables: Tables, output: Output): Promise<void> {
  const key = await tables.systemWrite(async (tx) => {
    const made = await createOperatorKey(tx, systemClock);
    await noteChange(tx, parseKey(made)?.publicId ?? '');
    return made;
  });
  output.out(`${key}\n`);
  output.err(
    'The new operator key is shown this once. The ones before are valid until you revoke them: sluice operator-key list\n',
  );
}

async function revoke(tables: Tables, id: string, output: Output): Promise<void> {
  await tables.systemWrite(async (tx) => {
    const rows = await tx.list('operator_keys', {});
    if (!rows.some((row) => row.id === id)) {
      throw new SluiceError(
        'not_found',
        `There is no operator key with the id ${id}; sluice operator-key list names them.`,
      );
    }
    if (rows.length === 1) {
      throw new SluiceError(
        'conflict',
        'This is the only operator key: make another one first, by sluice operator-key rotate.',
      );
    }
    await tx.remove('operator_keys', { id });
    await noteChange(tx, id);
  });
  output.out(`The operator key ${id} is revoked.\n`);
}

/** Running nodes forget the operator keys they know, and log that there was a change. */
async function noteChange(tx: SystemTx, id: string): Promise<void> {
  // A change is always some organisation's; nodes look at its topic only.
  const [{ id: organisationId } = { id: '' }] = await tx.list('organisations', { limit: 1 });
  tx.changed({ organisationId, workspaceId: null, topic: 'operator_keys', entityId: id });
}
