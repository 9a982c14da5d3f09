import { expect, it } from 'vitest';
import { accountWith, callerWith, ownRecorder, TIMEOUTS, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { KnownPaths } from '../../http/known-paths.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { silentNotes } from '../../kernel/notes.ts';
import { LimitRefused } from '../../limits/limit-refused.ts';
import type { Config } from '../../resources/configs/schema.ts';
import { memoryCache } from '../../store/memory/cache.ts';
import type { Exchange } from '../exchange.ts';
import type { Features } from '../plan.ts';
import { Breakers } from '../routing/breaker.ts';
import { type AttemptResult, DONE } from '../state/attempt-result.ts';
import { NO_BODY } from '../state/body.ts';
import { resolve } from './resolve.ts';
import { choose, tryTargets } from './try-targets.ts';

const TWO: Config = { strategy: { mode: 'fallback' }, targets: [{ provider: '@a' }, { provider: '@b' }] };

/** A request by this config, decided as far as where it goes first. */
async function chosen(config: Config, { broken = [] as string[], random = 0 } = {}) {
  const clock = new TestClock();
  const x = testExchange(
    { headers: { 'x-gateway-config': 'pc-mine' } },
    {
      clock,
      breakers: new Breakers(clock),
      cache: memoryCache({ clock, maxBytes: 1e6 }),
      random: () => random,
      log: silentLog,
      notes: silentNotes,
      recorder: ownRecorder().recorder,
      timeouts: TIMEOUTS,
      paths: new KnownPaths(() => 'http://localhost'),
    },
  );
  const account = (slug: string) =>
    [
      slug,
      accountWith({ slug, accountId: slug, broken: broken.includes(slug) ? `${slug} has expired.` : null }),
    ] as const;
  x.request.principal = callerWith();
  x.request.snapshot = workspaceWith({
    providers: new Map([account('a'), account('b')]),
    configs: new Map([['pc-mine', { slug: 'pc-mine', versionId: 'v1', config, broken: null }]]),
  });
  x.request.model = 'm';
  await resolve(x);
  await choose(x);
  return x;
}

it('a request goes to the first target of a fallback, by which its limits are estimated', async () => {
  const x = await chosen(TWO);
  expect([x.attempt.target?.path, x.attempt.target?.stored?.slug]).toEqual(['config.targets[0]', 'a']);
  expect(x.execution?.scored?.map(({ path }) => path)).toEqual(['config.targets[0]', 'config.targets[1]']);
});

it('of a target that cannot be called at all no limits are estimated, and the record says why', async () => {
  const x = await chosen(TWO, { broken: ['a'] });
  expect(x.attempt.target?.stored?.slug).toBe('b');
  expect(x.execution?.scored?.[0]).toMatchObject({ problem: 'a has expired.' });
});

it('where no target can be called the request is not refused before they were tried', async () => {
  const x = await chosen(TWO, { broken: ['a', 'b'] });
  expect(x.attempt.target).toBeNull();
});

it('a load balancer chooses by weight', async () => {
  const weighted = {
    strategy: { mode: 'loadbalance' },
    targets: [
      { provider: '@a', weight: 1 },
      { provider: '@b', weight: 3 },
    ],
  };
  const first = async (random: number) => (await chosen(weighted as Config, { random })).attempt.target?.stored?.slug;
  expect([await first(0.2), await first(0.3)]).toEqual(['a', 'b']);
});

it('a request with one target has nothing to decide', async () => {
  const x = await chosen({ provider: '@a' });
  expect([x.execution, x.attempt.target?.path]).toEqual([null, 'config']);
});

/** Runs the request over its targets; `steps` are what is done for each. */
async function routed(config: Config, steps: (path: string, x: Exchange) => AttemptResult | Error) {
  const x = await chosen(config);
  const asked: [path: string | undefined, features: Features][] = [];
  const done = tryTargets(x, (one, features) => {
    const path = one.attempt.leaf?.path ?? '';
    asked.push([path, features]);
    const result = steps(path, one);
    if (result instanceof Error) throw result;
    one.outcome.attemptCount += 1;
    one.attempt.result = result;
  });
  const error = await done.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return { x, asked, error };
}

const DOWN: AttemptResult = { kind: 'failed', error: new SluiceError('upstream_unreachable', 'down') };
const [A, B] = ['config.targets[0]', 'config.targets[1]'];

it('a target that failed is followed by the next, whose attempt knows nothing of it', async () => {
  const { x, asked, error } = await routed(TWO, (path, one) => {
    expect([one.attempt.result, one.attempt.prepared, one.attempt.target?.path]).toEqual([null, null, path]);
    if (path === A) {
      one.attempt.body = NO_BODY;
      return DOWN;
    }
    one.outcome.status = 200;
    return DONE;
  });
  expect([asked.map(([path]) => path), error]).toEqual([[A, B], null]);
  expect(x.attempt.body).toBe(x.request.body);
});

it('each target asks for the steps that its own account needs', async () => {
  const { asked } = await routed(TWO, (path) => (path === A ? DOWN : DONE));
  const none = { cache: false, media: false, owners: false, rateLimits: false, usageLimits: false, guardrails: false };
  expect(asked.map(([, features]) => features)).toEqual([A, B].map(() => ({ ...none, route: true })));
});

it('a limit of one target is a reason for the next one, and the record tells it', async () => {
  const by = { kind: 'provider', id: 'p', limit: 'rate', value_key: null } as const;
  const refused = new LimitRefused('rate_limit_exceeded', 'full', by);
  const { x, asked } = await routed({ ...TWO }, (path) => (path === A ? refused : DONE));
  expect(asked.map(([path]) => path)).toEqual([A, B]);
  expect(x.outcome.attempts).toMatchObject([{ target: A, status: null, error: '429' }]);
});

it('a limit of the request itself ends it at the first target', async () => {
  const by = { kind: 'workspace', id: 'w', limit: 'usage', value_key: null } as const;
  const refused = new LimitRefused('usage_limit_exceeded', 'used up', by);
  const { asked, error } = await routed(TWO, () => refused);
  expect([asked.map(([path]) => path), error]).toEqual([[A], refused]);
});

it('where no target answers, the error of the last one is the caller’s', async () => {
  const { error } = await routed(TWO, () => DOWN);
  expect(error).toBe(DOWN.kind === 'failed' ? DOWN.error : null);
});
