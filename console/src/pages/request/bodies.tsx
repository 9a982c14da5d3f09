import { useApi } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { Json } from '../../ui/json.tsx';
import { Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';

const REASONS: Readonly<Record<string, string>> = {
  off: 'Texts are not stored here: keeping bodies is off for this key, workspace or request.',
  guardrail: 'The texts were not kept, because a guardrail denied the request.',
  no_room: 'The texts were dropped: too many waited for the disk at that moment.',
  pending: 'Another node has the texts still. Look again in a minute.',
  expired: 'The texts are past their days and gone.',
  hidden: 'You may read the record of this request, and not its texts.',
};

/** Request and answer, where they were kept and may be seen. */
export function Bodies({ id, query }: { id: string; query: { workspace_id?: string } }) {
  const may = useCan()('logs.view');
  const input = { path: { logId: id }, query };
  const { data, error, refetch } = useApi('GET /v1/logs/{logId}', input, { enabled: may });
  if (!may) return <p className="muted">{t(REASONS.hidden ?? '')}</p>;
  if (error) return <Failure error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading what={t('the texts')} rows={2} />;
  const { bodies, request, response } = data;
  return (
    <Card title={t('Texts')} id="texts">
      {bodies.reason !== null && <p className="muted">{t(REASONS[bodies.reason] ?? '')}</p>}
      {bodies.truncated && <p className="muted">{t('Long texts were cut.')}</p>}
      {bodies.redacted && <p className="muted">{t('A guardrail has masked parts.')}</p>}
      {request.body !== undefined && (
        <details open>
          <summary>{t('Request')}</summary>
          <Json value={request.body} what={t('the request')} />
        </details>
      )}
      {response.body !== undefined && (
        <details>
          <summary>{t('Answer')}</summary>
          <Json value={response.body} what={t('the answer')} />
        </details>
      )}
      {request.headers && (
        <details>
          <summary>{t('Headers')}</summary>
          <Json value={{ request: request.headers, response: response.headers ?? null }} what={t('the headers')} />
        </details>
      )}
    </Card>
  );
}
