/** Audit: who changed what, with the difference. */
import { ShieldCheck } from 'lucide-react';
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { usePagedList, useWrite } from '../../api/queries.ts';
import { count, dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useRange, useWorkspace, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Diff } from '../../ui/diff.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { parsed } from '../../ui/json.tsx';
import { Badge, Facts, PageHead, Refreshing } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Empty, Failure, Loading, NoMatch } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { ExportRows } from './export.tsx';
import { Verdict } from './verdict.tsx';
import { type AuditRow, actorOf, deedOf } from './words.ts';

const PAGE = 100;
const ACTIONS = ['create', 'update', 'delete', 'publish', 'export', 'rotate', 'manage', 'duplicate'];

const FILTERS = [
  { param: 'action', label: t('Action'), options: ACTIONS.map((value) => ({ value, label: t(value) })) },
  { param: 'resource_type', label: t('Kind of object'), hint: t('configs, api keys, users …') },
  { param: 'user_id', label: t('Id of the user or API key') },
  { param: 'client_ip', label: t('Address') },
  { param: 'request_id', label: t('Request id') },
  { param: 'response_status_code', label: t('Status') },
];

interface Rows {
  readonly data: AuditRow[];
  readonly total: number;
}

type Query = Operations['GET /v1/audit-logs']['input']['query'];

export function Page() {
  const range = useRange('7d');
  const zone = useZone();
  const workspace = useWorkspace();
  const [open, setOpen] = useState<AuditRow | null>(null);
  const { active, query: filter, clear } = useFilters(FILTERS);
  const query = {
    ...filter,
    ...(workspace && { workspace_id: workspace.id }),
    start_time: range.from,
    end_time: range.to,
    page_size: PAGE,
  } as Query;
  const { list, rows, total } = usePagedList<AuditRow, Rows>(['GET /v1/audit-logs', query], async (page, signal) => {
    const found = await answer('GET /v1/audit-logs', { query: { ...query, current_page: page } }, { signal });
    return { data: found.records, total: found.total };
  });
  const verify = useWrite('POST /v1/audit-logs/verify');
  const onVerify = () => {
    if (!verify.isPending) verify.mutate({});
  };
  const sentence = (row: AuditRow) => (
    <button type="button" className="as-link" onClick={() => setOpen(row)}>
      <strong>{actorOf(row)}</strong> {deedOf(row)}
    </button>
  );
  const columns: Column<AuditRow>[] = [
    { id: 'time', header: t('Time ({zone})', { zone: zoneName(zone) }), cell: (row) => dateTime(row.timestamp, zone) },
    { id: 'deed', header: t('What happened'), grow: true, cell: sentence },
    { id: 'ip', header: t('Address'), cell: (row) => row.client_ip ?? '–' },
    { id: 'status', header: t('Status'), numeric: true, cell: (row) => row.response_status_code },
    { id: 'chain', header: t('Chain'), cell: (row) => <Chain row={row} /> },
  ];
  return (
    <>
      <PageHead
        title={t('Audit')}
        purpose={t('Every change, who made it, and the fields before and after.')}
        actions={
          <>
            <RangePicker range={range} />
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/audit-logs', query }} />
            </span>
            <ExportRows query={query} />
            <button type="button" className="button" aria-disabled={verify.isPending} onClick={onVerify}>
              <ShieldCheck size={15} aria-hidden="true" /> {verify.isPending ? t('Verifying…') : t('Verify')}
            </button>
          </>
        }
      />
      <Verdict verify={verify} onRetry={onVerify} />
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
      </div>
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isLoading && <Loading what={t('the audit log')} />}
      {list.isSuccess && rows.length === 0 && active.length > 0 && (
        <NoMatch what={t('changes')} filters={active.length} onClear={clear} />
      )}
      {list.isSuccess && rows.length === 0 && active.length === 0 && (
        <Empty title={t('Nothing was changed in this range.')} />
      )}
      {rows.length > 0 && (
        <>
          <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
          <ListTable
            label={t('Changes')}
            columns={columns}
            rows={rows}
            keyOf={(row) => row.id}
            card={(row) => ({
              head: sentence(row),
              detail: (
                <>
                  <span>{dateTime(row.timestamp, zone)}</span>
                  <span>{row.client_ip}</span>
                </>
              ),
              side: <Chain row={row} />,
            })}
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
      {open !== null && <Entry row={open} onClose={() => setOpen(null)} />}
    </>
  );
}

const Chain = ({ row }: { row: AuditRow }) =>
  row.seq === null ? (
    <Badge tone="quiet">{t('unsigned')}</Badge>
  ) : (
    <Badge tone="ok">{t('signed {n}', { n: String(row.seq) })}</Badge>
  );

function Entry({ row, onClose }: { row: AuditRow; onClose: () => void }) {
  const zone = useZone();
  return (
    <Dialog title={`${actorOf(row)} ${deedOf(row)}`} onClose={onClose} wide>
      <Facts
        facts={[
          [t('Time'), `${dateTime(row.timestamp, zone)} ${zoneName(zone)}`],
          [t('Call'), <code key="call">{`${row.method} ${row.uri}`}</code>],
          [t('Status'), String(row.response_status_code)],
          [t('Address'), row.client_ip ?? '–'],
          [t('Request id'), <code key="id">{row.request_id}</code>],
          [t('Object'), <code key="object">{row.resource_id ?? '–'}</code>],
        ]}
      />
      <Diff before={parsed(row.before)} after={parsed(row.after)} />
      <button type="button" className="button" onClick={onClose}>
        {t('Close')}
      </button>
    </Dialog>
  );
}
