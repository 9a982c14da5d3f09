import { takeConcurrency } from '../../gateway/concurrency.ts';
import type { Uses } from '../exchange.ts';

/** Counts the request among those of its organisation that are under way. */
export function takeSlot(x: Uses<'entered' | 'request', 'bodies' | 'concurrency'>): void {
  takeConcurrency(x.services, x.request.organisationId);
  x.entered = true;
}

/** Takes the request off those under way. */
export function freeSlot(x: Uses<'entered' | 'request', 'concurrency'>): void {
  if (!x.entered) return;
  x.entered = false;
  x.services.concurrency.give(x.request.organisationId);
}
