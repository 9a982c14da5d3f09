import type { Uses } from '../exchange.ts';

/** Gives back the memory that bodies were held in. */
export function releaseBodies(
  x: Uses<'answerHeld' | 'attempt' | 'bodyHeld' | 'endAnswer' | 'request' | 'execution', 'bodies'>,
): void {
  // A local provider may still read what it was handed; a socket keeps what it has not sent.
  x.request.body.end(x.attempt.target?.provider.local === undefined && x.execution?.local !== true);
  x.attempt.body.end(false);
  if (x.bodyHeld > 0) x.services.bodies.release(x.request.organisationId, x.bodyHeld);
  x.endAnswer?.();
  if (x.answerHeld > 0) x.services.bodies.release(x.request.organisationId, x.answerHeld);
}
