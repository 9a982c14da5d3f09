/** Spend: what it cost, by two properties at once, as a chart, a table and a file. */
import { Download } from 'lucide-react';
import type { Operations } from '../../../types/api.ts';
import { useApi } from '../../api/queries.ts';
import { bucketName, count, date, dollars, percent, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { type Range, useRange, useReach, useUrl, useZone } from '../../shell/url-state.ts';
import { BarChart } from '../../ui/chart.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { PageHead, Refreshing } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Empty, Failure, Loading } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { csvOf } from './csv.ts';
import { GROUPS, type Group, nameOf, type Row } from './groups.ts';
import { atThisPace, endOfMonth, monthBefore } from './month.ts';

type GroupBy = Operations['GET /v1/analytics/groups/{groupBy}']['input']['path']['groupBy'];
type Reach = { workspace_id: string } | { all_workspaces: true };

const SHOWN = 200;
const COLUMNS = 'cost,total_tokens,error_count';

export function Page() {
  const range = useRange('month');
  const reach = useReach();
  if (reach === null) {
    return (
      <>
        <PageHead title={t('Spend')} />
        <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />
      </>
    );
  }
  return <Explore range={range} reach={reach} />;
}

function Explore({ range, reach }: { range: Range; reach: Reach }) {
  const { get, set } = useUrl();
  const first = GROUPS.find(({ id }) => id === get('group')) ?? GROUPS[0];
  const second = GROUPS.find(({ id }) => id === get('and') && id !== first.id) ?? null;
  const key = get('api_key_ids');
  const base = {
    ...reach,
    ...(key && { api_key_ids: key }),
    time_of_generation_min: range.from,
    time_of_generation_max: range.to,
  };
  const query = {
    ...base,
    columns: COLUMNS,
    order_by: 'cost' as const,
    page_size: SHOWN,
    ...(second && { and: second.id }),
  };
  const input = { path: { groupBy: first.id as GroupBy }, query };
  const { data, error, refetch, isFetching } = useApi('GET /v1/analytics/groups/{groupBy}', input);
  const download = () => {
    if (!data) return;
    const file = new Blob([csvOf(data.data, [first, ...(second ? [second] : [])], range)], { type: 'text/csv' });
    const link = document.createElement('a');
    link.href = URL.createObjectURL(file);
    link.download = `spend-${range.from.slice(0, 10)}-${range.to.slice(0, 10)}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const picker = (label: string, value: string, param: string, none: boolean) => (
    <label className="inline-field">
      <span>{label}</span>
      <select value={value} onChange={(event) => set({ [param]: event.target.value || null })}>
        {none && <option value="">{t('nothing else')}</option>}
        {GROUPS.filter(({ id }) => !none || id !== first.id).map(({ id, label: name }) => (
          <option key={id} value={id}>
            {t(name)}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <>
      <PageHead
        title={t('Spend')}
        purpose={t('What requests cost, split by what you like. The table and the total are one answer.')}
        actions={
          <>
            <RangePicker range={range} />
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/analytics/groups/{groupBy}', ...input }} />
            </span>
            <button type="button" className="button small" onClick={download} aria-disabled={!data}>
              <Download size={15} aria-hidden="true" /> CSV
            </button>
          </>
        }
      />
      <Chart query={base} />
      <div className="toolbar">
        <div className="filters">
          {picker(t('Split by'), first.id, 'group', false)}
          {picker(t('and by'), second?.id ?? '', 'and', true)}
          {key !== '' && (
            <button type="button" className="button small" onClick={() => set({ api_key_ids: null })}>
              {t('One API key only')} ×
            </button>
          )}
        </div>
      </div>
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('the spend')} />}
      {data && (
        <>
          <Refreshing on={isFetching} />
          <Summary summary={data.summary} range={range} reach={reach} apiKey={key} />
          {data.data.length === 0 ? (
            <Empty title={t('No request in this range.')}>
              <button type="button" className="button" onClick={() => set({ range: '30d', from: null, to: null })}>
                {t('Look at the last 30 days')}
              </button>
            </Empty>
          ) : (
            <Table rows={data.data} groups={second ? [first, second] : [first]} sum={data.summary.cost_micros ?? 0} />
          )}
          <ListFooter
            shown={data.data.length}
            total={data.total === undefined ? null : count(data.total)}
            note={t('complete to {time}', { time: data.complete_to.slice(11, 19) })}
            more={false}
            loading={false}
            onMore={() => undefined}
          />
        </>
      )}
    </>
  );
}

function Summary(props: {
  summary: { requests: number; cost_micros?: number; unpriced_requests?: number; total_tokens?: number };
  range: Range;
  reach: Reach;
  apiKey: string;
}) {
  const { summary, range, reach, apiKey } = props;
  const { requests, cost_micros = 0, unpriced_requests = 0, total_tokens = 0 } = summary;
  return (
    <dl className="tiles">
      <div className="tile">
        <dt>{t('Spend in this range')}</dt>
        <dd className="figure">{dollars(cost_micros)}</dd>
        {range.name === 'month' && <LastMonth range={range} reach={reach} apiKey={apiKey} />}
      </div>
      {range.name === 'month' && <AtThisPace micros={cost_micros} range={range} />}
      <div className="tile">
        <dt>{t('Requests')}</dt>
        <dd className="figure">{count(requests)}</dd>
      </div>
      <div className="tile">
        <dt>{t('Tokens')}</dt>
        <dd className="figure">{count(total_tokens)}</dd>
      </div>
      <div className="tile">
        <dt>{t('Priced')}</dt>
        <dd className="figure">{percent(requests - unpriced_requests, requests)}</dd>
        <dd className="muted">{t('{n} requests without a price', { n: unpriced_requests })}</dd>
      </div>
    </dl>
  );
}

/** Where the month ends when its rest goes like its begin. */
function AtThisPace({ micros, range }: { micros: number; range: Range }) {
  const end = endOfMonth(range.from);
  return (
    <div className="tile">
      <dt>{t('At this pace')}</dt>
      <dd className="figure">{dollars(atThisPace(micros, range))}</dd>
      <dd className="muted">{t('by the end of {day} UTC', { day: date(new Date(end - 1), 'utc') })}</dd>
    </div>
  );
}

function LastMonth({ range, reach, apiKey }: { range: Range; reach: Reach; apiKey: string }) {
  const { data } = useApi('GET /v1/analytics/groups/{groupBy}', {
    path: { groupBy: 'operation' },
    query: {
      ...reach,
      ...(apiKey && { api_key_ids: apiKey }),
      columns: 'cost',
      page_size: 1,
      time_of_generation_min: monthBefore(range.from),
      time_of_generation_max: range.from,
    },
  });
  if (!data) return null;
  return <dd className="muted">{t('last month {sum}', { sum: dollars(data.summary.cost_micros ?? 0) })}</dd>;
}

function Chart({ query }: { query: Reach & { time_of_generation_min: string; time_of_generation_max: string } }) {
  const zone = useZone();
  const { set } = useUrl();
  const { data, error, refetch } = useApi('GET /v1/analytics/graphs/cost', {
    query: { ...query, zone: zoneName(zone) },
  });
  if (error && !data) return <Failure error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading what={t('the chart')} rows={3} />;
  return (
    <div className="card chart-card">
      <BarChart
        title={t('Spend over time')}
        summary={t('{sum} in this range', { sum: dollars(data.summary.total_micros) })}
        series={[{ id: 'cost', label: t('Spend'), tone: 'c1' }]}
        bars={data.data_points.map((point) => ({
          at: point.timestamp,
          name: bucketName(point.timestamp, data.bucket, zone),
          values: { cost: point.total_micros },
        }))}
        format={dollars}
        onPick={(from, to) => set({ from, to: to ?? query.time_of_generation_max, range: null })}
      />
    </div>
  );
}

function Table({ rows, groups, sum }: { rows: readonly Row[]; groups: readonly Group[]; sum: number }) {
  const title = (row: Row) => groups.map((group) => nameOf(row, group)).join(' · ');
  const columns: Column<Row>[] = [
    ...groups.map((group, index) => ({
      id: group.id,
      header: t(group.label),
      grow: index === 0,
      cell: (row: Row) => <Cell row={row} group={group} />,
    })),
    { id: 'cost', header: t('Cost ($)'), numeric: true, cell: (row) => dollars(row.cost_micros ?? 0) },
    { id: 'share', header: t('Share'), numeric: true, cell: (row) => percent(row.cost_micros ?? 0, sum) },
    { id: 'requests', header: t('Requests'), numeric: true, cell: (row) => count(row.requests) },
    { id: 'tokens', header: t('Tokens'), numeric: true, cell: (row) => count(row.total_tokens ?? 0) },
    { id: 'errors', header: t('Errors'), numeric: true, cell: (row) => count(row.error_count ?? 0) },
    { id: 'unpriced', header: t('Unpriced'), numeric: true, cell: (row) => count(row.unpriced_requests ?? 0) },
  ];
  return (
    <ListTable
      label={t('Spend by {group}', { group: groups.map(({ label }) => t(label)).join(', ') })}
      columns={columns}
      rows={rows}
      keyOf={(row) => groups.map((group) => String(row[group.field] ?? '')).join('\n')}
      card={(row) => ({
        head: title(row),
        detail: <span>{t('{n} requests', { n: count(row.requests) })}</span>,
        side: (
          <>
            {dollars(row.cost_micros ?? 0)}
            <br />
            <span className="muted">{percent(row.cost_micros ?? 0, sum)}</span>
          </>
        ),
      })}
    />
  );
}

/** The name; it leads to the requests behind the number where the list can filter by it. */
function Cell({ row, group }: { row: Row; group: Group }) {
  const value = row[group.field];
  const name = nameOf(row, group);
  if (typeof value !== 'string' || group.filter === null) return <span title={String(value ?? '')}>{name}</span>;
  const params = group.id === 'workspace' ? { ws: value } : { [group.filter]: value };
  return (
    <To path="/requests" params={params} title={value}>
      {name}
    </To>
  );
}
