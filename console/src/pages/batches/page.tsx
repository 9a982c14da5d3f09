/** Batches: many requests from one file. */
import type { Batch } from '../../../types/api.ts';
import { count, dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import { PlacePicker, useObjects, usePlace } from '../train/place.tsx';
import { iso, Status } from '../train/words.tsx';
import { NewBatch } from './new-batch.tsx';

/** `12 of 20, 1 failed` */
export function progressOf({ request_counts: counts }: Batch): string {
  if (counts === undefined) return '–';
  const done = t('{done} of {total}', { done: count(counts.completed + counts.failed), total: count(counts.total) });
  return counts.failed === 0 ? done : t('{done}, {failed} failed', { done, failed: count(counts.failed) });
}

export function Page() {
  const zone = useZone();
  const { get, set } = useUrl();
  const { at } = usePlace();
  const { list, rows } = useObjects('GET /v1/batches');
  const params = { at: at === 'gateway' ? null : at };
  const name = (row: Batch) => (
    <To path={`/batches/${encodeURIComponent(row.id)}`} params={params}>
      <code>{row.id}</code>
    </To>
  );
  const columns: Column<Batch>[] = [
    { id: 'id', header: t('Batch'), grow: true, cell: name },
    { id: 'status', header: t('Status'), cell: (row) => <Status status={row.status} /> },
    { id: 'done', header: t('Requests'), numeric: true, cell: progressOf },
    { id: 'endpoint', header: t('Endpoint'), cell: (row) => row.endpoint },
    { id: 'window', header: t('Window'), cell: (row) => t(row.completion_window) },
    { id: 'made', header: t('Made'), cell: (row) => dateTime(iso(row.created_at), zone) },
  ];
  return (
    <>
      <PageHead
        title={t('Batches')}
        purpose={t('Many requests from one file: at once by Sluice, or later by the provider.')}
        actions={
          <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
            {t('New batch')}
          </button>
        }
      />
      <div className="toolbar" data-key="filter">
        <PlacePicker />
        <span data-key="curl">
          <AsCurl call={{ operation: 'GET /v1/batches', headers: { 'x-gateway-provider': at } }} />
        </span>
      </div>
      <ListBody
        what={t('batches')}
        label={t('Batches')}
        list={list}
        total={null}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={(row) => `/batches/${encodeURIComponent(row.id)}`}
        card={(row) => ({ head: name(row), detail: <Status status={row.status} />, side: progressOf(row) })}
        empty={<Empty title={t('No batch yet. Upload a file of requests and start one.')} />}
      />
      {get('new') === '1' && <NewBatch onClose={() => set({ new: null, file: null })} />}
    </>
  );
}
