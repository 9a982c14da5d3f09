/** Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0. */
import type { Clock } from '../../kernel/clock.ts';
import { definitionOf, type FamilyDefinition } from './families.ts';
import { type CellValues, type FamilyValues, Slices } from './family-values.ts';

export type Format = 'text' | 'openmetrics';

export const CONTENT_TYPES: Readonly<Record<Format, string>> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** Bytes of one piece of the answer. */
const PIECE = 64 * 1024;

/** The format that a client prefers; text where it says nothing. */
export function formatOf(accept: string | undefined): Format {
  let text = 0;
  let openmetrics = 0;
  for (const range of (accept ?? '').split(',')) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
    const of = (name: string) => parameters.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1);
    const weight = Number(of('q') ?? 1);
    const q = Number.isFinite(weight) ? weight : 0;
    if (type === 'application/openmetrics-text' && (of('version') ?? '1.0.0') === '1.0.0') {
      openmetrics = Math.max(openmetrics, q);
    } else if (type === 'text/plain' && (of('version') ?? '0.0.4') === '0.0.4') text = Math.max(text, q);
  }
  return openmetrics > text ? 'openmetrics' : 'text';
}

/** The whole answer in pieces, written in slices: to join a megabyte would take a slice itself. */
export async function exposition(
  families: readonly FamilyValues[],
  format: Format,
  clock: Clock,
): Promise<readonly Buffer[]> {
  const slices = new Slices(clock);
  const pieces = new Pieces();
  for (const { name, labels, cells } of families) {
    if (cells.length === 0) continue;
    const definition = definitionOf(name);
    const family = format === 'openmetrics' && definition.type === 'counter' ? name.replace(/_total$/, '') : name;
    pieces.write(`# HELP ${family} ${definition.help}\n# TYPE ${family} ${definition.type}\n`);
    for (const cell of cells) {
      pieces.write(sample(name, definition, labels, cell, format));
      if (slices.due()) await slices.next();
    }
  }
  if (format === 'openmetrics') pieces.write('# EOF\n');
  return pieces.end();
}

/** Text as bytes. Each cell is written at once: text that waits would be copied by every collection of garbage. */
class Pieces {
  readonly #done: Buffer[] = [];
  #piece = Buffer.allocUnsafeSlow(PIECE);
  #used = 0;

  write(text: string): void {
    // UTF-8 needs at most three bytes per UTF-16 unit.
    if (this.#used + text.length * 3 > PIECE) this.#next(text.length * 3);
    this.#used += this.#piece.write(text, this.#used);
  }

  end(): readonly Buffer[] {
    this.#done.push(this.#piece.subarray(0, this.#used));
    return this.#done;
  }

  #next(least: number): void {
    this.#done.push(this.#piece.subarray(0, this.#used));
    this.#piece = Buffer.allocUnsafeSlow(Math.max(PIECE, least));
    this.#used = 0;
  }
}

function sample(
  name: string,
  { buckets }: FamilyDefinition,
  labels: readonly string[],
  { labels: given, values }: CellValues,
  format: Format,
): string {
  const pairs = pairsOf(labels, given);
  if (buckets === undefined) return `${name}${pairs === '' ? '' : `{${pairs}}`} ${values[0] ?? 0}\n`;
  const before = pairs === '' ? '' : `${pairs},`;
  let count = 0;
  let text = '';
  for (let i = 0; i <= buckets.length; i++) {
    count += values[i] ?? 0;
    text += `${name}_bucket{${before}le="${boundOf(buckets[i], format)}"} ${count}\n`;
  }
  const own = pairs === '' ? '' : `{${pairs}}`;
  return `${text}${name}_sum${own} ${values[buckets.length + 1] ?? 0}\n${name}_count${own} ${count}\n`;
}

/** OpenMetrics writes whole numbers with a decimal. */
function boundOf(bound: number | undefined, format: Format): string {
  if (bound === undefined) return '+Inf';
  return format === 'openmetrics' && Number.isInteger(bound) ? `${bound}.0` : String(bound);
}

/** An empty value is the same as no label. */
function pairsOf(labels: readonly string[], values: readonly string[]): string {
  let text = '';
  for (let i = 0; i < labels.length; i++) {
    const value = values[i] ?? '';
    if (value !== '') text += `${text === '' ? '' : ','}${labels[i]}="${escaped(value)}"`;
  }
  return text;
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

const escaped = (value: string): string => value.replace(/[\\"\n]/g, (found) => ESCAPES[found] ?? found);
