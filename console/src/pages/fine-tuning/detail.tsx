/** One job: its state as it comes, its curves, checkpoints, and beside another job. */
import { useEffect } from 'react';
import { useParams } from 'wouter';
import type { FineTuningCheckpoint } from '../../../types/api.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { CopyLine } from '../../components/copy.tsx';
import { useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Curve } from '../../ui/curve.tsx';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { pause, useObjects, usePlace } from '../train/place.tsx';
import { ended, iso, Status } from '../train/words.tsx';
import { ACCURACIES, callName, costOf, curveOf, elapsed, type Job, LOSSES, tokensOf } from './words.ts';

/** A job and what it has left so far; asks again while it is under way. */
function useJob(id: string) {
  const { headers, workspace } = usePlace();
  const path = { fine_tuning_job_id: id };
  const enabled = workspace !== null && id !== '';
  const job = useApi(
    'GET /v1/fine_tuning/jobs/{fine_tuning_job_id}',
    { path },
    {
      headers,
      enabled,
      pollAfter: (found) => (found && !ended(found.status) ? pause(found.created_at) : false),
    },
  );
  const found = id === '' ? undefined : (job.data as Job | undefined);
  const status = found?.status ?? '';
  const refetchInterval: number | false = found && !ended(status) ? pause(found.created_at) : false;
  const options = { headers, enabled: enabled && status !== '', refetchInterval };
  const checkpoints = useApi(
    'GET /v1/fine_tuning/jobs/{fine_tuning_job_id}/checkpoints',
    { path, query: { limit: 100 } },
    options,
  );
  const events = useApi(
    'GET /v1/fine_tuning/jobs/{fine_tuning_job_id}/events',
    { path, query: { limit: 100 } },
    options,
  );
  // Once more at the end: the last checkpoint and event come with it.
  const { refetch: again } = checkpoints;
  const { refetch: further } = events;
  useEffect(() => {
    if (status === '' || !ended(status)) return;
    void again();
    void further();
  }, [status, again, further]);
  return { job, found, checkpoints: id === '' ? [] : (checkpoints.data?.data ?? []), events };
}

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const one = useJob(id);
  const { error, refetch } = one.job;
  return (
    <>
      <p className="crumb">
        <To path="/fine-tuning">← {t('Fine-tuning')}</To>
      </p>
      {error && !one.found && (
        <>
          <PageHead title={t('Fine-tuning job')} />
          <Failure error={error} onRetry={() => void refetch()} />
        </>
      )}
      {!one.found && !error && (
        <>
          <PageHead title={t('Fine-tuning job')} />
          <Loading what={t('the job')} />
        </>
      )}
      {one.found && <Shown job={one.found} checkpoints={one.checkpoints} events={one.events} />}
    </>
  );
}

function Shown(props: {
  job: Job;
  checkpoints: readonly FineTuningCheckpoint[];
  events: ReturnType<typeof useJob>['events'];
}) {
  const { job, checkpoints, events } = props;
  const zone = useZone();
  const { at, headers } = usePlace();
  const cancel = useWrite('POST /v1/fine_tuning/jobs/{fine_tuning_job_id}/cancel', headers);
  const path = { fine_tuning_job_id: job.id };
  const file = (id: string) => (
    <To path={`/files/${encodeURIComponent(id)}`}>
      <code>{id}</code>
    </To>
  );
  return (
    <>
      <PageHead
        title={job.suffix || job.id}
        purpose={
          <span className="row wrap" role="status">
            <Status status={job.status} /> {t('after {time}', { time: elapsed(job) })}
          </span>
        }
        actions={
          <>
            <AsCurl
              call={{
                operation: 'GET /v1/fine_tuning/jobs/{fine_tuning_job_id}',
                path,
                headers: { 'x-gateway-provider': at },
              }}
            />
            <To path="/fine-tuning/new" params={{ file: job.training_file }} className="button">
              {t('New job with this file')}
            </To>
            {!ended(job.status) && (
              <button type="button" className="button stop" onClick={() => cancel.mutate({ path })}>
                {t('Cancel the job')}
              </button>
            )}
          </>
        }
      />
      {cancel.error && <Failure error={cancel.error} />}
      <div className="stack">
        {job.error && (
          <Card title={t('Why it failed')} id="why">
            <p translate="no">{job.error.message}</p>
            {job.error.param !== null && <p className="muted">{t('Field: {param}', { param: job.error.param })}</p>}
          </Card>
        )}
        {job.fine_tuned_model !== null && (
          <Card title={t('The new model')} id="model">
            <p>{t('Call it by this name with any key that may use the account.')}</p>
            <CopyLine label={t('Model')} value={callName(job, job.fine_tuned_model)} />
            <div className="row wrap">
              <To path="/playground" params={{ model: callName(job, job.fine_tuned_model) }}>
                {t('Open the Playground')}
              </To>
              <AsCurl
                call={{
                  operation: 'POST /v1/chat/completions',
                  body: {
                    model: callName(job, job.fine_tuned_model),
                    messages: [{ role: 'user', content: 'Hello' }],
                  },
                }}
              />
            </div>
          </Card>
        )}
        <Card title={t('About')} id="about">
          <Facts
            facts={[
              [t('Base model'), job.model],
              [t('Account'), job.provider_slug ?? at],
              [t('Made'), `${dateTime(iso(job.created_at), zone)} ${zoneName(zone)}`],
              [t('Ended'), job.finished_at === null ? '–' : dateTime(iso(job.finished_at), zone)],
              [t('Trained tokens'), tokensOf(job)],
              [t('Cost'), costOf(job)],
              [t('Training file'), file(job.training_file)],
              [t('Validation file'), job.validation_file === null ? '–' : file(job.validation_file)],
              [t('Id'), <code key="id">{job.id}</code>],
            ]}
          />
        </Card>
        <Curves job={job} checkpoints={checkpoints} />
        <Checkpoints job={job} checkpoints={checkpoints} />
        <Card title={t('Events')} id="events">
          {events.error && <Failure error={events.error} onRetry={() => void events.refetch()} />}
          <ul className="plain-list">
            {(events.data?.data ?? []).map(({ id, created_at, level, message }) => (
              <li key={id}>
                <span className="muted">{dateTime(iso(created_at), zone)}</span>{' '}
                {level !== 'info' && <strong>{t(level)}: </strong>}
                <span translate="no">{message}</span>
              </li>
            ))}
          </ul>
        </Card>
      </div>
    </>
  );
}

/** The curves of the job, and of the one that the address names beside it. */
function Curves({ job, checkpoints }: { job: Job; checkpoints: readonly FineTuningCheckpoint[] }) {
  const { get, set } = useUrl();
  const other = useJob(get('with'));
  const jobs = useObjects('GET /v1/fine_tuning/jobs');
  const others = (jobs.rows as Job[]).filter(({ id }) => id !== job.id);
  const pair =
    other.found === undefined
      ? [{ prefix: '', checkpoints }]
      : [
          { prefix: `${nameOf(job)}: `, checkpoints },
          { prefix: `${nameOf(other.found)}: `, checkpoints: other.checkpoints },
        ];
  const lowest = Math.min(...checkpoints.map(({ metrics }) => metrics.valid_loss ?? metrics.train_loss ?? Infinity));
  const format = (value: number) => value.toFixed(3);
  return (
    <Card title={t('Curves')} id="curves">
      {others.length > 0 && (
        <label className="inline-field">
          <span>{t('Compare with')}</span>{' '}
          <select value={get('with')} onChange={(event) => set({ with: event.target.value || null })}>
            <option value="">{t('no other job')}</option>
            {others.map((one) => (
              <option key={one.id} value={one.id} translate="no">
                {nameOf(one)} · {one.model}
              </option>
            ))}
          </select>
        </label>
      )}
      {other.found && <Compared jobs={[job, other.found]} />}
      {checkpoints.length === 0 && <p className="muted">{t('The provider has told of no checkpoint yet.')}</p>}
      {checkpoints.length > 0 && (
        <>
          <Curve
            title={t('Loss')}
            summary={Number.isFinite(lowest) ? t('The lowest is {loss}.', { loss: format(lowest) }) : ''}
            head={t('Step')}
            {...curveOf(pair, LOSSES)}
            format={format}
          />
          <Curve title={t('Accuracy')} summary="" head={t('Step')} {...curveOf(pair, ACCURACIES)} format={format} />
        </>
      )}
    </Card>
  );
}

const nameOf = (job: Job): string => job.suffix || job.id.slice(-6);

function Compared({ jobs }: { jobs: readonly [Job, Job] }) {
  const facts: readonly (readonly [string, (job: Job) => string])[] = [
    [t('Status'), ({ status }) => t(status.replaceAll('_', ' '))],
    [t('Base model'), ({ model }) => model],
    [t('Account'), ({ provider_slug }) => provider_slug ?? '–'],
    [t('Epochs'), ({ hyperparameters }) => String(hyperparameters.n_epochs)],
    [t('Trained tokens'), tokensOf],
    [t('Cost'), costOf],
    [t('Took'), elapsed],
  ];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="table-box" tabIndex={0} aria-label={t('Two jobs')}>
      <table className="list">
        <thead>
          <tr>
            <th scope="col">{t('Of the job')}</th>
            {jobs.map((job) => (
              <th key={job.id} scope="col" translate="no">
                {nameOf(job)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {facts.map(([name, read]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {jobs.map((job) => (
                <td key={job.id}>{read(jobs[0]) === read(jobs[1]) ? read(job) : <strong>{read(job)}</strong>}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Checkpoints({ job, checkpoints }: { job: Job; checkpoints: readonly FineTuningCheckpoint[] }) {
  if (checkpoints.length === 0) return null;
  return (
    <Card title={t('Checkpoints')} id="checkpoints">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section className="table-box" tabIndex={0} aria-label={t('Losses and models of checkpoints')}>
        <table className="list">
          <thead>
            <tr>
              <th scope="col" className="number">
                {t('Step')}
              </th>
              <th scope="col" className="number">
                {t('Training loss')}
              </th>
              <th scope="col" className="number">
                {t('Validation loss')}
              </th>
              <th scope="col">{t('Model')}</th>
            </tr>
          </thead>
          <tbody>
            {checkpoints.map(({ id, step_number, metrics, fine_tuned_model_checkpoint: model }) => (
              <tr key={id}>
                <td className="number">{step_number}</td>
                <td className="number">{metrics.train_loss?.toFixed(3) ?? '–'}</td>
                <td className="number">{metrics.valid_loss?.toFixed(3) ?? '–'}</td>
                <td translate="no">
                  <code>{callName(job, model)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </Card>
  );
}
