import { SluiceError } from '../../kernel/errors.ts';
import type { Exchange } from '../exchange.ts';

/** Counts the request among those of its organisation that are under way; past its share of the node it is refused. */
export function enter(x: Exchange): void {
  const { underWay } = x.services;
  if (!underWay.take(x.request.organisationId)) {
    throw new SluiceError(
      'gateway_unavailable',
      `Your organisation has ${underWay.heldBy(x.request.organisationId)} requests under way on this node, all that it may have now; try again when some of them have ended.`,
      { retryAfter: 1 },
    );
  }
  x.entered = true;
  x.services.bodies.turns.saw(x.request.organisationId);
}

/** The request is over. */
export function leave(x: Exchange): void {
  if (!x.entered) return;
  x.entered = false;
  x.services.underWay.give(x.request.organisationId);
}
