import { describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { type Breaker, Breakers, breakerOf } from './breaker.ts';

const settings = (more: object = {}): Breaker => {
  const made = breakerOf({ cooldown_interval: 30_000, ...more });
  if (made === null) throw new Error('no breaker');
  return made;
};
const call = (breakers: Breakers, breaker: Breaker, status: number, late = false, key = 'k') =>
  breakers.begin(key, breaker)({ status, late });

describe('a circuit breaker', () => {
  it('opens at the number of failures, is closed to all for the cool-down, then lets one request try', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 3 });
    for (let i = 0; i < 2; i++) call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
    clock.jump(29_999);
    expect(breakers.standOf('k', breaker)).toBe('open');
    clock.jump(1);
    expect(breakers.standOf('k', breaker)).toBe('half-open');
    const probe = breakers.begin('k', breaker);
    expect(breakers.standOf('k', breaker)).toBe('open');
    probe({ status: 200, late: false });
    expect(breakers.standOf('k', breaker)).toBe('closed');
    expect(breakers.size).toBe(0);
  });

  it('stays open for another cool-down when the try fails, and for whoever comes next when the caller left', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 1 });
    call(breakers, breaker, 502);
    clock.jump(30_000);
    breakers.begin('k', breaker)({ status: 502, late: false });
    expect(breakers.standOf('k', breaker)).toBe('open');
    clock.jump(30_000);
    const gone = breakers.begin('k', breaker);
    expect(breakers.standOf('k', breaker)).toBe('open');
    gone(null);
    expect(breakers.standOf('k', breaker)).toBe('half-open');
  });

  it('a try that never ends keeps nobody out for longer than a cool-down', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 1 });
    call(breakers, breaker, 502);
    clock.jump(30_000);
    breakers.begin('k', breaker);
    clock.jump(30_000);
    expect(breakers.standOf('k', breaker)).toBe('half-open');
  });

  it('opens at the share of failures once there are enough requests', () => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings({ failure_threshold_percentage: 50, minimum_requests: 4 });
    for (const status of [200, 503, 503]) call(breakers, breaker, status);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    call(breakers, breaker, 200);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
  });

  it('opens at exactly the share, with exactly as many requests as there must be; one without that setting', () => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings({ failure_threshold_percentage: 50, minimum_requests: 4 });
    for (const status of [200, 200, 503]) call(breakers, breaker, status);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
    const any = settings({ failure_threshold_percentage: 100 });
    call(breakers, any, 503, false, 'other');
    expect(breakers.standOf('other', any)).toBe('open');
  });

  it('counts each call once, however often its end is told', () => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings({ failure_threshold: 2 });
    const end = breakers.begin('k', breaker);
    end({ status: 503, late: false });
    end({ status: 503, late: false });
    expect(breakers.standOf('k', breaker)).toBe('closed');
  });

  it('calls that were under way when it opened, or were made all the same, do not make it wait longer', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 1 });
    const late = breakers.begin('k', breaker);
    call(breakers, breaker, 503);
    const despite = breakers.begin('k', breaker);
    clock.jump(20_000);
    late({ status: 503, late: false });
    despite({ status: 503, late: false });
    clock.jump(10_000);
    expect(breakers.standOf('k', breaker)).toBe('half-open');
  });

  it('counts within five minutes where no window is given', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 2 });
    call(breakers, breaker, 503);
    clock.jump(269_000);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
    call(breakers, breaker, 503, false, 'other');
    clock.jump(300_000);
    call(breakers, breaker, 503, false, 'other');
    expect(breakers.standOf('other', breaker)).toBe('closed');
  });

  it('a window is as long as it says, however its calls are spread', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 2, window_interval: 10_000 });
    call(breakers, breaker, 503);
    for (let i = 0; i < 6; i++) {
      clock.jump(1_900);
      call(breakers, breaker, 200);
    }
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('closed');
  });

  it('forgets what is older than its window', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 2, window_interval: 10_000 });
    call(breakers, breaker, 503);
    clock.jump(11_000);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    clock.jump(5_000);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
  });

  it.each([
    ['a status above 500', 501, false, 'open'],
    ['500 itself', 500, false, 'closed'],
    ['a refusal of the caller', 429, false, 'closed'],
    ['no answer in time', 408, true, 'open'],
  ])('counts by default: %s', (_title, status, late, stand) => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings({ failure_threshold: 1 });
    call(breakers, breaker, status, late);
    expect(breakers.standOf('k', breaker)).toBe(stand);
  });

  it.each([
    [9_999, 'open'],
    [10_000, 'closed'],
  ])('a failure counts until its window is over: %d ms later the second finds it %s', (later, stand) => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 2, window_interval: 10_000 });
    call(breakers, breaker, 503);
    clock.jump(later);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe(stand);
  });

  it('counts for at least nine tenths of its window, whenever a failure came', () => {
    for (let at = 0; at < 30_000; at += 333) {
      const clock = new TestClock();
      const breakers = new Breakers(clock);
      const breaker = settings({
        failure_threshold: 2,
        window_interval: 10_000,
        failure_threshold_percentage: 100,
        minimum_requests: 1000,
      });
      // The window begins with the first request, of whatever outcome.
      call(breakers, breaker, 200);
      clock.jump(at);
      call(breakers, breaker, 503);
      clock.jump(9_000);
      call(breakers, breaker, 503);
      expect(breakers.standOf('k', breaker), `after ${at}`).toBe('open');
    }
  });

  it('without a window of its own counts for five minutes', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 2 });
    call(breakers, breaker, 503);
    clock.jump(300_000);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    clock.jump(299_999);
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('open');
  });

  it.each<[string, object, number[], string]>([
    ['one failure less than the threshold', { failure_threshold: 3 }, [503, 503], 'closed'],
    ['the threshold', { failure_threshold: 3 }, [503, 503, 503], 'open'],
    ['successes between failures take none of them back', { failure_threshold: 2 }, [503, 200, 200, 503], 'open'],
    ['a share just below', { failure_threshold_percentage: 50 }, [200, 200, 503], 'closed'],
    ['a share that is just reached', { failure_threshold_percentage: 50 }, [200, 503], 'open'],
    ['a share of fractions', { failure_threshold_percentage: 33.4, minimum_requests: 3 }, [200, 200, 503], 'closed'],
    ['a share of one request', { failure_threshold_percentage: 100 }, [503], 'open'],
    [
      'one request less than the minimum',
      { failure_threshold_percentage: 1, minimum_requests: 3 },
      [503, 503],
      'closed',
    ],
    ['the minimum', { failure_threshold_percentage: 1, minimum_requests: 3 }, [503, 200, 503], 'open'],
    ['a minimum says nothing of the number', { failure_threshold: 1, minimum_requests: 9 }, [503], 'open'],
    ['either of both', { failure_threshold: 5, failure_threshold_percentage: 100 }, [503], 'open'],
    ['neither of both: nothing opens it', {}, [503, 503, 503, 503], 'closed'],
    ['statuses: the given ones', { failure_threshold: 1, failure_status_codes: [429, 500] }, [500], 'open'],
    ['statuses: no others', { failure_threshold: 1, failure_status_codes: [429, 500] }, [501, 599], 'closed'],
    ['an empty list of statuses', { failure_threshold: 1, failure_status_codes: [] }, [503], 'closed'],
  ])('%s', (_title, more, statuses, stand) => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings(more);
    for (const status of statuses) call(breakers, breaker, status);
    expect(breakers.standOf('k', breaker)).toBe(stand);
    expect(breakers.healthOf('k', breaker).state).toBe(stand);
  });

  it('tells what it has counted within the window', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 9, window_interval: 10_000 });
    expect(breakers.healthOf('k', breaker)).toEqual({ state: 'closed', failures: 0, requests: 0 });
    for (const status of [503, 200, 503]) call(breakers, breaker, status);
    expect(breakers.healthOf('k', breaker)).toEqual({ state: 'closed', failures: 2, requests: 3 });
    clock.jump(10_000);
    expect(breakers.healthOf('k', breaker)).toEqual({ state: 'closed', failures: 0, requests: 0 });
  });

  it('what began before it opened changes nothing when it ends, and a try is one even for those that began before', () => {
    const clock = new TestClock();
    const breakers = new Breakers(clock);
    const breaker = settings({ failure_threshold: 1 });
    const slow = breakers.begin('k', breaker);
    call(breakers, breaker, 503);
    slow({ status: 200, late: false });
    expect(breakers.standOf('k', breaker)).toBe('open');
    clock.jump(30_000);
    const tries = [breakers.begin('k', breaker), breakers.begin('k', breaker)];
    // Only the first is the try; the second was called by who found all targets open.
    tries[1]?.({ status: 200, late: false });
    expect(breakers.standOf('k', breaker)).toBe('open');
    tries[0]?.({ status: 200, late: false });
    expect(breakers.standOf('k', breaker)).toBe('closed');
  });

  it('counts the statuses it is given, and only those', () => {
    const breakers = new Breakers(new TestClock());
    const breaker = settings({ failure_threshold: 1, failure_status_codes: [429] });
    call(breakers, breaker, 503);
    expect(breakers.standOf('k', breaker)).toBe('closed');
    call(breakers, breaker, 429);
    expect(breakers.standOf('k', breaker)).toBe('open');
  });

  it('remembers no more targets than its bound, and nothing of those that never fail', () => {
    const breakers = new Breakers(new TestClock(), 10);
    const breaker = settings({ failure_threshold: 5 });
    for (let i = 0; i < 100; i++) call(breakers, breaker, 200, false, `fine ${i}`);
    expect(breakers.size).toBe(0);
    for (let i = 0; i < 100; i++) call(breakers, breaker, 503, false, `failing ${i}`);
    expect(breakers.size).toBe(10);
  });
});
