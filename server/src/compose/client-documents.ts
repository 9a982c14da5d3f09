import { createGuardedFetch } from '../gateway/guarded-fetch.ts';
import { createFetcher, type Fetcher } from '../http/background-fetcher.ts';
import { createEgressGuard, type EgressGuard } from '../http/egress-guard.ts';
import type { DocumentReaders } from '../oauth/clients.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';

/** Small, quick, and no organisation's. */
const POLICY = { storedCredential: false, httpsOnly: true, totalMs: 5_000, maxBytes: 65_536 } as const;

/**
 * How metadata documents of OAuth clients are read. Anybody may name the address of one, without a credential: hosts that the operator
 * trusts, which are inside a network, are opened for signed-in users only.
 */
export function clientDocuments(
  { lifecycle, clock, log }: Common,
  front: Pick<Front, 'listeners'>,
  inside: { readonly fetcher: Fetcher; readonly egress: EgressGuard },
): DocumentReaders {
  const egress = createEgressGuard({ trustedHosts: [], ownListeners: () => front.listeners(), clock, log });
  const fetcher = lifecycle.own('calls that anybody may cause', createFetcher({ egress, clock }));
  return {
    user: createGuardedFetch({ ...inside, clock }, '', POLICY),
    anybody: createGuardedFetch({ fetcher, egress, clock }, '', POLICY),
  };
}
