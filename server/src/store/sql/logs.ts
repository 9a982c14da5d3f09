import type { LogQuery, LogWalk, StoredLog, TenantContext } from '../ports.ts';

/** A statement with `?` for each parameter. */
export interface LogStatement {
  readonly sql: string;
  readonly parameters: readonly (string | number)[];
}

/** Longest trace id that is searched: the caller chooses it, and an index entry has an upper size. */
export const TRACE_LENGTH = 200;

function conditions(tenant: TenantContext, query: Partial<LogQuery>): LogStatement {
  const parts = ['organisation_id = ?'];
  const parameters: (string | number)[] = [tenant.organisationId];
  const add = (part: string, value: string | number | null | undefined) => {
    if (value === null || value === undefined) return;
    parts.push(part);
    parameters.push(value);
  };
  add('workspace_id = ?', tenant.workspaceId);
  add('time >= ?', query.from);
  add('time < ?', query.to);
  add('trace_id = ?', query.traceId?.slice(0, TRACE_LENGTH));
  return { sql: parts.join(' AND '), parameters };
}

export function findLog(tenant: TenantContext, id: string): LogStatement {
  const { sql, parameters } = conditions(tenant, {});
  return { sql: `SELECT record FROM logs WHERE id = ? AND ${sql} LIMIT 1`, parameters: [id, ...parameters] };
}

export function countLogs(tenant: TenantContext, query: LogQuery): LogStatement {
  const { sql, parameters } = conditions(tenant, query);
  return { sql: `SELECT count(*) AS total FROM logs WHERE ${sql}`, parameters };
}

/**
 * Newest first, records of the same millisecond in a fixed order. On SQLite the inner query walks the index alone, so
 * that records before the page are not read; on PostgreSQL, which has no such row number, they are.
 */
export function listLogs(tenant: TenantContext, query: LogQuery, engine: 'sqlite' | 'postgres'): LogStatement {
  const { sql, parameters } = conditions(tenant, query);
  const from = engine === 'sqlite' ? 'rowid IN (SELECT rowid FROM logs WHERE' : '';
  const order = engine === 'sqlite' ? 'time DESC, rowid DESC' : 'time DESC, node DESC, seq DESC';
  const page = `ORDER BY ${order} LIMIT ? OFFSET ?`;
  const rest = engine === 'sqlite' ? `${page}) ORDER BY ${order}` : page;
  return {
    sql: `SELECT record FROM logs WHERE ${from} ${sql} ${rest}`,
    parameters: [...parameters, query.limit, query.offset ?? 0],
  };
}

/** Within the index on organisation and time: only records of one millisecond are sorted. */
export function walkLogs(tenant: TenantContext, { from, to, after, limit }: LogWalk): LogStatement {
  const { sql, parameters } = conditions(tenant, { from: after?.time ?? from, to });
  const rest = after === null ? '' : ' AND (time > ? OR (node, seq) > (?, ?))';
  return {
    sql: `SELECT record FROM logs WHERE ${sql}${rest} ORDER BY time, node, seq LIMIT ?`,
    parameters: [...parameters, ...(after === null ? [] : [after.time, after.node, after.seq]), limit],
  };
}

/** Along the index on organisation and time, so that each step costs what it removes. */
export function forgetLogs(
  organisationId: string | null,
  before: number,
  limit: number,
  engine: 'sqlite' | 'postgres',
): LogStatement {
  const row = engine === 'sqlite' ? 'rowid' : '(node, seq)';
  const of = organisationId === null ? 'organisation_id IS NULL' : 'organisation_id = ?';
  const oldest = `SELECT ${row === 'rowid' ? row : 'node, seq'} FROM logs WHERE ${of} AND time < ? ORDER BY time LIMIT ?`;
  return {
    sql: `DELETE FROM logs WHERE ${row} IN (${oldest})`,
    parameters: [...(organisationId === null ? [] : [organisationId]), before, limit],
  };
}

export function organisationAfter(organisationId: string): LogStatement {
  const sql = 'SELECT organisation_id FROM logs WHERE organisation_id > ? ORDER BY organisation_id LIMIT 1';
  return { sql, parameters: [organisationId] };
}

/**
 * The records of a result. Throws when one is not the tenant's: the same second check that the control tables have.
 *
 */
export function parseLogs(
  tenant: TenantContext,
  rows: readonly Record<string, unknown>[],
  foreign: (detail: string) => Error,
): StoredLog[] {
  return rows.map((row) => {
    const record = JSON.parse(row.record as string) as StoredLog;
    if (
      record.organisation_id !== tenant.organisationId ||
      (tenant.workspaceId !== null && record.workspace_id !== tenant.workspaceId)
    ) {
      throw foreign('a log record of another tenant was read');
    }
    return record;
  });
}
