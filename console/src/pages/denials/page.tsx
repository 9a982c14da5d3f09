/** Denials: what Sluice refused, by which rule, whom it met, and each request. */
import { useApi } from '../../api/queries.ts';
import { count, percent } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useListedWorkspace, useRange, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { type Filter, FilterBar, useFilters } from '../../ui/filters.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Empty, Failure, Loading } from '../../ui/states.tsx';
import { ColumnPicker } from '../requests/columns.tsx';
import { Export } from '../requests/export.tsx';
import { Histogram, type Query, Stored } from '../requests/list.tsx';

const FILTERS: readonly Filter[] = [
  {
    param: 'status_code',
    label: t('Reason'),
    options: [
      { value: '446', label: t('A guardrail (446)') },
      { value: '412', label: t('A budget (412)') },
      { value: '429', label: t('A rate limit (429)') },
      { value: '403', label: t('A missing right (403)') },
    ],
  },
  { param: 'error_code', label: t('Error code') },
  { param: 'api_key_ids', label: t('Id of the API key') },
  { param: 'user_ids', label: t('Id of the user') },
  { param: 'ai_model', label: t('Model'), hint: t('As the provider names it') },
  { param: 'metadata', label: t('Metadata'), hint: t('A JSON object, for example {"team":"search"}') },
];

const COLUMNS = ['error', 'model', 'who', 'latency'];

export function Page() {
  const range = useRange('7d');
  const place = useListedWorkspace();
  const { query } = useFilters(FILTERS);
  const asked = {
    ...query,
    ...place,
    outcome: 'refused',
    time_of_generation_min: range.from,
    time_of_generation_max: range.to,
  } as Query;
  return (
    <>
      <PageHead
        title={t('Denials')}
        purpose={t('What Sluice refused before or after a provider was asked, and by which rule.')}
        actions={
          <>
            <RangePicker range={range} />
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/logs', query: { ...asked, limit: 100 } }} />
            </span>
          </>
        }
      />
      <Histogram query={asked} title={t('Denials over time')} ended="refused" />
      <div className="columns even">
        <Top query={asked} by="error_code" field="error_code" title={t('By error code')} param="error_code" />
        <Top query={asked} by="api_key" field="api_key" title={t('By API key')} param="api_key_ids" />
        <Top query={asked} by="user" field="user_id" title={t('By user')} param="user_ids" />
      </div>
      <div className="toolbar">
        <span data-key="filter">
          <FilterBar filters={FILTERS} />
        </span>
        <span className="row wrap">
          <ColumnPicker all={place.workspace_id === undefined} own={COLUMNS} />
          <Export query={asked} />
        </span>
      </div>
      <Stored
        query={asked}
        filters={FILTERS}
        what={t('Denials')}
        columns={COLUMNS}
        empty={<Empty title={t('Nothing was refused in this range.')} />}
      />
    </>
  );
}

/** The values with most denials. One of them becomes a filter. */
function Top(props: {
  query: Query;
  by: 'error_code' | 'api_key' | 'user';
  field: 'error_code' | 'api_key' | 'user_id';
  title: string;
  param: string;
}) {
  const { query, by, field, title, param } = props;
  const { set } = useUrl();
  const input = { path: { groupBy: by }, query: { ...query, page_size: 5 } };
  const { data, error, refetch } = useApi('GET /v1/logs/groups/{groupBy}', input);
  return (
    <Card title={title} id={`top-${by}`}>
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={title} rows={3} />}
      {data?.data.length === 0 && <p className="muted">{t('None in this range.')}</p>}
      <ul className="plain-list">
        {data?.data.map((row) => {
          const id = row[field];
          const name = by === 'api_key' ? row.api_key_name : by === 'user' ? row.user_name : id;
          return (
            <li key={String(id)} className="row">
              {typeof id === 'string' && id !== '' ? (
                <button type="button" className="as-link" title={id} onClick={() => set({ [param]: id })}>
                  <span translate="no">{name ?? `${id} (${t('deleted')})`}</span>
                </button>
              ) : (
                <span className="muted">{t('none')}</span>
              )}
              <span className="muted">
                {count(row.requests)} · {percent(row.requests, data.summary.requests ?? 0)}
              </span>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}
