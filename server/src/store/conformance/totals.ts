import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Tables, type Totals, unsafeTenant } from '../ports.ts';
import type { Row } from '../schema.ts';
import { tenantRows } from './rows.ts';

const A1 = unsafeTenant('org-a', 'ws-a1');
const A = unsafeTenant('org-a', null);

type Feedback = Row<'feedback'>;

/** Counts and sums of `Tables`: a part of its suite. Expects what `seedTenants` makes. */
export function totalsConformance(open: () => Tables): void {
  describe('totals', () => {
    let tables: Tables;
    const rows: Feedback[] = [];
    beforeAll(async () => {
      tables = open();
      for (const [workspace, size] of [
        ['ws-a1', 200],
        ['ws-a2', 20],
        ['ws-b1', 20],
      ] as const) {
        const organisation = workspace.startsWith('ws-a') ? 'org-a' : 'org-b';
        for (let n = 0; n < size; n++) {
          const [value, weight] = [(n % 21) - 10, (n * 977) % 1_000_001];
          rows.push({
            ...tenantRows(organisation, workspace).feedback,
            id: `${workspace}-${n}`,
            ai_model: n % 3 === 0 ? null : `model-${n % 5}`,
            value,
            weight_micros: weight,
            weighted_micros: value * weight,
            created_at: 1_700_000_000_000 + n * 1_234_567,
          });
        }
      }
      await tables.systemWrite(async (tx) => {
        for (const row of rows) await tx.insert('feedback', row);
      });
    });

    /** The same in JavaScript. */
    const naive = (
      kept: readonly Feedback[],
      {
        by,
        stepMs,
        sums,
      }: { by: readonly (keyof Feedback)[]; stepMs: number | null; sums: readonly (keyof Feedback)[] },
    ): Totals[] => {
      const groups = new Map<string, Feedback[]>();
      for (const row of kept) {
        const slot = stepMs === null ? null : Math.floor(row.created_at / stepMs);
        const key = JSON.stringify([slot, ...by.map((name) => row[name])]);
        groups.set(key, [...(groups.get(key) ?? []), row]);
      }
      return [...groups].map(([key, group]) => {
        const [slot, ...values] = JSON.parse(key) as [number | null, ...(string | null)[]];
        return {
          count: group.length,
          slot,
          by: Object.fromEntries(by.map((name, n) => [name, values[n] ?? null])),
          sums: Object.fromEntries(sums.map((name) => [name, group.reduce((sum, row) => sum + Number(row[name]), 0)])),
        };
      });
    };
    const sorted = (groups: readonly Totals[]) => groups.map((group) => JSON.stringify(group)).sort();

    it('are those of the tenant’s rows, whatever they are grouped by', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.subarray<'ai_model' | 'value' | 'trace_id'>(['ai_model', 'value', 'trace_id']),
          fc.constantFrom(null, 1_000, 900_000, 3_600_000, 86_400_000),
          fc.subarray<'weighted_micros' | 'weight_micros'>(['weighted_micros', 'weight_micros']),
          fc.constantFrom(A, A1),
          fc.integer({ min: -10, max: 10 }),
          async (by, stepMs, sums, tenant, least) => {
            const groups = await tables.read(tenant, (tx) =>
              tx.totals('feedback', {
                where: { value: { gte: least }, id: { contains: '-' } },
                by,
                sums,
                ...(stepMs === null ? {} : { slot: { column: 'created_at', stepMs } }),
              }),
            );
            const own = rows.filter(
              ({ organisation_id, workspace_id, value }) =>
                organisation_id === 'org-a' &&
                (tenant.workspaceId === null || workspace_id === tenant.workspaceId) &&
                value >= least,
            );
            expect(sorted(groups)).toEqual(sorted(naive(own, { by, stepMs, sums })));
          },
        ),
        { numRuns: 40 },
      );
    });

    it('of no rows are no groups', async () => {
      const where = { trace_id: 'nothing' };
      const none = await tables.read(A, async (tx) => [
        await tx.totals('feedback', { where }),
        await tx.totals('feedback', { where, by: ['value'] }),
      ]);
      expect(none).toEqual([[], []]);
    });

    it('can be cut to the largest groups', async () => {
      const most = await tables.read(A1, (tx) =>
        tx.totals('feedback', { where: { id: { contains: 'ws-' } }, by: ['ai_model'], most: 2 }),
      );
      const all = naive(
        rows.filter((row) => row.workspace_id === 'ws-a1'),
        { by: ['ai_model'], stepMs: null, sums: [] },
      ).sort((a, b) => b.count - a.count);
      expect(most.map(({ count }) => count)).toEqual(all.slice(0, 2).map(({ count }) => count));
    });

    it('take no names that are not columns of whole numbers, texts and times', async () => {
      const refused = expect.objectContaining({ kind: 'internal' });
      for (const query of [
        { by: ['metadata'] },
        { by: ['1; drop table feedback'] },
        { sums: ['trace_id'] },
        { slot: { column: 'value', stepMs: 1 } },
        { slot: { column: 'created_at', stepMs: 0 } },
        { slot: { column: 'created_at', stepMs: 1.5 } },
      ]) {
        const asked = tables.read(A, (tx) => tx.totals('feedback', query as never));
        await expect(asked, JSON.stringify(query)).rejects.toEqual(refused);
      }
    });
  });
}
