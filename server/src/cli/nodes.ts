import { type Config, loadConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Macs } from '../store/vault.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

const USAGE = 'usage: npm run sluice -- nodes list | give-up ID [settings]';
const PAGE = 100;
/** A node that cannot reach the control store serves no longer than this: one that was silent for so long has ended. */
const SILENT_MS = 10 * 60_000;

export interface GivenUp {
  /** Log files that only this node had on its disk. */
  readonly files: number;
  readonly records: number;
  /** All that it recorded before this time is where the other nodes read it; milliseconds since the epoch. */
  readonly completeTo: number;
}

/**
 * `nodes list` prints the nodes that keep records for all; `nodes give-up ID` ends the waiting for one that will never come back.
 * Beside running servers, with the settings of those. Throws SluiceError for a wrong command line, an unknown or a live node.
 */
export async function nodes(args: readonly string[], output: Output): Promise<void> {
  const { plain, settings } = wordsOf(args, []);
  const [verb = '', id = ''] = plain;
  if (!(verb === 'list' && plain.length === 1) && !(verb === 'give-up' && plain.length === 2))
    throw new SluiceError('validation', USAGE);
  const config = loadConfig(settings);
  const tables = await openStoredTables(config);
  try {
    await tables.migrate();
    if (verb === 'list') return await list(tables, output);
    const macs = await storedKeyring(config);
    const { files, records, completeTo } = await giveUpNode(tables, macs, id, isShared(config));
    output.out(`The node ${id} is given up. No erasure and no answer waits for it any more.\n`);
    output.out(
      `Lost: its records since about ${timeOf(completeTo)}, with ${records} of ${files} files on its disk only,\n`,
    );
    output.out(
      'and the bodies and spans that it had not sent yet. Destroy its data directory: never start it again there.\n',
    );
  } finally {
    await tables.close();
  }
}

/** Whether nodes read each other's files: then each learns from the row of a file that it is gone. */
const isShared = ({ blobs, logs }: Config): boolean => blobs !== null && logs === null;

async function list(tables: Tables, output: Output): Promise<void> {
  const [now, found] = await tables.systemRead(async (tx) => {
    const rows = await tx.list('log_nodes', { orderBy: [['node', 'asc']] });
    return [await tx.now(), await Promise.all(rows.map(async (row) => ({ ...row, left: await leftBy(tx, row.node) })))];
  });
  for (const { node, seen_at, left } of found) {
    const state = now - seen_at < SILENT_MS ? 'runs' : 'silent';
    output.out(`${node}  ${state}, last seen ${timeOf(seen_at)}, ${left.length} files on its disk only\n`);
  }
  if (found.length === 0)
    output.out('No node has said that it keeps records for all: they share no object store and no ClickHouse.\n');
}

/**
 * Takes a node out of those that are waited for, with its files that no other node can read, and writes that into the audit log of
 * each organisation. Throws `not_found` for a node that keeps no records for all, `conflict` for one that may be running.
 *
 * @param shared nodes read each other's files
 */
export async function giveUpNode(tables: Tables, macs: Macs, node: string, shared: boolean): Promise<GivenUp> {
  const given = await tables.systemWrite(
    async (tx) => {
      const known = await tx.find('log_nodes', { node });
      if (known === undefined) {
        throw new SluiceError(
          'not_found',
          `There is no node ${node} that is waited for; sluice nodes list names them.`,
        );
      }
      const now = await tx.now();
      if (now - known.seen_at < SILENT_MS) {
        const message = `The node ${node} was last seen at ${timeOf(known.seen_at)} and may be running. Stop it, and try again when it was silent for ten minutes.`;
        throw new SluiceError('conflict', message);
      }
      const left = await leftBy(tx, node);
      for (const { id } of left) {
        // The others read what has changed in the list, and its leader removes the row then.
        if (shared) await tx.update('log_files', { id, place: 'disk' }, { remove_at: now, changed_at: now });
        else await tx.remove('log_files', { id, place: 'disk' });
      }
      await tx.remove('log_nodes', { node });
      const records = left.reduce((sum, file) => sum + file.records, 0);
      return { files: left.length, records, completeTo: known.complete_to };
    },
    { queue: 'log files' },
  );
  await note(tables, macs, node, given);
  return given;
}

const leftBy = (tx: SystemTx, node: string) =>
  tx.list('log_files', { where: { node, place: 'disk', remove_at: 0 }, orderBy: [['id', 'asc']] });

/** The records that are lost may be of any organisation. */
async function note(tables: Tables, macs: Macs, node: string, { files, records, completeTo }: GivenUp): Promise<void> {
  for (let after = ''; ; ) {
    const page = await tables.systemRead((tx) =>
      tx.list('organisations', { where: { id: { gt: after } }, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const { id: organisationId } of page) {
      const deed = {
        organisationId,
        workspaceId: null,
        action: 'delete',
        resource: 'nodes',
        resourceId: node,
      } as const;
      const facts = { records_kept_to: timeOf(completeTo), files_lost: files, records_lost_in_files: records };
      const entry = systemEntry(systemClock, { ...deed, before: null, after: facts });
      await tables.systemWrite((tx) => appendAudit(tx, macs, entry), { queue: organisationId });
    }
    after = page.at(-1)?.id ?? '';
    if (page.length < PAGE) return;
  }
}

const timeOf = (at: number): string => new Date(at).toISOString();
