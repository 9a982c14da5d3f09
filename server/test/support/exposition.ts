/** A strict reader of Prometheus' text format 0.0.4 and of OpenMetrics 1.0: what either forbids throws. */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ReadFamily {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: readonly Sample[];
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const LABEL = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
const NUMBER = /^(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]Inf|NaN)$/;
const SUFFIXES: Readonly<Record<string, readonly string[]>> = {
  counter: [''],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count'],
};

function numberOf(text: string): number {
  if (!NUMBER.test(text)) throw new Error(`no number: ${text}`);
  if (text === '+Inf') return Number.POSITIVE_INFINITY;
  return text === '-Inf' ? Number.NEGATIVE_INFINITY : Number(text);
}

/** Label pairs between braces; what follows them is the value. */
function readSample(line: string): Sample {
  const name = /^[^{ ]+/.exec(line)?.[0] ?? '';
  if (!NAME.test(name)) throw new Error(`no name of a metric: ${line}`);
  const labels: Record<string, string> = {};
  let at = name.length;
  if (line[at] === '{') {
    at += 1;
    for (;;) {
      const [pair = '', label = '', escaped = ''] = /^([^="{},]*)="((?:[^"\\]|\\[\\"n])*)"/.exec(line.slice(at)) ?? [];
      if (!LABEL.test(label)) throw new Error(`no label at ${at}: ${line}`);
      if (Object.hasOwn(labels, label)) throw new Error(`the label ${label} is there twice: ${line}`);
      labels[label] = escaped.replace(/\\(.)/g, (_all, what: string) => (what === 'n' ? '\n' : what));
      at += pair.length;
      const next = line[at];
      at += 1;
      if (next === '}') break;
      if (next !== ',') throw new Error(`neither , nor } at ${at}: ${line}`);
    }
  }
  if (line[at] !== ' ') throw new Error(`no space before the value: ${line}`);
  return { name, labels, value: numberOf(line.slice(at + 1)) };
}

const keyOf = (labels: Readonly<Record<string, string>>, without = '') =>
  JSON.stringify(Object.entries(labels).filter(([name]) => name !== without));

/** Buckets rise, their counts never fall, and the last one is +Inf and the count of all. */
function checkHistogram({ name, samples }: ReadFamily, openmetrics: boolean): void {
  const sets = new Map<string, { bounds: number[]; counts: number[]; sum?: number; count?: number }>();
  for (const { name: sample, labels, value } of samples) {
    const key = keyOf(labels, 'le');
    const set = sets.get(key) ?? { bounds: [], counts: [] };
    sets.set(key, set);
    if (sample.endsWith('_sum')) set.sum = value;
    else if (sample.endsWith('_count')) set.count = value;
    else {
      const { le = '' } = labels;
      if (openmetrics && le !== '+Inf' && !le.includes('.')) throw new Error(`${name}: le ${le} has no decimal`);
      set.bounds.push(numberOf(le));
      set.counts.push(value);
    }
  }
  for (const [key, { bounds, counts, sum, count }] of sets) {
    const fail = (what: string) => {
      throw new Error(`${name}${key}: ${what}`);
    };
    if (bounds.some((bound, i) => i > 0 && bound <= (bounds[i - 1] ?? 0))) fail('bounds do not rise');
    if (counts.some((one, i) => i > 0 && one < (counts[i - 1] ?? 0))) fail('counts fall');
    if (bounds.at(-1) !== Number.POSITIVE_INFINITY) fail('no bucket for +Inf');
    if (count === undefined || sum === undefined) fail('no sum or no count');
    if (counts.at(-1) !== count) fail('+Inf is not the count');
  }
}

/** Reads a whole answer. Throws for whatever the format forbids. */
export function readExposition(text: string, format: 'text' | 'openmetrics' = 'text'): ReadonlyMap<string, ReadFamily> {
  const openmetrics = format === 'openmetrics';
  if (!text.endsWith('\n')) throw new Error('the last line does not end');
  const lines = text.slice(0, -1).split('\n');
  if (openmetrics && lines.pop() !== '# EOF') throw new Error('no # EOF at the end');
  const families = new Map<string, { name: string; type: string; help: string; samples: Sample[] }>();
  const seen = new Set<string>();
  let current: { name: string; type: string; help: string; samples: Sample[] } | null = null;
  for (const line of lines) {
    const [, what, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (what === 'HELP') {
      if (!NAME.test(name) || families.has(name)) throw new Error(`no name, or one that was there: ${line}`);
      if (openmetrics && /_total$/.test(name)) throw new Error(`a family of OpenMetrics ends in _total: ${line}`);
      current = { name, type: '', help: rest, samples: [] };
      families.set(name, current);
      continue;
    }
    if (what === 'TYPE') {
      if (current?.name !== name || current.type !== '' || current.samples.length > 0)
        throw new Error(`TYPE is not behind its HELP: ${line}`);
      if (!Object.hasOwn(SUFFIXES, rest)) throw new Error(`unknown type: ${line}`);
      current.type = rest;
      continue;
    }
    if (line.startsWith('#') || line === '') throw new Error(`a line that is nothing: ${line}`);
    const sample = readSample(line);
    const suffixes = openmetrics && current?.type === 'counter' ? ['_total'] : (SUFFIXES[current?.type ?? ''] ?? []);
    if (!suffixes.some((suffix) => sample.name === `${current?.name}${suffix}`))
      throw new Error(`a sample of another family: ${line}`);
    const key = `${sample.name}${keyOf(sample.labels)}`;
    if (seen.has(key)) throw new Error(`a series that is there twice: ${line}`);
    seen.add(key);
    if (current?.type === 'counter' && sample.value < 0) throw new Error(`a counter below 0: ${line}`);
    current?.samples.push(sample);
  }
  for (const family of families.values()) if (family.type === 'histogram') checkHistogram(family, openmetrics);
  return families;
}

/** Series of an answer. */
export const seriesOf = (families: ReadonlyMap<string, ReadFamily>): number =>
  [...families.values()].reduce((sum, { samples }) => sum + samples.length, 0);

/** Sum of all samples of a family that have these labels; of histograms, of their counts. */
export function totalOf(
  families: ReadonlyMap<string, ReadFamily>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
  of = '',
): number {
  const family = families.get(name);
  const wanted = family?.type === 'histogram' ? `${name}${of === '' ? '_count' : of}` : name;
  return (family?.samples ?? [])
    .filter((sample) => sample.name === wanted)
    .filter((sample) => Object.entries(labels).every(([label, value]) => (sample.labels[label] ?? '') === value))
    .reduce((sum, { value }) => sum + value, 0);
}
