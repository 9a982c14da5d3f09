/** API keys: who calls, with which rights and limits. */
import { KeyRound } from 'lucide-react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, usePagedList } from '../../api/queries.ts';
import { count, date, dateTime, dollars } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { rangeOf, useListedWorkspace, useReach, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { PageHead, Refreshing } from '../../ui/page.tsx';
import { Empty, Failure, Loading, NoMatch } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { NewKey } from './new-key.tsx';
import { type ApiKey, KeyState, limitOf, TYPES } from './words.tsx';

const PAGE = 100;

const FILTERS = [
  {
    param: 'status',
    label: t('Status'),
    options: ['active', 'exhausted', 'expired'].map((value) => ({ value, label: t(value) })),
  },
];

export function Page() {
  const listed = useListedWorkspace();
  const zone = useZone();
  const can = useCan();
  const { get, set } = useUrl();
  const { active, query: filter, clear } = useFilters(FILTERS);
  const query = { ...filter, ...listed, page_size: PAGE };
  const { list, rows, total } = usePagedList<ApiKey, Operations['GET /v1/api-keys']['answer']>(
    ['GET /v1/api-keys', query],
    (page, signal) => answer('GET /v1/api-keys', { query: { ...query, current_page: page } }, { signal }),
  );
  const usageOf = useUses();
  const create = can('workspace_user_api_keys.create') ? (
    <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
      {t('New API key')}
    </button>
  ) : null;
  const columns: Column<ApiKey>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: (row) => <To path={`/keys/${row.id}`}>{row.name}</To> },
    { id: 'type', header: t('Type'), cell: (row) => t(TYPES[row.type]) },
    { id: 'key', header: t('Key'), cell: (row) => <code>{row.key}</code> },
    { id: 'state', header: t('Status'), cell: (row) => <KeyState apiKey={row} /> },
    {
      id: 'used',
      header: t('Last used'),
      cell: (row) => {
        const at = usageOf(row.id)?.last_seen;
        return at == null ? '–' : dateTime(at, zone);
      },
    },
    {
      id: 'spend',
      header: t('30 days ($)'),
      numeric: true,
      cell: (row) => {
        const spent = usageOf(row.id)?.cost_micros;
        return spent === undefined ? '–' : dollars(spent);
      },
    },
    { id: 'rights', header: t('Rights'), numeric: true, cell: (row) => count(row.scopes.length) },
    { id: 'limit', header: t('Own limit'), cell: (row) => limitOf(row) },
    {
      id: 'ends',
      header: t('Ends'),
      cell: (row) => (row.expires_at === null ? t('never') : date(row.expires_at, zone)),
    },
    {
      id: 'links',
      header: t('Its requests'),
      cell: (row) => (row.workspace_id === null ? '–' : <RequestsOf apiKey={row} />),
    },
  ];
  return (
    <>
      <PageHead
        title={t('API keys')}
        purpose={t('Programs call with a key. Each has its own rights, limits and end.')}
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/api-keys', query }} />
            </span>
            {create}
          </>
        }
      />
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
      </div>
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isLoading && <Loading what={t('API keys')} />}
      {list.isSuccess && rows.length === 0 && active.length > 0 && (
        <NoMatch what={t('API keys')} filters={active.length} onClear={clear} />
      )}
      {list.isSuccess && rows.length === 0 && active.length === 0 && (
        <Empty title={t('No API keys here yet. A program needs one to call the gateway.')}>{create}</Empty>
      )}
      {rows.length > 0 && (
        <>
          <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
          <ListTable
            label={t('API keys')}
            columns={columns}
            rows={rows}
            keyOf={(row) => row.id}
            pathOf={(row) => `/keys/${row.id}`}
            card={(row) => ({
              head: <To path={`/keys/${row.id}`}>{row.name}</To>,
              detail: (
                <>
                  <KeyState apiKey={row} />
                  <span>{t(TYPES[row.type])}</span>
                </>
              ),
              side: limitOf(row),
            })}
          />
          <ListFooter
            shown={rows.length}
            total={total === null ? null : count(total)}
            more={list.hasNextPage}
            loading={list.isFetchingNextPage}
            onMore={() => void list.fetchNextPage()}
          />
        </>
      )}
      {get('new') === '1' && <NewKey onClose={() => set({ new: null })} />}
    </>
  );
}

/** The most that analytics answer at a time; keys behind them used less. */
const MOST_USED = 200;
const STEP_MS = 300_000;

/** What each key used in the last 30 days; nothing for those that used nothing, and without the right to see it. */
function useUses() {
  const can = useCan();
  const reach = useReach();
  const range = rangeOf({ from: '', to: '', name: '30d' }, Math.ceil(Date.now() / STEP_MS) * STEP_MS);
  const { data } = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    {
      path: { groupBy: 'api_key' },
      query: {
        ...reach,
        columns: 'cost,last_seen',
        order_by: 'cost',
        page_size: MOST_USED,
        time_of_generation_min: range.from,
        time_of_generation_max: range.to,
      },
    },
    { enabled: reach !== null && can('analytics.view') },
  );
  const uses = new Map((data?.data ?? []).map((row) => [row.api_key, row]));
  return (id: string) => uses.get(id);
}

function RequestsOf({ apiKey }: { apiKey: ApiKey }) {
  return (
    <To
      path="/requests"
      params={{ api_key_ids: apiKey.id, ws: apiKey.workspace_id, range: '7d', from: null, to: null }}
    >
      <KeyRound size={14} aria-hidden="true" /> {t('Requests')}
    </To>
  );
}
