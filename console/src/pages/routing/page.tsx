/** Routing: configs, with what each one carried in the last day. */
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, usePagedList } from '../../api/queries.ts';
import { count, date, percent } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useListedWorkspace, useReach, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { Badge, PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import type { Listed } from './words.ts';

const PAGE = 100;
const DAY_MS = 86_400_000;

export function Page() {
  const can = useCan();
  const zone = useZone();
  const listed = useListedWorkspace();
  const reach = useReach();
  const [now] = useState(() => Date.now());
  const query = { ...listed, page_size: PAGE };
  const { list, rows, total } = usePagedList<Listed, Operations['GET /v1/configs']['answer']>(
    ['GET /v1/configs', query],
    (page, signal) => answer('GET /v1/configs', { query: { ...query, current_page: page } }, { signal }),
  );
  const range = {
    time_of_generation_min: new Date(now - DAY_MS).toISOString(),
    time_of_generation_max: new Date(now).toISOString(),
  };
  const used = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    {
      path: { groupBy: 'config' },
      query: { ...(reach ?? {}), ...range, columns: 'requests,error_count', page_size: 1000 },
    },
    { enabled: reach !== null && can('analytics.view') },
  );
  const figures = ({ slug }: Listed) => {
    const own = used.data?.data.find((row) => row.config === slug);
    return { requests: own?.requests ?? 0, errors: Number(own?.error_count ?? 0) };
  };
  const name = (row: Listed) => (
    <To path={`/routing/${row.slug}`} title={row.id}>
      <span translate="no">{row.name}</span>
    </To>
  );
  const errors = (row: Listed) => {
    const { requests, errors: failed } = figures(row);
    if (requests === 0) return <Badge tone="quiet">{t('not used')}</Badge>;
    return (
      <Badge tone={failed === 0 ? 'ok' : failed * 10 < requests ? 'warn' : 'bad'}>{percent(failed, requests)}</Badge>
    );
  };
  const columns: Column<Listed>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'slug', header: t('Slug'), cell: (row) => <code>{row.slug}</code> },
    { id: 'requests', header: t('Requests, 24 h'), numeric: true, cell: (row) => count(figures(row).requests) },
    { id: 'errors', header: t('Errors'), cell: errors },
    { id: 'default', header: t('Default'), cell: (row) => (row.is_default === 1 ? t('yes') : '–') },
    { id: 'changed', header: t('Last changed'), cell: (row) => date(row.last_updated_at, zone) },
  ];
  const create = can('configs.create') ? (
    <To path="/routing/new" className="button primary">
      {t('New config')}
    </To>
  ) : null;
  return (
    <>
      <PageHead
        title={t('Routing')}
        purpose={t('Configs say where requests go, and what happens when a provider fails.')}
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/configs', query }} />
            </span>
            {create}
          </>
        }
      />
      <ListBody
        what={t('configs')}
        label={t('Configs')}
        list={list}
        total={total}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={(row) => `/routing/${row.slug}`}
        card={(row) => ({ head: name(row), detail: <code>{row.slug}</code>, side: errors(row) })}
        empty={
          <Empty title={t('No config yet. The gallery has one for retries, fallback and A/B tests.')}>{create}</Empty>
        }
      />
    </>
  );
}
