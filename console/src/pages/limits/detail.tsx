import { useState } from 'react';
import { useApi, useWrite } from '../../api/queries.ts';
import { count, dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form, faultsOf } from '../../ui/form.tsx';
import { Facts } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { lastWeek, SIMULATE, SimulationResult } from './simulation.tsx';
import { amount, bare, periodOf, selects, sharedBy } from './words.tsx';

const PAGE = 20;
const CHANGE = 'PUT /v1/policies/usage-limits/{id}';
const ARCHIVE = 'DELETE /v1/policies/usage-limits/{id}';
const RESET = 'PUT /v1/policies/usage-limits/{id}/entities/{entityId}/reset';

/** One budget: its counters, its amount, and its end. */
export function PolicyDetail(props: { id: string; workspaceId: string; onClose: () => void }) {
  const { id, workspaceId, onClose } = props;
  const can = useCan();
  const [ends, setEnds] = useState(false);
  const input = { path: { id }, query: { workspace_id: workspaceId } };
  const { data, error, refetch } = useApi('GET /v1/policies/usage-limits/{id}', input);
  const counters = useApi('GET /v1/policies/usage-limits/{id}/entities', {
    path: { id },
    query: { workspace_id: workspaceId, page_size: PAGE },
  });
  return (
    <Dialog title={data?.name ?? t('Budget')} onClose={onClose} wide>
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('the budget')} rows={3} />}
      {data && (
        <>
          <Facts
            facts={[
              [
                t('At most'),
                `${amount(data.type, data.credit_limit)} ${periodOf(data.periodic_reset ?? (data.periodic_reset_days === null ? null : `days:${data.periodic_reset_days}`))}`,
              ],
              [t('Shared by'), sharedBy(data)],
              [t('Only for'), selects(data) || t('all requests')],
              [t('Warns at'), data.alert_threshold === null ? '–' : bare(data.type, data.alert_threshold)],
              [t('Warns'), data.alert_emails.join(', ') || '–'],
              [t('Id'), <code key="id">{data.id}</code>],
            ]}
          />
          {counters.error && <Failure error={counters.error} onRetry={() => void counters.refetch()} />}
          {counters.data && <Counters id={id} workspaceId={workspaceId} type={data.type} counters={counters.data} />}
          {can('policies.update') && (
            <Raise id={id} workspaceId={workspaceId} before={data.credit_limit} onDone={onClose} />
          )}
          {ends ? (
            <Archive
              id={id}
              workspaceId={workspaceId}
              name={data.name ?? data.id}
              counters={counters.data?.total ?? null}
              onDone={onClose}
            />
          ) : (
            <div className="row wrap">
              <button type="button" className="button" onClick={onClose}>
                {t('Close')}
              </button>
              {can('policies.delete') && (
                <button type="button" className="button stop" onClick={() => setEnds(true)}>
                  {t('Archive')}
                </button>
              )}
              <AsCurl call={{ operation: 'GET /v1/policies/usage-limits/{id}', ...input }} />
            </div>
          )}
        </>
      )}
    </Dialog>
  );
}

interface CounterPage {
  readonly total: number;
  readonly data: readonly {
    readonly id: string;
    readonly value_key: string;
    readonly current_usage: number;
    readonly remaining: number;
    readonly status: string;
    readonly next_usage_reset_at: string | null;
  }[];
}

function Counters(props: {
  id: string;
  workspaceId: string;
  type: 'cost' | 'tokens' | 'requests';
  counters: CounterPage;
}) {
  const { id, workspaceId, type, counters } = props;
  const can = useCan();
  const zone = useZone();
  const reset = useWrite(RESET);
  if (counters.total === 0) return <p className="muted">{t('No request was counted yet.')}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="table-box scroll" tabIndex={0} aria-label={t('Counters')}>
      <table className="list" aria-label={t('Counters')}>
        <thead>
          <tr>
            <th scope="col">{t('Of')}</th>
            <th scope="col" className="number">
              {t('Used')}
            </th>
            <th scope="col" className="number">
              {t('Left')}
            </th>
            <th scope="col">{t('Resets')}</th>
            <th scope="col">{t('Begin anew')}</th>
          </tr>
        </thead>
        <tbody>
          {counters.data.map((one) => (
            <tr key={one.id}>
              <th scope="row" translate="no">
                {/^workspace_id:[^:]*$/.test(one.value_key) ? t('all requests') : one.value_key}
              </th>
              <td className="number">{bare(type, one.current_usage)}</td>
              <td className="number">{bare(type, one.remaining)}</td>
              <td>{one.next_usage_reset_at === null ? '–' : dateTime(one.next_usage_reset_at, zone)}</td>
              <td>
                {can('policies.update') && (
                  <button
                    type="button"
                    className="button small"
                    aria-label={t('Reset {name}', { name: one.value_key })}
                    onClick={() =>
                      reset.mutate({ path: { id, entityId: one.id }, query: { workspace_id: workspaceId } })
                    }
                  >
                    {t('Reset')}
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {counters.total > counters.data.length && (
        <p className="muted">
          {t('1–{shown} of {total}', { shown: counters.data.length, total: count(counters.total) })}
        </p>
      )}
    </section>
  );
}

function Raise(props: { id: string; workspaceId: string; before: number; onDone: () => void }) {
  const { id, workspaceId, before, onDone } = props;
  const can = useCan();
  const [limit, setLimit] = useState(String(before));
  const write = useWrite(CHANGE);
  const tried = useWrite(SIMULATE);
  const changes = { credit_limit: Number(limit) };
  const input = { path: { id }, query: { workspace_id: workspaceId }, body: changes };
  const simulate = () =>
    tried.mutate({
      body: { workspace_id: workspaceId, policy_id: id, changes, ...lastWeek(Date.now()) },
    });
  return (
    <Form
      error={write.error}
      labels={{ credit_limit: t('Amount') }}
      onSubmit={() => write.mutate(input, { onSuccess: onDone })}
    >
      <Field name="credit_limit" label={t('Amount')} help={t('A higher amount opens what was used up, at once.')}>
        {(control) => (
          <input
            {...control}
            type="number"
            min="0"
            step="any"
            value={limit}
            onChange={(event) => setLimit(event.target.value)}
          />
        )}
      </Field>
      <SimulationResult tried={tried} />
      <div className="row wrap">
        <button type="submit" className="button primary" aria-disabled={write.isPending}>
          {t('Save')}
        </button>
        {can('policies.read') && (
          <button type="button" className="button" aria-disabled={tried.isPending} onClick={simulate}>
            {t('Simulate')}
          </button>
        )}
        <AsCurl call={{ operation: CHANGE, ...input }} />
      </div>
    </Form>
  );
}

/** Says first what is no longer limited. */
function Archive(props: {
  id: string;
  workspaceId: string;
  name: string;
  counters: number | null;
  onDone: () => void;
}) {
  const { id, workspaceId, name, counters, onDone } = props;
  const [typed, setTyped] = useState('');
  const write = useWrite(ARCHIVE);
  const input = { path: { id }, query: { workspace_id: workspaceId } };
  const must = counters !== 0;
  const may = !must || typed === name;
  return (
    <div className="stack">
      <p role="status">
        {counters === 0
          ? t('No request was counted by this budget.')
          : t('Archiving lets {n} counters run without this limit, at once.', { n: counters ?? '–' })}
      </p>
      {must && (
        <label className="field">
          <span>{t('Type {name} to archive it', { name })}</span>
          <input type="text" value={typed} autoComplete="off" onChange={(event) => setTyped(event.target.value)} />
        </label>
      )}
      {write.error && (
        <p className="fault" role="alert" translate="no">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate(input, { onSuccess: onDone })}
        >
          {t('Archive the budget')}
        </button>
        <button type="button" className="button" onClick={onDone}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: ARCHIVE, ...input }} />
      </div>
    </div>
  );
}
