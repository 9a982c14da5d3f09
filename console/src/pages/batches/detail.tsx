/** One batch: how far it is, what failed by line, and its results. */
import { useParams } from 'wouter';
import type { Batch } from '../../../types/api.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { pause, usePlace } from '../train/place.tsx';
import { Preview } from '../train/preview.tsx';
import { ended, iso, Status } from '../train/words.tsx';
import { progressOf } from './page.tsx';

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const { headers, workspace } = usePlace();
  const { data, error, refetch } = useApi(
    'GET /v1/batches/{batch_id}',
    { path: { batch_id: id } },
    {
      headers,
      enabled: workspace !== null,
      pollAfter: (found) => (found && !ended(found.status) ? pause(found.created_at) : false),
    },
  );
  return (
    <>
      <p className="crumb">
        <To path="/batches">← {t('Batches')}</To>
      </p>
      {error && !data && (
        <>
          <PageHead title={t('Batch')} />
          <Failure error={error} onRetry={() => void refetch()} />
        </>
      )}
      {!data && !error && (
        <>
          <PageHead title={t('Batch')} />
          <Loading what={t('the batch')} />
        </>
      )}
      {data && <Shown batch={data} />}
    </>
  );
}

function Shown({ batch }: { batch: Batch }) {
  const zone = useZone();
  const { at, headers } = usePlace();
  const cancel = useWrite('POST /v1/batches/{batch_id}/cancel', headers);
  const path = { batch_id: batch.id };
  const counts = batch.request_counts;
  const file = (id: string) => (
    <To path={`/files/${encodeURIComponent(id)}`} params={{ at: at === 'gateway' ? null : at }}>
      <code>{id}</code>
    </To>
  );
  return (
    <>
      <PageHead
        title={t('Batch')}
        purpose={
          <span className="row wrap">
            <Status status={batch.status} /> <code>{batch.id}</code>
          </span>
        }
        actions={
          <>
            <AsCurl call={{ operation: 'GET /v1/batches/{batch_id}', path, headers: { 'x-gateway-provider': at } }} />
            {!ended(batch.status) && (
              <button type="button" className="button stop" onClick={() => cancel.mutate({ path })}>
                {t('Cancel the batch')}
              </button>
            )}
          </>
        }
      />
      {cancel.error && <Failure error={cancel.error} />}
      <div className="stack">
        <Card title={t('Progress')} id="progress">
          {counts && (
            <div className="field" role="status">
              <progress
                value={counts.completed + counts.failed}
                max={Math.max(1, counts.total)}
                aria-label={t('Requests that have ended')}
              />
              <span>{progressOf(batch)}</span>
            </div>
          )}
          <Facts
            facts={[
              [t('Endpoint'), batch.endpoint],
              [t('Model'), batch.model ?? '–'],
              [t('Window'), t(batch.completion_window)],
              [t('Made'), dateTime(iso(batch.created_at), zone)],
              [t('Ended'), batch.completed_at ? dateTime(iso(batch.completed_at), zone) : '–'],
              [t('Input'), file(batch.input_file_id)],
              [t('Output'), batch.output_file_id ? file(batch.output_file_id) : '–'],
              [t('Failed lines'), batch.error_file_id ? file(batch.error_file_id) : '–'],
            ]}
          />
        </Card>
        {(batch.errors?.data.length ?? 0) > 0 && (
          <Card title={t('Problems')} id="problems">
            <ul className="plain-list" translate="no">
              {batch.errors?.data.map(({ line, message }) => (
                <li key={`${line}${message}`}>
                  {line == null ? message : t('line {line}: {message}', { line, message })}
                </li>
              ))}
            </ul>
          </Card>
        )}
        {batch.error_file_id && (
          <Card title={t('Failed lines')} id="failed">
            <Preview id={batch.error_file_id} name={t('the failed lines')} />
          </Card>
        )}
        {batch.output_file_id && (
          <Card title={t('Results')} id="results">
            <Preview id={batch.output_file_id} name={t('the results')} />
          </Card>
        )}
      </div>
    </>
  );
}
