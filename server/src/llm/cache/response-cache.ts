/**
 * The cache of answers. An answer is looked for when it is known what would be sent and to whom; it is kept
 * when it is complete and has been given. Nothing waits for the cache longer than for a look-up, and a cache that is away
 * is a miss.
 */

import { tenantOf } from '../../auth/tenant.ts';
import { isDebugOff } from '../../gateway/kept-bodies.ts';
import type { Log } from '../../kernel/log.ts';
import { estimateTokens } from '../../operations/tokens.ts';
import type { Cache } from '../../store/ports.ts';
import { isBackground } from '../estimate.ts';
import type { Exchange, ResponseCache, Uses } from '../exchange.ts';
import { gatewayHeaders } from '../gateway-headers.ts';
import type { Prepared } from '../state/prepared.ts';
import type { Target } from '../target.ts';
import { CacheEntryWriter } from './cache-entry-writer.ts';
import { embed } from './embed.ts';
import { type Entry, type EntryKey, openEntry, sealEntry } from './entry.ts';
import { entryKey, similarKey } from './key.ts';
import type { CachePolicy } from './policy.ts';
import type { SemanticCache } from './semantic-cache.ts';

export function createResponseCache(parts: {
  readonly cache: Cache;
  readonly similar: SemanticCache;
  readonly log: Log;
}): ResponseCache {
  const { cache, similar, log } = parts;

  async function read(key: EntryKey, maxAgeMs: number, now: number): Promise<Entry | null> {
    const bytes = await cache.get(key.place);
    const entry = bytes === null ? null : openEntry(bytes, key.secret);
    return entry === null || entry.facts.madeAt + maxAgeMs <= now ? null : entry;
  }

  async function alike(
    x: Exchange,
    target: Target,
    prepared: Prepared,
    policy: CachePolicy,
    caching: CacheEntryWriter,
  ): Promise<boolean> {
    const embedding = policy.embedding ?? ownEmbedding(target);
    if (embedding === null || x.request.principal === null) return false;
    const question = similarKey(x, target, prepared, policy.system, (text) => estimateTokens(Buffer.byteLength(text)));
    if (question === null) return false;
    caching.status = caching.status === 'REFRESH' ? 'REFRESH' : 'SEMANTIC MISS';
    const vector = await embed(x, embedding, question.text);
    if (vector === null) return false;
    const scope = `${question.scope} ${embedding.slug} ${embedding.model}`;
    caching.question = { scope, vector };
    if (caching.status === 'REFRESH') return false;
    const found = await similar.nearest(tenantOf(x.request.principal), scope, vector, policy.threshold);
    const entry = found === null ? null : await read(found.key, policy.maxAgeMs, x.services.clock.now());
    if (found === null || entry === null) return false;
    caching.status = 'SEMANTIC HIT';
    caching.hit = { facts: entry.facts, similarity: found.similarity };
    give(x, caching, entry);
    return true;
  }

  return {
    async look(x, target, prepared, policy) {
      if (isDebugOff(x.request) || isBackground(x)) return false;
      // What guardrails have to say beside the answer belongs to this request alone.
      if (x.guard !== null && (x.guard.failed || !target.strict)) return false;
      const made = entryKey(x, target, prepared);
      const key = made instanceof Promise ? await made : made;
      const refresh = x.request.header('x-gateway-cache-force-refresh') === 'true';
      const status = refresh ? 'REFRESH' : 'MISS';
      const caching = new CacheEntryWriter(key, policy.maxAgeMs, status, x.services.bodies, x.request.organisationId);
      x.attempt.caching?.drop();
      x.attempt.caching = caching;
      try {
        const entry = refresh ? null : await read(key, policy.maxAgeMs, x.services.clock.now());
        if (entry !== null) {
          caching.status = 'HIT';
          caching.hit = { facts: entry.facts, similarity: null };
          give(x, caching, entry);
          return true;
        }
        return policy.mode === 'semantic' && (await alike(x, target, prepared, policy, caching));
      } catch (error) {
        log.warn('the cache could not be asked', { request_id: x.request.id, error: String(error) });
        return false;
      }
    },
    keep(x, caching) {
      try {
        const {
          outcome: { ending },
        } = x;
        const complete = x.outcome.result === 'ok' && x.outcome.status === 200 && caching.hit === null && !x.clientGone;
        if (!complete || ending === null || ending.kind === 'destroy' || x.guard?.soft) return;
        if (ending.kind === 'whole') caching.begin(x.outcome.attemptCount, ending.status, ending.headers);
        for (const part of ending.body) caching.take(part);
        const answer = caching.whole(x.outcome.attemptCount);
        if (answer === null) return;
        const facts = {
          contentType: answer.contentType,
          madeAt: x.services.clock.now(),
          model: x.outcome.modelAnswered,
          stream: x.attempt.stream,
          costMicros: x.outcome.costMicros,
          latencyMs: Math.round(x.request.elapsed()),
        };
        const sealed = sealEntry({ facts, body: answer.body }, caching.key.secret);
        const { question, key, maxAgeMs } = caching;
        const tenant = x.request.principal === null ? null : tenantOf(x.request.principal);
        cache
          .set(key.place, sealed, maxAgeMs)
          .then(() =>
            question === null || tenant === null
              ? undefined
              : similar.add(tenant, question.scope, question.vector, key, maxAgeMs),
          )
          .catch((error: unknown) => log.warn('an answer could not be kept', { error: String(error) }));
      } finally {
        caching.drop();
      }
    },
  };
}

/** The provider that is asked also makes vectors, with its usual model. */
function ownEmbedding({ stored, provider }: Target): CachePolicy['embedding'] {
  if (stored === null || provider.embeddingModel === undefined) return null;
  return { slug: stored.slug, model: provider.embeddingModel };
}

function give(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'clock' | 'storeClock'>,
  { hit }: CacheEntryWriter,
  { facts, body }: Entry,
): void {
  x.outcome.status = 200;
  x.attempt.stream = facts.stream;
  x.outcome.modelAnswered = facts.model;
  x.outcome.firstTokenMs = x.request.elapsed();
  const headers = ['content-type', facts.contentType];
  if (!facts.stream) headers.push('content-length', String(body.length));
  gatewayHeaders(x, headers);
  if (hit !== null)
    headers.push('age', String(Math.max(0, Math.floor((x.services.clock.now() - facts.madeAt) / 1000))));
  x.outcome.ending = { kind: 'whole', status: 200, headers, body: [body] };
}
