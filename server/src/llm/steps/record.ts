import { finish } from '../../gateway/finish.ts';
import type { Ending } from '../../gateway/outcome.ts';
import { entryOf } from '../../telemetry/access-log.ts';
import { keepBodies } from '../bodies/keep.ts';
import type { Uses } from '../exchange.ts';
import { COST, costText } from '../gateway-headers.ts';
import { configuredModel, logRecordOf } from '../log-record.ts';

/** What this file uses of an exchange. */
type Used = Uses<
  'attempt' | 'capture' | 'clientGone' | 'execution' | 'guard' | 'limits' | 'outcome' | 'request' | 'response',
  'accessLog' | 'bodies' | 'bodyLog' | 'clock' | 'recorder'
>;

/**
 * Writes the one record of the request, then lets the answer complete. An answer that a client saw whole has its
 * record in the journal, whatever kills the process afterwards.
 */
export function record(x: Used): Promise<void> {
  const ending = x.clientGone ? { kind: 'destroy' as const } : (x.outcome.ending ?? { kind: 'destroy' as const });
  if (ending.kind !== 'destroy') for (const part of ending.body) x.outcome.bytesOut += part.length;
  const draft = logRecordOf(x, keepBodies(x, ending));
  x.guard?.recorded(draft);
  const { accessLog } = x.services;
  if (accessLog !== null && (accessLog.all || x.outcome.result !== 'ok')) accessLog.write(entryOf(draft));
  return new Promise((resolve) => {
    const done = () => {
      const written = end(x, ending);
      if (written === undefined) resolve();
      else void written.then(resolve);
    };
    x.services.recorder.record(draft, done, configuredModel(x.attempt.target, draft));
  });
}

/**
 * The cost is known by now: a whole answer tells it in its head, a stream in its trailer. A promise where the answer is so large
 * that it is written in turns.
 */
function end(x: Used, ending: Ending): Promise<void> | undefined {
  const { services, request, response, outcome } = x;
  const cost = ending.kind === 'destroy' ? null : costText(x.outcome);
  if (cost !== null && ending.kind === 'whole') ending.headers.push(COST, cost);
  const trailer = cost !== null && ending.kind === 'tail' ? `${COST}: ${cost}` : null;
  return finish(request.incoming, response, ending, outcome, services, request.organisationId, trailer);
}
