import { describe, expect, it } from 'vitest';
import { type Family, OPERATIONS } from '../../operations/operation.ts';
import type { WorkspaceSnapshot } from '../../runtime/snapshot.ts';
import { stepsFor } from '../pipeline.ts';
import { makePlan } from '../plan.ts';
import { guard } from '../steps/guard.ts';
import { guardPlan } from './plan.ts';

const NOTHING = { limits: false, budgets: false };
const bare = { guardrails: { input: [], output: [], byName: new Map() } } as unknown as WorkspaceSnapshot;

describe('without a guardrail', () => {
  it.each(Object.values(OPERATIONS))('$id has no step that judges, and the steps are shared', (operation) => {
    for (const config of [null, {}]) expect(guardPlan(operation, bare, config, false)).toBeNull();
    const plan = makePlan(operation, null, null, null, null, NOTHING);
    expect(plan.guard).toBeNull();
    expect(plan.steps).not.toContain(guard);
    // Nothing is made for it either: every plan has the very same list.
    expect(makePlan(operation, null, null, null, null, NOTHING).steps).toBe(plan.steps);
  });

  it.each(['C', 'T', 'B', 'F', 'J', 'P'] satisfies Family[])('%s runs one step less than with one', (family) => {
    const without = stepsFor(family, { ...NOTHING, route: false, guardrails: false });
    const withOne = stepsFor(family, { ...NOTHING, route: false, guardrails: true });
    expect(withOne.filter((step) => step !== guard)).toEqual(without);
    expect(withOne).toHaveLength(without.length + 1);
  });
});
