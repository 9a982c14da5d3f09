import { SluiceError } from '../kernel/errors.ts';
import type { GatewayServices } from './services.ts';

type Counted = Pick<GatewayServices, 'concurrency' | 'bodies'>;

/** Counts a request among those of its organisation that are under way; past its share of the node it is refused. */
export function takeConcurrency({ concurrency, bodies }: Counted, organisationId: string): void {
  if (!concurrency.take(organisationId)) {
    throw new SluiceError(
      'out_of_service',
      `Your organisation has ${concurrency.heldBy(organisationId)} requests under way on this node, all that it may have now; try again when some of them have ended.`,
      { retryAfter: 1 },
    );
  }
  bodies.turns.saw(organisationId);
}
