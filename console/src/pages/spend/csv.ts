import type { Range } from '../../shell/url-state.ts';
import { csvText } from '../../ui/csv.ts';
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
  return csvText([head, ...lines]);
}
