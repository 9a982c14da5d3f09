/** A list of requests with its chart: the page Requests, and pages that show some of them. */
import { lazy, Suspense, useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, useCursorList } from '../../api/queries.ts';
import { bucketName, count, dateTime, duration, percent, zoneName } from '../../app/format.ts';
import { plural, t } from '../../app/i18n.ts';
import { useListedWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { BarChart } from '../../ui/chart.tsx';
import { type Filter, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { Refreshing } from '../../ui/page.tsx';
import { Sheet } from '../../ui/sheet.tsx';
import { Failure, Loading, NoMatch, Stale } from '../../ui/states.tsx';
import { ListFooter, ListTable } from '../../ui/table.tsx';
import { useMedia } from '../../ui/use-media.ts';
import { costOf, modelOf, pathOf, tableColumns, useColumns, whoOf } from './columns.tsx';
import { OUTCOMES, Outcome } from './outcome.tsx';
import type { Log } from './tail.ts';

export type Query = NonNullable<Operations['GET /v1/logs']['input']['query']>;

const PAGE = 200;
const RequestView = lazy(async () => ({ default: (await import('../request/view.tsx')).RequestView }));

/** The number of requests over time by outcome; `ended`: the only one there is. A bar chosen becomes the range. */
export function Histogram({ query, title, ended }: { query: Query; title: string; ended?: 'refused' }) {
  const zone = useZone();
  const { set } = useUrl();
  const { data, error, refetch } = useApi('GET /v1/logs/histogram', { query: { ...query, zone: zoneName(zone) } });
  if (error && !data) return <Failure error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading what={t('the chart')} rows={3} />;
  const { total, ok } = data.summary;
  return (
    <div className="card chart-card">
      <BarChart
        title={title}
        summary={
          ended
            ? plural(total, { one: '{n} request was refused', other: '{n} requests were refused' })
            : t('{total} requests, {share} succeeded', { total, share: percent(ok, total) })
        }
        series={OUTCOMES.filter(({ id }) => ended === undefined || id === ended).map(({ id, label, tone }) => ({
          id,
          label: t(label),
          tone,
        }))}
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

/** Stored requests, newest first. `empty` is shown where there are none although nothing is filtered. */
export function Stored(props: {
  query: Query;
  filters: readonly Filter[];
  what: string;
  columns?: readonly string[];
  empty: React.ReactNode;
}) {
  const { query, filters, what, columns, empty } = props;
  const zone = useZone();
  const { active, clear } = useFilters(filters);
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
  if (!first) return <Loading what={what} rows={8} />;
  if (rows.length === 0) {
    return active.length > 0 ? <NoMatch what={what} filters={active.length} onClear={clear} /> : empty;
  }
  const total = first.total === undefined ? null : first.total > 10_000 ? `${count(10_000)}+` : count(first.total);
  return (
    <>
      {list.isRefetchError && (
        <Stale since={dateTime(new Date(list.dataUpdatedAt), zone)} onRetry={() => void list.refetch()} />
      )}
      <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
      <Rows rows={rows} label={what} columns={columns} />
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

/** The table. On wide screens a row opens beside it; two rows that were chosen can be compared. */
export function Rows({ rows, label, columns }: { rows: readonly Log[]; label: string; columns?: readonly string[] }) {
  const zone = useZone();
  const { get, set } = useUrl();
  const wide = useMedia('(min-width: 75rem)');
  const { chosen: shown } = useColumns(useListedWorkspace().workspace_id === undefined, columns);
  const [selected, setSelected] = useState<readonly string[]>([]);
  const open = wide ? get('open') : '';
  const at = rows.findIndex(({ id }) => id === open);
  const [a, b] = selected;
  const toggle = (id: string) =>
    setSelected((before) => (before.includes(id) ? before.filter((one) => one !== id) : [...before, id].slice(-2)));
  const go = (by: number) => {
    const next = rows[at + by];
    if (next) set({ open: next.id });
  };
  return (
    <>
      {a !== undefined && (
        <p className="toolbar" role="status">
          {b === undefined ? (
            t('One request is chosen. Choose a second one to compare them.')
          ) : (
            <To path="/requests/compare" params={{ a, b }} className="button primary">
              {t('Compare the two requests')}
            </To>
          )}{' '}
          <button type="button" className="button small" onClick={() => setSelected([])}>
            {t('Choose none')}
          </button>
        </p>
      )}
      <ListTable
        label={label}
        columns={tableColumns(shown, zone)}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={pathOf}
        current={open}
        onOpen={wide ? (row) => set({ open: row.id }) : undefined}
        select={{
          selected,
          toggle,
          label: (row) => t('Choose the request of {time}', { time: dateTime(row.created_at, zone) }),
        }}
        card={(row) => ({
          head: <To path={pathOf(row)}>{modelOf(row)}</To>,
          detail: (
            <>
              <Outcome outcome={row.outcome} status={row.status} />
              <span>{dateTime(row.created_at, zone)}</span>
              <span translate="no">{whoOf(row)}</span>
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
      {open !== '' && (
        <Sheet
          title={t('Request')}
          onClose={() => set({ open: null })}
          actions={
            <>
              <button
                type="button"
                className="button small"
                data-key="previous"
                aria-disabled={at <= 0}
                onClick={() => go(-1)}
              >
                {t('Previous')}
              </button>
              <button
                type="button"
                className="button small"
                data-key="next"
                aria-disabled={at === -1 || at === rows.length - 1}
                onClick={() => go(1)}
              >
                {t('Next')}
              </button>
              <To path={`/requests/${open}`} className="button small">
                {t('Open as a page')}
              </To>
            </>
          }
        >
          <Suspense fallback={<Loading what={t('the request')} />}>
            <RequestView key={open} id={open} sheet />
          </Suspense>
        </Sheet>
      )}
    </>
  );
}
