import { describe, expect, it } from 'vitest';
import { type Match, MatchPool, matchesAnyLength } from './pattern-thread.ts';
import type { PoolLimits, PoolThread } from './thread-pool.ts';

const LIMITS: PoolLimits = { threads: 2, each: 3, all: 5 };
const never = new AbortController().signal;

/** A pool over threads that answer when they are told to. */
function pool(limits = LIMITS) {
  const begun: string[] = [];
  const open = new Map<string, { answer(found: boolean): void; fail(error: Error): void }>();
  let started = 0;
  let ended = 0;
  const made = new MatchPool((answered, failed): PoolThread<Match> => {
    started++;
    return {
      post({ text }) {
        begun.push(text);
        open.set(text, { answer: answered, fail: failed });
      },
      end: () => void ended++,
    };
  }, limits);
  return {
    begun,
    counts: () => ({ started, ended }),
    ask: (owner: string, text: string, signal = never) => made.match(owner, 'a', text, signal),
    answer: (text: string, found = true) => open.get(text)?.answer(found),
    fail: (text: string) => open.get(text)?.fail(new Error('broken')),
  };
}

describe('matches over long texts', () => {
  it('of one who asks for much do not make others wait, who take turns', async () => {
    const { ask, answer, begun } = pool();
    const all = [ask('loud', 'l1'), ask('loud', 'l2'), ask('loud', 'l3'), ask('b', 'b1'), ask('c', 'c1')];
    expect(begun).toEqual(['l1', 'b1']);
    answer('b1');
    expect(begun).toEqual(['l1', 'b1', 'c1']);
    answer('l1', false);
    answer('c1');
    answer('l2');
    answer('l3');
    expect(begun).toEqual(['l1', 'b1', 'c1', 'l2', 'l3']);
    expect(await Promise.all(all)).toEqual([false, true, true, true, true]);
  });

  it('are refused when too many wait, of one owner or of all', async () => {
    const { ask } = pool();
    for (let i = 0; i < 4; i++) void ask('loud', `l${i}`);
    await expect(ask('loud', 'more')).rejects.toMatchObject({ kind: 'unavailable' });
    void ask('b', 'b');
    await expect(ask('c', 'c')).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('that are given up end their thread, or leave the queue, and the next one begins', async () => {
    const { ask, answer, begun, counts } = pool({ ...LIMITS, threads: 1 });
    const [first, second] = [new AbortController(), new AbortController()];
    const given = [ask('a', '1', first.signal), ask('b', '2', second.signal), ask('c', '3')];
    second.abort(new Error('late'));
    first.abort(new Error('late'));
    await expect(given[0]).rejects.toThrow('late');
    await expect(given[1]).rejects.toThrow('late');
    expect([begun, counts()]).toEqual([['1', '3'], { started: 2, ended: 1 }]);
    answer('3');
    expect(await given[2]).toBe(true);
  });

  it('that break their thread are told so, and the next one begins in another', async () => {
    const { ask, answer, fail, counts } = pool({ ...LIMITS, threads: 1 });
    const given = [ask('a', '1'), ask('b', '2')];
    fail('1');
    await expect(given[0]).rejects.toThrow('broken');
    answer('2', false);
    expect(await given[1]).toBe(false);
    expect(counts().started).toBe(2);
  });

  it('of another organisation end while one with an expensive pattern is still at work', async () => {
    const done: string[] = [];
    const [text, shorter] = ['ab'.repeat(3_000_000), 'ab'.repeat(300_000)];
    const hostile = new AbortController();
    const expensive = 'a[ab]{30}x|b[ab]{100}[xc]$';
    const slow = [1, 2, 3].map(() => matchesAnyLength(expensive, text, { signal: hostile.signal, owner: 'loud' }));
    const quick = await matchesAnyLength('x{5}y', shorter, { signal: never, owner: 'quiet' });
    done.push('quiet');
    hostile.abort(new Error('over'));
    const ends = await Promise.allSettled(slow);
    expect([quick, done]).toEqual([false, ['quiet']]);
    expect(ends.filter(({ status }) => status === 'rejected').length).toBeGreaterThanOrEqual(2);
  });
});
