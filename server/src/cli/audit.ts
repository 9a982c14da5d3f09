import { type Config, loadConfig } from '../config.ts';
import { SluiceError } from '../kernel/errors.ts';
import { explainFinding, type Verified, verifyAudit } from '../resources/audit-logs/verify.ts';
import type { Tables } from '../store/ports.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

const USAGE = 'usage: npm run sluice -- audit verify [--organisation ID] [settings]';
const PAGE = 100;

/**
 * `audit verify`: follows the chain of every organisation’s audit log, or of one’s; beside running servers, too.
 * The exit code is 0 when all is as it was written, 1 when something is not, and 2 when it could not be looked at.
 */
export async function audit(args: readonly string[], output: Output): Promise<void> {
  const { organisation, settings } = parse(args);
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    const broken = await verify(tables, config, organisation, output);
    if (broken > 0) process.exitCode = 1;
  } finally {
    await tables.close();
  }
}

function parse(args: readonly string[]): { organisation: string | null; settings: readonly string[] } {
  const { plain, own, settings } = wordsOf(args, ['organisation']);
  const { organisation = null } = own;
  if (plain.join(' ') !== 'verify') throw new SluiceError('validation', USAGE);
  if (organisation?.startsWith('-'))
    throw new SluiceError('validation', `--organisation needs one id of an organisation; ${USAGE}`);
  return { organisation: organisation?.toLowerCase() ?? null, settings };
}

/** Prints a line or two per organisation; answers how many are broken. */
async function verify(tables: Tables, config: Config, only: string | null, output: Output): Promise<number> {
  const macs = await storedKeyring(config);
  let seen = 0;
  let broken = 0;
  for (let after = ''; ; ) {
    const where = only === null ? { id: { gt: after } } : { id: only };
    const page = await tables.systemRead((tx) =>
      tx.list('organisations', { where, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const { id, name } of page) {
      const verified = await verifyAudit(tables, macs, id);
      output.out(report(name, verified));
      seen += 1;
      if (verified.finding) broken += 1;
    }
    after = page.at(-1)?.id ?? '';
    if (only !== null || page.length < PAGE) break;
  }
  if (seen > 0) return broken;
  throw new SluiceError(
    'not_found',
    only === null
      ? 'There is no organisation in this store: check SLUICE_DATA_DIR or SLUICE_DATABASE_URL.'
      : `There is no organisation ${only} in this store.`,
  );
}

function report(name: string, { organisationId, begins, rows, unchained, last, finding }: Verified): string {
  const who = `${organisationId} (${JSON.stringify(name)})`;
  const good = rows - begins + 1;
  const from = begins === 1 ? '' : `, from row ${begins} on; older rows were removed (SLUICE_AUDIT_DAYS)`;
  const verdict = finding
    ? `BROKEN after ${good} good rows${from}: ${explainFinding(finding)}`
    : `ok, ${good} rows${from}`;
  const anchor = last === '' ? '' : `\n  row ${rows}: ${last}`;
  const before = unchained === 0 ? '' : `\n  not covered: ${unchained} rows that are no part of the chain`;
  return `${who}: ${verdict}${anchor}${before}\n`;
}
