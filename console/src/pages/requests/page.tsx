/** Requests: how many over time, which ones, and as they come. */
import { Radio } from 'lucide-react';
import { t } from '../../app/i18n.ts';
import { useSession } from '../../shell/session.tsx';
import { useListedWorkspace, useRange, useUrl, useWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { PageHead } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Empty, Failure } from '../../ui/states.tsx';
import { ColumnPicker } from './columns.tsx';
import { Export } from './export.tsx';
import { FILTERS } from './filters.ts';
import { Histogram, type Query, Rows, Stored } from './list.tsx';
import { useTail } from './tail.ts';
import { Views } from './views.tsx';

export function Page() {
  const { session } = useSession();
  const chosen = useWorkspace();
  const place = useListedWorkspace();
  const range = useRange('24h');
  const { get, set } = useUrl();
  const { query } = useFilters(FILTERS);
  const live = get('live') === '1';
  if (session.workspaces.length === 0 && session.user.role === 'member') {
    return (
      <>
        <PageHead title={t('Requests')} />
        <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />
      </>
    );
  }
  const filter = { ...query, ...place } as Query;
  const ranged: Query = { ...filter, time_of_generation_min: range.from, time_of_generation_max: range.to };
  const all = place.workspace_id === undefined;
  const name = chosen?.name ?? session.workspaces[0]?.name;
  return (
    <>
      <PageHead
        title={t('Requests')}
        purpose={
          all ? (
            t('Every call through all workspaces, with what it cost and why it went where it went.')
          ) : (
            <>
              {t('Every call through the workspace')} <strong translate="no">{name}</strong>
              {t(', with what it cost and why it went where it went.')}
            </>
          )
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
              <AsCurl call={{ operation: 'GET /v1/logs', query: { ...ranged, limit: 100 } }} />
            </span>
          </>
        }
      />
      <Histogram query={ranged} title={t('Requests over time')} />
      <div className="toolbar">
        <span data-key="filter">
          <FilterBar filters={FILTERS} />
        </span>
        <span className="row wrap">
          <ColumnPicker all={all} />
          <Views />
          <Export query={ranged} />
        </span>
      </div>
      {live ? (
        <Live query={filter} />
      ) : (
        <Stored
          query={ranged}
          filters={FILTERS}
          what={t('Requests')}
          empty={
            <Empty title={t('No requests in this range. Send one and it appears here within a second.')}>
              <div className="row wrap">
                <To path="/connect" className="button primary">
                  {t('Send a request')}
                </To>
                {range.name !== '30d' && (
                  <button type="button" className="button" onClick={() => set({ range: '30d', from: null, to: null })}>
                    {t('Look at the last 30 days')}
                  </button>
                )}
              </div>
            </Empty>
          }
        />
      )}
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
        <Rows rows={rows} label={t('Requests')} />
      )}
    </>
  );
}
