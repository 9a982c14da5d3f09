/** Begins to keep the bodies of a request. */
import { keptBodies } from '../../gateway/kept-bodies.ts';
import type { Uses } from '../exchange.ts';
import { insists } from '../guard/output.ts';
import { BodyCapture } from './capture.ts';

/** For a request that goes to a provider; null where its bodies are not kept. */
export function beginCapture(x: Uses<'guard' | 'request', 'bodyLog'>): BodyCapture | null {
  // Guardrails do not judge a dry run, so nothing has been taken out of it.
  if (x.request.dryRun || keptBodies(x.request, x.services.bodyLog.rule) !== 'all') return null;
  return captureOf(x);
}

/** What guardrails take out of an answer is in no stored form: such an answer is not kept as it came. */
export function captureOf(x: Uses<'guard' | 'request', 'bodyLog'>): BodyCapture {
  return new BodyCapture(x.services.bodyLog, x.request.id, () => x.guard === null || !x.guard.output.some(insists));
}
