import type { Uses } from '../exchange.ts';

/** Bytes of a body from which on reading it takes a separate turn: 4 ms for each megabyte. */
const LARGE = 512 * 1024;

/** Resolves in a turn for what is to be done with so many bytes; undefined: at once, it is little. */
export function largeTurn(x: Uses<'request', 'bodies'>, bytes: number): Promise<void> | undefined {
  return bytes > LARGE ? x.services.bodies.turns.wait(x.request.organisationId) : undefined;
}
