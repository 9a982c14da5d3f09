/** One file: its problems by line, its first lines, and what uses it. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import type { File as KeptFile } from '../../../types/api.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useHref, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { pause, useObjects, usePlace } from '../train/place.tsx';
import { Preview } from '../train/preview.tsx';
import { bytes, ended, iso, Status } from '../train/words.tsx';

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const { headers, workspace } = usePlace();
  const { data, error, refetch } = useApi(
    'GET /v1/files/{file_id}',
    { path: { file_id: id } },
    {
      headers,
      enabled: workspace !== null,
      pollAfter: (found) => (found && !ended(found.status) ? pause(found.created_at) : false),
    },
  );
  return (
    <>
      <p className="crumb">
        <To path="/files">← {t('Files')}</To>
      </p>
      {error && !data && (
        <>
          <PageHead title={t('File')} />
          <Failure error={error} onRetry={() => void refetch()} />
        </>
      )}
      {!data && !error && (
        <>
          <PageHead title={t('File')} />
          <Loading what={t('the file')} />
        </>
      )}
      {data && <Shown file={data} />}
    </>
  );
}

function Shown({ file }: { file: KeptFile }) {
  const zone = useZone();
  const [asked, setAsked] = useState(false);
  const { at } = usePlace();
  const users = useUsers(file.id);
  return (
    <>
      <PageHead
        title={file.filename || file.id}
        purpose={<Status status={file.status} />}
        actions={
          <>
            <AsCurl
              call={{
                operation: 'GET /v1/files/{file_id}/content',
                path: { file_id: file.id },
                headers: { 'x-gateway-provider': at },
              }}
            />
            {file.purpose === 'fine-tune' && (
              <To path="/fine-tuning/new" params={{ file: file.id }} className="button primary">
                {t('Train with it')}
              </To>
            )}
            {file.purpose === 'batch' && (
              <To path="/batches" params={{ new: '1', file: file.id }} className="button primary">
                {t('Run as a batch')}
              </To>
            )}
            <button type="button" className="button stop" onClick={() => setAsked(true)}>
              {t('Delete')}
            </button>
          </>
        }
      />
      <div className="stack">
        <Card title={t('About')} id="about">
          <Facts
            facts={[
              [t('Purpose'), t(file.purpose)],
              [t('Size'), bytes(file.bytes)],
              [t('Uploaded'), `${dateTime(iso(file.created_at), zone)} ${zoneName(zone)}`],
              [t('Id'), <code key="id">{file.id}</code>],
            ]}
          />
        </Card>
        {file.status === 'error' && (
          <Card title={t('Problems')} id="problems">
            <Problems text={file.status_details ?? ''} />
          </Card>
        )}
        <Card title={t('First lines')} id="lines">
          <Preview id={file.id} name={file.filename} />
        </Card>
        <Card title={t('Used by')} id="used">
          <UsedBy users={users} />
        </Card>
      </div>
      {asked && <Delete file={file} uses={users.length} onClose={() => setAsked(false)} />}
    </>
  );
}

/** `12 of 14 rows are valid: line 13: …; line 14: ….`, a line for each. */
function Problems({ text }: { text: string }) {
  const begin = text.indexOf(': line ');
  const [summary, rest] = begin < 0 ? [text, ''] : [text.slice(0, begin), text.slice(begin + 2)];
  return (
    <>
      <p translate="no">{summary}</p>
      <ul className="plain-list" translate="no">
        {rest
          .split('; ')
          .filter((line) => line !== '')
          .map((line) => (
            <li key={line}>{line}</li>
          ))}
      </ul>
    </>
  );
}

interface User {
  readonly path: string;
  readonly name: string;
}

/** The newest jobs and batches that read or wrote the file. */
function useUsers(id: string): readonly User[] {
  const jobs = useObjects('GET /v1/fine_tuning/jobs');
  const batches = useObjects('GET /v1/batches');
  return [
    ...jobs.rows
      .filter((job) => [job.training_file, job.validation_file, ...job.result_files].includes(id))
      .map((job) => ({ path: `/fine-tuning/${encodeURIComponent(job.id)}`, name: t('Job {id}', { id: job.id }) })),
    ...batches.rows
      .filter((batch) => [batch.input_file_id, batch.output_file_id, batch.error_file_id].includes(id))
      .map((batch) => ({ path: `/batches/${encodeURIComponent(batch.id)}`, name: t('Batch {id}', { id: batch.id }) })),
  ];
}

function UsedBy({ users }: { users: readonly User[] }) {
  if (users.length === 0) return <p className="muted">{t('None of the newest 100 jobs and 100 batches uses it.')}</p>;
  return (
    <ul className="plain-list">
      {users.map(({ path, name }) => (
        <li key={path}>
          <To path={path}>{name}</To>
        </li>
      ))}
    </ul>
  );
}

function Delete({ file, uses, onClose }: { file: KeptFile; uses: number; onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const { at, headers } = usePlace();
  const write = useWrite('DELETE /v1/files/{file_id}', headers);
  const call = {
    operation: 'DELETE /v1/files/{file_id}',
    path: { file_id: file.id },
    headers: { 'x-gateway-provider': at },
  };
  return (
    <Dialog title={t('Delete {name}', { name: file.filename })} onClose={onClose}>
      <p>
        {uses === 0
          ? t('None of the newest 100 jobs and 100 batches uses it.')
          : t('{n} of the newest jobs and batches use it. What still reads it fails.', { n: uses })}
      </p>
      {write.error && <Failure error={write.error} />}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          onClick={() => write.mutate({ path: { file_id: file.id } }, { onSuccess: () => navigate(href('/files')) })}
        >
          {t('Delete')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={call} />
      </div>
    </Dialog>
  );
}
