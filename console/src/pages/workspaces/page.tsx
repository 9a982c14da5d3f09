/** Workspaces: who works together, with one budget and their own keys. */
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { usePagedList } from '../../api/queries.ts';
import { count, date, dollars } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, PageHead, Refreshing } from '../../ui/page.tsx';
import { Empty, Failure, Loading, NoMatch } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { NewWorkspace } from './new-workspace.tsx';

type Workspace = Operations['GET /v1/admin/workspaces']['answer']['data'][number];

const PAGE = 100;
const FILTERS = [
  { param: 'name', label: t('Name'), hint: t('A part of it') },
  {
    param: 'status',
    label: t('Status'),
    options: [
      { value: 'active', label: t('active') },
      { value: 'archived', label: t('archived') },
    ],
  },
];

export function Page() {
  const zone = useZone();
  const can = useCan();
  const { get, set } = useUrl();
  const { active, query: filter, clear } = useFilters(FILTERS);
  const query = { ...filter, page_size: PAGE };
  const { list, rows, total } = usePagedList<Workspace, Operations['GET /v1/admin/workspaces']['answer']>(
    ['GET /v1/admin/workspaces', query],
    (page, signal) => answer('GET /v1/admin/workspaces', { query: { ...query, current_page: page } }, { signal }),
  );
  const state = (row: Workspace) => <Badge tone={row.status === 'active' ? 'ok' : 'quiet'}>{t(row.status)}</Badge>;
  const name = (row: Workspace) => (
    <To path={`/workspaces/${row.id}`} title={row.id}>
      {row.name}
    </To>
  );
  const columns: Column<Workspace>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'slug', header: t('Slug'), cell: (row) => <code>{row.slug}</code> },
    { id: 'status', header: t('Status'), cell: state },
    { id: 'budget', header: t('Budget'), cell: (row) => budgetOf(row) },
    { id: 'made', header: t('Made'), cell: (row) => date(row.created_at, zone) },
    {
      id: 'links',
      header: t('Look at'),
      cell: (row) => (
        <span className="row">
          <To path="/spend" params={{ ws: row.slug }}>
            {t('Spend')}
          </To>
          <To path="/keys" params={{ ws: row.slug }}>
            {t('API keys')}
          </To>
        </span>
      ),
    },
  ];
  return (
    <>
      <PageHead
        title={t('Workspaces')}
        purpose={t('A workspace has its own people, keys, providers and budget.')}
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/admin/workspaces', query }} />
            </span>
            {can('workspaces.create') && (
              <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
                {t('New workspace')}
              </button>
            )}
          </>
        }
      />
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
      </div>
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isLoading && <Loading what={t('workspaces')} />}
      {list.isSuccess && rows.length === 0 && active.length > 0 && (
        <NoMatch what={t('workspaces')} filters={active.length} onClear={clear} />
      )}
      {list.isSuccess && rows.length === 0 && active.length === 0 && <Empty title={t('No workspace yet.')} />}
      {rows.length > 0 && (
        <>
          <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
          <ListTable
            label={t('Workspaces')}
            columns={columns}
            rows={rows}
            keyOf={(row) => row.id}
            pathOf={(row) => `/workspaces/${row.id}`}
            card={(row) => ({ head: name(row), detail: state(row), side: budgetOf(row) })}
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
      {get('new') === '1' && <NewWorkspace onClose={() => set({ new: null })} />}
    </>
  );
}

/** The first limit of the workspace itself. Limits of cost are in dollars. */
function budgetOf({ usage_limits: limits }: Workspace): string {
  const limit = limits?.[0];
  if (limit?.credit_limit === undefined) return '–';
  return limit.type === 'tokens'
    ? t('{n} tokens', { n: count(limit.credit_limit) })
    : dollars(Math.round(limit.credit_limit * 1_000_000));
}
