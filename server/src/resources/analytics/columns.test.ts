import { describe, expect, it } from 'vitest';
import { LOG_COLUMNS } from '../../telemetry/log-columns.ts';
import { LIST_COLUMNS } from '../logs/rows.ts';
import { COLUMNS, DIMENSIONS } from './columns.ts';
import { GRAPHS } from './graphs.ts';

describe('what graphs, groups and lists ask a log store for', () => {
  const stored = new Map(LOG_COLUMNS.map((column) => [column.name, column]));

  it('are columns that records have', () => {
    const asked = [...JSON.stringify([GRAPHS, Object.values(COLUMNS)]).matchAll(/"column":"(\w+)"/g)];
    expect(asked.length).toBeGreaterThan(20);
    const names = [...asked.map(([, name = '']) => name), ...LIST_COLUMNS];
    expect(names.filter((name) => !stored.has(name))).toEqual([]);
  });

  it('group by columns that may be groups', () => {
    const parted = GRAPHS.flatMap(({ shape }) => ('by' in shape ? [shape.by] : []));
    const groups = [...parted, ...Object.values(DIMENSIONS).map(({ column }) => column)];
    expect(groups.filter((name) => stored.get(name)?.group !== true)).toEqual([]);
  });
});
