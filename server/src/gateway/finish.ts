import type { IncomingMessage, ServerResponse } from 'node:http';
import { drainRequestBody } from '../http/drain-request-body.ts';
import { hasUnreadBody, readInTurns } from '../http/read-body.ts';
import { endParts, endPartsInTurns, writePart } from '../http/response-body.ts';
import type { Ending, Outcome } from './outcome.ts';
import type { GatewayServices } from './services.ts';

/**
 * Sends what is left of an answer, once its record is in the journal. `trailer`: a line that the head has declared. A promise
 * where it is so large that it is written in turns.
 */
export function finish(
  request: IncomingMessage,
  response: ServerResponse,
  ending: Ending,
  outcome: Outcome,
  { clock, bodies }: Pick<GatewayServices, 'clock' | 'bodies'>,
  organisationId: string,
  trailer: string | null,
): Promise<void> | undefined {
  if (ending.kind === 'destroy' || response.destroyed) {
    response.destroy();
    return undefined;
  }
  const turn = (work: () => void) => bodies.turns.take(organisationId, work);
  if (ending.kind === 'tail') return endPartsInTurns(response, ending.body, trailer, turn);
  response.writeHead(ending.status, ending.headers);
  outcome.headSent = true;
  // A client that waits for `100 Continue` has sent nothing: reading would invite it.
  if (!hasUnreadBody(request) || (request.headers.expect !== undefined && outcome.bytesIn === 0)) {
    return endPartsInTurns(response, ending.body, null, turn);
  }
  // The length of a whole answer is in its head: it is complete for the client before the end is written.
  for (const part of ending.body) writePart(response, part);
  readInTurns(request, bodies.turns, organisationId);
  drainRequestBody(request, clock, () => endParts(response, []));
  return undefined;
}
