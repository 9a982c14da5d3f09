import { SluiceError } from '../kernel/errors.ts';
import type { Config } from '../resources/configs/schema.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { Uses } from './exchange.ts';
import { gatewayHeaders } from './gateway-headers.ts';
import type { LlmRequest } from './state/request.ts';

/** Whether `GET /models` is answered from the catalogue instead of by a provider. */
export function wantsIntegratedModels(request: LlmRequest, config: Config | null): boolean {
  if (!request.operation.catalogue) return false;
  const endpoint = request.header('x-gateway-models-endpoint');
  if (endpoint === 'provider') return false;
  if (
    endpoint === 'integrated' ||
    request.header('x-gateway-fetch-integrated-models') === 'true' ||
    (config !== null && asksForCatalogue(config))
  )
    return true;
  return (
    config === null &&
    request.header('x-gateway-provider') === undefined &&
    request.header('x-gateway-virtual-key') === undefined
  );
}

/** The list of models is one, whichever target it belongs to. */
function asksForCatalogue({ fetch_integrated_models: own, targets }: Config): boolean {
  return own === true || (targets?.some(asksForCatalogue) ?? false);
}

interface Listed {
  readonly id: string;
  readonly slug: string;
  readonly canonical_slug: string;
  readonly object: 'model';
  readonly provider: string;
  readonly ai_service: string;
}

const SORTS: Readonly<Record<string, (model: Listed) => string>> = {
  name: (model) => model.slug,
  provider: (model) => model.provider,
  ai_service: (model) => model.ai_service,
};

/** The models this workspace may call, over all its stored providers: `@slug/model` each. */
export function answerModels(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'pricer' | 'storeClock'>,
  snapshot: WorkspaceSnapshot,
  config: Config | null,
): void {
  const query = new URLSearchParams((x.request.incoming.url ?? '').split('?')[1] ?? '');
  for (const name of query.keys()) {
    if (query.getAll(name).length > 1)
      throw new SluiceError('validation', `${name} was given more than once.`, { param: name });
  }
  const limit = whole(query, 'limit', 1);
  const offset = whole(query, 'offset', 0) ?? 0;
  const sort = query.get('sort') ?? 'name';
  const order = query.get('order') ?? 'asc';
  const by = SORTS[sort];
  if (by === undefined)
    throw new SluiceError('validation', 'sort must be name, provider or ai_service.', { param: 'sort' });
  if (order !== 'asc' && order !== 'desc')
    throw new SluiceError('validation', 'order must be asc or desc.', { param: 'order' });

  const slugs = config === null ? null : slugsOf(config);
  const models: Listed[] = [];
  for (const stored of snapshot.providers.values()) {
    if (slugs !== null && slugs.size > 0 && !slugs.has(stored.slug)) continue;
    if (query.has('provider') && query.get('provider')?.replace(/^@/, '') !== stored.slug) continue;
    if (query.has('ai_service') && query.get('ai_service') !== stored.provider?.id) continue;
    models.push(...modelsOf(x, stored));
  }
  models.sort((a, b) => (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : a.id < b.id ? -1 : 1));
  if (order === 'desc') models.reverse();
  const page = models.slice(offset, limit === null ? undefined : offset + limit);
  const body = Buffer.from(JSON.stringify({ object: 'list', total_count: models.length, data: page }));
  const headers = ['content-type', 'application/json', 'content-length', String(body.length)];
  gatewayHeaders(x, headers);
  x.outcome.status = 200;
  x.outcome.ending = { kind: 'whole', status: 200, headers, body: [body] };
}

function modelsOf(x: Uses<never, 'pricer'>, stored: StoredProvider): Listed[] {
  const { provider } = stored;
  if (provider === null || stored.broken !== null) return [];
  const names = new Set<string>(stored.allowAllModels ? x.services.pricer.modelsOf(provider.id) : []);
  for (const [slug, settings] of stored.models) {
    if (settings.enabled) names.add(slug);
    else names.delete(slug);
  }
  return [...names].map((name) => ({
    id: `@${stored.slug}/${name}`,
    slug: name,
    canonical_slug: name,
    object: 'model',
    provider: stored.slug,
    ai_service: provider.id,
  }));
}

/** Stored providers a config names anywhere; a passthrough target lifts the filter. */
function slugsOf(config: Config): Set<string> | null {
  const out = new Set<string>();
  const walk = (node: Config): boolean => {
    if (node.passthrough) return false;
    if (node.virtual_key) out.add(node.virtual_key);
    if (node.provider?.startsWith('@')) out.add(node.provider.slice(1));
    return (node.targets ?? []).every(walk);
  };
  return walk(config) ? out : null;
}

function whole(query: URLSearchParams, name: string, min: number): number | null {
  const text = query.get(name);
  if (text === null) return null;
  if (!/^\d{1,9}$/.test(text) || Number(text) < min) {
    throw new SluiceError('validation', `${name} must be a whole number of at least ${min}.`, { param: name });
  }
  return Number(text);
}
