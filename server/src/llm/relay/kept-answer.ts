/** What is kept of an answer, counted with all that requests hold. */
import type { Uses } from '../exchange.ts';

/** So many bytes of it are kept now; false where that would be too much. */
export function countKept(x: Uses<'answerHeld' | 'request', 'bodies'>, bytes: number): boolean {
  if (!x.services.bodies.grow(x.request.organisationId, x.answerHeld, bytes)) return false;
  x.answerHeld = bytes;
  return true;
}

/** Nothing of it is kept any more. */
export function letGo(x: Uses<'answerHeld' | 'request', 'bodies'>): void {
  if (x.answerHeld > 0) x.services.bodies.release(x.request.organisationId, x.answerHeld);
  x.answerHeld = 0;
}
