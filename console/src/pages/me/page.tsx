/** Me: what I used, what I may do, my keys, and how this console looks. */
import { useState } from 'react';
import { useApi } from '../../api/queries.ts';
import { count, dollars, percent } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { lettersOn, setLetters } from '../../shell/keyboard.tsx';
import { useCan, useSession } from '../../shell/session.tsx';
import { ThemePicker } from '../../shell/theme-picker.tsx';
import { useListedWorkspace, useRange, useReach } from '../../shell/url-state.ts';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { KeyState, limitOf } from '../keys/words.tsx';
import { Limits } from './limits.tsx';

export function Page() {
  const { session } = useSession();
  const range = useRange('month');
  const can = useCan();
  return (
    <>
      <PageHead
        title={t('Me')}
        purpose={t('What you used, what you may do, and how this console behaves.')}
        actions={<RangePicker range={range} />}
      />
      <div className="stack">
        {can('analytics.view') && <Usage userId={session.user.id} from={range.from} to={range.to} />}
        <Limits />
        <div className="columns">
          <Card title={t('You')} id="you">
            <Facts
              facts={[
                [t('Name'), `${session.user.first_name} ${session.user.last_name}`.trim() || '–'],
                [t('E-mail address'), session.user.email],
                [t('Role'), t(session.user.role)],
                [t('Organisation'), session.organisation.name],
                [t('Workspaces'), session.workspaces.map(({ name }) => name).join(', ') || '–'],
              ]}
            />
            <p>
              <To path="/account">{t('Address, passkeys and alerts')}</To>
            </p>
          </Card>
          <Behaviour />
          {can('workspace_user_api_keys.list') && <Keys userId={session.user.id} />}
        </div>
      </div>
    </>
  );
}

function Usage({ userId, from, to }: { userId: string; from: string; to: string }) {
  const reach = useReach();
  const { data, error, refetch } = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    {
      path: { groupBy: 'model' },
      query: {
        ...reach,
        user_ids: userId,
        columns: 'cost,total_tokens,error_count',
        order_by: 'cost',
        page_size: 5,
        time_of_generation_min: from,
        time_of_generation_max: to,
      },
    },
    { enabled: reach !== null },
  );
  return (
    <Card
      title={t('My usage')}
      id="usage"
      actions={
        <To path="/requests" params={{ user_ids: userId }}>
          {t('My requests')}
        </To>
      }
    >
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('your usage')} rows={2} />}
      {data && (
        <>
          <Facts
            facts={[
              [t('Requests'), count(data.summary.requests)],
              [t('Spend'), dollars(data.summary.cost_micros ?? 0)],
              [t('Tokens'), count(data.summary.total_tokens ?? 0)],
              [t('Succeeded'), percent(data.summary.requests - (data.summary.error_count ?? 0), data.summary.requests)],
            ]}
          />
          {data.data.length === 0 && (
            <p className="muted">{t('No request of yours in this range. Requests by your own keys count here.')}</p>
          )}
          <ul className="plain-list">
            {data.data.map((row) => (
              <li key={row.model ?? ''}>
                <span translate="no">{row.model}</span>: {dollars(row.cost_micros ?? 0)},{' '}
                {t('{n} requests', { n: row.requests })}
              </li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}

function Behaviour() {
  const [letters, setOn] = useState(lettersOn);
  return (
    <Card title={t('This console')} id="behaviour">
      <ThemePicker />
      <label className="choice">
        <input
          type="checkbox"
          checked={letters}
          onChange={(event) => {
            setLetters(event.target.checked);
            setOn(event.target.checked);
          }}
        />
        <span>{t('Single letters are shortcuts')}</span>
      </label>
      <p className="muted">{t('Times are in the zone of this browser; the button UTC on each page changes that.')}</p>
    </Card>
  );
}

function Keys({ userId }: { userId: string }) {
  const { data, error, refetch } = useApi('GET /v1/api-keys', { query: { page_size: 100, ...useListedWorkspace() } });
  const own = data?.data.filter(({ user_id }) => user_id === userId) ?? [];
  return (
    <Card title={t('My API keys')} id="my-keys">
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('your keys')} rows={2} />}
      {data && own.length === 0 && <p className="muted">{t('You have no API key yet.')}</p>}
      <ul className="plain-list">
        {own.map((key) => (
          <li key={key.id} className="row wrap">
            <To path={`/keys/${key.id}`}>{key.name}</To> <KeyState apiKey={key} />
            <span className="muted">{limitOf(key)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
