import type { Range } from '../../shell/url-state.ts';
import { type Group, nameOf, type Row } from './groups.ts';

/** A line a row, with the range on each, so that files of several months can be joined. Costs are micro-dollars. */
export function csvOf(rows: readonly Row[], groups: readonly Group[], range: Pick<Range, 'from' | 'to'>): string {
  const head = ['from', 'to', ...groups.flatMap(({ id }) => [id, `${id}_name`]), 'requests', 'tokens', 'cost_micros'];
  const lines = rows.map((row) => [
    range.from,
    range.to,
    ...groups.flatMap((group) => [String(row[group.field] ?? ''), nameOf(row, group)]),
    String(row.requests),
    String(row.total_tokens ?? 0),
    String(row.cost_micros ?? 0),
  ]);
  return [head, ...lines].map((line) => `${line.map(cell).join(',')}\r\n`).join('');
}

/** Quoted where it must be (RFC 4180). A text that a spreadsheet would compute gets an apostrophe in front. */
function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
