import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PolicyCondition } from '../../store/schema.ts';
import { compilePolicies, type PolicyFacts, type PolicySelector, requestModel } from './conditions.ts';

const PLACE = { workspaceId: 'w1', workspaceSlug: 'ws-research', organisationId: 'o1' };

const facts = (over: Partial<PolicyFacts> = {}): PolicyFacts => ({
  workspace_id: 'w1',
  organisation_id: 'o1',
  api_key: 'key-1',
  virtual_key: 'openai-prod',
  provider: 'openai',
  config: null,
  prompt: null,
  model: requestModel('openai-prod', 'gpt-4o'),
  endpoint_type: 'chatComplete',
  mcp_server: null,
  mcp_tool: null,
  metadata: { _user: 'alice', team: 'search' },
  ...over,
});

interface Named extends PolicySelector {
  readonly name: string;
}

const policy = (name: string, conditions: PolicyCondition[], ...groups: string[]): Named => ({
  name,
  conditions,
  group_by: (groups.length === 0 ? ['api_key'] : groups).map((key) => ({ key })),
});

const matching = (policies: Named[], over: Partial<PolicyFacts> = {}) =>
  (compilePolicies(policies, PLACE)?.match(facts(over)) ?? []).map((found) => found.policy.name);
const isMatched = (conditions: PolicyCondition[], over: Partial<PolicyFacts> = {}) =>
  matching([policy('p', conditions)], over).length === 1;

describe('conditions of policies', () => {
  it.each<[string, PolicyCondition, Partial<PolicyFacts>, boolean]>([
    ['a value that is equal', { key: 'provider', value: 'openai' }, {}, true],
    ['a value that is not', { key: 'provider', value: 'anthropic' }, {}, false],
    ['one of several values', { key: 'provider', value: ['anthropic', 'openai'] }, {}, true],
    ['none of several values', { key: 'provider', value: ['anthropic', 'groq'] }, {}, false],
    ['a value that the request does not have', { key: 'config', value: 'pc-a' }, {}, false],
    ['* for any value', { key: 'virtual_key', value: '*' }, {}, true],
    ['* also without a value', { key: 'config', value: '*' }, {}, true],
    ['* less what is excluded', { key: 'virtual_key', value: '*', excludes: 'openai-prod' }, {}, false],
    ['an exclusion that does not apply', { key: 'virtual_key', value: '*', excludes: ['a', 'b'] }, {}, true],
    ['an exclusion alone', { key: 'metadata.team', excludes: 'search' }, {}, false],
    ['an exclusion alone of another value', { key: 'metadata.team', excludes: 'ads' }, {}, true],
    ['an exclusion of what the request does not have', { key: 'metadata.absent', excludes: 'x' }, {}, true],
    ['everything excluded', { key: 'provider', value: 'openai', excludes: '*' }, {}, false],
    ['metadata', { key: 'metadata._user', value: 'alice' }, {}, true],
    ['metadata of a name with dots', { key: 'metadata.a.b', value: 'x' }, { metadata: { 'a.b': 'x' } }, true],
    ['metadata that only its prototype has', { key: 'metadata.constructor', value: 'x' }, {}, false],
    ['no metadata at all', { key: 'metadata._user', value: 'alice' }, { metadata: null }, false],
    ['the model with its provider', { key: 'model', value: '@openai-prod/gpt-4o' }, {}, true],
    ['the model in another case', { key: 'model', value: '@openai-prod/GPT-4o' }, {}, true],
    ['every model of a provider', { key: 'model', value: '@openai-prod/*' }, {}, true],
    ['every model of another provider', { key: 'model', value: '@openai/*' }, {}, false],
    ['a model at any provider', { key: 'model', value: 'gpt-4o' }, {}, true],
    [
      'a provider less one model',
      { key: 'model', value: '@openai-prod/*', excludes: '@openai-prod/gpt-4o' },
      {},
      false,
    ],
    [
      'a model with slashes in its name',
      { key: 'model', value: 'meta/llama-3' },
      { model: requestModel('t', 'meta/llama-3') },
      true,
    ],
    ['the kind of request', { key: 'endpoint_type', value: ['embed', 'chatComplete'] }, {}, true],
    ['an API key in upper case', { key: 'api_key', value: 'KEY-1' }, {}, true],
    ['the workspace by id', { key: 'workspace_id', value: 'w1' }, {}, true],
    ['the workspace by slug', { key: 'workspace_id', value: 'ws-research' }, {}, true],
    ['another workspace', { key: 'workspace_id', value: 'w2' }, {}, false],
    ['the own workspace excluded', { key: 'workspace_id', value: '*', excludes: 'ws-research' }, {}, false],
    ['the organisation', { key: 'organisation_id', value: 'O1' }, {}, true],
    ['an MCP tool', { key: 'mcp_tool', value: 'search' }, { mcp_tool: 'search' }, true],
  ])('%s', (_, condition, over, expected) => {
    expect(isMatched([condition], over)).toBe(expected);
  });

  it('all conditions must hold', () => {
    const conditions = [
      { key: 'provider', value: 'openai' },
      { key: 'metadata.team', value: 'search' },
    ];
    expect(isMatched(conditions)).toBe(true);
    expect(isMatched(conditions, { metadata: { team: 'ads' } })).toBe(false);
    expect(isMatched(conditions, { provider: 'groq' })).toBe(false);
  });

  it('a policy that one request finds under two names of its model counts once', () => {
    expect(
      matching([policy('p', [{ key: 'model', value: ['gpt-4o', '@openai-prod/*', '@openai-prod/gpt-4o'] }])]),
    ).toEqual(['p']);
  });

  it('answers matches in the order of the policies, whatever they are found by', () => {
    const policies = [
      policy('a', [{ key: 'metadata.team', value: 'search' }]),
      policy('b', [{ key: 'provider', value: '*' }]),
      policy('c', [{ key: 'model', value: '@openai-prod/*' }]),
      policy('d', [{ key: 'provider', value: 'openai' }]),
    ];
    expect(matching(policies)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('nothing is compiled without policies, nor of policies that can never match', () => {
    expect(compilePolicies([], PLACE)).toBeNull();
    expect(compilePolicies([policy('p', [{ key: 'workspace_id', value: 'elsewhere' }])], PLACE)).toBeNull();
  });

  it('the index finds what testing every policy finds', () => {
    const value = fc.constantFrom('a', 'b', 'c', '*', '@a/*', '@a/b');
    const condition = fc.record(
      {
        key: fc.constantFrom('provider', 'virtual_key', 'model', 'metadata.x', 'metadata.y', 'api_key'),
        value: fc.oneof(value, fc.array(value, { minLength: 1, maxLength: 3 })),
        excludes: fc.oneof(value, fc.array(value, { minLength: 1, maxLength: 2 })),
      },
      { requiredKeys: ['key'] },
    );
    const request = fc.record({
      provider: fc.constantFrom('a', 'b'),
      virtual_key: fc.constantFrom(null, 'a', 'c'),
      model: fc.constantFrom(null, '@a/b', '@b/c'),
      api_key: fc.constantFrom('a', 'b'),
      metadata: fc.constantFrom<Record<string, string> | null>(null, {}, { x: 'a' }, { x: 'b', y: 'c' }),
    });
    const many = fc.array(fc.array(condition, { minLength: 1, maxLength: 3 }), { maxLength: 12 });
    fc.assert(
      fc.property(many, request, (all, over) => {
        const policies = all.map((conditions, index) => policy(String(index), conditions));
        const alone = policies.filter((one) => matching([one], over).length === 1).map((one) => one.name);
        expect(matching(policies, over)).toEqual(alone);
        expect(compilePolicies(policies, PLACE)?.most ?? 0).toBeGreaterThanOrEqual(alone.length);
      }),
      { numRuns: 500 },
    );
  });
});

describe('very many policies that match one request', () => {
  /** Processor time for each policy, the least of several runs of equal work: what else the machine does only adds. */
  const cost = (count: number) => {
    const all = Array.from({ length: count }, (_, i) =>
      policy(`${i}`, [{ key: 'model', value: ['@a/*', '@a/b', 'b'] }]),
    );
    const index = compilePolicies(all, PLACE);
    expect(index?.match(facts({ model: '@a/b' }))).toHaveLength(count);
    let least = Number.POSITIVE_INFINITY;
    for (let run = 0; run < 5; run++) {
      const began = process.threadCpuUsage();
      for (let matched = 0; matched < 200_000; matched += count) index?.match(facts({ model: '@a/b' }));
      const { user, system } = process.threadCpuUsage(began);
      least = Math.min(least, user + system);
    }
    return least;
  };

  it('cost each the same: ten times as many cost about ten times as much', () => {
    expect(cost(10_000) / cost(1_000)).toBeLessThan(4);
  });

  it('are counted ahead: as many as can meet in one request, not as many as there are', () => {
    const own = Array.from({ length: 300 }, (_, i) => policy(`own-${i}`, [{ key: 'api_key', value: `key-${i}` }]));
    const all = [
      ...own,
      policy('all', [{ key: 'metadata.x', value: '*' }]),
      policy('m', [{ key: 'model', value: 'b' }]),
    ];
    expect(compilePolicies(all, PLACE)?.most).toBe(3);
  });
});

describe('the counter of a request in a policy', () => {
  const keyOf = (groups: string[], over: Partial<PolicyFacts> = {}) => {
    const [found] =
      compilePolicies([policy('p', [{ key: 'api_key', value: '*' }], ...groups)], PLACE)?.match(facts(over)) ?? [];
    return found;
  };

  it('reads key and value, several joined with a hyphen', () => {
    expect(keyOf(['metadata._user'])?.valueKey).toBe('metadata._user:alice');
    expect(keyOf(['api_key', 'metadata._user'])?.valueKey).toBe('api_key:key-1-metadata._user:alice');
  });

  it('requests without the value share one counter', () => {
    expect(keyOf(['metadata._user'], { metadata: null })?.bucket).toBe(
      keyOf(['metadata._user'], { metadata: {} })?.bucket,
    );
    expect(keyOf(['metadata._user'], { metadata: null })?.valueKey).toBe('metadata._user:');
  });

  it('different values never share a counter, however they are spelled', () => {
    const text = fc.string({ maxLength: 12 });
    fc.assert(
      fc.property(text, text, text, text, (a, b, c, d) => {
        fc.pre(a !== c || b !== d);
        const groups = ['metadata.a', 'metadata.b'];
        expect(keyOf(groups, { metadata: { a, b } })?.bucket).not.toBe(
          keyOf(groups, { metadata: { a: c, b: d } })?.bucket,
        );
      }),
    );
    const crafted = { a: 'x-metadata.b:y', b: 'z' };
    const other = { a: 'x', b: 'y-metadata.b:z' };
    const groups = ['metadata.a', 'metadata.b'];
    expect(keyOf(groups, { metadata: crafted })?.bucket).not.toBe(keyOf(groups, { metadata: other })?.bucket);
  });
});
