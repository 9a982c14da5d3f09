import { join } from 'node:path';
import type { FetchedSet } from '../auth/tokens/key-sets.ts';
import type { TokenParts } from '../auth/tokens/token-authenticator.ts';
import { createGuardedFetch } from '../gateway/guarded-fetch.ts';
import { createFetcher } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import { tokenNotes } from '../resources/audit-logs/token-notes.ts';
import { claimLimits, claimMetadata } from '../resources/claim-limits.ts';
import { keySetFiles } from '../store/disk/key-set-files.ts';
import type { Common } from './common.ts';
import type { Stores } from './stores.ts';

const TIMEOUT_MS = 5_000;
const MAX_BYTES = 1024 * 1024;

/** What tokens need: calls of key sets, where they are kept, and who writes down refusals. Loaded with the first token. */
export function tokenParts(
  { config, clock, log, lifecycle }: Common,
  { tables, vault, storeClock }: Stores,
  egress: EgressGuard,
): TokenParts {
  const fetcher = lifecycle.own('calls of key sets', createFetcher({ egress, clock }));
  return {
    async readSet(organisationId, url): Promise<FetchedSet> {
      const rules = { storedCredential: false, httpsOnly: true, headersTimeoutMs: TIMEOUT_MS, totalMs: TIMEOUT_MS };
      const read = createGuardedFetch({ fetcher, egress, clock }, organisationId, { ...rules, maxBytes: MAX_BYTES });
      const answer = await read(url, { headers: { accept: 'application/json' }, redirect: 'error' });
      if (answer.status !== 200) {
        await answer.body?.cancel();
        throw new Error(`it answered ${answer.status}`);
      }
      return { text: await answer.text(), maxAgeMs: maxAgeOf(answer.headers.get('cache-control')) };
    },
    files: keySetFiles(join(config.dataDir, 'key-sets')),
    rules: { limits: claimLimits, metadata: claimMetadata },
    defaultScopes: config.jwt.defaultScopes,
    note: tokenNotes({ tables, vault, clock: storeClock, log }),
  };
}

function maxAgeOf(header: string | null): number | null {
  const seconds = /(?:^|[,\s])max-age=(\d{1,9})(?:[,\s]|$)/i.exec(header ?? '')?.[1];
  return seconds === undefined ? null : Number(seconds) * 1_000;
}
