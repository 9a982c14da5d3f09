/** The list of files in the control store. */
import type { Clock } from '../kernel/clock.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { LogCatalog, LogCatalogChange, LogFile, LogHour, LogPosition } from './catalog.ts';

/** Of the columns that files are written with today. */
const VERSION = 1;

/** Files on the disk of one node, which only that node reads. */
export function storedCatalog(tables: Tables, node: string, clock: Clock): LogCatalog {
  return {
    load: () =>
      tables.systemRead(async (tx) => {
        const files = await tx.list('log_files', { where: { node, place: 'disk', remove_at: 0 } });
        return { files: files.map(fileOf), positions: await positionsIn(tx) };
      }),
    commit: (change) => {
      const remove = (tx: SystemTx, id: string) => tx.remove('log_files', { id, node });
      return tables.systemWrite((tx) => commitFiles(tx, change, clock.now(), remove), { queue: 'log files' });
    },
  };
}

export function fileOf(row: Row<'log_files'>): LogFile {
  const { id, node, day, level, min_time, max_time, records, bytes, status, place } = row;
  const damaged = status === 'damaged';
  return { id, node, day, level, minTime: min_time, maxTime: max_time, records, bytes, damaged, place };
}

export function rowOf(file: LogFile, now: number, removeAt: number): Row<'log_files'> {
  const { id, node, day, level, minTime, maxTime, records, bytes, damaged, place } = file;
  return {
    id,
    node,
    day,
    level,
    min_time: minTime,
    max_time: maxTime,
    records,
    bytes,
    version: VERSION,
    status: damaged ? 'damaged' : 'live',
    created_at: now,
    place,
    remove_at: removeAt,
    changed_at: now,
  };
}

export async function positionsIn(tx: SystemTx): Promise<LogPosition[]> {
  const positions = await tx.list('log_positions', {});
  return positions.map(({ journal, segment, position }) => ({ journal, segment, offset: position }));
}

type Remove = (tx: SystemTx, id: string) => Promise<number>;

/** @param remove takes a file off the list; answers how many it has found */
export async function commitFiles(tx: SystemTx, change: LogCatalogChange, now: number, remove: Remove): Promise<void> {
  for (const { from, to } of change.moved) await move(tx, from, to);
  for (const file of change.add) {
    if (file.place === 'disk') await tx.insert('log_files', rowOf(file, now, 0));
    else if ((await tx.update('log_files', { id: file.id }, rowOf(file, now, 0))) !== 1) {
      throw new Error(`log file ${file.id} took too long: its bytes are removed`);
    }
  }
  for (const id of change.damaged) await tx.update('log_files', { id }, { status: 'damaged', changed_at: now });
  for (const id of change.remove) {
    if ((await remove(tx, id)) !== 1) throw new Error(`log file ${id} is not in the list any more`);
  }
  for (const hour of change.hours) await add(tx, hour);
}

async function move(tx: SystemTx, from: LogPosition | null, to: LogPosition): Promise<void> {
  const { journal, segment, offset } = to;
  const stored = await tx.find('log_positions', { journal });
  if (stored?.segment !== from?.segment || stored?.position !== from?.offset) {
    throw new Error(`journal ${journal} has been read further by somebody else`);
  }
  if (stored === undefined) await tx.insert('log_positions', { journal, segment, position: offset });
  else await tx.update('log_positions', { journal }, { segment, position: offset });
}

async function add(tx: SystemTx, sums: LogHour): Promise<void> {
  const { organisation_id, workspace_id, hour, source } = sums;
  const key = { organisation_id, workspace_id, hour, source };
  const stored = await tx.find('log_hours', key);
  if (stored === undefined) return tx.insert('log_hours', { ...sums });
  await tx.update('log_hours', key, {
    requests: stored.requests + sums.requests,
    errors: stored.errors + sums.errors,
    refused: stored.refused + sums.refused,
    unpriced: stored.unpriced + sums.unpriced,
    cost_micros: stored.cost_micros + sums.cost_micros,
    saved_micros: stored.saved_micros + sums.saved_micros,
    tokens_in: stored.tokens_in + sums.tokens_in,
    tokens_out: stored.tokens_out + sums.tokens_out,
    latency_sum_us: stored.latency_sum_us + sums.latency_sum_us,
  });
}
