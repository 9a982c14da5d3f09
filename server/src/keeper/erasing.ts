/** Erasure: bodies and feedback first, then the records that say which they are. So one cut short finds the rest. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../store/disk/files.ts';
import type { ErasedCounts, ErasedTrace } from '../telemetry/log-erasure.ts';
import type { ErasedLogs } from '../telemetry/log-query.ts';
import type { BodyKeeper } from './body-keeper.ts';
import { UNFINISHED } from './catalog.ts';
import { type Connection, rowsOf } from './engine.ts';
import type { Keeper } from './keeper.ts';
import { ERASED_COLUMNS, erasedStatement, type SqlValue } from './log-sql.ts';
import type { RowsThatStay } from './parquet-file.ts';
import { REJECTED } from './tail.ts';

export interface ErasingParts {
  /** Directory of the files. */
  readonly dir: string;
  readonly keeper: Pick<Keeper, 'flush' | 'rewrite' | 'rewriteShared' | 'findDamaged' | 'state'>;
  readonly bodies: Pick<BodyKeeper, 'flush' | 'erase'>;
  /** Removes the feedback on traces; answers how many there were. */
  readonly forgetFeedback: (organisationId: string, traces: readonly ErasedTrace[]) => Promise<number>;
}

/** Values of one page. */
const PAGE = 1_000;
const ATTEMPTS = 3;
const TABLE = 'erased';

/** Of the files of this node. */
export async function eraseRecords(
  parts: ErasingParts,
  organisationId: string,
  erased: ErasedLogs,
): Promise<ErasedCounts> {
  await handRecords(parts, erased);
  return rewritten(parts, organisationId, erased, (rest) => parts.keeper.rewrite(erased.before, rest));
}

/** Of the files of all nodes. */
export function eraseSharedRecords(
  parts: ErasingParts,
  organisationId: string,
  erased: ErasedLogs,
): Promise<ErasedCounts> {
  return rewritten(parts, organisationId, erased, (rest) => parts.keeper.rewriteShared(erased.before, rest));
}

/** What the journals have goes to files, and lines aside with the value go. */
export async function handRecords(
  { dir, keeper, bodies }: Pick<ErasingParts, 'dir' | 'keeper' | 'bodies'>,
  { value }: ErasedLogs,
): Promise<void> {
  await keeper.flush();
  await bodies.flush();
  await eraseRejected(dir, value);
}

async function rewritten(
  parts: ErasingParts,
  organisationId: string,
  erased: ErasedLogs,
  rewrite: (rest: RowsThatStay) => Promise<void>,
): Promise<ErasedCounts> {
  const { keeper } = parts;
  const sums = { records: 0, bodies: 0, feedback: 0 };
  const rest: RowsThatStay = async (connection, relation) => {
    const records = await select(connection, relation, organisationId, erased);
    if (records === 0) return null;
    const found = { connection, from: TABLE, values: [] };
    sums.bodies += await eraseBodies(parts, found, organisationId);
    sums.feedback += await eraseFeedback(parts, found, organisationId, erased);
    sums.records += records;
    const same = ['node', 'seq'].map((name) => `${TABLE}."${name}" = r."${name}"`).join(' AND ');
    return `SELECT * FROM ${relation} AS r WHERE NOT EXISTS (SELECT 1 FROM ${TABLE} WHERE ${same})`;
  };
  for (let attempt = 1; ; attempt++) {
    try {
      await rewrite(rest);
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

/** The records that are to go: a relation with `ERASED_COLUMNS`, and the values of its parameters. */
export interface Found {
  readonly connection: Connection;
  readonly from: string;
  readonly values: readonly SqlValue[];
}

/** Answers of how many requests. */
export async function eraseBodies(
  { bodies }: Pick<ErasingParts, 'bodies'>,
  found: Found,
  organisationId: string,
): Promise<number> {
  let count = 0;
  let chunk: string | null = null;
  let ids = new Set<string>();
  const end = async () => {
    if (chunk !== null) count += await bodies.erase(organisationId, chunk, ids);
    ids = new Set();
  };
  for await (const page of pagesOf(found, '"body_chunk" AS a, "id" AS b', '"body_chunk" IS NOT NULL')) {
    for (const { a, b } of page) {
      if (a !== chunk) await end();
      chunk = String(a);
      ids.add(String(b));
    }
  }
  await end();
  return count;
}

/** Feedback is on a trace: that of a single request goes where it is a trace by itself. */
export async function eraseFeedback(
  { forgetFeedback }: Pick<ErasingParts, 'forgetFeedback'>,
  found: Found,
  organisationId: string,
  { column }: ErasedLogs,
): Promise<number> {
  let count = 0;
  const whole = column === 'id' ? ' AND "trace_id" = "id"' : '';
  const known = `"workspace_id" IS NOT NULL AND "trace_id" IS NOT NULL${whole}`;
  for await (const page of pagesOf(found, '"workspace_id" AS a, "trace_id" AS b', known)) {
    const traces = page.map(({ a, b }) => ({ workspaceId: String(a), traceId: String(b) }));
    count += await forgetFeedback(organisationId, traces);
  }
  return count;
}

async function* pagesOf(
  { connection, from, values }: Found,
  shown: string,
  where: string,
): AsyncGenerator<Awaited<ReturnType<typeof rowsOf>>> {
  for (let offset = 0; ; offset += PAGE) {
    const sql = `SELECT DISTINCT ${shown} FROM ${from} WHERE ${where} ORDER BY ALL LIMIT ${PAGE} OFFSET ${offset}`;
    const rows = await rowsOf(connection, { sql, values });
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
