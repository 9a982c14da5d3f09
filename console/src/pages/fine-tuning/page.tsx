/** Fine-tuning: jobs, newest first. */
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import { PlacePicker, useObjects, usePlace } from '../train/place.tsx';
import { iso, Status } from '../train/words.tsx';
import { costOf, elapsed, type Job, tokensOf } from './words.ts';

export function Page() {
  const zone = useZone();
  const { at } = usePlace();
  const { list, rows } = useObjects('GET /v1/fine_tuning/jobs');
  const name = (row: Job) => (
    <To
      path={`/fine-tuning/${encodeURIComponent(row.id)}`}
      params={{ at: at === 'gateway' ? null : at }}
      title={row.id}
    >
      {row.suffix || row.id}
    </To>
  );
  const columns: Column<Job>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'status', header: t('Status'), cell: (row) => <Status status={row.status} /> },
    { id: 'model', header: t('Base model'), cell: (row) => <span translate="no">{row.model}</span> },
    { id: 'account', header: t('Account'), cell: (row) => <span translate="no">{row.provider_slug ?? at}</span> },
    { id: 'tokens', header: t('Trained tokens'), numeric: true, cell: tokensOf },
    { id: 'cost', header: t('Cost'), numeric: true, cell: costOf },
    { id: 'time', header: t('Took'), numeric: true, cell: elapsed },
    { id: 'made', header: t('Made'), cell: (row) => dateTime(iso(row.created_at), zone) },
  ];
  return (
    <>
      <PageHead
        title={t('Fine-tuning')}
        purpose={t('Train a model with your own rows, at any account that trains.')}
        actions={
          <To path="/fine-tuning/new" className="button primary">
            {t('New job')}
          </To>
        }
      />
      <div className="toolbar" data-key="filter">
        <PlacePicker />
        <span data-key="curl">
          <AsCurl call={{ operation: 'GET /v1/fine_tuning/jobs', headers: { 'x-gateway-provider': at } }} />
        </span>
      </div>
      <ListBody
        what={t('jobs')}
        label={t('Fine-tuning jobs')}
        list={list}
        total={null}
        columns={columns}
        rows={rows as Job[]}
        keyOf={(row) => row.id}
        pathOf={(row) => `/fine-tuning/${encodeURIComponent(row.id)}`}
        card={(row) => ({ head: name(row), detail: <Status status={row.status} />, side: costOf(row) })}
        empty={
          <Empty title={t('No job yet. The sandbox trains one in a few seconds, without an account.')}>
            <To path="/fine-tuning/new" className="button">
              {t('Start a job')}
            </To>
          </Empty>
        }
      />
    </>
  );
}
