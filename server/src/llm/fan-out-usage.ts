import type { JsonObject } from '../kernel/json.ts';
import { type TokenUsage, totalUsage } from '../operations/usage.ts';
import type { Bound } from '../providers/binding.ts';
import type { CallContext } from '../providers/provider.ts';
import type { Uses } from './exchange.ts';
import { Meter } from './relay/meter.ts';
import { findUsage } from './relay/usage-extraction.ts';

/** What those calls of one request have used that were answered when another one failed; null where none reports anything. */
export function usageOfParts(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request', 'outputEstimator' | 'pricer'>,
  bound: Bound,
  context: CallContext,
  answers: readonly JsonObject[],
): TokenUsage | null {
  const all: TokenUsage[] = [];
  for (const answer of answers) {
    const meter = new Meter(x, bound);
    try {
      const one = bound.binding.fanOut?.join([answer]) ?? answer;
      const usage = findUsage(one, bound.binding.usagePath);
      if (usage !== null) meter.see(usage);
      else meter.seeMade(bound.response?.(one, context) ?? one);
    } catch {
      // The very answer that cannot be understood: what it has used nobody knows.
      continue;
    }
    const told = meter.told();
    if (told !== null) all.push(told);
  }
  return all.length === 0 ? null : totalUsage(all);
}
