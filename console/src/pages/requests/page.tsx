/** Requests: how many over time, which ones, and as they come. */
import { Radio } from 'lucide-react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, useCursorList } from '../../api/queries.ts';
import { bucketName, count, dateTime, dollars, duration, percent, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { type Range, useOneWorkspace, useRange, useUrl, useZone } from '../../shell/url-state.ts';
import { BarChart } from '../../ui/chart.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { PageHead, Refreshing } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Empty, Failure, Loading, NoMatch, Stale } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { FILTERS } from './filters.ts';
import { OUTCOMES, Outcome } from './outcome.tsx';
import { type Log, useTail } from './tail.ts';

type Query = NonNullable<Operations['GET /v1/logs']['input']['query']>;

const PAGE = 100;

export function Page() {
  const workspace = useOneWorkspace();
  const range = useRange('24h');
  const { get, set } = useUrl();
  const { query } = useFilters(FILTERS);
  const live = get('live') === '1';
  if (workspace === null) {
    return (
      <>
        <PageHead title={t('Requests')} />
        <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />
      </>
    );
  }
  const filter = { ...query, workspace_id: workspace.id } as Query;
  const ranged: Query = { ...filter, time_of_generation_min: range.from, time_of_generation_max: range.to };
  return (
    <>
      <PageHead
        title={t('Requests')}
        purpose={
          <>
            {t('Every call through the workspace')} <strong translate="no">{workspace.name}</strong>
            {t(', with what it cost and why it went where it went.')}
          </>
        }
        actions={
          <>
            <RangePicker range={range} />
            <button
              type="button"
              className="button small"
              data-key="live"
              aria-pressed={live}
              onClick={() => set({ live: live ? null : '1' })}
            >
              <Radio size={15} aria-hidden="true" /> {t('Live')}
            </button>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/logs', query: { ...ranged, limit: PAGE } }} />
            </span>
          </>
        }
      />
      <Histogram query={ranged} />
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
      </div>
      {live ? <Live query={filter} /> : <Stored query={ranged} range={range} />}
    </>
  );
}

function Histogram({ query }: { query: Query }) {
  const zone = useZone();
  const { set } = useUrl();
  const { data, error, refetch } = useApi('GET /v1/logs/histogram', { query: { ...query, zone: zoneName(zone) } });
  if (error && !data) return <Failure error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading what={t('the chart')} rows={3} />;
  const { total, ok } = data.summary;
  return (
    <div className="card chart-card">
      <BarChart
        title={t('Requests over time')}
        summary={t('{total} requests, {share} succeeded', { total, share: percent(ok, total) })}
        series={OUTCOMES.map(({ id, label, tone }) => ({ id, label: t(label), tone }))}
        bars={data.data_points.map((point) => ({
          at: point.timestamp,
          name: bucketName(point.timestamp, data.bucket, zone),
          values: { ok: point.ok, refused: point.refused, failed: point.failed, aborted: point.aborted },
        }))}
        format={count}
        onPick={(from, to) => set({ from, to: to ?? String(query.time_of_generation_max), range: null })}
      />
    </div>
  );
}

function Stored({ query, range }: { query: Query; range: Range }) {
  const zone = useZone();
  const { active, clear } = useFilters(FILTERS);
  const { set } = useUrl();
  const { list, rows, first } = useCursorList<Log, Operations['GET /v1/logs']['answer']>(
    ['GET /v1/logs', query],
    (cursor, signal) =>
      answer(
        'GET /v1/logs',
        { query: { ...query, limit: PAGE, ...(cursor === undefined ? { total: true } : { cursor }) } },
        { signal },
      ),
  );
  if (list.isError && rows.length === 0) return <Failure error={list.error} onRetry={() => void list.refetch()} />;
  if (!first) return <Loading what={t('requests')} rows={8} />;
  if (rows.length === 0) {
    if (active.length > 0) return <NoMatch what={t('requests')} filters={active.length} onClear={clear} />;
    return (
      <Empty title={t('No requests in this range. Send one and it appears here within a second.')}>
        <div className="row wrap">
          <To path="/playground" className="button primary">
            {t('Send a request')}
          </To>
          {range.name !== '30d' && (
            <button type="button" className="button" onClick={() => set({ range: '30d', from: null, to: null })}>
              {t('Look at the last 30 days')}
            </button>
          )}
        </div>
      </Empty>
    );
  }
  const total = first.total === undefined ? null : first.total > 10_000 ? `${count(10_000)}+` : count(first.total);
  return (
    <>
      {list.isRefetchError && (
        <Stale since={dateTime(new Date(list.dataUpdatedAt), zone)} onRetry={() => void list.refetch()} />
      )}
      <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
      <Rows rows={rows} />
      <ListFooter
        shown={rows.length}
        total={total}
        note={t('complete to {time} {zone}', { time: dateTime(first.complete_to, zone), zone: zoneName(zone) })}
        more={list.hasNextPage}
        loading={list.isFetchingNextPage}
        onMore={() => void list.fetchNextPage()}
      />
    </>
  );
}

function Live({ query }: { query: Query }) {
  const { rows, hidden, state, error, paused, pause } = useTail(query);
  return (
    <>
      <div className="toolbar">
        <p className="muted">
          {state === 'open' && t('Live: new requests appear on top.')}
          {state === 'connecting' && t('Connecting…')}
          {state === 'lost' && t('Lost contact. Trying again…')}
          {hidden > 0 && ` ${t('+{hidden} hidden', { hidden })}`}
        </p>
        <button type="button" className="button small" aria-pressed={paused} onClick={pause}>
          {paused ? t('Continue') : t('Pause')}
        </button>
      </div>
      {error !== null && <Failure error={error} />}
      {rows.length === 0 && error === null ? (
        <Empty title={t('Waiting for the next request.')} />
      ) : (
        <Rows rows={rows} />
      )}
    </>
  );
}

/** `gpt-4o → echo` where another model answered. */
const modelOf = (row: Log): string =>
  row.model_answered && row.model && row.model_answered !== row.model
    ? `${row.model} → ${row.model_answered}`
    : (row.model_answered ?? row.model ?? '–');

const who = (row: Log): string =>
  row.user?.name ?? row.metadata?._user ?? row.api_key?.name ?? (row.api_key ? t('deleted key') : '–');

const costOf = (row: Log): string => (row.cost_micros === null ? '–' : dollars(row.cost_micros));
const path = (row: Log): string => `/requests/${row.id}`;

function Rows({ rows }: { rows: readonly Log[] }) {
  const zone = useZone();
  const columns: Column<Log>[] = [
    {
      id: 'time',
      header: t('Time ({zone})', { zone: zoneName(zone) }),
      cell: (row) => <To path={path(row)}>{dateTime(row.created_at, zone)}</To>,
    },
    { id: 'outcome', header: t('Outcome'), cell: (row) => <Outcome outcome={row.outcome} status={row.status} /> },
    { id: 'model', header: t('Model'), grow: true, cell: (row) => <span title={modelOf(row)}>{modelOf(row)}</span> },
    { id: 'provider', header: t('Provider'), cell: (row) => row.provider_slug ?? row.provider ?? '–' },
    { id: 'who', header: t('Key or user'), cell: (row) => <span title={row.api_key?.id}>{who(row)}</span> },
    {
      id: 'tokens',
      header: t('Tokens in / out'),
      numeric: true,
      cell: (row) => (row.tokens_in === null ? '–' : `${count(row.tokens_in)} / ${count(row.tokens_out ?? 0)}`),
    },
    { id: 'cost', header: t('Cost ($)'), numeric: true, cell: costOf },
    {
      id: 'latency',
      header: t('Total'),
      numeric: true,
      cell: (row) => (row.latency_ms === null ? '–' : duration(row.latency_ms)),
    },
  ];
  return (
    <ListTable
      label={t('Requests')}
      columns={columns}
      rows={rows}
      keyOf={(row) => row.id}
      pathOf={path}
      card={(row) => ({
        head: <To path={path(row)}>{modelOf(row)}</To>,
        detail: (
          <>
            <Outcome outcome={row.outcome} status={row.status} />
            <span>{dateTime(row.created_at, zone)}</span>
            <span translate="no">{who(row)}</span>
          </>
        ),
        side: (
          <>
            {costOf(row)}
            <br />
            <span className="muted">{row.latency_ms === null ? '–' : duration(row.latency_ms)}</span>
          </>
        ),
      })}
    />
  );
}
