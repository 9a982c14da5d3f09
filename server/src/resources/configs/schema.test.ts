// biome-ignore-all lint/suspicious/noThenProperty: "then" is the contract's name in a condition
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { guardrailSlugs, parseConfig } from './schema.ts';

const checkHost = (url: string) => (url.startsWith('https://') ? null : 'must start with https://');
const parse = (value: unknown) => parseConfig(value, { checkHost });

/** The issues as `path: message` lines; throws when the config is accepted. */
function refused(value: unknown): string[] {
  const parsed = parse(value);
  if (parsed.ok) throw new Error(`accepted: ${JSON.stringify(value)}`);
  return parsed.issues.map((issue) => `${issue.path}: ${issue.message}`);
}

const target = (more: object = {}) => ({ provider: '@a', ...more });
const balanced = (targets: unknown[], strategy: object = { mode: 'loadbalance' }) => ({ strategy, targets });
const conditional = (query: unknown) => ({
  strategy: { mode: 'conditional', conditions: [{ query, then: 'x' }], default: 'x' },
  targets: [target({ name: 'x' })],
});

describe('a config is accepted with any one of its sets of members', () => {
  it.each<[string, object]>([
    ['provider and api_key', { provider: 'openai', api_key: 'sk-1' }],
    ['provider and custom_host', { provider: 'openai', custom_host: 'https://h.example/v1' }],
    ['a provider slug', { provider: '@openai-prod' }],
    ['a slug that starts with an underscore', { provider: '@_x' }],
    ['virtual_key', { virtual_key: 'vk-1' }],
    ['strategy and targets', balanced([target()])],
    ['cache', { cache: { mode: 'simple', max_age: 60 } }],
    ['retry', { retry: { attempts: 5, on_status_codes: [429], use_retry_after_headers: true } }],
    ['prompt_id', { prompt_id: 'pp-1' }],
    ['forward_headers', { forward_headers: ['x-tenant'] }],
    ['request_timeout', { request_timeout: 10_000 }],
    ['timeouts', { timeouts: { connect: 1000, first_token: 20_000, stream_idle: 30_000 } }],
    [
      'what follows a break',
      { stream: { on_break: 'restart', restart_within: { bytes: 4096, tokens: 50, ms: 2000 } } },
    ],
    ['hedging', { hedge: { delay: 500, max: 3 } }],
    ['provider and cloud settings', { provider: 'bedrock', aws_region: 'eu-central-1' }],
    ['an input guardrail', { input_guardrails: ['pg-1'] }],
    ['an inline guardrail', { output_guardrails: [{ deny: true, 'default.wordCount': { minWords: 1 } }] }],
    [
      'an inline guardrail with every action',
      {
        input_guardrails: [
          {
            deny: true,
            async: false,
            sequential: true,
            soft_deny_200: true,
            on_error: 'allow',
            messages: 'last',
            stream: 'buffer',
            'default.wordCount': {},
          },
        ],
      },
    ],
    [
      'a raw hook',
      { before_request_hooks: [{ type: 'guardrail', id: 'h', checks: [{ id: 'default.wordCount', parameters: {} }] }] },
    ],
    [
      'a mutator',
      {
        input_mutators: [
          { id: 'm', async: true, on_fail: { feedback: { value: -5, weight: 1, metadata: { a: 'b' } } } },
        ],
      },
    ],
    ['passthrough', { passthrough: true }],
    ['default_params', { default_params: { temperature: 0 } }],
    ['drop_params', { drop_params: ['messages[*].content[*].cache_control.scope'] }],
    ['override_params with a stored provider', { override_params: { model: '@openai/gpt' } }],
    ['fetch_integrated_models', { fetch_integrated_models: true }],
  ])('%s', (_, value) => {
    expect(parse(value)).toEqual({ ok: true, config: value });
  });

  it.each<[string, object]>([
    ['nothing', {}],
    ['a raw provider alone', { provider: 'openai' }],
    ['credentials without a provider', { api_key: 'sk-1' }],
    ['passthrough false', { passthrough: false }],
    ['a model without a slug', { override_params: { model: 'gpt' } }],
    ['only settings that shape other things', { name: 'x', weight: 1, metadata: { a: 'b' } }],
  ])('but not with %s', (_, value) => {
    expect(refused(value)).toEqual([expect.stringMatching(/^: says nothing to do/)]);
  });

  it('and the rule holds for every target', () => {
    expect(refused(balanced([target(), { weight: 1 }]))).toEqual([
      expect.stringMatching(/^targets\[1\]: says nothing/),
    ]);
  });
});

describe('every broken rule is named by its path', () => {
  const nested = (n: number) => Array.from({ length: n }, () => target());
  const rows: [string, unknown, string][] = [
    ['hedging at once', { hedge: { delay: 0 } }, 'hedge.delay'],
    ['a limit of no time', { timeouts: { first_token: 0 } }, 'timeouts.first_token'],
    ['a limit nobody knows', { timeouts: { total: 5 } }, 'timeouts.total'],
    ['another way to meet a break', { stream: { on_break: 'ignore' } }, 'stream.on_break'],
    [
      'a bound for a restart that never comes',
      { stream: { on_break: 'error', restart_within: { ms: 5 } } },
      'stream.restart_within',
    ],
    ['a list', [], ''],
    ['null', null, ''],
    ['a text', 'pc-1', ''],
    ['an unknown key', { ...target(), colour: 'red' }, 'colour'],
    [
      'an unknown key in a nested target',
      balanced([balanced([target({ colour: 1 })])]),
      'targets[0].targets[0].colour',
    ],
    ['an unknown key in strategy', balanced([target()], { mode: 'single', x: 1 }), 'strategy.x'],
    ['an unknown key in retry', { retry: { attempts: 1, delay: 1 } }, 'retry.delay'],
    ['an unknown key in cache', { cache: { mode: 'simple', ttl: 1 } }, 'cache.ttl'],
    ['an unknown key in a hook', { before_request_hooks: [{ id: 'h', nope: 1 }] }, 'before_request_hooks[0].nope'],
    ['a guardrail that names nothing to do', { input_guardrails: ['pg-a', { deny: true }] }, 'input_guardrails[1]'],
    [
      'a check of answers in a guardrail of requests',
      { input_guardrails: [{ deny: true, 'default.wordCount': {}, 'default.jsonKeys': { keys: ['a'] } }] },
      'input_guardrails[0].default.jsonKeys',
    ],
    [
      'a check of requests in a raw hook on answers',
      { after_request_hooks: [{ id: 'h', checks: [{ id: 'default.addPrefix', parameters: { prefix: 'a' } }] }] },
      'after_request_hooks[0].checks[0].id',
    ],
    ['a setting that a guardrail does not know', { input_guardrails: [{ denyy: true }] }, 'input_guardrails[0].denyy'],
    ['a key in a guardrail that is no check id', { input_guardrails: [{ denyy: {} }] }, 'input_guardrails[0].denyy'],
    [
      'an unknown check in a guardrail',
      { input_guardrails: ['pg-a', { 'default.x': {} }] },
      'input_guardrails[1].default.x',
    ],
    [
      'a parameter that a check does not take',
      { output_mutators: [{ 'default.contains': { words: ['a'], operator: 'some' } }] },
      'output_mutators[0].default.contains.operator',
    ],
    [
      'a parameter of a check in a raw hook',
      { after_request_hooks: [{ id: 'h', checks: [{ id: 'default.regexMatch', parameters: { rule: '(' } }] }] },
      'after_request_hooks[0].checks[0].parameters.rule',
    ],
    [
      'a setting in a guardrail that is no object',
      { input_guardrails: [{ 'default.x': 1 }] },
      'input_guardrails[0].default.x',
    ],
    ['a guardrail that is neither text nor object', { input_guardrails: [1] }, 'input_guardrails[0]'],
    ['the reserved name', JSON.parse('{"provider":"@a","__proto__":{}}'), '__proto__'],
    ['the reserved name in content', JSON.parse('{"override_params":{"__proto__":{}}}'), 'override_params.__proto__'],
    ['strategy without mode', balanced([target()], {}), 'strategy.mode'],
    ['an unknown mode', balanced([target()], { mode: 'random' }), 'strategy.mode'],
    ['strategy without targets', { strategy: { mode: 'single' } }, 'targets'],
    ['targets without strategy', { targets: [target()] }, 'strategy'],
    ['empty targets', balanced([]), 'targets'],
    [
      'conditional without conditions',
      balanced([target({ name: 'x' })], { mode: 'conditional', default: 'x' }),
      'strategy.conditions',
    ],
    [
      'conditional without default',
      balanced([target({ name: 'x' })], { mode: 'conditional', conditions: [{ query: {}, then: 'x' }] }),
      'strategy.default',
    ],
    ['a default that names no target', balanced([target()], { mode: 'fallback', default: 'y' }), 'strategy.default'],
    [
      'a condition that names no target',
      balanced([target({ name: 'x' })], { mode: 'conditional', default: 'x', conditions: [{ query: {}, then: 'y' }] }),
      'strategy.conditions[0].then',
    ],
    ['two targets of one name', balanced([target({ name: 'x' }), target({ name: 'x' })]), 'targets[1].name'],
    [
      'sticky outside loadbalance',
      balanced([target()], { mode: 'fallback', sticky: { enabled: true } }),
      'strategy.sticky',
    ],
    ['a negative weight', balanced([target({ weight: -1 })]), 'targets[0].weight'],
    ['an infinite weight', balanced([target({ weight: Number.POSITIVE_INFINITY })]), 'targets[0].weight'],
    ['weights that are all zero', balanced([target({ weight: 0 })]), 'targets'],
    ['101 root targets', balanced(nested(101)), 'targets'],
    ['51 nested targets', balanced([balanced(nested(51))]), 'targets[0].targets'],
    ['51 nested targets on two levels', balanced([balanced([balanced(nested(50))])]), 'targets[0].targets'],
    ['retry without attempts', { retry: {} }, 'retry.attempts'],
    ['six attempts', { retry: { attempts: 6 } }, 'retry.attempts'],
    ['a fraction of an attempt', { retry: { attempts: 1.5 } }, 'retry.attempts'],
    ['a status that is none', { retry: { attempts: 1, on_status_codes: [42] } }, 'retry.on_status_codes[0]'],
    ['cache without mode', { cache: {} }, 'cache.mode'],
    ['a short cache age', { cache: { mode: 'simple', max_age: 59 } }, 'cache.max_age'],
    ['a long cache age', { cache: { mode: 'simple', max_age: 7_776_001 } }, 'cache.max_age'],
    ['a breaker without cooldown', target({ cb_config: { failure_threshold: 1 } }), 'cb_config.cooldown_interval'],
    ['a short cooldown', target({ cb_config: { cooldown_interval: 29_999 } }), 'cb_config.cooldown_interval'],
    [
      'a percentage above 100',
      target({ cb_config: { cooldown_interval: 30_000, failure_threshold_percentage: 101 } }),
      'cb_config.failure_threshold_percentage',
    ],
    ['a timeout of zero', { request_timeout: 0 }, 'request_timeout'],
    ['a timeout that overflows a timer', { request_timeout: 2 ** 31 }, 'request_timeout'],
    [
      'a forwarded header list that names itself',
      { forward_headers: ['X-Gateway-Forward-Headers'] },
      'forward_headers[0]',
    ],
    ['a metadata header', { forward_headers: ['x-a', ' Metadata-Flavor '] }, 'forward_headers[1]'],
    ['a header that is none', { forward_headers: ['x a'] }, 'forward_headers[0]'],
    ['a host the guard refuses', { provider: 'openai', custom_host: 'http://h.example' }, 'custom_host'],
    ['drop_params of numbers', { drop_params: [1] }, 'drop_params[0]'],
    ['override_params as a list', { override_params: [] }, 'override_params'],
    ['a metadata value that is no text', target({ metadata: { a: 1 } }), 'metadata.a'],
    ['a long metadata value', target({ metadata: { a: 'x'.repeat(129) } }), 'metadata.a'],
    [
      'a check without parameters',
      { after_request_hooks: [{ id: 'h', checks: [{ id: 'c' }] }] },
      'after_request_hooks[0].checks[0].parameters',
    ],
    [
      'a feedback out of range',
      { input_guardrails: [{ on_fail: { feedback: { value: 11 } } }] },
      'input_guardrails[0].on_fail.feedback.value',
    ],
    [
      'a deployment without version',
      target({ deployments: [{ deployment_id: 'd', alias: 'a' }] }),
      'deployments[0].api_version',
    ],
    ['a deployment type', target({ azure_deployment_type: 'other' }), 'azure_deployment_type'],
    ['U+0000', { override_params: { a: ['x', 'a\u0000b'] } }, 'override_params.a[1]'],
    ['an unpaired surrogate', { virtual_key: 'v', prompt_id: '\ud800' }, 'prompt_id'],
    ['both spellings of one key', { virtual_key: 'a', virtualKey: 'b' }, 'virtual_key'],
    ['the old format', { mode: 'single', options: [{ provider: 'openai' }] }, 'options'],
    ['the root passthrough with targets', { passthrough: true, ...balanced([target()]) }, 'targets'],
    ['the root passthrough with override_params', { passthrough: true, override_params: {} }, 'override_params'],
    ['the root passthrough with guardrails', { passthrough: true, input_guardrails: [] }, 'input_guardrails'],
    ['a passthrough target with a provider', balanced([{ passthrough: true, provider: '@a' }]), 'targets[0].provider'],
    [
      'a passthrough target with a virtual key',
      balanced([{ passthrough: true, virtual_key: 'a' }]),
      'targets[0].virtual_key',
    ],
    ['a masked key', { provider: 'openai', masked_api_key: '*******0a1b2c3d' }, 'masked_api_key'],
    ['a mask in the real field', { provider: 'openai', api_key: '*******0a1b2c3d' }, 'api_key'],
  ];

  it.each(rows)('%s', (_, value, path) => {
    expect(refused(value)).toContainEqual(expect.stringMatching(new RegExp(`^${path.replace(/[[\]$.]/g, '\\$&')}: `)));
  });

  it('and the old format is told what to use instead', () => {
    expect(refused({ mode: 'single', options: [] })).toEqual([
      'options: belongs to the old config format: name providers in "targets" and the mode in "strategy"',
    ]);
  });

  it('within 20 issues', () => {
    expect(refused(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`k${i}`, 1])))).toHaveLength(20);
  });
});

describe('limits are inclusive', () => {
  it('100 root targets, 1000 with conditions, 50 nested, all with a weight of zero but one', () => {
    const many = (n: number) => Array.from({ length: n }, (_, i) => target({ weight: i === 0 ? 1 : 0, name: `t${i}` }));
    expect(parse(balanced(many(100))).ok).toBe(true);
    const strategy = { mode: 'conditional', default: 't999', conditions: [{ query: {}, then: 't0' }] };
    expect(parse(balanced(many(1000), strategy)).ok).toBe(true);
    expect(parse(balanced([balanced(many(50))])).ok).toBe(true);
  });

  it('a passthrough target keeps what may be given beside it', () => {
    const value = balanced([
      {
        passthrough: true,
        name: 'p',
        weight: 2,
        override_params: { temperature: 0 },
        default_params: {},
        drop_params: [],
        request_timeout: 1,
        retry: { attempts: 0 },
        cache: { mode: 'simple' },
      },
    ]);
    expect(parse(value)).toEqual({ ok: true, config: value });
  });

  it('the same target name may appear in two lists', () => {
    expect(parse(balanced([balanced([target({ name: 'x' })]), balanced([target({ name: 'x' })])])).ok).toBe(true);
  });
});

describe('conditions', () => {
  it.each<[string, unknown]>([
    ['a bare value', { 'metadata.tier': 'gold' }],
    ['a header', { 'headers.X-Plan': { $in: ['pro', 'team'] } }],
    [
      'every operator',
      { 'params.n': { $eq: 1, $ne: null, $in: [1, 'a'], $nin: [], $gt: 1, $gte: '2.5', $lt: 3, $lte: 4 } },
    ],
    ['a pattern that does not compile', { 'url.pathname': { $regex: '(' } }],
    ['nested logic', { $and: [{ $or: [{ 'metadata.a': true }, { 'params.b': { $ne: 1 } }] }, { 'metadata.c': null }] }],
  ])('accept %s', (_, query) => {
    expect(parse(conditional(query)).ok).toBe(true);
  });

  it.each<[string, unknown, string]>([
    ['three segments', { 'metadata.a.b': 1 }, 'metadata.a.b'],
    ['one segment', { metadata: 1 }, 'metadata'],
    ['another root', { 'body.a': 1 }, 'body.a'],
    ['a credential', { 'headers.Authorization': 'x' }, 'headers.Authorization'],
    ['a cookie', { 'headers.cookie': 'x' }, 'headers.cookie'],
    ['another part of the URL', { 'url.host': 1 }, 'url.host'],
    ['an unknown operator', { 'metadata.a': { $exists: true } }, 'metadata.a.$exists'],
    ['an unknown logical operator', { $not: {} }, '$not'],
    ['no operator', { 'metadata.a': {} }, 'metadata.a'],
    ['a list as value', { 'metadata.a': [1] }, 'metadata.a'],
    ['$in without a list', { 'metadata.a': { $in: 'x' } }, 'metadata.a.$in'],
    ['$regex of a number', { 'metadata.a': { $regex: 1 } }, 'metadata.a.$regex'],
    ['$gt of a word', { 'metadata.a': { $gt: 'high' } }, 'metadata.a.$gt'],
    ['$gt of a number that is not decimal', { 'metadata.a': { $gt: '0x10' } }, 'metadata.a.$gt'],
    ['$lte of a number without end', { 'metadata.a': { $lte: '1e999' } }, 'metadata.a.$lte'],
    ['$lt of a list', { 'metadata.a': { $lt: [1] } }, 'metadata.a.$lt'],
    ['$regex of 513 characters', { 'metadata.a': { $regex: 'a'.repeat(513) } }, 'metadata.a.$regex'],
    ['$eq of an object', { 'metadata.a': { $eq: {} } }, 'metadata.a.$eq'],
    ['$and of an object', { $and: {} }, '$and'],
    ['an empty $or', { $or: [] }, '$or'],
    ['a fault deep inside', { $or: [{ 'metadata.a': 1 }, { $and: [{ x: 1 }] }] }, '$or[1].$and[0].x'],
  ])('refuse %s', (_, query, path) => {
    expect(refused(conditional(query)).map((line) => line.slice(0, line.indexOf(': ')))).toEqual([
      `strategy.conditions[0].query.${path}`,
    ]);
  });
});

describe('camel case', () => {
  it('is accepted for the keys of the format at every level and stored in snake case', () => {
    expect(
      parse({
        strategy: {
          mode: 'loadbalance',
          onStatusCodes: [429],
          cbConfig: { cooldownInterval: 30_000 },
          sticky: { hashFields: ['metadata.u'] },
        },
        targets: [{ virtualKey: 'a', overrideParams: { maxTokens: 1, nested: { someKey: 2 } }, requestTimeout: 5 }],
        strictOpenAiCompliance: false,
        beforeRequestHooks: [
          {
            id: 'h',
            onFail: { feedback: { value: 1 } },
            checks: [{ id: 'default.wordCount', isEnabled: true, parameters: { maxWords: 1 } }],
          },
        ],
        inputGuardrails: [{ onSuccess: {}, 'default.wordCount': { maxWords: 3 } }],
      }),
    ).toEqual({
      ok: true,
      config: {
        strategy: {
          mode: 'loadbalance',
          on_status_codes: [429],
          cb_config: { cooldown_interval: 30_000 },
          sticky: { hash_fields: ['metadata.u'] },
        },
        targets: [{ virtual_key: 'a', override_params: { maxTokens: 1, nested: { someKey: 2 } }, request_timeout: 5 }],
        strict_open_ai_compliance: false,
        before_request_hooks: [
          {
            id: 'h',
            on_fail: { feedback: { value: 1 } },
            checks: [{ id: 'default.wordCount', is_enabled: true, parameters: { maxWords: 1 } }],
          },
        ],
        input_guardrails: [{ on_success: {}, 'default.wordCount': { maxWords: 3 } }],
      },
    });
  });
});

it('names of guardrails are found at every level with their place, also those of entries without checks', () => {
  const wordCount = { 'default.wordCount': {} };
  const value = balanced([target({ output_guardrails: [{ id: 'inline', ...wordCount }, 'pg-2', { id: 'pg-3' }] })]);
  const checks = [{ id: 'default.wordCount', parameters: {} }];
  const parsed = parse({
    ...value,
    input_guardrails: ['pg-1'],
    after_request_hooks: [
      { id: 'raw', checks },
      { id: 'pg-4', deny: true },
      { id: 'pg-5', checks: [] },
    ],
  });
  expect(parsed.ok && guardrailSlugs(parsed.config)).toEqual([
    { slug: 'pg-1', path: ['input_guardrails', 0] },
    { slug: 'pg-4', path: ['after_request_hooks', 1, 'id'] },
    { slug: 'pg-5', path: ['after_request_hooks', 2, 'id'] },
    { slug: 'pg-2', path: ['targets', 0, 'output_guardrails', 1] },
    { slug: 'pg-3', path: ['targets', 0, 'output_guardrails', 2, 'id'] },
  ]);
});

describe('with any input', () => {
  it('no JSON value makes it throw, and what it accepts it accepts again unchanged', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const parsed = parse(value);
        if (parsed.ok) expect(parse(parsed.config)).toEqual(parsed);
        else expect(parsed.issues.length).toBeGreaterThan(0);
      }),
      { numRuns: 2000 },
    );
  });

  const part = fc.constantFrom<object>(
    { provider: '@a' },
    { retry: { attempts: 1 } },
    { cache: { mode: 'simple' } },
    { strategy: { mode: 'single' }, targets: [{ provider: '@b', retry: { attempts: 2 } }] },
    { cb_config: { cooldown_interval: 30_000 }, virtual_key: 'v' },
    { before_request_hooks: [{ id: 'h', checks: [{ id: 'default.wordCount', parameters: {} }] }] },
    { deployments: [{ deployment_id: 'd', alias: 'a', api_version: '1' }], provider: 'x' },
  );

  it('an unknown key at any level is never accepted', () => {
    const places = (value: unknown): Record<string, unknown>[] => {
      if (typeof value !== 'object' || value === null) return [];
      const inner = Object.entries(value).flatMap(([key, item]) => (key === 'parameters' ? [] : places(item)));
      return Array.isArray(value) ? inner : [value as Record<string, unknown>, ...inner];
    };
    const key = fc.string({ minLength: 1 }).filter((text) => !/^[a-z_A-Z]+$/.test(text) || text.length > 40);
    fc.assert(
      fc.property(part, key, fc.nat(), fc.jsonValue(), (base, name, at, content) => {
        const copy = structuredClone(base);
        expect(parse(copy).ok).toBe(true);
        const all = places(copy);
        const place = all[at % all.length] ?? {};
        Object.defineProperty(place, name, { value: content, enumerable: true, configurable: true, writable: true });
        expect(parse(copy).ok).toBe(false);
      }),
      { numRuns: 2000 },
    );
  });

  it('nesting without end is refused, not followed', () => {
    let deep: object = target();
    for (let i = 0; i < 50_000; i++) deep = balanced([deep]);
    expect(refused(deep)).toContainEqual(expect.stringContaining('nested deeper than 64 levels'));
    let content: object = {};
    for (let i = 0; i < 50_000; i++) content = { a: content };
    expect(refused({ override_params: content })).toEqual([expect.stringContaining('nested deeper than 64 levels')]);
  });

  it('values that no JSON text holds are refused, not passed on', () => {
    expect(refused({ override_params: { a: () => 1 } })).toEqual(['override_params.a: must be a JSON value']);
    expect(refused({ override_params: { a: Number.NaN } })).toEqual(['override_params.a: must be a finite number']);
  });
});
