import fc from 'fast-check';
import { expect, it } from 'vitest';
import { records, SPAN_MS, selections } from '../../test/support/log-questions.ts';
import { NaiveLogStore } from '../../test/support/naive-log-store.ts';
import { rowOf } from './log-columns.ts';
import { holds } from './log-filter.ts';

it('a condition holds for a record as it comes where it holds for the stored one', async () => {
  const whole = { organisationId: 'org-a', workspaceIds: null, userId: null, keptSince: 0, erased: [] };
  let taken = 0;
  await fc.assert(
    fc.asyncProperty(records(12), selections, async (all, { where }) => {
      const rows = all.map(rowOf).filter((row) => row.organisation_id === 'org-a');
      const query = { columns: ['id'], order: 'oldest', limit: 100, behind: null } as const;
      const page = await new NaiveLogStore(rows).page({ scope: whole, from: 0, to: SPAN_MS, where }, query);
      const own = rows.filter((row) => holds(row, where)).map(({ id }) => id);
      taken += own.length;
      expect(own.sort()).toEqual(page.rows.map(({ id }) => id).sort());
    }),
    { numRuns: 300 },
  );
  expect(taken).toBeGreaterThan(50);
});

it('a column that records do not have is an error, and not a condition that always holds', () => {
  expect(() => holds({}, [{ column: 'nonsense', in: ['a'] }])).toThrow(TypeError);
});
