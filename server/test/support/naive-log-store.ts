/** What a log store must answer, as one plain pass over rows in memory: tests compare real engines and routes with it. */
import type {
  LogArrivalQuery,
  LogArrivals,
  LogCoverage,
  LogFilter,
  LogGroupKey,
  LogGroupQuery,
  LogGroups,
  LogMeasure,
  LogPage,
  LogPageQuery,
  LogPlace,
  LogRow,
  LogScope,
  LogSelection,
  LogStore,
  LogValue,
} from '../../src/telemetry/log-query.ts';

type Key = string | number | null;

/** Rows by the columns of a record, and what the answers say of themselves. */
export class NaiveLogStore implements LogStore {
  rows: LogRow[];
  coverage: LogCoverage;

  constructor(rows: readonly LogRow[] = [], coverage: LogCoverage = { completeTo: 0, incomplete: [] }) {
    this.rows = [...rows];
    this.coverage = coverage;
  }

  async page(selection: LogSelection, query: LogPageQuery): Promise<LogPage> {
    const sign = query.order === 'oldest' ? 1 : -1;
    const found = this.#of(selection)
      .sort((a, b) => sign * comparePlaces(placeOf(a), placeOf(b)))
      .filter((row) => query.behind === null || sign * comparePlaces(placeOf(row), query.behind) > 0);
    const cut = found.slice(0, query.limit);
    const last = cut.at(-1);
    const rows = cut.map((row) => Object.fromEntries(query.columns.map((name) => [name, row[name] ?? null])));
    return { ...this.coverage, rows, next: found.length > cut.length && last !== undefined ? placeOf(last) : null };
  }

  async groups(selection: LogSelection, query: LogGroupQuery): Promise<LogGroups> {
    const rows = this.#of(selection);
    const byKeys = new Map<string, { readonly keys: Key[]; readonly rows: LogRow[] }>();
    for (const row of query.by.length === 0 ? [] : rows) {
      const keys = query.by.map((key) => keyOf(key, row));
      const name = JSON.stringify(keys);
      const group = byKeys.get(name);
      if (group === undefined) byKeys.set(name, { keys, rows: [row] });
      else group.rows.push(row);
    }
    const measure = (some: readonly LogRow[]) =>
      Object.fromEntries(query.measures.map((wanted) => [wanted.as, measured(wanted, some)]));
    const groups = [...byKeys.values()].map((group) => ({ keys: group.keys, values: measure(group.rows) }));
    const { order } = query;
    groups.sort((a, b) => {
      if (order === undefined) return compareAll(a.keys, b.keys);
      const [one, other] =
        typeof order.by === 'number'
          ? [a.keys[order.by] ?? null, b.keys[order.by] ?? null]
          : [a.values[order.by] ?? null, b.values[order.by] ?? null];
      // What has no value comes last, whatever the direction.
      const nulls = Number(one === null) - Number(other === null);
      return nulls || (order.descending ? -1 : 1) * compare(one, other) || compareAll(a.keys, b.keys);
    });
    const from = query.offset ?? 0;
    return {
      ...this.coverage,
      groups: groups.slice(from, query.limit === undefined ? undefined : from + query.limit),
      total: groups.length,
      summary: measure(rows),
      approximate: [],
    };
  }

  /** Records come in the order of `rows`. */
  async arrived(selection: LogSelection, { columns, since, limit }: LogArrivalQuery): Promise<LogArrivals> {
    const next = String(this.rows.length);
    if (since === null) return { rows: [], left: 0, next };
    const found = this.#of(selection, this.rows.slice(Number(since)));
    const rows = found
      .slice(0, limit)
      .map((row) => Object.fromEntries(columns.map((name) => [name, row[name] ?? null])));
    return { rows, left: found.length - rows.length, next };
  }

  async count(selection: LogSelection, most: number): Promise<number> {
    return Math.min(this.#of(selection).length, most + 1);
  }

  async find(scope: LogScope, id: string): Promise<LogRow | null> {
    return this.rows.find((row) => row.id === id && isIn(scope, row)) ?? null;
  }

  #of({ scope, from, to, where }: LogSelection, rows: readonly LogRow[] = this.rows): LogRow[] {
    return rows.filter((row) => {
      const time = Number(row.time);
      return isIn(scope, row) && time >= from && time < to && where.every((filter) => meets(filter, row));
    });
  }
}

function isIn({ organisationId, workspaceIds, userId, keptSince, erased }: LogScope, row: LogRow): boolean {
  const gone = erased.some(
    ({ workspaceId, column, value, before }) =>
      row[column] === value && Number(row.time) < before && (workspaceId ?? row.workspace_id) === row.workspace_id,
  );
  if (gone) return false;
  if (row.organisation_id !== organisationId || Number(row.time) < keptSince) return false;
  if (workspaceIds !== null && !workspaceIds.includes(String(row.workspace_id))) return false;
  return userId === null || row.user_id === userId;
}

function meets(filter: LogFilter, row: LogRow): boolean {
  if ('anyOf' in filter) return filter.anyOf.some((all) => all.every((each) => meets(each, row)));
  if ('metadata' in filter) {
    const value = metadataOf(row, filter.metadata);
    if ('known' in filter) return (value !== null) === filter.known;
    return value !== null && filter.in.includes(value);
  }
  const value = row[filter.column] ?? null;
  if ('known' in filter) return (value !== null) === filter.known;
  if (value === null) return false;
  if ('in' in filter) return filter.in.includes(String(value));
  if ('is' in filter) return value === filter.is;
  return Number(value) >= (filter.min ?? -Infinity) && Number(value) <= (filter.max ?? Infinity);
}

function metadataOf(row: LogRow, key: string): string | null {
  const { metadata } = row;
  if (typeof metadata !== 'object' || metadata === null) return null;
  return Object.hasOwn(metadata, key) ? (metadata[key] ?? null) : null;
}

function keyOf(key: LogGroupKey, row: LogRow): Key {
  if ('metadata' in key) return metadataOf(row, key.metadata);
  if ('bounds' in key) {
    const index = key.bounds.findLastIndex((bound) => bound <= Number(row.time));
    return index < 0 || index >= key.bounds.length - 1 ? null : index;
  }
  return scalar(row[key.column] ?? null);
}

function scalar(value: LogValue): Key {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'object' ? null : value;
}

function measured({ of, column, q, where = [] }: LogMeasure, all: readonly LogRow[]): number | null {
  const rows = all.filter((row) => where.every((filter) => meets(filter, row)));
  if (of === 'count') return rows.length;
  const values = rows.map((row) => scalar(row[column ?? ''] ?? null)).filter((value) => value !== null);
  if (of === 'distinct') return new Set(values).size;
  if (values.length === 0) return null;
  const numbers = values.map(Number).sort((a, b) => a - b);
  const sum = numbers.reduce((total, value) => total + value, 0);
  switch (of) {
    case 'sum':
      return sum;
    case 'avg':
      return sum / numbers.length;
    case 'min':
      return numbers[0] ?? null;
    case 'max':
      return numbers.at(-1) ?? null;
    case 'quantile':
      return numbers[Math.max(0, Math.ceil((q ?? 0) * numbers.length) - 1)] ?? null;
  }
}

const placeOf = (row: LogRow): LogPlace => ({ time: Number(row.time), id: String(row.id) });

const comparePlaces = (a: LogPlace, b: LogPlace): number => a.time - b.time || compare(a.id, b.id);

/** Null comes last. */
function compare(a: Key, b: Key): number {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return a < b ? -1 : 1;
}

function compareAll(a: readonly Key[], b: readonly Key[]): number {
  for (const [at, key] of a.entries()) {
    const order = compare(key, b[at] ?? null);
    if (order !== 0) return order;
  }
  return 0;
}
