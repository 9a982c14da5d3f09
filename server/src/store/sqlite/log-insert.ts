import type { StatementSync } from 'node:sqlite';
import { TRACE_LENGTH } from '../sql/logs.ts';

interface Preparer {
  readonly db: { exec(sql: string): void };
  prepare(sql: string): { readonly statement: StatementSync };
  rollback(): void;
}

const INSERT =
  'INSERT INTO logs (node, seq, id, time, organisation_id, workspace_id, trace_id, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (node, seq) DO NOTHING';
const POSITION =
  'INSERT INTO journals (name, segment, position) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET segment = excluded.segment, position = excluded.position';

const LINE_FEED = 0x0a;

type Cell = string | number | null;

/** The columns beside the record: node, seq, id, time, organisation, workspace, trace. */
export type Searched = readonly [Cell, Cell, Cell, Cell, Cell, Cell, Cell];

const text = '"([^"\\\\]*)"';
const orNull = `(?:null|${text})`;
/** How a record begins and ends when `gateway/record.ts` and `telemetry/recorder.ts` wrote it. */
const HEAD = new RegExp(
  `^\\{"id":${text},"time":(\\d+),"organisation_id":${orNull},"workspace_id":${orNull},"api_key_id":${orNull},"user_id":${orNull},"trace_id":${text},`,
);
const TAIL = new RegExp(`,"node":${text},"seq":(\\d+)\\}$`, 'y');

/**
 * What is searched, without parsing the record: 0.4 µs instead of 3.4. Both patterns are bound to the ends of the line,
 * where only the outermost object has its fields, so no text inside the record can pose as one. Null when the line is
 * written in any other way.
 */
export function quickly(line: string): Searched | null {
  const head = HEAD.exec(line);
  if (!head) return null;
  TAIL.lastIndex = line.lastIndexOf(',"node":');
  const tail = TAIL.lastIndex < 0 ? null : TAIL.exec(line);
  if (!tail) return null;
  const [, id = '', time, organisation, workspace, , , trace = ''] = head;
  return [
    tail[1] ?? null,
    Number(tail[2]),
    id,
    Number(time),
    organisation ?? null,
    workspace ?? null,
    trace.slice(0, TRACE_LENGTH),
  ];
}

/** The same by parsing: right for every record, and for a line that is none it throws. */
export function carefully(line: string): Searched {
  const record = JSON.parse(line) as Record<string, Cell | undefined>;
  const { trace_id: trace = null } = record;
  return [
    record.node ?? null,
    record.seq ?? null,
    record.id ?? null,
    record.time ?? null,
    record.organisation_id ?? null,
    record.workspace_id ?? null,
    typeof trace === 'string' ? trace.slice(0, TRACE_LENGTH) : null,
  ];
}

/** Journal, segment, offset, and the lines as `LogSink.insert` is given them. */
export type LogBatch = readonly [journal: string, segment: string, offset: number, lines: Uint8Array];

/** Stores a batch and the reader's position in one transaction. Answers the number of new records. */
export function insertLogs(connection: Preparer, [journal, segment, offset, bytes]: LogBatch): number {
  const lines = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  connection.db.exec('BEGIN IMMEDIATE');
  try {
    const { statement } = connection.prepare(INSERT);
    let added = 0;
    let start = 0;
    for (let end = lines.indexOf(LINE_FEED); end !== -1; end = lines.indexOf(LINE_FEED, start)) {
      const line = lines.toString('utf8', start, end);
      start = end + 1;
      const { changes } = statement.run(...(quickly(line) ?? carefully(line)), line);
      added += Number(changes);
    }
    connection.prepare(POSITION).statement.run(journal, segment, offset);
    connection.db.exec('COMMIT');
    return added;
  } catch (error) {
    connection.rollback();
    throw error;
  }
}
