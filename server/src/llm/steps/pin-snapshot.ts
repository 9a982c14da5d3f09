import { pinSnapshot as pin } from '../../gateway/pin-snapshot.ts';
import type { Exchange } from '../exchange.ts';

/** The one look at the workspace; without one `resolve` refuses. */
export function pinSnapshot(x: Exchange): void | Promise<void> {
  return pin(x.services.runtime, x.request);
}
