import { describe, expect, it } from 'vitest';
import { all, any, compile, type Dialect, equals, type Statement } from './statement.ts';

const SQLITE: Dialect = { name: 'sqlite', positionFunction: 'instr', unindexed: (column) => `+"${column}"` };
const POSTGRES: Dialect = { name: 'postgres', positionFunction: 'strpos', unindexed: (column) => `"${column}" || ''` };
const internal = expect.objectContaining({ name: 'SluiceError', kind: 'internal' });

describe('the text of a statement', () => {
  const select: Statement = {
    kind: 'select',
    table: 'configs',
    columns: ['id', 'name'],
    where: all([
      equals('organisation_id', 'org-a'),
      any([
        { is: 'among', column: 'id', values: ['x', 'y'] },
        { is: 'null', column: 'id' },
      ]),
      { is: 'compared', column: 'status', operator: '<>', value: 'archived', literal: true },
      { is: 'containing', column: 'name', value: "o'k" },
      { is: 'null', column: 'slug', not: true },
    ]),
    orderBy: [
      { column: 'name', direction: 'desc', nulls: true },
      { column: 'id', direction: 'asc', unindexed: true },
    ],
    limit: 5,
    offset: 10,
  };

  it('carries every value beside it, in the order of its places', () => {
    expect(compile(select, SQLITE)).toEqual({
      sql:
        'select "id", "name" from "configs" where ("organisation_id" = ? and ("id" in (?, ?) or "id" is null) ' +
        `and "status" <> 'archived' and instr("name", ?) > 0 and "slug" is not null) ` +
        'order by "name" desc nulls last, +"id" asc limit ? offset ?',
      parameters: ['org-a', 'x', 'y', "o'k", 5, 10],
    });
    expect(compile(select, POSTGRES).sql).toBe(
      'select "id", "name" from "configs" where ("organisation_id" = $1 and ("id" in ($2, $3) or "id" is null) ' +
        `and "status" <> 'archived' and strpos("name", $4) > 0 and "slug" is not null) ` +
        `order by "name" desc nulls last, "id" || '' asc limit $5 offset $6`,
    );
    expect(compile({ kind: 'select', table: 'configs', columns: 'count', where: all([]) }, SQLITE)).toEqual({
      sql: 'select count(*) as "count" from "configs" where 1 = 1',
      parameters: [],
    });
    const values = { id: 'x', name: null };
    expect(compile({ kind: 'insert', table: 'configs', values }, POSTGRES)).toEqual({
      sql: 'insert into "configs" ("id", "name") values ($1, $2)',
      parameters: ['x', null],
    });
    const more = [{ name: 'second', id: 'y' }];
    expect(compile({ kind: 'insert', table: 'configs', values, more }, POSTGRES)).toEqual({
      sql: 'insert into "configs" ("id", "name") values ($1, $2), ($3, $4)',
      parameters: ['x', null, 'y', 'second'],
    });
    const others: Record<string, string | null>[] = [
      { id: 'y' },
      { id: 'y', slug: 's' },
      { id: 'y', name: null, slug: 's' },
    ];
    for (const other of others) {
      expect(() => compile({ kind: 'insert', table: 'configs', values, more: [other] }, SQLITE)).toThrow(internal);
    }
    expect(compile({ kind: 'update', table: 'configs', values, where: equals('id', 'y') }, POSTGRES)).toEqual({
      sql: 'update "configs" set "id" = $1, "name" = $2 where "id" = $3',
      parameters: ['x', null, 'y'],
    });
    expect(compile({ kind: 'remove', table: 'configs', where: any([]) }, SQLITE).sql).toBe(
      'delete from "configs" where 1 = 0',
    );
  });

  it('takes neither a name nor a literal word that could end its quotes', () => {
    for (const name of ['a"b', 'a b', '', 'A', "a'", '1a']) {
      expect(() => compile({ ...select, columns: [name] }, SQLITE)).toThrow(internal);
      expect(() => compile({ ...select, where: equals(name, 1) }, SQLITE)).toThrow(internal);
      expect(() => compile({ kind: 'remove', table: name, where: all([]) }, SQLITE)).toThrow(internal);
    }
    for (const value of ["it's", 'a b', '', 7, null]) {
      const where = { is: 'compared', column: 'status', operator: '=', value, literal: true } as const;
      expect(() => compile({ kind: 'remove', table: 'configs', where }, SQLITE)).toThrow(internal);
    }
  });
});
