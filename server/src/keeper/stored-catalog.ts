/** The list of files in the control store. */
import type { Clock } from '../kernel/clock.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { LogCatalog, LogCatalogChange, LogHour, LogPosition } from './catalog.ts';

/** Of the columns that files are written with today. */
const VERSION = 1;

export function storedCatalog(tables: Tables, node: string, clock: Clock): LogCatalog {
  return {
    load: () =>
      tables.systemRead(async (tx) => {
        const files = await tx.list('log_files', { where: { node } });
        const positions = await tx.list('log_positions', {});
        return {
          files: files.map(({ id, day, level, min_time, max_time, records, bytes, status }) => {
            const damaged = status === 'damaged';
            return { id, day, level, minTime: min_time, maxTime: max_time, records, bytes, damaged };
          }),
          positions: positions.map(({ journal, segment, position }) => ({ journal, segment, offset: position })),
        };
      }),
    commit: (change) => tables.systemWrite((tx) => commit(tx, change, node, clock.now()), { queue: 'log files' }),
  };
}

async function commit(tx: SystemTx, change: LogCatalogChange, node: string, now: number): Promise<void> {
  for (const { from, to } of change.moved) await move(tx, from, to);
  for (const { id, day, level, minTime, maxTime, records, bytes, damaged } of change.add) {
    await tx.insert('log_files', {
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
    });
  }
  for (const id of change.damaged) await tx.update('log_files', { id }, { status: 'damaged' });
  for (const id of change.remove) {
    const removed = await tx.remove('log_files', { id, node });
    if (removed !== 1) throw new Error(`log file ${id} is not in the list any more`);
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
