/** Erasure on this machine: bodies and feedback first, then the records that say which they are. So one cut short finds the rest. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../store/disk/files.ts';
import type { ErasedCounts, ErasedTrace } from '../telemetry/log-erasure.ts';
import type { ErasedLogs } from '../telemetry/log-query.ts';
import type { BodyKeeper } from './body-keeper.ts';
import { UNFINISHED } from './catalog.ts';
import { type Connection, rowsOf } from './engine.ts';
import type { Keeper } from './keeper.ts';
import { ERASED_COLUMNS, erasedStatement } from './log-sql.ts';
import { REJECTED } from './tail.ts';

export interface ErasingParts {
  /** Directory of the files. */
  readonly dir: string;
  readonly keeper: Pick<Keeper, 'flush' | 'rewrite' | 'findDamaged' | 'state'>;
  readonly bodies: Pick<BodyKeeper, 'flush' | 'erase'>;
  /** Removes the feedback on traces; answers how many there were. */
  readonly forgetFeedback: (organisationId: string, traces: readonly ErasedTrace[]) => Promise<number>;
}

/** Values of one page. */
const PAGE = 1_000;
const ATTEMPTS = 3;
const TABLE = 'erased';

export async function eraseRecords(
  parts: ErasingParts,
  organisationId: string,
  erased: ErasedLogs,
): Promise<ErasedCounts> {
  const { dir, keeper, bodies } = parts;
  await keeper.flush();
  await bodies.flush();
  await eraseRejected(dir, erased.value);
  const sums = { records: 0, bodies: 0, feedback: 0 };
  const rest = async (connection: Connection, relation: string): Promise<string | null> => {
    const records = await select(connection, relation, organisationId, erased);
    if (records === 0) return null;
    sums.bodies += await eraseBodies(parts, connection, organisationId);
    sums.feedback += await eraseFeedback(parts, connection, organisationId, erased);
    sums.records += records;
    const same = ['node', 'seq'].map((name) => `${TABLE}."${name}" = r."${name}"`).join(' AND ');
    return `SELECT * FROM ${relation} AS r WHERE NOT EXISTS (SELECT 1 FROM ${TABLE} WHERE ${same})`;
  };
  for (let attempt = 1; ; attempt++) {
    try {
      await keeper.rewrite(erased.before, rest);
      return { ...sums, damagedFiles: keeper.state.damagedFiles };
    } catch (error) {
      if (attempt === ATTEMPTS || !(await keeper.findDamaged())) throw error;
    }
  }
}

/** Notes the records of a file that are to go. Answers how many. */
async function select(
  connection: Connection,
  relation: string,
  organisationId: string,
  erased: ErasedLogs,
): Promise<number> {
  const columns = ERASED_COLUMNS.map((name) => `"${name}" ${name === 'seq' ? 'BIGINT' : 'VARCHAR'}`).join(', ');
  await connection.run(`CREATE OR REPLACE TEMP TABLE ${TABLE} (${columns})`);
  const { sql, values } = erasedStatement(relation, organisationId, erased);
  await connection.run(`INSERT INTO ${TABLE} ${sql}`, [...values]);
  const [row] = await rowsOf(connection, { sql: `SELECT count(*) AS n FROM ${TABLE}`, values: [] });
  return Number(row?.n);
}

async function eraseBodies({ bodies }: ErasingParts, connection: Connection, organisationId: string): Promise<number> {
  let count = 0;
  const chunks = pagesOf(connection, `SELECT DISTINCT "body_chunk" AS a FROM ${TABLE} WHERE "body_chunk" IS NOT NULL`);
  for await (const page of chunks) {
    for (const { a: chunk } of page) {
      const sql = `SELECT "id" FROM ${TABLE} WHERE "body_chunk" = $1`;
      const rows = await rowsOf(connection, { sql, values: [String(chunk)] });
      count += await bodies.erase(organisationId, String(chunk), new Set(rows.map(({ id }) => String(id))));
    }
  }
  return count;
}

/** Feedback is on a trace: that of a single request goes where it is a trace by itself. */
async function eraseFeedback(
  { forgetFeedback }: ErasingParts,
  connection: Connection,
  organisationId: string,
  { column }: ErasedLogs,
): Promise<number> {
  let count = 0;
  const whole = column === 'id' ? ' AND "trace_id" = "id"' : '';
  const sql = `SELECT DISTINCT "workspace_id" AS a, "trace_id" AS b FROM ${TABLE} WHERE "workspace_id" IS NOT NULL AND "trace_id" IS NOT NULL${whole}`;
  for await (const page of pagesOf(connection, sql)) {
    const traces = page.map(({ a, b }) => ({ workspaceId: String(a), traceId: String(b) }));
    count += await forgetFeedback(organisationId, traces);
  }
  return count;
}

async function* pagesOf(connection: Connection, sql: string): AsyncGenerator<Awaited<ReturnType<typeof rowsOf>>> {
  for (let offset = 0; ; offset += PAGE) {
    const page = `SELECT * FROM (${sql}) ORDER BY ALL LIMIT ${PAGE} OFFSET ${offset}`;
    const rows = await rowsOf(connection, { sql: page, values: [] });
    if (rows.length > 0) yield rows;
    if (rows.length < PAGE) return;
  }
}

/** Lines that are no records are set aside: those with the value go. */
async function eraseRejected(dir: string, value: string): Promise<void> {
  const path = join(dir, REJECTED);
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return '';
    throw error;
  });
  const written = JSON.stringify(value).slice(1, -1);
  if (!text.includes(written)) return;
  const kept = text.split('\n').filter((line) => !line.includes(written));
  await writeFile(path + UNFINISHED, kept.join('\n'), { mode: 0o600 });
  await rename(path + UNFINISHED, path);
}
