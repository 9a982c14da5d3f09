import { describe, expect, it } from 'vitest';
import { ACCOUNT_KEYS, type Config } from '../../resources/configs/schema.ts';
import { CONFIG_LEVEL } from '../../resources/configs/structure.ts';
import { type BalanceNode, type FallbackNode, type Leaf, type RouteNode, routeOf } from './route.ts';

const route = (config: object): RouteNode => routeOf(config as Config).root;
const leafOf = (node: RouteNode): Leaf => {
  if (node.kind !== 'target') throw new Error(node.kind);
  return node;
};
const leavesOf = (node: RouteNode): Leaf[] => (node.kind === 'target' ? [node] : node.targets.flatMap(leavesOf));
const fallback = (targets: object[], more: object = {}) => ({ strategy: { mode: 'fallback' }, targets, ...more });

/** Of the node alone; and who is asked, which goes with its credentials. All else flows down. */
const OWN = ['strategy', 'targets', 'name', 'weight', 'on_status_codes', 'passthrough'];
const NAMING = ['provider', 'virtual_key', 'api_key', ...ACCOUNT_KEYS];

describe('what flows down', () => {
  const VALUES: Record<string, [above: unknown, own: unknown]> = {
    on_status_codes: [[429], [500]],
    override_params: [{ a: 1 }, { b: 2 }],
    default_params: [{ a: 1 }, { b: 2 }],
    weight: [3, 4],
    strategy: [{ mode: 'fallback' }, undefined],
    targets: [[], undefined],
  };
  const [above, own] = [{ of: 'above' }, { of: 'own' }];
  const keys = CONFIG_LEVEL.keys.filter((key) => key !== 'strategy' && key !== 'targets');

  it.each(keys)('%s', (key) => {
    const [high, low] = VALUES[key] ?? [above, own];
    const among = [{ provider: '@named' }, {}, { provider: '@own', [key]: low }];
    // Two levels above, so that it passes through a group that says nothing.
    const [named, plain, itself] = leavesOf(
      route(fallback([fallback(among), { provider: '@z' }], { [key]: high })),
    ).map(({ config }) => config as Record<string, unknown>);
    const flows = !OWN.includes(key);
    const naming = NAMING.includes(key);
    const expected = (is: boolean, otherwise: unknown) => (is ? high : otherwise);
    expect(named?.[key]).toEqual(expected(flows && !naming, key === 'provider' ? '@named' : undefined));
    expect(plain?.[key]).toEqual(expected(flows, undefined));
    // Parameters are joined key by key, with the nearest first; everything else is as its own.
    const joins = key === 'override_params' || key === 'default_params';
    expect(itself?.[key]).toEqual(joins ? { a: 1, b: 2 } : low);
  });

  it('past a target that has a field and no value for it', () => {
    const [leaf] = leavesOf(
      route(fallback([{ provider: '@a', custom_host: undefined }, { provider: '@z' }], { custom_host: 'h' })),
    );
    expect(leaf?.config.custom_host).toBe('h');
  });

  it.each([
    ['a virtual key', { virtual_key: 'vk' }],
    ['a model of a stored provider', { override_params: { model: '@other/m' } }],
    ['whatever the request names', { passthrough: true }],
    ['a provider of its own', { provider: 'mistral-ai', custom_host: 'https://h.example' }],
  ])('no credentials to a target that names %s', (_what, target) => {
    const [leaf] = leavesOf(
      route(fallback([target, { provider: '@z' }], { provider: 'openai', api_key: 'sk', openai_project: 'p' })),
    );
    expect(leaf?.config).not.toHaveProperty('api_key');
    expect(leaf?.config).not.toHaveProperty('openai_project');
    expect(leaf?.config.provider).toBe((target as { provider?: string }).provider);
  });

  it('of parameters the nearest value of a key', () => {
    const params = (n: number) => ({ override_params: { x: n, [`only${n}`]: n }, default_params: { y: n } });
    const inner = fallback([{ provider: '@a', ...params(3) }, { provider: '@b' }], params(2));
    const [leaf] = leavesOf(route(fallback([inner, { provider: '@z' }], params(1))));
    expect(leaf?.config).toMatchObject({
      override_params: { x: 3, only1: 1, only2: 2, only3: 3 },
      default_params: { y: 3 },
    });
  });

  it('a circuit breaker also from within the strategy, and the nearest one of all', () => {
    const cb = (failure_threshold: number) => ({ failure_threshold, cooldown_interval: 30_000 });
    const at = (config: object) => leavesOf(route(config)).map(({ breaker }) => breaker?.failures ?? null);
    const targets = [{ provider: '@a' }, { provider: '@b', cb_config: cb(9) }];
    expect(at({ strategy: { mode: 'fallback', cb_config: cb(1) }, targets })).toEqual([1, 9]);
    expect(at({ strategy: { mode: 'fallback', cb_config: cb(1) }, targets, cb_config: cb(2) })).toEqual([1, 9]);
    expect(at({ strategy: { mode: 'fallback' }, targets, cb_config: cb(2) })).toEqual([2, 9]);
    expect(at({ strategy: { mode: 'fallback' }, targets })).toEqual([null, 9]);
    expect(at({ strategy: { mode: 'single', cb_config: cb(3) }, targets: [{ provider: '@a' }] })).toEqual([3]);
  });
});

describe('a group', () => {
  it('of one target is that target in the place of the group', () => {
    const group = { strategy: { mode: 'loadbalance' }, targets: [{ provider: '@a', weight: 1, name: 'inner' }] };
    const { targets } = route(
      fallback([{ ...group, name: 'outer', weight: 7, on_status_codes: [429] }, { provider: '@b' }]),
    ) as FallbackNode;
    const [first] = targets;
    expect(first).toMatchObject({ kind: 'target', path: 'config.targets[0].targets[0]', name: 'outer', weight: 7 });
    expect(first?.onStatusCodes).toEqual(new Set([429]));
  });

  it('of one target leaves the list of statuses of that target where it has none itself', () => {
    const only = { strategy: { mode: 'single' }, targets: [{ provider: '@a', on_status_codes: [503] }] };
    expect(leafOf(route(only)).onStatusCodes).toEqual(new Set([503]));
    const { targets } = route(fallback([only, { provider: '@b' }])) as FallbackNode;
    expect(targets[0]?.onStatusCodes).toEqual(new Set([503]));
  });

  it('single is its first target, whatever stands behind it', () => {
    const config = { strategy: { mode: 'single' }, targets: [{ provider: '@a' }, { provider: '@b' }] };
    expect(leafOf(route(config))).toMatchObject({ path: 'config.targets[0]', config: { provider: '@a' } });
  });

  it('the statuses of a strategy come before those beside it', () => {
    const targets = [{ provider: '@a' }, { provider: '@b' }];
    const codes = (config: object) => (route(config) as FallbackNode).statusCodes;
    const strategy = { mode: 'fallback', on_status_codes: [429] };
    expect(codes({ strategy, targets, on_status_codes: [500] })).toEqual(new Set([429]));
    expect(codes({ strategy: { mode: 'fallback' }, targets, on_status_codes: [500] })).toEqual(new Set([500]));
    expect(codes({ strategy: { mode: 'fallback' }, targets })).toBeNull();
  });

  it('that balances holds the targets with a weight', () => {
    const weights = [0, 2, 0, undefined];
    const targets = weights.map((weight, i) => ({ provider: `@p${i}`, ...(weight === undefined ? {} : { weight }) }));
    const node = route({ strategy: { mode: 'loadbalance' }, targets }) as BalanceNode;
    expect(node.targets.map(({ path, weight }) => [path, weight])).toEqual([
      ['config.targets[1]', 2],
      ['config.targets[3]', 1],
    ]);
  });

  it.each<[string, object | undefined, number | null]>([
    ['keeps sessions for an hour', { enabled: true, hash_fields: ['metadata.u'] }, 3_600_000],
    ['or for as long as it says', { enabled: true, hash_fields: ['metadata.u'], ttl: 5 }, 5_000],
    ['but not where that is off', { enabled: false, hash_fields: ['metadata.u'] }, null],
    ['nor where nothing turns it on', { hash_fields: ['metadata.u'] }, null],
    ['nor without fields', { enabled: true, hash_fields: [] }, null],
  ])('%s', (_title, sticky, ttlMs) => {
    const targets = [{ provider: '@a' }, { provider: '@b' }];
    const node = route({ strategy: { mode: 'loadbalance', sticky }, targets }) as BalanceNode;
    expect(node.sticky?.ttlMs ?? null).toBe(ttlMs);
  });
});

it('targets whose parameters make another body of a request are told apart, but for the model', () => {
  const shape = (target: object) => leafOf(route({ provider: '@a', ...target })).shape;
  const plain = shape({});
  for (const same of [
    { override_params: { model: 'm' } },
    { override_params: {} },
    { drop_params: [] },
    { retry: { attempts: 1 } },
  ])
    expect(shape(same)).toBe(plain);
  const others = [
    { override_params: { x: 1 } },
    { default_params: { x: 1 } },
    { default_params: { x: 2 } },
    { drop_params: ['x'] },
  ].map(shape);
  expect(new Set([plain, ...others]).size).toBe(5);
});
