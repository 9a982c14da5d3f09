import { returnBuffer } from '../../http/buffer-pool.ts';
import type { Uses } from '../exchange.ts';

const NO_BODY = Buffer.alloc(0);

/** Gives back the memory that bodies were held in. */
export function release(x: Uses<'answerHeld' | 'attempt' | 'bodyHeld' | 'request' | 'execution', 'bodies'>): void {
  // A local provider may still read what it was handed; a socket keeps what it has not sent.
  if (x.attempt.target?.provider.local === undefined && x.execution?.local !== true) returnBuffer(x.attempt.body);
  x.attempt.body = NO_BODY;
  if (x.bodyHeld > 0) x.services.bodies.release(x.request.organisationId, x.bodyHeld);
  if (x.answerHeld > 0) x.services.bodies.release(x.request.organisationId, x.answerHeld);
}
