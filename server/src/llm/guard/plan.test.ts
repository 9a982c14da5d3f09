import { describe, expect, it } from 'vitest';
import { compileGuardrail, type GivenActions } from '../../guardrails/compile.ts';
import type { Guardrail } from '../../guardrails/guardrail.ts';
import { type Family, OPERATIONS } from '../../operations/operation.ts';
import type { Config } from '../../resources/configs/schema.ts';
import type { WorkspaceSnapshot } from '../../runtime/snapshot.ts';
import { stepsFor } from '../pipeline.ts';
import { makePlan, NONE } from '../plan.ts';
import { guard } from '../steps/guard.ts';
import { guardPlan } from './plan.ts';

const NOTHING = { ...NONE, rateLimits: false, usageLimits: false };
const bare = { guardrails: { input: [], output: [], byName: new Map() } } as unknown as WorkspaceSnapshot;

describe('without a guardrail', () => {
  it.each(Object.values(OPERATIONS))('$id has no step that judges, and the steps are shared', (operation) => {
    for (const config of [null, {}]) expect(guardPlan(operation, bare, config, false)).toBeNull();
    const plan = makePlan(null, null, null, null, NOTHING);
    expect(plan.guard).toBeNull();
    const steps = stepsFor(operation.family, plan.features, false);
    expect(steps.target).not.toContain(guard);
    // Nothing is made for it either: every plan has the very same list.
    expect(stepsFor(operation.family, makePlan(null, null, null, null, NOTHING).features, false)).toBe(steps);
  });

  it.each(['chat', 'text', 'binary', 'read', 'job', 'proxy'] satisfies Family[])(
    '%s runs one step less than with one',
    (family) => {
      const without = stepsFor(family, { ...NOTHING, route: false, guardrails: false }, false).target;
      const withOne = stepsFor(family, { ...NOTHING, route: false, guardrails: true }, false).target;
      expect(withOne.filter((step) => step !== guard)).toEqual(without);
      expect(withOne).toHaveLength(without.length + 1);
    },
  );
});

describe('the guardrails of a config', () => {
  const stored = (id: string): Guardrail =>
    compileGuardrail({ id, slug: `pg-${id}`, name: id, version: `v-${id}`, target: 'llm', actions: {}, checks: [] });
  const [one, two] = [stored('one'), stored('two')];
  const byName = new Map([one, two].flatMap((each) => [each.id, each.slug].map((name) => [name, each] as const)));
  const snapshot = { guardrails: { input: [one], output: [], byName } } as unknown as WorkspaceSnapshot;
  const names = (config: object, inline: boolean) =>
    guardPlan(OPERATIONS.chat, snapshot, config as Config, inline)?.input.map(({ slug, type }) => `${slug} ${type}`);

  it('run once each, where they come first, also where one is named as a mutator and by its id', () => {
    const config = { input_guardrails: ['two', 'pg-two'], input_mutators: ['pg-one', 'pg-two'] };
    expect(names(config, false)).toEqual(['pg-one guardrail', 'pg-two guardrail']);
  });

  it('that a caller sends come before the defaults, and cannot have a default judge before they change the request', () => {
    const mine = { id: 'mine', 'default.addPrefix': { prefix: 'a' } };
    for (const list of ['before_request_hooks', 'input_guardrails', 'input_mutators'] as const) {
      const named = list === 'before_request_hooks' ? [] : ['one'];
      const config = { input_mutators: [mine], [list]: list === 'input_mutators' ? ['one', mine] : named };
      expect(names({ ...config, input_mutators: [...(config.input_mutators ?? []), 'two'] }, true)).toEqual([
        'mine mutator',
        'pg-two mutator',
        'pg-one guardrail',
      ]);
    }
  });

  it('run by list: raw hooks, guardrails, mutators; two that stand in it under one name are two', () => {
    const entry = () => ({ id: 'pg-one', 'default.wordCount': {} });
    const config = {
      input_mutators: ['pg-two'],
      input_guardrails: [entry(), entry()],
      before_request_hooks: [{ id: 'raw', checks: [{ id: 'default.wordCount' }] }],
    };
    expect(names(config, false)).toEqual([
      'pg-one guardrail',
      'raw guardrail',
      'pg-one guardrail',
      'pg-one guardrail',
      'pg-two mutator',
    ]);
  });

  it('run over answers by list, too', () => {
    const entry = { 'default.wordCount': {} };
    const config = {
      output_mutators: [{ id: 'third', ...entry }],
      output_guardrails: [{ id: 'second', ...entry }],
      after_request_hooks: [{ id: 'first', checks: [{ id: 'default.wordCount' }] }],
    } as unknown as Config;
    const output = guardPlan(OPERATIONS.chat, snapshot, config, false)?.output.map(({ slug }) => slug);
    expect(output).toEqual(['first', 'second', 'third']);
    expect(guardPlan(OPERATIONS.embeddings, snapshot, config, false)?.output).toEqual([]);
  });

  it('are the same ones for every target of it', () => {
    const config = {
      input_guardrails: [{ id: 'own', 'default.wordCount': {} }],
      input_mutators: ['two'],
    } as unknown as Config;
    const [first, second] = [1, 2].map(() => guardPlan(OPERATIONS.chat, snapshot, { ...config }, false)?.input ?? []);
    expect(first).toHaveLength(3);
    for (const [i, each] of (first ?? []).entries()) expect(second?.[i]).toBe(each);
  });
});

describe('an entry of a config that names a guardrail', () => {
  const checks = [{ id: 'default.wordCount', is_enabled: true, parameters: {} }];
  const stored = (actions: GivenActions) =>
    compileGuardrail({ id: 'i', slug: 'pg-a', name: 'A', target: 'llm', actions, checks });
  const planned = (actions: GivenActions, entry: Record<string, unknown>) => {
    const guardrail = stored(actions);
    const snapshot = {
      guardrails: { input: [], output: [], byName: new Map([['pg-a', guardrail]]) },
    } as unknown as WorkspaceSnapshot;
    const config = { before_request_hooks: [{ id: 'pg-a', ...entry }] };
    const made = guardPlan(OPERATIONS.chat, snapshot, config, false)?.input[0];
    return { guardrail, made };
  };

  it('is that guardrail itself where it says no action', () => {
    const { guardrail, made } = planned({}, { type: 'guardrail', checks: [] });
    expect(made).toBe(guardrail);
  });

  it('has the actions that it says, and the others of the guardrail', () => {
    const { guardrail, made } = planned(
      { deny: true, sequential: true, on_fail: { feedback: { value: -2 } } },
      { deny: false, async: true, on_success: { feedback: { value: 1 } } },
    );
    expect(made).toEqual({
      ...guardrail,
      actions: {
        ...guardrail.actions,
        deny: false,
        async: true,
        onSuccess: { value: 1, weight: 1, metadata: '' },
      },
    });
    expect(planned({}, { soft_deny_200: true, messages: 'last', stream: 'buffer' }).made?.actions).toMatchObject({
      softDeny: true,
      messages: 'last',
      stream: 'buffer',
    });
  });

  it('runs beside the default that it names where it says other actions, and once where it says none', () => {
    const guardrail = stored({});
    const snapshot = {
      guardrails: { input: [guardrail], output: [], byName: new Map([['pg-a', guardrail]]) },
    } as unknown as WorkspaceSnapshot;
    const denies = (entry: object, inline: boolean) => {
      const config = { before_request_hooks: [{ id: 'pg-a', ...entry }] };
      return guardPlan(OPERATIONS.chat, snapshot, config, inline)?.input.map(({ actions }) => actions.deny);
    };
    expect(denies({}, false)).toEqual([false]);
    expect(denies({ deny: true }, false)).toEqual([false, true]);
    expect(denies({ deny: true }, true)).toEqual([true, false]);
  });

  it('fails closed once it denies, unless it says otherwise', () => {
    expect(planned({ on_error: 'allow' }, { deny: true }).made?.actions).toMatchObject({ deny: true, onError: 'fail' });
    expect(planned({}, { deny: true, on_error: 'allow' }).made?.actions).toMatchObject({ deny: true, onError: 'pass' });
    expect(planned({ deny: true, on_error: 'allow' }, { deny: true }).made?.actions.onError).toBe('pass');
  });
});
