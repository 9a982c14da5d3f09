/** Two requests side by side, and what differs between their decisions. */
import { useApi } from '../../api/queries.ts';
import { dateTime, dollars, duration } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useListedWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { Diff } from '../../ui/diff.tsx';
import { To } from '../../ui/link.tsx';
import { Card, Facts, PageHead } from '../../ui/page.tsx';
import { Empty, Failure, Loading } from '../../ui/states.tsx';
import { type Decision, story } from '../request/story.ts';
import { Waterfall } from '../request/waterfall.tsx';
import { Outcome } from '../requests/outcome.tsx';

/** Differ always, and say nothing. */
const OWN = ['id', 'trace_id', 'span_id', 'parent_span_id', 'created_at', 'record_id'];

const compared = (decision: Decision): object =>
  Object.fromEntries(Object.entries(decision).filter(([name]) => !OWN.includes(name)));

export function Page() {
  const { get } = useUrl();
  const [a, b] = [useDecision(get('a')), useDecision(get('b'))];
  const both = get('a') !== '' && get('b') !== '';
  return (
    <>
      <p className="crumb">
        <To path="/requests">← {t('Requests')}</To>
      </p>
      <PageHead title={t('Compare requests')} purpose={t('What happened to each, and what differs.')} />
      {!both && <Empty title={t('Choose two requests in the list with the key x, or with their boxes.')} />}
      {both && (
        <div className="stack">
          <div className="columns even">
            <One id={get('a')} title={t('First request')} found={a} />
            <One id={get('b')} title={t('Second request')} found={b} />
          </div>
          {a.data && b.data && (
            <Card title={t('What differs')} id="differs">
              <Diff before={compared(a.data)} after={compared(b.data)} />
            </Card>
          )}
        </div>
      )}
    </>
  );
}

function useDecision(id: string) {
  const query = useListedWorkspace();
  return useApi('GET /v1/logs/{logId}/decision', { path: { logId: id }, query }, { enabled: id !== '' });
}

function One({ id, title, found }: { id: string; title: string; found: ReturnType<typeof useDecision> }) {
  const zone = useZone();
  const { data, error, refetch } = found;
  return (
    <Card title={title} id={`request-${id}`} actions={<To path={`/requests/${id}`}>{t('Open')}</To>}>
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('the request')} rows={3} />}
      {data && (
        <>
          <Facts
            facts={[
              [t('Outcome'), <Outcome key="o" outcome={data.outcome.outcome} status={data.outcome.status} />],
              [t('Time'), dateTime(data.created_at, zone)],
              [t('Cost'), data.cost_micros === null ? t('no known price') : dollars(data.cost_micros)],
              [t('Total'), duration(data.outcome.latency_ms)],
            ]}
          />
          <p className="story">{story(data).join(' ')}</p>
          {data.attempts.length > 0 && <Waterfall decision={data} label={t('Attempts: {title}', { title })} />}
        </>
      )}
    </Card>
  );
}
