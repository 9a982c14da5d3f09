import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Tables, unsafeTenant, type Where } from '../ports.ts';
import type { TableName } from '../schema.ts';
import { apiKeyRow } from './rows.ts';

const B = unsafeTenant('org-b', null);

const kind = (of: string) => expect.objectContaining({ name: 'SluiceError', kind: of });

/** Conditions, order and pages of `Tables`: a part of its suite. */
export function conditionsConformance(open: () => Tables): void {
  describe('conditions', () => {
    let tables: Tables;
    beforeAll(() => {
      tables = open();
    });
    const names = ['Alpha', 'alpha', 'al%pha', 'al_pha', 'beta', 'Émile'];
    beforeAll(async () => {
      await tables.write(B, async (tx) => {
        for (const [i, text] of names.entries()) {
          const more = { name: text, created_at: i, description: i % 2 === 0 ? null : `d${i}` };
          await tx.insert('api_keys', apiKeyRow('org-b', `q${i}`, more));
        }
      });
    });
    const ids = async (where: Where<'api_keys'>, anyOf?: Where<'api_keys'>[]) =>
      (await tables.read(B, (tx) => tx.list('api_keys', { where, anyOf, orderBy: [['created_at', 'asc']] }))).map(
        (row) => row.id,
      );

    it('compare by code point, case-sensitive, without wildcards', async () => {
      expect(await ids({ name: { contains: 'al' } })).toEqual(['q1', 'q2', 'q3']);
      expect(await ids({ name: { contains: 'l%p' } })).toEqual(['q2']);
      expect(await ids({ name: { contains: 'l_p' } })).toEqual(['q3']);
      expect(await ids({ name: { contains: '' } })).toHaveLength(6);
      expect(await ids({ name: 'alpha' })).toEqual(['q1']);
      const sorted = await tables.read(B, (tx) => tx.list('api_keys', { orderBy: [['name', 'asc']] }));
      expect(sorted.map((row) => row.name)).toEqual(['Alpha', 'al%pha', 'al_pha', 'alpha', 'beta', 'Émile']);
    });

    it('know null: IS NULL, IS NOT NULL, and "not a value" keeps rows that have none', async () => {
      expect(await ids({ description: null })).toEqual(['q0', 'q2', 'q4']);
      expect(await ids({ description: { not: null } })).toEqual(['q1', 'q3', 'q5']);
      expect(await ids({ description: { not: 'd1' } })).toEqual(['q0', 'q2', 'q3', 'q4', 'q5']);
      expect(await ids({ description: { in: ['d1', null] } })).toEqual(['q0', 'q1', 'q2', 'q4']);
    });

    it('compare ranges, lists and alternatives', async () => {
      expect(await ids({ created_at: { gt: 0, lte: 2 } })).toEqual(['q1', 'q2']);
      expect(await ids({ created_at: { gte: 4 }, id: { lt: 'q5' } })).toEqual(['q4']);
      expect(await ids({ id: { in: [] } })).toEqual([]);
      expect(await ids({}, [{ id: 'q0' }, { name: 'beta' }])).toEqual(['q0', 'q4']);
      expect(await ids({ description: null }, [{ id: 'q1' }, { id: 'q2' }])).toEqual(['q2']);
      expect(await ids({}, [])).toEqual([]);
      expect(await ids({ name: undefined })).toHaveLength(6);
    });

    it('page in a stable order: the primary key settles equal rows, nulls come first going up and last going down', async () => {
      const pages: string[] = [];
      for (let offset = 0; offset < 6; offset += 2) {
        const page = await tables.read(B, (tx) =>
          tx.list('api_keys', { orderBy: [['status', 'desc']], limit: 2, offset }),
        );
        pages.push(...page.map((row) => row.id));
      }
      expect(pages).toEqual(['q0', 'q1', 'q2', 'q3', 'q4', 'q5']);
      const order = async (direction: 'asc' | 'desc') =>
        (await tables.read(B, (tx) => tx.list('api_keys', { orderBy: [['description', direction]], offset: 1 }))).map(
          (row) => row.id,
        );
      expect(await order('asc')).toEqual(['q2', 'q4', 'q1', 'q3', 'q5']);
      expect(await order('desc')).toEqual(['q3', 'q1', 'q0', 'q2', 'q4']);
    });

    it('without an order come by the primary key, and a part of a list names its order', async () => {
      const list = (limit?: number) => tables.read(B, (tx) => tx.list('api_keys', { limit }));
      expect((await list()).map((row) => row.id)).toEqual(['q0', 'q1', 'q2', 'q3', 'q4', 'q5']);
      expect((await list(1)).map((row) => row.id)).toEqual(['q0']);
      await expect(list(2)).rejects.toMatchObject({ kind: 'internal' });
    });

    it('answer for every condition what the same condition answers in memory', async () => {
      const rows = await tables.read(B, (tx) => tx.list('api_keys'));
      type Plain = string | number | null;
      const value = {
        name: fc.constantFrom('Alpha', 'alpha', 'a', '%', '_', '', 'Émile', 'x'),
        description: fc.constantFrom('d1', 'd', 'D1', ''),
        created_at: fc.integer({ min: -1, max: 6 }),
      };
      const operators = (of: fc.Arbitrary<Plain>, textual: boolean) => {
        const orNull = fc.option(of);
        const all = fc.record(
          {
            in: fc.array(orNull, { maxLength: 4 }),
            not: orNull,
            gt: of,
            gte: of,
            lt: of,
            lte: of,
            ...(textual ? { contains: of } : {}),
          },
          { requiredKeys: [] },
        );
        return fc.oneof(
          orNull,
          all.filter((given) => Object.keys(given).length > 0),
        );
      };
      const where = fc.record(
        {
          name: operators(value.name, true).filter((given) => given !== null),
          description: operators(value.description, true),
          created_at: operators(value.created_at, false).filter((given) => given !== null),
        },
        { requiredKeys: [] },
      );
      const points = (one: Plain) => (typeof one === 'string' ? Buffer.from(one).toString('hex') : (one ?? 0));
      const holds = (actual: Plain, condition: unknown): boolean => {
        if (condition === null || typeof condition !== 'object') return actual === condition;
        return Object.entries(condition).every(([operator, asked]) => {
          if (operator === 'in') return (asked as Plain[]).includes(actual);
          if (operator === 'not') return actual !== asked;
          if (actual === null) return false;
          if (operator === 'contains') return String(actual).includes(String(asked));
          const [a, b] = [points(actual), points(asked as Plain)];
          return { gt: a > b, gte: a >= b, lt: a < b, lte: a <= b }[operator] === true;
        });
      };
      const matches = (row: unknown, conditions: object) =>
        Object.entries(conditions).every(([name, condition]) =>
          holds((row as Record<string, Plain>)[name] ?? null, condition),
        );
      await fc.assert(
        fc.asyncProperty(
          where,
          fc.option(fc.array(where, { maxLength: 2 }), { nil: undefined }),
          async (and, anyOf) => {
            const expected = rows
              .filter((row) => matches(row, and) && (!anyOf || anyOf.some((one) => matches(row, one))))
              .map((row) => row.id);
            const query = { where: and, anyOf } as { where: Where<'api_keys'>; anyOf?: Where<'api_keys'>[] };
            const [found, count] = await tables.read(B, (tx) =>
              Promise.all([tx.list('api_keys', query), tx.count('api_keys', query)]),
            );
            expect(found.map((row) => row.id)).toEqual(expected);
            expect(count).toBe(expected.length);
          },
        ),
        { numRuns: 150 },
      );
    });

    it('refuse names of columns, operators and directions that SCHEMA does not have', async () => {
      const bad: unknown[] = [
        { where: { 'id" = id --': 'x' } },
        { where: { __proto__x: 1 } },
        { where: { constructor: 'x' } },
        { where: { name: { like: '%' } } },
        { where: { name: {} } },
        { where: { scopes: 'x' } },
        { where: { scopes: ['x'] } },
        { orderBy: [['toString', 'asc']] },
        { orderBy: [['name', 'asc; drop table api_keys']] },
        { limit: -1 },
        { limit: Number.NaN },
      ];
      for (const query of bad) {
        const read = tables.read(B, (tx) => tx.list('api_keys', query as never));
        await expect(read, JSON.stringify(query)).rejects.toEqual(kind('internal'));
      }
      await expect(tables.systemRead((tx) => tx.list('sqlite_master' as TableName))).rejects.toEqual(kind('internal'));
    });
  });
}
