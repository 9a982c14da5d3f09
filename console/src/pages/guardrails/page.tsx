/** Guardrails: what judges requests and answers, and how much was refused in the last day. */
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, usePagedList } from '../../api/queries.ts';
import { count, date } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useListedWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import type { Listed } from './words.ts';

const PAGE = 100;
const DAY_MS = 86_400_000;
const FILTERS = [
  {
    param: 'target',
    label: t('Judges'),
    options: [
      { value: 'llm', label: t('calls of models') },
      { value: 'mcp_tools', label: t('calls of tools') },
    ],
  },
];

export function Page() {
  const can = useCan();
  const zone = useZone();
  const listed = useListedWorkspace();
  const { active, query: filter, clear } = useFilters(FILTERS);
  const query = { ...filter, ...listed, page_size: PAGE };
  const { list, rows, total } = usePagedList<Listed, Operations['GET /v1/guardrails']['answer']>(
    ['GET /v1/guardrails', query],
    (page, signal) => answer('GET /v1/guardrails', { query: { ...query, current_page: page } }, { signal }),
  );
  const name = (row: Listed) => (
    <To path={`/guardrails/${row.id}`} title={row.id}>
      <span translate="no">{row.name}</span>
    </To>
  );
  const level = (row: Listed) => (row.workspace_id === null ? t('the organisation') : t('one workspace'));
  const judges = (row: Listed) => (row.target === 'llm' ? t('calls of models') : t('calls of tools'));
  const columns: Column<Listed>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'slug', header: t('Slug'), cell: (row) => <code>{row.slug}</code> },
    { id: 'judges', header: t('Judges'), cell: judges },
    { id: 'level', header: t('Of'), cell: level },
    { id: 'changed', header: t('Last changed'), cell: (row) => date(row.last_updated_at, zone) },
  ];
  const create =
    can('guardrails.create') || can('organisation_guardrails.create') ? (
      <To path="/guardrails/new" className="button primary">
        {t('New guardrail')}
      </To>
    ) : null;
  return (
    <>
      <PageHead
        title={t('Guardrails')}
        purpose={t('Checks on what is asked and answered: refuse, redact or note.')}
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/guardrails', query }} />
            </span>
            {create}
          </>
        }
      />
      {can('logs.list') && <Refused />}
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
      </div>
      <ListBody
        what={t('guardrails')}
        label={t('Guardrails')}
        list={list}
        total={total}
        filters={active.length}
        onClear={clear}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={(row) => `/guardrails/${row.id}`}
        card={(row) => ({ head: name(row), detail: <code>{row.slug}</code>, side: level(row) })}
        empty={<Empty title={t('No guardrail yet. A recipe makes one in two clicks.')}>{create}</Empty>}
      />
    </>
  );
}

/** Verdicts of the last day, all guardrails together. */
function Refused() {
  const listed = useListedWorkspace();
  const { get } = useUrl();
  const [now] = useState(() => Date.now());
  const since = { time_of_generation_min: new Date(now - DAY_MS).toISOString() };
  const ask = (status: string) => ({
    query: { ...listed, ...since, status_code: status } as NonNullable<unknown>,
  });
  const denied = useApi('GET /v1/logs/histogram', ask('446'));
  const marked = useApi('GET /v1/logs/histogram', ask('246'));
  const all = useApi('GET /v1/logs/histogram', { query: { ...listed, ...since } as NonNullable<unknown> });
  const figure = (found: typeof all) => (found.data === undefined ? '–' : count(found.data.summary.total));
  const params = { ws: get('ws') || null, range: '24h', from: null, to: null };
  return (
    <dl className="tiles">
      <div className="tile">
        <dt>{t('Refused by guardrails, 24 h')}</dt>
        <dd className="figure">
          <To path="/denials" params={{ ...params, status_code: '446' }}>
            {figure(denied)}
          </To>
        </dd>
      </div>
      <div className="tile">
        <dt>{t('Marked with 246, 24 h')}</dt>
        <dd className="figure">
          <To path="/requests" params={{ ...params, status_code: '246' }}>
            {figure(marked)}
          </To>
        </dd>
      </div>
      <div className="tile">
        <dt>{t('All requests, 24 h')}</dt>
        <dd className="figure">{figure(all)}</dd>
      </div>
    </dl>
  );
}
