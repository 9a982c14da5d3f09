import { loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import { insertServiceKey } from '../resources/organisations.ts';
import type { SystemTx } from '../store/ports.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

const USAGE =
  'usage: npm run sluice -- keys create (--workspace SLUG_OR_ID | --organisation SLUG_OR_ID) [--name NAME] [settings]';

interface Place {
  readonly organisationId: string;
  readonly workspaceId: string | null;
  readonly label: string;
}

/**
 * `keys create`: makes a service key with every scope of its kind and prints it once; works beside a running server, as when
 * the keys of the first run are lost. The key is the only line on standard output.
 */
export async function keys(args: readonly string[], output: Output): Promise<void> {
  const { plain, own, settings } = wordsOf(args, ['workspace', 'organisation', 'name']);
  const { workspace, organisation, name = 'Made by sluice keys create' } = own;
  if (plain.join(' ') !== 'create' || (workspace === undefined) === (organisation === undefined) || name.length > 255)
    throw new SluiceError('validation', USAGE);
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    const macs = await storedKeyring(config);
    const place = await tables.systemRead((tx) =>
      workspace === undefined ? findOrganisation(tx, organisation ?? '') : findWorkspace(tx, workspace),
    );
    const { organisationId, workspaceId } = place;
    const key = await tables.systemWrite(
      async (tx) => {
        const made = await insertServiceKey(tx, {
          organisationId,
          workspaceId,
          name,
          createdBy: null,
          clock: systemClock,
        });
        const deed = {
          organisationId,
          workspaceId,
          action: 'create',
          resource: 'api-keys',
          resourceId: made.id,
        } as const;
        await appendAudit(
          tx,
          macs,
          systemEntry(systemClock, { ...deed, before: null, after: { name, type: made.type } }),
        );
        return made.key;
      },
      { queue: organisationId },
    );
    output.out(`${key}\n`);
    output.err(`A key for ${place.label}, with every scope of its kind. It is shown this once.\n`);
  } finally {
    await tables.close();
  }
}

async function findOrganisation(tx: SystemTx, wanted: string): Promise<Place> {
  const [found, ...more] = await tx.list('organisations', { where: byIdOrSlug(wanted), orderBy: [['id', 'asc']] });
  if (found === undefined || more.length > 0) throw unknown('organisation', wanted, more.length);
  return { organisationId: found.id, workspaceId: null, label: `the organisation ${found.name}` };
}

async function findWorkspace(tx: SystemTx, wanted: string): Promise<Place> {
  const where = { ...byIdOrSlug(wanted), status: 'active' as const };
  const [found, ...more] = await tx.list('workspaces', { where, orderBy: [['id', 'asc']] });
  if (found === undefined || more.length > 0) throw unknown('workspace', wanted, more.length);
  return { organisationId: found.organisation_id, workspaceId: found.id, label: `the workspace ${found.name}` };
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const byIdOrSlug = (wanted: string) => (UUID.test(wanted) ? { id: wanted.toLowerCase() } : { slug: wanted });

function unknown(what: string, wanted: string, others: number): SluiceError {
  return others > 0
    ? new SluiceError('conflict', `Several organisations have a ${what} with the slug ${wanted}: give its id.`)
    : new SluiceError('not_found', `There is no ${what} ${wanted}. Give the slug or the id of one that exists.`);
}
