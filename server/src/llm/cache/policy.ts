/** What a config says about the cache, with every default filled in. */

import type { RequestContext } from '../../gateway/request-context.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Operation } from '../../operations/operation.ts';
import type { Config } from '../../resources/configs/schema.ts';

export interface CachePolicy {
  readonly mode: 'simple' | 'semantic';
  readonly maxAgeMs: number;
  /** Where texts become vectors; null: the target's own provider with its usual model, where it has one. */
  readonly embedding: { readonly slug: string; readonly model: string } | null;
  /** Cosine similarity from which an answer counts as one to the same question. */
  readonly threshold: number;
  /** Whether answers to other system prompts count. */
  readonly system: 'ignore' | 'match';
}

type Asking = Pick<RequestContext, 'snapshot' | 'header'> & { readonly operation: Pick<Operation, 'cached'> };

const DEFAULT_AGE_S = 604_800;
const DEFAULT_THRESHOLD = 0.95;

/** The cache of a target, or null where it has none. An organisation's own age is the default and the upper bound. */
export function cachePolicy(request: Asking, config: Config | null): CachePolicy | null {
  if (!request.operation.cached) return null;
  const cache = config?.cache ?? olderForm(request);
  if (cache === undefined) return null;
  const most = request.snapshot?.cacheMaxAge ?? null;
  const asked = cache.max_age ?? most ?? DEFAULT_AGE_S;
  return {
    mode: cache.mode,
    maxAgeMs: (most === null ? asked : Math.min(asked, most)) * 1000,
    embedding:
      cache.embedding === undefined
        ? null
        : { slug: cache.embedding.provider.replace(/^@/, ''), model: cache.embedding.model },
    threshold: cache.threshold ?? DEFAULT_THRESHOLD,
    system: cache.system ?? 'ignore',
  };
}

function olderForm(request: Asking): NonNullable<Config['cache']> | undefined {
  const mode = request.header('x-gateway-cache');
  if (mode === undefined) return undefined;
  if (mode !== 'simple' && mode !== 'semantic')
    throw new SluiceError('malformed_call', 'x-gateway-cache must be simple or semantic.');
  return { mode };
}
