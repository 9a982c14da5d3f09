import { SluiceError } from '../kernel/errors.ts';
import { quotedName } from '../kernel/quoted.ts';
import type { Provider } from '../providers/provider.ts';
import { secretsOf } from '../providers/sent-secrets.ts';
import type { TrainingAdapter } from '../providers/training.ts';
import type { Account } from '../runtime/object-call.ts';
import { type OpenedStored, openAccount } from '../runtime/opened-account.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { TenantContext } from '../store/ports.ts';
import type { TrainingServices } from './services.ts';

/**
 * The account of a stored provider or virtual key for work without a request: jobs and batches under way. Rejects with
 * `out_of_service` when it cannot be used (any more).
 */
export async function accountOfStored(
  services: Pick<TrainingServices, 'egress' | 'clock'>,
  snapshot: WorkspaceSnapshot,
  slug: string,
): Promise<Account> {
  const stored = snapshot.providers.get(slug);
  if (stored === undefined) {
    throw new SluiceError('out_of_service', `The provider ${slug} does not exist in this workspace any more.`);
  }
  if (stored.broken !== null || stored.provider === null) {
    throw new SluiceError('out_of_service', stored.broken ?? 'The stored provider cannot be used.');
  }
  if (stored.expiresAt !== null && stored.expiresAt <= services.clock.now()) {
    throw new SluiceError('out_of_service', `Provider ${slug} has expired; extend its expires_at.`);
  }
  return accountWith(services, stored, stored.provider, (await openAccount(stored, null)).account);
}

function accountWith(
  services: Pick<TrainingServices, 'egress'>,
  stored: StoredProvider,
  provider: Provider,
  opened: OpenedStored['account'],
): Account {
  const { slug, account } = stored;
  const { key, settings, customHost, customHeaders: named } = opened;
  const credentials = { key, settings };
  const customHeaders = Object.entries(named).flatMap(([name, value]) => [name.toLowerCase(), value]);
  const own = provider.baseUrl(credentials);
  const wanted = customHost ?? own;
  let base = '';
  if (provider.local === undefined) {
    if (wanted === null) {
      throw new SluiceError('out_of_service', `Provider ${slug} has no host; save a custom_host on it.`);
    }
    const { url } = services.egress.check(wanted, { storedCredential: true });
    base = url.origin + url.pathname.replace(/\/+$/, '');
  }
  return {
    provider,
    credentials,
    base,
    customHost: base !== '' && base !== own,
    customHeaders,
    stored,
    path: 'gateway_options',
    secrets: secretsOf(credentials, customHeaders, provider.account.secrets),
    ...(account.renew === undefined
      ? null
      : {
          renewed: async () => {
            const fresh = await account.renew?.(opened).catch(() => null);
            return fresh == null ? null : accountWith(services, stored, provider, fresh);
          },
        }),
  };
}

/** How an account trains: its provider's adapter, or the one inside the process. An absent part answers 501. */
export function adapterOf(
  services: Pick<TrainingServices, 'local'>,
  account: Account,
  tenant: TenantContext,
): TrainingAdapter {
  return account.provider.local === undefined ? (account.provider.training ?? {}) : services.local(tenant);
}

/** Whether the account may use a model that the request did not name where the data plane looks for it. */
export function checkModel(account: Account, model: string): void {
  const { stored } = account;
  if (stored === null) return;
  const settings = stored.models.get(model.toLowerCase());
  if (settings ? !settings.enabled : !stored.allowAllModels) {
    throw new SluiceError(
      'malformed_call',
      `Model ${quotedName(model)} is not enabled on the integration of provider ${stored.slug}. GET /v1/models lists those that are.`,
    );
  }
}
