import type { Operations } from '../../../types/api.ts';
import { count, dollars } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Badge } from '../../ui/page.tsx';

export type ApiKey = Operations['GET /v1/api-keys']['answer']['data'][number];

export const TYPES: Readonly<Record<ApiKey['type'], string>> = {
  'organisation-service': 'Organisation',
  'workspace-service': 'Service',
  'workspace-user': 'User',
};

export function KeyState({ apiKey }: { apiKey: ApiKey }) {
  if (apiKey.status !== 'active') {
    return <Badge tone={apiKey.status === 'archived' ? 'quiet' : 'bad'}>{t(apiKey.status)}</Badge>;
  }
  if (apiKey.uncollected_key) return <Badge tone="warn">{t('new secret waits')}</Badge>;
  if (apiKey.key_transition_expires_at !== null && Date.parse(apiKey.key_transition_expires_at) > Date.now()) {
    return <Badge tone="warn">{t('two secrets work')}</Badge>;
  }
  return <Badge tone="ok">{t('active')}</Badge>;
}

/** `$500 monthly`; a dash without one. Limits of cost are in dollars. */
export function limitOf({ usage_limits: limit }: ApiKey): string {
  const amount = limit === null ? null : limit.credit_limit;
  if (limit === null || typeof amount !== 'number') return '–';
  const much = limit.type === 'tokens' ? t('{n} tokens', { n: count(amount) }) : dollars(Math.round(amount * 1e6));
  return typeof limit.periodic_reset === 'string' ? `${much} ${t(limit.periodic_reset)}` : much;
}
