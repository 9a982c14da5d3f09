/** What a budget would have refused: the same policy on stored requests. */
import type { UseMutationResult } from '@tanstack/react-query';
import type { Operations } from '../../../types/api.ts';
import { count, dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useZone } from '../../shell/url-state.ts';
import { faultsOf } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';

export const SIMULATE = 'POST /v1/policies/usage-limits/simulate';
export type Simulation = Operations[typeof SIMULATE];

const WEEK_MS = 7 * 86_400_000;

/** The last seven days. */
export const lastWeek = (now: number) => ({
  start_time: new Date(now - WEEK_MS).toISOString(),
  end_time: new Date(now).toISOString(),
});

export function SimulationResult({
  tried,
}: {
  tried: UseMutationResult<Simulation['answer'], Error, Simulation['input']>;
}) {
  const zone = useZone();
  const { data, error, isPending } = tried;
  if (isPending) return <p role="status">{t('Reading the requests of the last 7 days…')}</p>;
  if (error) {
    return (
      <p className="fault" role="alert" translate="no">
        {faultsOf(error)[0]?.message}
      </p>
    );
  }
  if (!data) return null;
  const { totals } = data;
  return (
    <div className="notice" role="status">
      <p>
        {t('It would have blocked {blocked} of {matched} requests in the last 7 days.', {
          blocked: count(totals.requests_blocked),
          matched: count(totals.requests_matched),
        })}{' '}
        {totals.first_blocked_at !== null &&
          t('The first on {time} {zone}.', {
            time: dateTime(totals.first_blocked_at, zone),
            zone: zoneName(zone),
          })}{' '}
        {data.exact ? t('Exact.') : t('Not exact:')}
      </p>
      {!data.exact && (
        <ul translate="no">
          {data.reasons.map(({ code, message }) => (
            <li key={code}>{message}</li>
          ))}
        </ul>
      )}
      {data.blocked_sample.length > 0 && (
        <p className="row wrap">
          {t('Some of them:')}{' '}
          {data.blocked_sample.slice(0, 5).map((one) => (
            <To key={one.request_id} path={`/requests/${one.request_id}`}>
              {dateTime(one.time, zone)}
            </To>
          ))}
        </p>
      )}
    </div>
  );
}
