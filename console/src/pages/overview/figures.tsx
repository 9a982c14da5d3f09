import { useApi } from '../../api/queries.ts';
import { bucketName, count, dollars, duration, percent, shortCount, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { type Range, useUrl, useZone } from '../../shell/url-state.ts';
import { BarChart } from '../../ui/chart.tsx';
import { Failure, Loading } from '../../ui/states.tsx';

type Reach = { workspace_id: string } | { all_workspaces: true };

const COLUMNS = 'cost,total_tokens,error_count,p95_latency,saved';

/** The numbers of the range, beside those of the range before it, and one chart. */
export function Figures({ reach, range }: { reach: Reach; range: Range }) {
  const ask = (from: string, to: string) => ({
    path: { groupBy: 'operation' as const },
    query: {
      ...reach,
      columns: COLUMNS,
      page_size: 1,
      time_of_generation_min: from,
      time_of_generation_max: to,
    },
  });
  const length = Date.parse(range.to) - Date.parse(range.from);
  const before = new Date(Date.parse(range.from) - length).toISOString();
  const now = useApi('GET /v1/analytics/groups/{groupBy}', ask(range.from, range.to));
  const past = useApi('GET /v1/analytics/groups/{groupBy}', ask(before, range.from));
  if (now.error && !now.data) return <Failure error={now.error} onRetry={() => void now.refetch()} />;
  if (!now.data) return <Loading what={t('the figures')} rows={2} />;
  const { summary } = now.data;
  const old = past.data?.summary;
  const ok = (of: { requests: number; error_count?: number }) => of.requests - (of.error_count ?? 0);
  const tiles: readonly (readonly [string, string, string | null])[] = [
    [t('Requests'), count(summary.requests), delta(summary.requests, old?.requests)],
    [
      t('Succeeded'),
      percent(ok(summary), summary.requests),
      old && old.requests > 0 ? t('was {before}', { before: percent(ok(old), old.requests) }) : null,
    ],
    [t('Spend'), dollars(summary.cost_micros ?? 0), delta(summary.cost_micros ?? 0, old?.cost_micros)],
    [t('Tokens'), shortCount(summary.total_tokens ?? 0), delta(summary.total_tokens ?? 0, old?.total_tokens)],
    [t('p95 latency'), summary.requests === 0 ? '–' : duration(summary.p95_latency ?? 0), null],
    [t('Saved by the cache'), dollars(summary.saved_micros ?? 0), null],
  ];
  return (
    <>
      <dl className="tiles">
        {tiles.map(([name, figure, change]) => (
          <div key={name} className="tile">
            <dt>{name}</dt>
            <dd className="figure">{figure}</dd>
            <dd className="muted">{change ?? t('in this range')}</dd>
          </div>
        ))}
      </dl>
      <OverTime reach={reach} range={range} />
    </>
  );
}

/** `+12 % on the time before`; null where there is nothing to compare with. */
function delta(now: number, before: number | undefined): string | null {
  if (!before) return null;
  const change = Math.round(((now - before) / before) * 100);
  return t('{change} on the time before', { change: `${change > 0 ? '+' : ''}${change} %` });
}

function OverTime({ reach, range }: { reach: Reach; range: Range }) {
  const zone = useZone();
  const { get, set } = useUrl();
  const money = get('metric') === 'cost';
  const input = {
    query: {
      ...reach,
      time_of_generation_min: range.from,
      time_of_generation_max: range.to,
      zone: zoneName(zone),
    },
  };
  const requests = useApi('GET /v1/analytics/graphs/requests', input, { enabled: !money });
  const cost = useApi('GET /v1/analytics/graphs/cost', input, { enabled: money });
  const answer = money ? cost : requests;
  const points = money
    ? cost.data?.data_points.map((one) => ({ at: one.timestamp, value: one.total_micros }))
    : requests.data?.data_points.map((one) => ({ at: one.timestamp, value: one.total }));
  const bucket = (money ? cost.data : requests.data)?.bucket ?? 'hour';
  if (answer.error && !points) return <Failure error={answer.error} onRetry={() => void answer.refetch()} />;
  if (!points) return <Loading what={t('the chart')} rows={3} />;
  const sum = points.reduce((all, { value }) => all + value, 0);
  const format = money ? dollars : count;
  return (
    <section className="card" aria-label={t('Over time')}>
      <fieldset className="switch">
        <legend className="visually-hidden">{t('What the chart shows')}</legend>
        {[
          ['', t('Requests')],
          ['cost', t('Spend')],
        ].map(([value = '', label]) => (
          <button
            key={value}
            type="button"
            className="button small"
            aria-pressed={money === (value === 'cost')}
            onClick={() => set({ metric: value || null })}
          >
            {label}
          </button>
        ))}
      </fieldset>
      <BarChart
        title={money ? t('Spend over time') : t('Requests over time')}
        summary={t('{sum} in this range', { sum: format(sum) })}
        series={[{ id: 'value', label: money ? t('Spend') : t('Requests'), tone: 'c1' }]}
        bars={points.map(({ at, value }) => ({ at, name: bucketName(at, bucket, zone), values: { value } }))}
        format={format}
        onPick={(from, to) => set({ from, to: to ?? range.to, range: null })}
      />
    </section>
  );
}
