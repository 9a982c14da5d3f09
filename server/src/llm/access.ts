import { type Access, accountAccess } from '../gateway/account-access.ts';
import type { Uses } from './exchange.ts';
import type { Target } from './target.ts';

/** What signing in to the account of a target takes, on sockets of the caller's organisation. */
export function accessOf(x: Uses<'request', 'clock' | 'fetcher' | 'egress' | 'tokens'>, target: Target): Access {
  const { credentials, provider } = target;
  const base = target.origin + target.prefix;
  const account = {
    provider,
    credentials,
    base,
    customHost: base !== provider.baseUrl(credentials),
    customHeaders: NO_HEADERS,
    stored: target.stored,
    path: target.path,
    secrets: target.sent,
  };
  const { request } = x;
  const { organisationId } = request;
  return accountAccess(x.services, account, { organisationId, header: (name) => request.header(name) });
}

/** Calls for tokens go without the headers of the account. */
const NO_HEADERS: readonly string[] = [];
