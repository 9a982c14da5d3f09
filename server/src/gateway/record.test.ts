import { expect, it } from 'vitest';
import { callerWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { TestClock } from '../kernel/clock.ts';
import { LimitState } from './limit-state.ts';
import { Outcome } from './outcome.ts';
import { headOf, recordOf } from './record.ts';

const CALL = { operation: 'tools/call', method: 'POST', path: '/mcp/echo' };

it('a source that says no more than its operation has the record of a call that used nothing', () => {
  const { request } = testExchange();
  const draft = recordOf(headOf(request, new Outcome(), new LimitState()), CALL);
  expect(draft).toMatchObject({
    ...CALL,
    organisation_id: null,
    provider: null,
    usage: null,
    cost_micros: null,
    attempts: [],
    outcome: 'ok',
    cache_status: 'DISABLED',
    dry_run: false,
  });
  // What a source does not say is no member of the line at all.
  expect(Object.keys(JSON.parse(JSON.stringify(draft)))).not.toContain('guardrails');
});

it('a record tells who asked, how it ended and how long it took, to the microsecond', () => {
  const clock = new TestClock();
  const { request } = testExchange({}, { clock });
  request.principal = callerWith({ userId: 'u' });
  const outcome = Object.assign(new Outcome(), { result: 'failed', status: 502, errorCode: 'upstream_cut' });
  clock.jump(12.3456);
  const limits = Object.assign(new LimitState(), { facts: { rates_at: 1 } });
  expect(recordOf(headOf(request, outcome, limits), CALL)).toMatchObject({
    api_key_id: 'key-1',
    user_id: 'u',
    outcome: 'failed',
    status: 502,
    error_code: 'upstream_cut',
    latency_ms: 12.346,
    limits: { rates_at: 1 },
  });
});

const attempt = (began_ms: number | undefined, duration_ms: number) => ({
  target: 'tool',
  provider: 'mcp',
  status: 200,
  error: null,
  began_ms,
  duration_ms,
});

it.each([
  ['one after the other', [attempt(5, 10), attempt(20, 10)], 20_000, 5_000],
  ['at the same time, which counts once', [attempt(20, 10), attempt(5, 20), attempt(6, 1)], 25_000, 5_000],
  ['that do not say when they began', [attempt(undefined, 10), attempt(undefined, 10)], 20_000, 20_000],
  ['that took longer than the request', [attempt(undefined, 50)], 40_000, 0],
  ['none', [], 0, 40_000],
])('a source whose attempts were %s waited for them so long', (_title, attempts, upstream_us, pre_us) => {
  const clock = new TestClock();
  const { request } = testExchange({}, { clock });
  clock.jump(40);
  const draft = recordOf(headOf(request, new Outcome(), new LimitState()), { ...CALL, attempts });
  expect(draft).toMatchObject({ latency_ms: 40, upstream_us, gateway_us: 40_000 - upstream_us, pre_us });
});
