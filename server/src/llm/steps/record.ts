import type { Ending } from '../../gateway/outcome.ts';
import { endParts } from '../../http/answer-body.ts';
import { linger } from '../../http/linger.ts';
import { hasUnreadBody, readInTurns } from '../../http/read-body.ts';
import { entryOf } from '../../telemetry/access-log.ts';
import { draftOf } from '../draft.ts';
import type { Exchange } from '../exchange.ts';
import { COST, costText } from '../gateway-headers.ts';

/**
 * Writes the one record of the request, then lets the answer complete: an answer that a client saw whole has its
 * record in the journal, whatever kills the process afterwards.
 */
export function record(x: Exchange): Promise<void> {
  const ending = x.clientGone ? { kind: 'destroy' as const } : (x.outcome.ending ?? { kind: 'destroy' as const });
  if (ending.kind !== 'destroy') for (const part of ending.body) x.outcome.bytesOut += part.length;
  const draft = draftOf(x);
  const { accessLog } = x.services;
  if (accessLog !== null && (accessLog.all || x.outcome.result !== 'ok')) accessLog.write(entryOf(draft));
  return new Promise((resolve) => {
    x.services.recorder.record(draft, () => {
      finish(x, ending);
      resolve();
    });
  });
}

function finish(x: Exchange, ending: Ending): void {
  const { response } = x;
  if (ending.kind === 'destroy' || response.destroyed) {
    response.destroy();
    return;
  }
  if (ending.kind === 'whole') {
    const cost = costText(x);
    if (cost !== null) ending.headers.push(COST, cost);
    response.writeHead(ending.status, ending.headers);
    x.outcome.headSent = true;
    // A client that waits for `100 Continue` has sent nothing: reading would invite it.
    if (
      hasUnreadBody(x.request.incoming) &&
      (x.request.incoming.headers.expect === undefined || x.outcome.bytesIn > 0)
    ) {
      // The length of a whole answer stands in its head: it is complete for the client before the end is written.
      for (const part of ending.body) response.write(part);
      readInTurns(x.request.incoming, x.services.bodies.turns, x.request.organisationId);
      linger(x.request.incoming, x.services.clock, () => endParts(response, []));
      return;
    }
  }
  endParts(response, ending.body, ending.kind === 'tail' ? trailerOf(x) : null);
}

function trailerOf(x: Exchange): string | null {
  const cost = costText(x);
  return cost === null ? null : `${COST}: ${cost}`;
}
