/** Files: what trains, what batches send, and what they gave. */
import { useLocation } from 'wouter';
import type { File as KeptFile } from '../../../types/api.ts';
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useHref, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import { PlacePicker, useObjects, usePlace } from '../train/place.tsx';
import { UploadField } from '../train/upload-field.tsx';
import { bytes, iso, Status } from '../train/words.tsx';

const PURPOSES = ['fine-tune', 'batch'].map((value) => ({ value, label: t(value) }));
const FILTERS = [{ param: 'purpose', label: t('Purpose'), options: PURPOSES }];

export function Page() {
  const zone = useZone();
  const { get, set } = useUrl();
  const { at, headers } = usePlace();
  const { active, query, clear } = useFilters(FILTERS);
  const { list, rows } = useObjects('GET /v1/files', query);
  const name = (row: KeptFile) => (
    <To path={`/files/${encodeURIComponent(row.id)}`} params={{ at: at === 'gateway' ? null : at }} title={row.id}>
      {row.filename || row.id}
    </To>
  );
  const columns: Column<KeptFile>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'purpose', header: t('Purpose'), cell: (row) => t(row.purpose) },
    { id: 'status', header: t('Status'), cell: (row) => <Status status={row.status} /> },
    { id: 'size', header: t('Size'), numeric: true, cell: (row) => bytes(row.bytes) },
    { id: 'made', header: t('Uploaded'), cell: (row) => dateTime(iso(row.created_at), zone) },
  ];
  return (
    <>
      <PageHead
        title={t('Files')}
        purpose={t('Rows that train models, requests of batches, and what came of them.')}
        actions={
          <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
            {t('Upload a file')}
          </button>
        }
      />
      <div className="toolbar" data-key="filter">
        <FilterBar filters={FILTERS} />
        <PlacePicker />
        <span data-key="curl">
          <AsCurl call={{ operation: 'GET /v1/files', query, headers: { 'x-gateway-provider': at } }} />
        </span>
      </div>
      <ListBody
        what={t('files')}
        label={t('Files')}
        list={list}
        total={null}
        filters={active.length}
        onClear={clear}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={(row) => `/files/${encodeURIComponent(row.id)}`}
        card={(row) => ({ head: name(row), detail: <Status status={row.status} />, side: bytes(row.bytes) })}
        empty={
          <Empty title={t('No file yet. Upload JSONL: one JSON object a line.')}>
            <AsCurl call={{ operation: 'GET /v1/files', query, headers: { 'x-gateway-provider': at } }} />
          </Empty>
        }
      />
      {get('new') === '1' && <NewFile key={headers['x-gateway-provider']} onClose={() => set({ new: null })} />}
    </>
  );
}

function NewFile({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const { get, set } = useUrl();
  const { at } = usePlace();
  const purpose = get('as') === 'batch' ? 'batch' : 'fine-tune';
  return (
    <Dialog title={t('Upload a file')} onClose={onClose}>
      <label className="field">
        <span>{t('Purpose')}</span>
        <select value={purpose} onChange={(event) => set({ as: event.target.value })}>
          {PURPOSES.map(({ value, label }) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <UploadField
        purpose={purpose}
        label={t('JSONL file')}
        onDone={(id) => navigate(href(`/files/${encodeURIComponent(id)}`, { at: at === 'gateway' ? null : at }))}
      />
      <div className="row wrap">
        <button type="button" className="button" onClick={onClose}>
          {t('Close')}
        </button>
      </div>
    </Dialog>
  );
}
