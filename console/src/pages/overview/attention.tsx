import { useApi } from '../../api/queries.ts';
import { count, date, dollars, percent } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useListedWorkspace, useZone } from '../../shell/url-state.ts';
import { To } from '../../ui/link.tsx';
import { Badge, Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';

/** From this share of a limit on it is shown. */
const NEAR = 0.8;
const SOON_MS = 14 * 86_400_000;

/** Budgets that are nearly used, keys that end soon, and new keys that were not fetched after a rotation. */
export function Attention({ workspaceId }: { workspaceId: string }) {
  const can = useCan();
  const zone = useZone();
  const policies = useApi(
    'GET /v1/policies/usage-limits',
    { query: { workspace_id: workspaceId, include_usage: true, page_size: 100 } },
    { enabled: can('policies.list') },
  );
  const keys = useApi(
    'GET /v1/api-keys',
    { query: { page_size: 100, ...useListedWorkspace() } },
    { enabled: can('workspace_user_api_keys.list') },
  );
  const budgets = (policies.data?.data ?? []).flatMap((policy) =>
    Object.entries(policy.value_key_usage_map ?? {}).flatMap(([value, state]) => {
      const share = (state.current_usage + state.reserved) / Math.max(1, state.credit_limit);
      return share < NEAR ? [] : [{ policy, value, state }];
    }),
  );
  const ending = (keys.data?.data ?? []).filter(
    ({ expires_at, status }) =>
      status === 'active' && expires_at !== null && Date.parse(expires_at) - Date.now() < SOON_MS,
  );
  const waiting = (keys.data?.data ?? []).filter(({ uncollected_key }) => uncollected_key);
  const error = policies.error ?? keys.error;
  const loading = (policies.isLoading || keys.isLoading) && !error;
  return (
    <Card title={t('Needs attention')} id="attention">
      {error && <Failure error={error} onRetry={() => void (policies.error ? policies : keys).refetch()} />}
      {loading && <Loading what={t('what needs attention')} rows={3} />}
      {!error && !loading && budgets.length + ending.length + waiting.length === 0 && (
        <p className="muted">{t('Nothing: no budget is nearly used, and no key ends in the next 14 days.')}</p>
      )}
      <ul className="plain-list">
        {budgets.map(({ policy, value, state }) => {
          const amount = policy.type === 'cost' ? dollarsOf : count;
          return (
            <li key={`${policy.id} ${value}`}>
              <Badge tone={state.status === 'exhausted' ? 'bad' : 'warn'}>
                {percent(state.current_usage, state.credit_limit)}
              </Badge>{' '}
              <strong translate="no">{policy.name ?? policy.id}</strong>:{' '}
              {t('{used} of {limit} used', { used: amount(state.current_usage), limit: amount(state.credit_limit) })}
              {state.exhausts_at !== null &&
                `; ${t('at this pace it runs out on {day}', { day: date(state.exhausts_at, zone) })}`}
            </li>
          );
        })}
        {ending.map((key) => (
          <li key={key.id}>
            <Badge tone="warn">{t('Ends soon')}</Badge> <To path={`/keys/${key.id}`}>{key.name}</To>{' '}
            {t('ends on {day}', { day: date(key.expires_at ?? '', zone) })}
          </li>
        ))}
        {waiting.map((key) => (
          <li key={key.id}>
            <Badge tone="warn">{t('Rotated')}</Badge> <To path={`/keys/${key.id}`}>{key.name}</To>{' '}
            {t('has a new secret that is not collected yet')}
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** Limits of cost are in dollars. */
const dollarsOf = (amount: number): string => dollars(Math.round(amount * 1_000_000));
