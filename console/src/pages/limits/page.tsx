/** Budgets and limits: everything that can refuse a request of the workspace, and what is left of it. */
import { useApi } from '../../api/queries.ts';
import { count, dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useOneWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, PageHead, Refreshing } from '../../ui/page.tsx';
import { Empty, Failure, Loading, Stale } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { PolicyDetail } from './detail.tsx';
import { NewBudget } from './new-budget.tsx';
import { amount, bare, kindOf, type Limit, Meter, periodOf, selects, sharedBy } from './words.tsx';

export function Page() {
  const workspace = useOneWorkspace();
  const can = useCan();
  const zone = useZone();
  const { get, set } = useUrl();
  const mine = get('view') === 'mine';
  const query = { workspace_id: workspace?.id ?? '', ...(mine ? {} : { all: true }) };
  const list = useApi('GET /v1/limits', { query }, { enabled: workspace !== null, refetchInterval: 30_000 });
  const create =
    can('policies.create') && workspace !== null ? (
      <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
        {t('New budget')}
      </button>
    ) : null;
  const rows = list.data?.data ?? [];
  return (
    <>
      <PageHead
        title={t('Budgets & limits')}
        purpose={
          <>
            {t('What can refuse a request of the workspace')} <strong translate="no">{workspace?.name}</strong>
            {t(', tightest first.')}
          </>
        }
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/limits', query }} />
            </span>
            {create}
          </>
        }
      />
      <div className="toolbar">
        <button
          type="button"
          className="button small"
          aria-pressed={mine}
          onClick={() => set({ view: mine ? null : 'mine' })}
        >
          {t('Only what limits me')}
        </button>
        {list.data && (
          <span className="muted">
            {t('As of {time} {zone}', { time: dateTime(list.data.as_of, zone), zone: zoneName(zone) })}
          </span>
        )}
      </div>
      {workspace === null && <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />}
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isError && rows.length > 0 && (
        <Stale since={dateTime(new Date(list.dataUpdatedAt), zone)} onRetry={() => void list.refetch()} />
      )}
      {list.isLoading && <Loading what={t('limits')} />}
      {list.isSuccess && rows.length === 0 && (
        <Empty
          title={
            mine
              ? t('No budget applies to you.')
              : t('Nothing limits this workspace yet. A budget stops it at an amount.')
          }
        >
          {create}
        </Empty>
      )}
      {rows.length > 0 && (
        <>
          <Refreshing on={list.isFetching} />
          <ListTable
            label={t('Limits')}
            columns={columnsOf(zone)}
            rows={rows}
            keyOf={(row) => `${row.kind} ${row.id} ${row.counts} ${row.type} ${row.period}`}
            card={(row) => ({
              head: <Name limit={row} />,
              detail: (
                <>
                  <State limit={row} />
                  <span>
                    {usedOf(row)}
                    {' / '}
                    {amount(row.type, row.limit)} {periodOf(row.period)}
                  </span>
                </>
              ),
              side: row.remaining === null ? undefined : t('{left} left', { left: bare(row.type, row.remaining) }),
            })}
          />
          <ListFooter
            shown={rows.length}
            total={list.data?.complete ? count(list.data.total) : `${count(list.data?.total ?? 0)}+`}
            more={false}
            loading={false}
            onMore={() => undefined}
          />
        </>
      )}
      {workspace !== null && get('new') === '1' && (
        <NewBudget workspaceId={workspace.id} onClose={() => set({ new: null })} />
      )}
      {workspace !== null && get('policy') !== '' && (
        <PolicyDetail id={get('policy')} workspaceId={workspace.id} onClose={() => set({ policy: null })} />
      )}
    </>
  );
}

const columnsOf = (zone: ReturnType<typeof useZone>): Column<Limit>[] => [
  {
    id: 'name',
    header: t('Limit'),
    cell: (row) => (
      <>
        <Name limit={row} /> <span className="muted">{kindOf(row)}</span>
      </>
    ),
  },
  { id: 'shared', header: t('Shared by'), cell: sharedBy },
  {
    id: 'most',
    header: t('At most'),
    cell: (row) => `${amount(row.type, row.limit)} ${periodOf(row.period)}`,
  },
  {
    id: 'used',
    header: t('Used'),
    cell: (row) => (
      <span className="limit-used">
        <Meter limit={row} />
        <span>{usedOf(row)}</span>
      </span>
    ),
  },
  {
    id: 'left',
    header: t('Left'),
    numeric: true,
    cell: (row) => (row.remaining === null ? '–' : bare(row.type, row.remaining)),
  },
  { id: 'state', header: t('Status'), cell: (row) => <State limit={row} /> },
  { id: 'then', header: t('What comes next'), cell: (row) => nextOf(row, zone) },
];

/** `runs out 27 Nov`, where it does before it begins anew; else `resets 1 Dec`. */
function nextOf({ exhausts_at: out, resets_at: reset }: Limit, zone: ReturnType<typeof useZone>): string {
  if (out !== null) return t('runs out {time}', { time: dateTime(out, zone) });
  return reset === null ? '–' : t('resets {time}', { time: dateTime(reset, zone) });
}

/** `$412.10`, with what runs: `$412.10 + $9.00 reserved`. */
function usedOf(limit: Limit): string {
  if (limit.used === null) return limit.group_by.length > 0 ? t('counted for each') : t('not shown to you');
  const used = bare(limit.type, limit.used);
  return limit.reserved === null || limit.reserved === 0
    ? used
    : t('{used} + {reserved} reserved', { used, reserved: bare(limit.type, limit.reserved) });
}

function State({ limit }: { limit: Limit }) {
  if (limit.status === null) return <Badge tone="quiet">{t('in force')}</Badge>;
  if (limit.status === 'exhausted') return <Badge tone="bad">{t('used up')}</Badge>;
  const warns = limit.alert_threshold !== null && limit.used !== null && limit.used >= limit.alert_threshold;
  return warns ? <Badge tone="warn">{t('above its warning')}</Badge> : <Badge tone="ok">{t('has room')}</Badge>;
}

function Name({ limit }: { limit: Limit }) {
  const name = (
    <span className="limit-name" translate="no">
      {limit.name}
    </span>
  );
  const only = selects(limit);
  return (
    <span title={only === '' ? limit.id : `${limit.id}: ${only}`}>
      {limit.kind === 'policy' && limit.counts === 'usage' && (
        <To path="/limits" params={{ policy: limit.id }}>
          {name}
        </To>
      )}
      {limit.kind === 'key' && <To path={`/keys/${limit.id}`}>{name}</To>}
      {!(limit.kind === 'key' || (limit.kind === 'policy' && limit.counts === 'usage')) && name}
    </span>
  );
}
