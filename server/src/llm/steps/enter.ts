import { enterUnderWay } from '../../gateway/under-way.ts';
import type { Exchange } from '../exchange.ts';

/** Counts the request among those of its organisation that are under way. */
export function enter(x: Exchange): void {
  enterUnderWay(x.services, x.request.organisationId);
  x.entered = true;
}

/** The request is over. */
export function leave(x: Exchange): void {
  if (!x.entered) return;
  x.entered = false;
  x.services.underWay.give(x.request.organisationId);
}
