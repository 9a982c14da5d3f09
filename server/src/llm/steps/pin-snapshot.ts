import { pinSnapshot as pin } from '../../gateway/pin-snapshot.ts';
import type { HeadUses } from '../exchange.ts';

/** Takes the one look at the workspace; without one `resolve` refuses. */
export function pinSnapshot(x: HeadUses<'request', 'runtime'>): void | Promise<void> {
  return pin(x.services.runtime, x.request);
}
