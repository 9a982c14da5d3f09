/** Models: what the workspace can call, what it used in the last week, and what has no price. */
import { useState } from 'react';
import { useApi } from '../../api/queries.ts';
import { count, dollars } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Tabs } from '../../components/tabs.tsx';
import { useCan } from '../../shell/session.tsx';
import { useOneWorkspace, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, PageHead, Refreshing } from '../../ui/page.tsx';
import { Empty, Failure, Loading, NoMatch } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { kindName } from '../providers/words.tsx';
import { ModelDialog } from './model-dialog.tsx';

const WEEK_MS = 7 * 86_400_000;

interface Listed {
  /** `@slug/model`. */
  readonly id: string;
  readonly slug: string;
  /** Slug of the provider. */
  readonly provider: string;
  readonly ai_service: string;
}

interface Row extends Listed {
  readonly requests: number;
  readonly micros: number;
  readonly unpriced: number;
}

export function Page() {
  const can = useCan();
  const workspace = useOneWorkspace();
  const { get, set } = useUrl();
  const [now] = useState(() => Date.now());
  const headers = { 'x-gateway-workspace': workspace?.id ?? '' };
  const list = useApi('GET /v1/models', {}, { headers, enabled: workspace !== null });
  const used = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    {
      path: { groupBy: 'virtual_key' },
      query: {
        workspace_id: workspace?.id ?? '',
        and: 'model',
        columns: 'requests,cost',
        page_size: 1000,
        time_of_generation_min: new Date(now - WEEK_MS).toISOString(),
        time_of_generation_max: new Date(now).toISOString(),
      },
    },
    { enabled: workspace !== null && can('analytics.view') },
  );
  const all = rowsOf((list.data as { data?: Listed[] } | undefined)?.data ?? [], used.data?.data ?? []);
  const unpriced = all.filter((row) => row.unpriced > 0);
  const tab = get('tab') === 'unpriced' ? 'unpriced' : 'all';
  const search = get('q').toLowerCase();
  // The answer has all models: what is looked for here is looked for in all of them.
  const rows = (tab === 'all' ? all : unpriced).filter(({ id }) => id.toLowerCase().includes(search));
  const name = (row: Row) => (
    <To path="/models" params={{ model: row.id, tab: get('tab') || null, q: get('q') || null }}>
      <span translate="no">{row.id}</span>
    </To>
  );
  const columns: Column<Row>[] = [
    { id: 'name', header: t('In requests'), grow: true, cell: name },
    { id: 'kind', header: t('Provider'), cell: (row) => <span translate="no">{kindName(row.ai_service)}</span> },
    { id: 'requests', header: t('Requests, 7 days'), numeric: true, cell: (row) => count(row.requests) },
    { id: 'cost', header: t('Spend, 7 days'), numeric: true, cell: (row) => dollars(row.micros) },
    { id: 'price', header: t('Price'), cell: (row) => <Priced row={row} /> },
  ];
  return (
    <>
      <PageHead
        title={t('Models')}
        purpose={
          <>
            {t('What the workspace can call:')} <strong translate="no">{workspace?.name ?? '–'}</strong>
          </>
        }
        actions={
          <span data-key="curl">
            <AsCurl call={{ operation: 'GET /v1/models' }} />
          </span>
        }
      />
      <Tabs
        label={t('Models')}
        tabs={[
          { id: 'all', label: t('All') },
          { id: 'unpriced', label: t('Without a price ({n})', { n: unpriced.length }) },
        ]}
        selected={tab}
        onSelect={(id) => set({ tab: id === 'all' ? null : id })}
      >
        <div className="toolbar" data-key="filter">
          <label className="inline-field">
            <span>{t('Find')}</span>
            <input type="search" value={get('q')} onChange={(event) => set({ q: event.target.value || null })} />
          </label>
        </div>
        {(list.error ?? used.error) && (
          <Failure
            error={list.error ?? used.error}
            onRetry={() => void Promise.all([list.refetch(), used.refetch()])}
          />
        )}
        {list.isLoading && <Loading what={t('models')} />}
        {list.isSuccess && rows.length === 0 && search !== '' && (
          <NoMatch what={t('models')} filters={1} onClear={() => set({ q: null })} />
        )}
        {list.isSuccess && rows.length === 0 && search === '' && (
          <Empty
            title={
              tab === 'unpriced'
                ? t('Every request of the last 7 days had a price.')
                : t('No model yet. Add an account at a provider first.')
            }
          >
            {tab === 'all' && <To path="/providers">{t('Providers')}</To>}
          </Empty>
        )}
        {rows.length > 0 && (
          <>
            <Refreshing on={list.isFetching} />
            <ListTable
              label={t('Models')}
              columns={columns}
              rows={rows}
              keyOf={(row) => row.id}
              card={(row) => ({ head: name(row), detail: <Priced row={row} />, side: dollars(row.micros) })}
            />
            <ListFooter
              shown={rows.length}
              total={count(rows.length)}
              more={false}
              loading={false}
              onMore={() => undefined}
            />
          </>
        )}
      </Tabs>
      {workspace !== null && get('model') !== '' && (
        <ModelDialog id={get('model')} workspaceId={workspace.id} onClose={() => set({ model: null })} />
      )}
    </>
  );
}

interface Group {
  readonly virtual_key?: string | null;
  readonly model?: string | null;
  readonly requests: number;
  readonly cost_micros?: number;
  readonly unpriced_requests?: number;
}

/** Models with their use; those that were used and are in no list come last. */
function rowsOf(listed: readonly Listed[], groups: readonly Group[]): Row[] {
  const uses = new Map<string, Group>(
    groups.flatMap((group) =>
      group.virtual_key && group.model ? [[`@${group.virtual_key}/${group.model}`, group] as const] : [],
    ),
  );
  const services = new Map(listed.map(({ provider, ai_service }) => [provider, ai_service]));
  const rowOf = (model: Listed): Row => {
    const use = uses.get(model.id);
    uses.delete(model.id);
    return {
      ...model,
      requests: use?.requests ?? 0,
      micros: use?.cost_micros ?? 0,
      unpriced: use?.unpriced_requests ?? 0,
    };
  };
  const rows = listed.map(rowOf);
  const others = [...uses].map(([id, { virtual_key: provider, model }]) =>
    rowOf({ id, slug: model ?? '', provider: provider ?? '', ai_service: services.get(provider ?? '') ?? '' }),
  );
  return [...rows, ...others];
}

function Priced({ row }: { row: Row }) {
  if (row.unpriced > 0) return <Badge tone="warn">{t('{n} without a price', { n: row.unpriced })}</Badge>;
  return row.requests > 0 ? <Badge tone="ok">{t('known')}</Badge> : <Badge tone="quiet">{t('not used')}</Badge>;
}
