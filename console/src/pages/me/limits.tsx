import type { Operations } from '../../../types/api.ts';
import { useApi } from '../../api/queries.ts';
import { count, dateTime, dollars, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useOneWorkspace, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';

type Limit = Operations['GET /v1/limits']['answer']['data'][number];

/** What is left of every limit that binds requests of the user in the workspace, tightest first. */
export function Limits() {
  const zone = useZone();
  const workspace = useOneWorkspace();
  const query = { workspace_id: workspace?.id ?? '' };
  const { data, error, refetch } = useApi('GET /v1/limits', { query }, { enabled: workspace !== null });
  if (workspace === null) return null;
  return (
    <Card title={t('What is left')} id="left" actions={<AsCurl call={{ operation: 'GET /v1/limits', query }} />}>
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('your limits')} rows={2} />}
      {data?.data.length === 0 && (
        <p className="muted">{t('No budget applies to you in {name}.', { name: workspace.name })}</p>
      )}
      <ul className="plain-list">
        {(data?.data ?? []).map((limit) => (
          <li key={`${limit.kind}${limit.id}${limit.type}${limit.period}${limit.value_key}`}>
            <strong translate="no">{limit.name}</strong>: {leftOf(limit)}
            {limit.resets_at !== null && (
              <span className="muted">
                {' '}
                {t('It starts anew on {time}.', { time: `${dateTime(limit.resets_at, zone)} ${zoneName(zone)}` })}
              </span>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function amount({ type }: Limit, value: number): string {
  if (type === 'cost') return dollars(Math.round(value * 1_000_000));
  return type === 'tokens' ? t('{n} tokens', { n: count(value) }) : t('{n} requests', { n: count(value) });
}

function leftOf(limit: Limit): string {
  const all = amount(limit, limit.limit);
  if (limit.remaining === null) return t('at most {all}', { all });
  return t('{left} of {all} are left.', { left: amount(limit, limit.remaining), all });
}
