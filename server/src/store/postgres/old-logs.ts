import type { Log } from '../../kernel/log.ts';
import type { OldLogs } from '../ports.ts';
import { alone, openPool, transaction } from './client.ts';
import { SYSTEM_SCOPE } from './row-security.ts';

/**
 * The table of request logs that versions before the log keeper wrote; null where there is none. It stays, empty: nodes of the older
 * version may still write to it while nodes are upgraded one after the other.
 */
export async function openOldPostgresLogs(url: string, log: Log): Promise<OldLogs | null> {
  const pool = openPool(url, 1, log);
  const query = async (text: string, values: readonly unknown[] = []) =>
    (await alone(pool, `BEGIN READ ONLY; ${SYSTEM_SCOPE}`, { text, values: [...values] })).rows;
  const [found] = await query(
    "SELECT to_regclass('logs') IS NOT NULL AND to_regclass('journals') IS NOT NULL AS there",
  );
  if (found?.there !== true) {
    await pool.end();
    return null;
  }
  return {
    async position(journal) {
      const [row] = await query('SELECT segment, position FROM journals WHERE name = $1', [journal]);
      return row === undefined ? null : { segment: String(row.segment), offset: Number(row.position) };
    },
    async read(behind, limit) {
      const from = behind === null ? '' : 'WHERE (node, seq) > ($2, $3)';
      const text = `SELECT node, seq, record FROM logs ${from} ORDER BY node, seq LIMIT $1`;
      const rows = await query(text, [limit, ...(behind ?? [])]);
      return rows.map(({ node, seq, record }) => ({ key: [String(node), Number(seq)], line: String(record) }));
    },
    async remove(keys) {
      const [nodes, seqs] = [keys.map(([node]) => node), keys.map(([, seq]) => seq)];
      await transaction(pool, `BEGIN; ${SYSTEM_SCOPE}`, (execute) =>
        execute('DELETE FROM logs WHERE (node, seq) IN (SELECT * FROM unnest($1::text[], $2::bigint[]))', [
          nodes,
          seqs,
        ]),
      );
    },
    end: async () => undefined,
    close: () => pool.end(),
  };
}
