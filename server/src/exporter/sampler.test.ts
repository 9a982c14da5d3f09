import { describe, expect, it } from 'vitest';
import { systemClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { LogRecord } from '../telemetry/record.ts';
import { SAMPLERS, sampledBy } from './sampler.ts';

const record = (more: Partial<LogRecord> = {}) =>
  ({ trace_id: uuidv7(systemClock), outcome: 'ok', ...more }) as LogRecord;

describe('which traces are sent', () => {
  it.each([
    // sampler, without a parent, with one that is sampled, with one that is not, failed
    ['always_on', true, true, true, true],
    ['always_off', false, false, false, false],
    ['traceidratio', false, false, false, true],
    ['parentbased_always_on', true, true, false, true],
    ['parentbased_always_off', false, true, false, true],
    ['parentbased_traceidratio', false, true, false, true],
  ] as const)('%s', (sampler, alone, below, unsampled, failed) => {
    const decides = sampledBy(sampler, 0);
    expect(decides(record())).toBe(alone);
    expect(decides(record({ parent_sampled: true }))).toBe(below);
    expect(decides(record({ parent_sampled: false }))).toBe(unsampled);
    expect(decides(record({ parent_sampled: false, outcome: 'failed' }))).toBe(failed);
    expect(SAMPLERS).toContain(sampler);
  });

  it('a ratio takes its part of the traces, and all or nothing of each', () => {
    const decides = sampledBy('traceidratio', 0.25);
    const ids = Array.from({ length: 4_000 }, () => uuidv7(systemClock));
    const taken = ids.filter((id) => decides(record({ trace_id: id })));
    expect(taken.length).toBeGreaterThan(800);
    expect(taken.length).toBeLessThan(1_200);
    expect(taken.filter((id) => !decides(record({ trace_id: id.replaceAll('-', '') })))).toEqual([]);
    expect(ids.filter((id) => !sampledBy('traceidratio', 1)(record({ trace_id: id })))).toEqual([]);
  });
});
