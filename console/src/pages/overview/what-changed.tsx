import { useApi } from '../../api/queries.ts';
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { type Range, useZone } from '../../shell/url-state.ts';
import { To } from '../../ui/link.tsx';
import { Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { actorOf, deedOf } from '../audit/words.ts';

/** The newest rows of the audit log. */
export function WhatChanged({ range }: { range: Range }) {
  const zone = useZone();
  const { data, error, refetch } = useApi('GET /v1/audit-logs', {
    query: { start_time: range.from, end_time: range.to, page_size: 8 },
  });
  return (
    <Card title={t('What changed')} id="changed" actions={<To path="/audit">{t('All')}</To>}>
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('what changed')} rows={3} />}
      {data?.records.length === 0 && <p className="muted">{t('Nothing was changed in this range.')}</p>}
      <ul className="plain-list">
        {data?.records.map((row) => (
          <li key={row.id}>
            <strong translate="no">{actorOf(row)}</strong> {deedOf(row)}{' '}
            <time className="muted" dateTime={row.timestamp}>
              {dateTime(row.timestamp, zone)}
            </time>
          </li>
        ))}
      </ul>
    </Card>
  );
}
