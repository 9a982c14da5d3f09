/** Stacked bars over time as a figure: a sentence, the bars, and the same numbers as a table. */
import { type KeyboardEvent, type ReactNode, useId, useState } from 'react';
import { t } from '../app/i18n.ts';

export interface Series {
  readonly id: string;
  readonly label: string;
  /** A class of `styles/ui.css` that gives fill and pattern: `ok`, `bad`, `warn`, `quiet`, `c1` … `c8`. */
  readonly tone: string;
}

export interface Bar {
  /** Of the begin, for the table and the read-out. */
  readonly name: string;
  readonly values: Readonly<Record<string, number>>;
  /** Begin, ISO 8601, for `onPick`. */
  readonly at: string;
}

const WIDTH = 960;
const HEIGHT = 150;
const GAP = 0.2;

/** The next round number: 1, 2, 5 times a power of ten. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

export function BarChart(props: {
  title: string;
  /** What the chart says, in a sentence. */
  summary: ReactNode;
  series: readonly Series[];
  bars: readonly Bar[];
  format: (value: number) => string;
  /** Opens what a bar stands for. */
  onPick?: (from: string, to: string | null) => void;
}) {
  const { title, summary, series, bars, format, onPick } = props;
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState<number | null>(null);
  const [begin, setBegin] = useState<number | null>(null);
  const caption = useId();
  const total = (bar: Bar) => series.reduce((sum, { id }) => sum + (bar.values[id] ?? 0), 0);
  const top = roundUp(Math.max(0, ...bars.map(total)));
  const step = WIDTH / Math.max(1, bars.length);
  const pick = (first: number, last: number) => {
    const from = bars[Math.min(first, last)];
    if (from) onPick?.(from.at, bars[Math.max(first, last) + 1]?.at ?? null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const last = bars.length - 1;
    const next = {
      ArrowRight: Math.min(last, (at ?? -1) + 1),
      ArrowLeft: Math.max(0, (at ?? last + 1) - 1),
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === 'Enter' && at !== null) pick(at, at);
    if (next === undefined) return;
    event.preventDefault();
    setAt(next);
  };
  const shown = at === null ? null : bars[at];
  return (
    <figure className="chart" aria-labelledby={caption}>
      <figcaption id={caption}>
        <span className="chart-title">{title}</span> <span className="muted">{summary}</span>
        <button type="button" className="button small" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {t('Table')}
        </button>
      </figcaption>
      {asTable ? (
        <NumbersTable label={title} series={series} bars={bars} format={format} />
      ) : (
        <>
          <div className="plot">
            <span className="axis peak" aria-hidden="true">
              {format(top)}
            </span>
            <div
              className="bars"
              role="slider"
              tabIndex={0}
              aria-label={title}
              aria-valuemin={0}
              aria-valuemax={Math.max(0, bars.length - 1)}
              aria-valuenow={at ?? 0}
              aria-valuetext={shown ? readout(shown, series, format) : t('Arrow keys read the bars')}
              onKeyDown={onKeyDown}
              onPointerLeave={() => setAt(null)}
              onBlur={() => setAt(null)}
            >
              <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
                <line className="grid" x1={0} x2={WIDTH} y1={HEIGHT / 2} y2={HEIGHT / 2} />
                <line className="grid" x1={0} x2={WIDTH} y1={HEIGHT} y2={HEIGHT} />
                {bars.map((bar, index) => {
                  let y = HEIGHT;
                  const selected =
                    begin !== null && at !== null && index >= Math.min(begin, at) && index <= Math.max(begin, at);
                  return (
                    <g
                      key={bar.at}
                      className={index === at || selected ? 'bar at' : 'bar'}
                      onPointerEnter={() => setAt(index)}
                      onPointerDown={() => setBegin(index)}
                      onPointerUp={() => {
                        pick(begin ?? index, index);
                        setBegin(null);
                      }}
                    >
                      <rect className="hit" x={index * step} y={0} width={step} height={HEIGHT} />
                      {series.map(({ id, tone }) => {
                        const value = bar.values[id] ?? 0;
                        if (value === 0) return null;
                        const height = Math.max(1.5, (value / top) * HEIGHT);
                        y -= height;
                        return (
                          <rect
                            key={id}
                            className={`fill ${tone}`}
                            x={index * step + (step * GAP) / 2}
                            y={y}
                            width={step * (1 - GAP)}
                            height={height}
                          />
                        );
                      })}
                    </g>
                  );
                })}
              </svg>
            </div>
            <div className="axis ends" aria-hidden="true">
              <span>{bars[0]?.name}</span>
              <span>{bars[Math.floor(bars.length / 2)]?.name}</span>
              <span>{bars.at(-1)?.name}</span>
            </div>
          </div>
          <div className="legend">
            {(series.length > 1 ? series : []).map(({ id, label, tone }) => (
              <span key={id} className="legend-entry">
                <svg width={12} height={12} aria-hidden="true">
                  <rect className={`fill ${tone}`} width={12} height={12} rx={2} />
                </svg>
                {label}
              </span>
            ))}
            <span className="readout" role="status">
              {shown ? readout(shown, series, format) : ''}
            </span>
          </div>
        </>
      )}
    </figure>
  );
}

const readout = (bar: Bar, series: readonly Series[], format: (value: number) => string): string =>
  `${bar.name}: ${series.map(({ id, label }) => `${label} ${format(bar.values[id] ?? 0)}`).join(', ')}`;

/** The numbers of a chart; `head` names its first column. */
export function NumbersTable(props: {
  label: string;
  head?: string;
  series: readonly Series[];
  bars: readonly Bar[];
  format: (value: number) => string;
}) {
  const { label, head = t('From'), series, bars, format } = props;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="table-box scroll" tabIndex={0} aria-label={label}>
      <table className="list" aria-label={label}>
        <thead>
          <tr>
            <th scope="col">{head}</th>
            {series.map((one) => (
              <th key={one.id} scope="col" className="number">
                {one.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {bars.map((bar) => (
            <tr key={bar.at}>
              <th scope="row">{bar.name}</th>
              {series.map((one) => (
                <td key={one.id} className="number">
                  {format(bar.values[one.id] ?? 0)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
