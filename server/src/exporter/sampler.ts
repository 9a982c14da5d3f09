/** Which traces are sent, as OpenTelemetry's samplers decide it. */
import { traceIdOf } from '../kernel/trace-context.ts';
import type { LogRecord } from '../telemetry/record.ts';

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

export type Sampler = (typeof SAMPLERS)[number];

/** 2⁵⁶: the lowest 56 bits of a trace id are the random ones. */
const RANGE = 2 ** 56;
const RANDOM_DIGITS = 14;

/**
 * True for the records whose traces are sent. Those of a failed request are sent whatever the sampler says, but for
 * `always_off`.
 * @param ratio 0 to 1: of the samplers that have one
 */
export function sampledBy(sampler: Sampler, ratio: number): (record: LogRecord) => boolean {
  if (sampler === 'always_on') return () => true;
  if (sampler === 'always_off') return () => false;
  const parents = sampler.startsWith('parentbased_');
  const root = sampler.replace('parentbased_', '');
  const ofRoot = (record: LogRecord): boolean =>
    root === 'traceidratio' ? isWithin(record.trace_id, ratio) : root === 'always_on';
  return (record) => {
    if (record.outcome === 'failed') return true;
    if (parents && record.parent_sampled !== undefined) return record.parent_sampled;
    return ofRoot(record);
  };
}

/** By the id alone: all that take part in a trace decide alike. */
function isWithin(trace: string, ratio: number): boolean {
  return Number.parseInt(traceIdOf(trace).slice(-RANDOM_DIGITS), 16) < ratio * RANGE;
}
