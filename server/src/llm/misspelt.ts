import { SluiceError } from '../kernel/errors.ts';
import type { Uses } from './exchange.ts';

/** What is wrong with the base URL, or `Did you mean …?`, or null. */
function meantPath({
  request: {
    incoming: { method = '', url = '' },
  },
  services,
}: Uses<'request', 'paths'>): string | null {
  const base = services.paths.baseUrlFault(url);
  if (base !== null) return `${base[0]?.toUpperCase()}${base.slice(1)}`;
  const meant = services.paths.meant(method, url);
  return meant === null ? null : `Did you mean ${meant}?`;
}

/**
 * 404 for a path that would be passed through and is nearly one of Sluice's own, or null. Only for requests that are
 * refused anyway: where a provider is named, such a path is the provider's.
 */
export function misspelt(
  { request: { operation, incoming: request }, services }: Uses<'request', 'paths'>,
  remedy = '',
): SluiceError | null {
  if (operation.family !== 'proxy') return null;
  const { method = '', url = '', headers } = request;
  if (services.paths.baseUrlFault(url) === null && services.paths.meant(method, url) === null) return null;
  return new SluiceError('not_found', services.paths.advise(method, url, headers) + remedy);
}

/** Characters of an unknown path that an error repeats. */
const MAX_SHOWN_PATH = 100;

/** The path that a request is passed through to, and what may be wrong with it. */
export function passedPath(x: Uses<'request', 'paths'>): string {
  const advice =
    meantPath(x) ??
    'Check the path, and that your base URL ends where your client expects it; docs/guides/providers.md lists the operations of each provider.';
  return `/v1/${x.request.params['*']?.slice(0, MAX_SHOWN_PATH) ?? ''}. ${advice}`;
}
