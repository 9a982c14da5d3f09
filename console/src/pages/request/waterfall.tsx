import { duration } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import type { Decision } from './story.ts';

const WIDTH = 600;

/** When each attempt began and how long it took, on one scale; the numbers are in the table itself. */
export function Waterfall({ decision, label = t('Attempts') }: { decision: Decision; label?: string }) {
  const { attempts, outcome } = decision;
  const end = Math.max(1, outcome.latency_ms, ...attempts.map((one) => (one.began_ms ?? 0) + one.duration_ms));
  const x = (ms: number) => (ms / end) * WIDTH;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="table-box" tabIndex={0} aria-label={label}>
      <table className="list waterfall" aria-label={label}>
        <thead>
          <tr>
            <th scope="col">{t('Target')}</th>
            <th scope="col">{t('Result')}</th>
            <th scope="col" className="number">
              {t('Began')}
            </th>
            <th scope="col" className="number">
              {t('First byte')}
            </th>
            <th scope="col" className="number">
              {t('Took')}
            </th>
            <th scope="col" className="scale">
              0 – {duration(end)}
            </th>
          </tr>
        </thead>
        <tbody>
          {attempts.map((one) => {
            const began = one.began_ms ?? 0;
            const first = one.first_byte_ms ?? 0;
            const tone = one.cause === null ? 'ok' : 'bad';
            return (
              <tr key={`${one.target} ${one.began_ms}`}>
                <th scope="row">
                  <span translate="no">{one.provider}</span> <code>{one.target}</code>
                </th>
                <td title={one.cause?.message}>
                  <span className={`badge ${tone}`}>
                    <span className="dot" aria-hidden="true" />
                    {one.status ?? one.cause?.kind ?? '–'}
                  </span>
                </td>
                <td className="number">{one.began_ms === null ? '–' : duration(one.began_ms)}</td>
                <td className="number">{one.first_byte_ms === null ? '–' : duration(first)}</td>
                <td className="number">{duration(one.duration_ms)}</td>
                <td className="scale">
                  <svg viewBox={`0 0 ${WIDTH} 20`} preserveAspectRatio="none" aria-hidden="true">
                    <rect className="track" width={WIDTH} y={9} height={2} />
                    <rect
                      className={`fill ${tone}`}
                      x={Math.min(x(began), WIDTH - 4)}
                      y={4}
                      height={12}
                      width={Math.max(4, x(one.duration_ms))}
                    />
                  </svg>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
