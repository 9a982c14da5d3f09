/** Lines over steps as a figure: a sentence, the lines, and the same numbers as a table. */
import { type KeyboardEvent, type ReactNode, useId, useState } from 'react';
import { t } from '../app/i18n.ts';
import { type Bar, NumbersTable, roundUp, type Series } from './chart.tsx';

const WIDTH = 960;
const HEIGHT = 220;
const EDGE = 6;

/** A line for each series. A point whose value is absent is left out of its line. */
export function Curve(props: {
  title: string;
  /** What the lines say, in a sentence. */
  summary: ReactNode;
  /** Of the first column of the table. */
  head: string;
  series: readonly Series[];
  points: readonly Bar[];
  format: (value: number) => string;
}) {
  const { title, summary, head, series, points, format } = props;
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState<number | null>(null);
  const caption = useId();
  const top = roundUp(Math.max(0, ...points.flatMap(({ values }) => Object.values(values))));
  const x = (index: number) => EDGE + (index * (WIDTH - 2 * EDGE)) / Math.max(1, points.length - 1);
  const y = (value: number) => HEIGHT - EDGE - (value / top) * (HEIGHT - 2 * EDGE);
  const onKeyDown = (event: KeyboardEvent) => {
    const last = points.length - 1;
    const next = {
      ArrowRight: Math.min(last, (at ?? -1) + 1),
      ArrowLeft: Math.max(0, (at ?? last + 1) - 1),
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setAt(next);
  };
  const shown = at === null ? undefined : points[at];
  const readout =
    shown &&
    `${shown.name}: ${series
      .flatMap(({ id, label }) => {
        const value = shown.values[id];
        return value === undefined ? [] : [`${label} ${format(value)}`];
      })
      .join(', ')}`;
  return (
    <figure className="chart" aria-labelledby={caption}>
      <figcaption id={caption}>
        <span className="chart-title">{title}</span> <span className="muted">{summary}</span>
        <button type="button" className="button small" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {t('Table')}
        </button>
      </figcaption>
      {asTable ? (
        <NumbersTable label={title} head={head} series={series} bars={points} format={format} />
      ) : (
        <>
          <div className="plot">
            <span className="axis peak" aria-hidden="true">
              {format(top)}
            </span>
            <div
              className="bars curve"
              role="slider"
              tabIndex={0}
              aria-label={title}
              aria-valuemin={0}
              aria-valuemax={Math.max(0, points.length - 1)}
              aria-valuenow={at ?? 0}
              aria-valuetext={readout ?? t('Arrow keys read the points')}
              onKeyDown={onKeyDown}
              onPointerLeave={() => setAt(null)}
              onBlur={() => setAt(null)}
            >
              <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
                <line className="grid" x1={0} x2={WIDTH} y1={HEIGHT / 2} y2={HEIGHT / 2} />
                <line className="grid" x1={0} x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} />
                {series.map(({ id, tone }, order) => {
                  const own = points.flatMap(({ values }, index) => {
                    const value = values[id];
                    return value === undefined ? [] : [`${x(index)},${y(value)}`];
                  });
                  return (
                    <polyline
                      key={id}
                      className={`curve-line ${tone} ${order % 2 === 1 ? 'dashed' : ''}`}
                      points={own.join(' ')}
                    />
                  );
                })}
                {at !== null && <line className="curve-at" x1={x(at)} x2={x(at)} y1={0} y2={HEIGHT} />}
                {points.map((point, index) => (
                  <rect
                    key={point.at}
                    className="hit"
                    x={x(index) - WIDTH / points.length / 2}
                    y={0}
                    width={WIDTH / points.length}
                    height={HEIGHT}
                    onPointerEnter={() => setAt(index)}
                  />
                ))}
              </svg>
            </div>
            <div className="axis ends" aria-hidden="true">
              <span>{points[0]?.name}</span>
              <span>{points.at(-1)?.name}</span>
            </div>
          </div>
          <div className="legend">
            {series.map(({ id, label, tone }, order) => (
              <span key={id} className="legend-entry">
                <svg width={22} height={10} aria-hidden="true">
                  <line
                    className={`curve-line ${tone} ${order % 2 === 1 ? 'dashed' : ''}`}
                    x1={0}
                    x2={22}
                    y1={5}
                    y2={5}
                  />
                </svg>
                {label}
              </span>
            ))}
            <span className="readout" role="status">
              {readout}
            </span>
          </div>
        </>
      )}
    </figure>
  );
}
