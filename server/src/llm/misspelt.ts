import { SluiceError } from '../kernel/errors.ts';
import type { Exchange } from './exchange.ts';

/** What is wrong with the base URL, or `Did you mean …?`, or null. */
export function meantPath({
  request: {
    incoming: { method = '', url = '' },
  },
  services,
}: Exchange): string | null {
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
  { request: { operation, incoming: request }, services }: Exchange,
  remedy = '',
): SluiceError | null {
  if (operation.family !== 'proxy') return null;
  const { method = '', url = '', headers } = request;
  if (services.paths.baseUrlFault(url) === null && services.paths.meant(method, url) === null) return null;
  return new SluiceError('not_found', services.paths.advise(method, url, headers) + remedy);
}
