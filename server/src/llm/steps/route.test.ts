import { expect, it } from 'vitest';
import { accountWith, callerWith, ownRecorder, TIMEOUTS, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { KnownPaths } from '../../http/known-paths.ts';
import { TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { silentNotes } from '../../kernel/notes.ts';
import type { Config } from '../../resources/configs/schema.ts';
import { memoryCache } from '../../store/memory/cache.ts';
import { Breakers } from '../routing/breaker.ts';
import { resolve } from './resolve.ts';
import { choose } from './route.ts';

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
