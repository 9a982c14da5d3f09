import { access, rm } from 'node:fs/promises';
import type { Log } from '../../kernel/log.ts';
import type { OldLogs } from '../ports.ts';
import { SqliteThread } from './thread.ts';

const CONNECTION = {
  readOnly: false,
  synchronous: 'FULL',
  busyTimeoutMs: 10_000,
  cacheKb: 8_000,
  pageSize: 8192,
  secureDelete: false,
  checkpointPages: 2_000,
} as const;

/** The file of request logs that versions before the log keeper wrote; null where there is none. */
export async function openOldSqliteLogs(file: string, log: Log): Promise<OldLogs | null> {
  const there = await access(file).then(
    () => true,
    () => false,
  );
  if (!there) return null;
  const thread = new SqliteThread({ file, connections: [CONNECTION] }, log);
  await thread.open();
  const query = async (sql: string, parameters: readonly (string | number)[] = []) =>
    (await thread.query(0, sql, parameters)).rows;
  const tables = await query("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('logs', 'journals')");
  let isEmpty = tables.length < 2;
  return {
    async position(journal) {
      if (isEmpty) return null;
      const [row] = await query('SELECT segment, position FROM journals WHERE name = ?', [journal]);
      return row === undefined ? null : { segment: String(row.segment), offset: Number(row.position) };
    },
    async read(behind, limit) {
      if (isEmpty) return [];
      const from = behind === null ? '' : 'WHERE (node, seq) > (?, ?)';
      const sql = `SELECT node, seq, record FROM logs ${from} ORDER BY node, seq LIMIT ?`;
      const rows = await query(sql, [...(behind ?? []), limit]);
      return rows.map(({ node, seq, record }) => ({ key: [String(node), Number(seq)], line: String(record) }));
    },
    async remove(keys) {
      const { life } = thread;
      await thread.query(0, 'BEGIN IMMEDIATE', [], life);
      try {
        const gone = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)";
        await thread.query(0, `DELETE FROM logs WHERE (node, seq) IN (${gone})`, [JSON.stringify(keys)], life);
        await thread.query(0, 'COMMIT', [], life);
      } catch (error) {
        await thread.rollback(0, life);
        throw error;
      }
    },
    async end() {
      isEmpty = true;
      await thread.close();
      for (const ending of ['', '-wal', '-shm']) await rm(file + ending, { force: true });
    },
    close: () => thread.close(),
  };
}
