/** One API key: what it may do, what binds it, and how to rotate or delete it. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { count, date, dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { SecretLine } from '../../components/copy.tsx';
import { useCan } from '../../shell/session.tsx';
import { useHref, useListedWorkspace, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { faultsOf } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { type ApiKey, KeyState, limitOf, TYPES } from './words.tsx';

const DAY_MS = 86_400_000;

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const { data, error, refetch } = useApi('GET /v1/api-keys/{id}', { path: { id }, query: useListedWorkspace() });
  return (
    <>
      <p className="crumb">
        <To path="/keys">← {t('API keys')}</To>
      </p>
      {error && !data && (
        <>
          <PageHead title={t('API key')} />
          <Failure error={error} onRetry={() => void refetch()} />
        </>
      )}
      {!data && !error && (
        <>
          <PageHead title={t('API key')} />
          <Loading what={t('the key')} />
        </>
      )}
      {data && <Shown apiKey={data as ApiKey} />}
    </>
  );
}

function Shown({ apiKey }: { apiKey: ApiKey }) {
  const zone = useZone();
  const can = useCan();
  const [asked, setAsked] = useState<'rotate' | 'delete' | null>(null);
  const kind = `${apiKey.type === 'workspace-user' ? 'workspace_user' : apiKey.type === 'workspace-service' ? 'workspace_service' : 'organisation_service'}_api_keys`;
  return (
    <>
      <PageHead
        title={apiKey.name}
        purpose={
          <span className="row wrap">
            <KeyState apiKey={apiKey} /> <code>{apiKey.key}</code>
          </span>
        }
        actions={
          <>
            <AsCurl call={{ operation: 'GET /v1/api-keys/{id}', path: { id: apiKey.id } }} />
            {can(`${kind}.rotate`) && (
              <button type="button" className="button" onClick={() => setAsked('rotate')}>
                {t('Rotate')}
              </button>
            )}
            {can(`${kind}.delete`) && (
              <button type="button" className="button stop" onClick={() => setAsked('delete')}>
                {t('Delete')}
              </button>
            )}
          </>
        }
      />
      <div className="stack">
        <Card title={t('About')} id="about">
          <Facts
            facts={[
              [t('Type'), t(TYPES[apiKey.type])],
              [t('Description'), apiKey.description ?? '–'],
              [t('Made'), date(apiKey.created_at, zone)],
              [
                t('Ends'),
                apiKey.expires_at === null ? t('never') : `${dateTime(apiKey.expires_at, zone)} ${zoneName(zone)}`,
              ],
              [t('Rotated'), apiKey.last_rotated_at === null ? t('never') : date(apiKey.last_rotated_at, zone)],
              [t('Id'), <code key="id">{apiKey.id}</code>],
            ]}
          />
          <Links apiKey={apiKey} />
        </Card>
        <Card title={t('Own limits')} id="bound">
          <Facts
            facts={[
              [t('Budget'), limitOf(apiKey)],
              ...apiKey.rate_limits.map(
                ({ type, unit, value }) => [t('Rate of {type}', { type }), `${count(value)} ${unit}`] as const,
              ),
            ]}
          />
          <p className="muted">{t('Limits of its workspace and policies bind it, too.')}</p>
        </Card>
        <Card title={t('Rights')} id="rights">
          <p className="muted">{t('{n} rights', { n: apiKey.scopes.length })}</p>
          <details>
            <summary>{t('All rights')}</summary>
            <p translate="no">
              <code>{apiKey.scopes.join(', ')}</code>
            </p>
          </details>
        </Card>
      </div>
      {asked === 'rotate' && <Rotate apiKey={apiKey} onClose={() => setAsked(null)} />}
      {asked === 'delete' && <Delete apiKey={apiKey} onClose={() => setAsked(null)} />}
    </>
  );
}

function Links({ apiKey }: { apiKey: ApiKey }) {
  if (apiKey.workspace_id === null) return null;
  const params = { api_key_ids: apiKey.id, ws: apiKey.workspace_id };
  return (
    <p className="row wrap">
      <To path="/requests" params={{ ...params, range: '7d', from: null, to: null }}>
        {t('Its requests')}
      </To>
      <To path="/spend" params={{ ...params, range: 'month', from: null, to: null }}>
        {t('Its spend')}
      </To>
    </p>
  );
}

const OVERLAPS = [
  ['1800000', '30 minutes'],
  ['86400000', '1 day'],
  ['604800000', '7 days'],
] as const;

function Rotate({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const zone = useZone();
  const [overlap, setOverlap] = useState<string>(OVERLAPS[0][0]);
  const write = useWrite('POST /v1/api-keys/{id}/rotate');
  const input = { path: { id: apiKey.id }, body: { key_transition_period_ms: Number(overlap) } };
  if (write.data) {
    const until = write.data.key_transition_expires_at;
    return (
      <Dialog title={t('The new secret')} closable={false} onClose={onClose}>
        <p>{t('This is the only time that Sluice shows it. Store it now.')}</p>
        <SecretLine label={t('API key')} value={write.data.key} onCopied={() => undefined} />
        {until !== null && (
          <p className="muted">{t('The old secret works until {time}.', { time: dateTime(until, zone) })}</p>
        )}
        <button type="button" className="button primary" onClick={onClose}>
          {t('I stored it')}
        </button>
      </Dialog>
    );
  }
  return (
    <Dialog title={t('Rotate {name}', { name: apiKey.name })} onClose={onClose}>
      <p>{t('The key gets a new secret. The old one works on for a while, so that programs can change over.')}</p>
      <label className="field">
        <span>{t('The old secret works for')}</span>
        <select value={overlap} onChange={(event) => setOverlap(event.target.value)}>
          {OVERLAPS.map(([value, label]) => (
            <option key={value} value={value}>
              {t(label)}
            </option>
          ))}
        </select>
      </label>
      {write.error && (
        <p className="fault" role="alert">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        <button type="button" className="button primary" onClick={() => write.mutate(input)}>
          {t('Rotate')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: 'POST /v1/api-keys/{id}/rotate', ...input }} />
      </div>
    </Dialog>
  );
}

/** Says first how much the key was used in the last day. */
function Delete({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const [typed, setTyped] = useState('');
  const [now] = useState(() => Date.now());
  const uses = useApi(
    'GET /v1/logs/histogram',
    {
      query: {
        workspace_id: apiKey.workspace_id ?? '',
        api_key_ids: apiKey.id,
        time_of_generation_min: new Date(now - DAY_MS).toISOString(),
      } as NonNullable<unknown>,
    },
    { enabled: apiKey.workspace_id !== null },
  );
  const write = useWrite('DELETE /v1/api-keys/{id}');
  const used = uses.data?.summary.total ?? null;
  const must = used === null || used > 0;
  const may = !must || typed === apiKey.name;
  const onDelete = () => {
    if (!may) return;
    write.mutate({ path: { id: apiKey.id } }, { onSuccess: () => navigate(href('/keys')) });
  };
  return (
    <Dialog title={t('Delete {name}', { name: apiKey.name })} onClose={onClose}>
      <p role="status">
        {uses.isLoading && t('Counting what used it…')}
        {used === 0 && t('No request used this key in the last 24 hours.')}
        {used !== null &&
          used > 0 &&
          t('{n} requests used this key in the last 24 hours. They would fail with 401.', { n: used })}
        {used === null && !uses.isLoading && t('What used this key cannot be counted. Calls with it fail with 401.')}
      </p>
      {must && (
        <label className="field">
          <span>{t('Type {name} to delete it', { name: apiKey.name })}</span>
          <input type="text" value={typed} autoComplete="off" onChange={(event) => setTyped(event.target.value)} />
        </label>
      )}
      {write.error && (
        <p className="fault" role="alert">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        <button type="button" className="button stop" aria-disabled={!may} onClick={onDelete}>
          {t('Delete')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: 'DELETE /v1/api-keys/{id}', path: { id: apiKey.id } }} />
      </div>
    </Dialog>
  );
}
