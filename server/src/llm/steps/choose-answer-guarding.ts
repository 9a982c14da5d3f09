import type { Exchange } from '../exchange.ts';
import { StreamGate } from '../guard/stream.ts';
import type { BegunAnswer, Judging } from '../relay/begun-answer.ts';
import { isJson } from '../relay/response-inspection.ts';

/** Says how output guardrails judge an answer that begins. */
export function chooseAnswerGuarding(x: Exchange, { headers, mode, strict }: BegunAnswer): Judging {
  const { guard } = x;
  if (guard === null) return 'not';
  if (mode === 'events') {
    if (StreamGate.refuses(x, guard, headers)) return 'denied';
    return StreamGate.judges(x, guard, headers, strict) ? 'events' : 'not';
  }
  // Results are shown in the answer where fields may be added, so that its end must be at hand.
  const shown = mode === 'json' || (!strict && isJson(headers));
  if (shown || guard.output.some(({ actions }) => !actions.async)) return 'kept';
  return guard.output.length > 0 ? 'beside' : 'not';
}
