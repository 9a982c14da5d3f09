/** One account: whether it answers, its credential, who uses it, and its end. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { count, date, duration } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useHref, useOneWorkspace, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, Card, Facts, PageHead } from '../../ui/page.tsx';
import { humanName } from '../../ui/schema-form.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { DeleteAccount } from './delete-account.tsx';
import { useLastDay } from './last-day.ts';
import { Rotate } from './rotate.tsx';
import { Sharing } from './sharing.tsx';
import { type AccountDetail, kindName } from './words.tsx';

const TEST = 'POST /v1/integrations/{slug}/test';

export function Page() {
  const { slug = '' } = useParams<{ slug: string }>();
  const { data, error, refetch } = useApi('GET /v1/integrations/{slug}', { path: { slug } });
  return (
    <>
      <p className="crumb">
        <To path="/providers">← {t('Providers')}</To>
      </p>
      {!data && (
        <>
          <PageHead title={t('Account')} />
          {error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading what={t('the account')} />}
        </>
      )}
      {data && <Shown account={data} />}
    </>
  );
}

function Shown({ account }: { account: AccountDetail }) {
  const can = useCan();
  const [, navigate] = useLocation();
  const href = useHref();
  const zone = useZone();
  const workspace = useOneWorkspace();
  const [ends, setEnds] = useState(false);
  const level = account.type === 'organisation' ? 'organisation_integrations' : 'workspace_integrations';
  const own = { query: { workspace_id: workspace?.id ?? '', page_size: 100 } };
  const providers = useApi('GET /v1/providers', own, { enabled: workspace !== null && can('providers.list') });
  const mine = (providers.data?.data ?? []).filter(({ integration_id: id }) => id === account.slug);
  const day = useLastDay().of(mine.map(({ slug }) => slug));
  const settings = Object.entries(account.configurations);
  return (
    <>
      <PageHead
        title={account.name}
        purpose={
          <span className="row wrap">
            <Badge tone={account.status === 'active' ? 'ok' : 'quiet'}>{t(account.status)}</Badge>
            <span translate="no">{kindName(account.ai_provider_id)}</span>
            <code>{account.slug}</code>
          </span>
        }
        actions={
          <>
            <AsCurl call={{ operation: 'GET /v1/integrations/{slug}', path: { slug: account.slug } }} />
            {can(`${level}.delete`) && (
              <button type="button" className="button stop" onClick={() => setEnds(true)}>
                {t('Delete')}
              </button>
            )}
          </>
        }
      />
      <div className="stack">
        <div className="columns even">
          <Card title={t('Last 24 hours')} id="day">
            <Facts
              facts={[
                [t('Requests'), count(day.requests)],
                [t('Success'), day.success === null ? '–' : `${day.success.toFixed(1)} %`],
                [t('p95'), day.p95 === null ? '–' : duration(day.p95)],
                [t('Refused with 429'), count(day.limited)],
              ]}
            />
            <p className="row wrap">
              {mine.map(({ slug }) => (
                <To key={slug} path="/requests" params={{ virtual_keys: slug, range: '24h' }}>
                  {t('Requests of {name}', { name: `@${slug}` })}
                </To>
              ))}
              {mine.length === 0 && (
                <span className="muted">{t('This workspace has no provider of the account.')}</span>
              )}
            </p>
          </Card>
          {can(`${level}.update`) && <Test account={account} />}
        </div>
        <Card title={t('Credential')} id="credential">
          <Facts
            facts={[
              [t('Key'), account.masked_key === null ? t('none') : <code key="key">{account.masked_key}</code>],
              [t('Added'), date(account.created_at, zone)],
              [t('Account last changed'), date(account.last_updated_at, zone)],
              ...settings.map(
                ([name, value]) =>
                  [
                    t(humanName(name.replace(/^masked_/, ''))),
                    <code key={name}>{typeof value === 'string' ? value : JSON.stringify(value)}</code>,
                  ] as const,
              ),
            ]}
          />
          {can(`${level}.update`) && <Rotate account={account} />}
        </Card>
        {account.type === 'organisation' && can('organisation_integrations.read') && <Sharing account={account} />}
      </div>
      {ends && (
        <DeleteAccount
          account={account}
          used={day.requests}
          names={mine.map(({ slug }) => slug)}
          onClose={() => setEnds(false)}
          onDone={() => navigate(href('/providers'))}
        />
      )}
    </>
  );
}

/** One request at the account, through the gateway. */
function Test({ account }: { account: AccountDetail }) {
  const [model, setModel] = useState('');
  const test = useWrite(TEST);
  const workspace = useOneWorkspace();
  const input = {
    path: { slug: account.slug },
    body: {
      ...(workspace === null ? {} : { workspace_id: workspace.id }),
      ...(model.trim() === '' ? {} : { model: model.trim() }),
    },
  };
  const { data } = test;
  return (
    <Card title={t('Test')} id="test" actions={<AsCurl call={{ operation: TEST, ...input }} />}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          test.mutate(input);
        }}
      >
        <label className="field">
          <span>{t('Model (optional)')}</span>
          <input type="text" value={model} spellCheck={false} onChange={(event) => setModel(event.target.value)} />
          <span className="muted">{t('Without a model it lists the models. With one it asks for one token.')}</span>
        </label>
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={test.isPending}>
            {test.isPending ? t('Testing…') : t('Test')}
          </button>
        </div>
      </form>
      <div role="status">
        {data?.success && (
          <p className="row wrap">
            <Badge tone="ok">{t('It answers')}</Badge>
            <span className="muted">
              {data.model_count === null
                ? t('One token came back after {time}.', { time: duration(data.latency_ms) })
                : t('{n} models after {time}.', { n: data.model_count, time: duration(data.latency_ms) })}
            </span>
          </p>
        )}
        {data && !data.success && (
          <p className="row wrap">
            <Badge tone="bad">{t('Status {n}', { n: data.status })}</Badge>
            <span translate="no">{data.message}</span>
          </p>
        )}
        {data?.success && data.models.length > 0 && (
          <p className="tags" translate="no">
            {data.models.slice(0, 24).map((one) => (
              <code key={one}>{one}</code>
            ))}
            {(data.model_count ?? 0) > 24 && <span className="muted">+{count((data.model_count ?? 0) - 24)}</span>}
          </p>
        )}
      </div>
      {test.error && <Failure error={test.error} />}
    </Card>
  );
}
