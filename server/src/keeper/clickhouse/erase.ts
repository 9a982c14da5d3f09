/**
 * Erasure in ClickHouse: bodies and feedback first, then the records that say which they are. A mutation writes the parts anew,
 * since a lightweight delete would only mark rows, for as long as no merge comes.
 */
import { createHash } from 'node:crypto';
import { base62 } from '../../kernel/id.ts';
import type { ErasedCounts } from '../../telemetry/log-erasure.ts';
import type { ErasedLogs } from '../../telemetry/log-query.ts';
import { rowsOf } from '../engine.ts';
import { type ErasingParts, eraseBodies, eraseFeedback } from '../erasing.ts';
import { erasedStatement, type SqlValue } from '../log-sql.ts';
import { clickHouse } from './dialect.ts';
import type { ClickHouse } from './store.ts';
import { TABLE } from './table.ts';

/** What callers name their users and traces: ClickHouse keeps the text of its last mutations. */
const NAMES: readonly ErasedLogs['column'][] = ['end_user', 'trace_id'];
const SALT_CHARACTERS = 22;

/** Resolves once every replica has no such record in any part that is read. */
export async function eraseFromStore(
  parts: Pick<ErasingParts, 'bodies' | 'forgetFeedback' | 'keeper'>,
  store: ClickHouse,
  organisationId: string,
  erased: ErasedLogs,
): Promise<ErasedCounts> {
  const connection = store.connect({ patient: true });
  const { sql, values } = erasedStatement(TABLE, organisationId, erased, clickHouse);
  const found = { connection, from: `(${sql})`, values };
  const left = async () => {
    const [row] = await rowsOf(connection, { sql: `SELECT count(*) AS "n" FROM (${sql})`, values });
    return Number(row?.n);
  };
  const records = await left();
  const bodies = records === 0 ? 0 : await eraseBodies(parts, found, organisationId);
  const feedback = records === 0 ? 0 : await eraseFeedback(parts, found, organisationId, erased);
  // Where none is left here, a replica may still have some.
  await store.remove(...mutation(organisationId, erased));
  if ((await left()) > 0) throw new Error('ClickHouse still has records that are to be erased');
  return { records, bodies, feedback, damagedFiles: parts.keeper.state.damagedFiles };
}

function mutation(organisationId: string, erased: ErasedLogs): [where: string, values: SqlValue[]] {
  const { workspaceId, column, value, before } = erased;
  const values: SqlValue[] = [];
  const add = (one: SqlValue) => clickHouse.parameter(values.push(one), one);
  const where = [
    `"organisation_id" = ${add(organisationId)}`,
    `"time" < ${add(BigInt(Math.ceil(before)))}`,
    ...(workspaceId === null ? [] : [`"workspace_id" = ${add(workspaceId)}`]),
  ];
  if (!NAMES.includes(column)) return [[...where, `"${column}" = ${add(value)}`].join(' AND '), values];
  const salt = base62(SALT_CHARACTERS);
  const digest = createHash('sha256')
    .update(salt + value)
    .digest('hex')
    .toUpperCase();
  return [[...where, `hex(SHA256(concat(${add(salt)}, "${column}"))) = ${add(digest)}`].join(' AND '), values];
}
