/** The conditions of `log-query.ts` on a row in memory, for records that are looked at as they come. */
import { logColumn, METADATA_COLUMNS } from './log-columns.ts';
import type { LogFilter, LogRow, LogValue } from './log-query.ts';

/** Whether all conditions hold. Throws TypeError for a column that records do not have. */
export function holds(row: LogRow, where: readonly LogFilter[]): boolean {
  return where.every((filter) => one(row, filter));
}

function one(row: LogRow, filter: LogFilter): boolean {
  if ('anyOf' in filter) return filter.anyOf.some((all) => holds(row, all));
  if ('metadata' in filter) {
    const value = metadataOf(row, filter.metadata);
    return 'known' in filter ? (value !== null) === filter.known : filter.in.some((wanted) => wanted === value);
  }
  if (logColumn(filter.column) === undefined) throw new TypeError(`the records have no column ${filter.column}`);
  const value = row[filter.column] ?? null;
  if ('known' in filter) return (value !== null) === filter.known;
  if (value === null) return false;
  if ('in' in filter) return filter.in.some((wanted) => wanted === String(value));
  if ('is' in filter) return value === filter.is;
  return isBetween(value, filter.min, filter.max);
}

function isBetween(value: LogValue, min: number | undefined, max: number | undefined): boolean {
  return typeof value === 'number' && (min === undefined || value >= min) && (max === undefined || value <= max);
}

function metadataOf(row: LogRow, key: string): string | null {
  const reserved = METADATA_COLUMNS.get(key);
  const { metadata } = row;
  const value =
    reserved !== undefined
      ? row[reserved]
      : typeof metadata === 'object' && metadata !== null && Object.hasOwn(metadata, key)
        ? metadata[key]
        : null;
  return typeof value === 'string' ? value : null;
}
