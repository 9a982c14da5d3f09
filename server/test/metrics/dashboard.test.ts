/** The dashboard and the guide name families, labels and label values that there are. */
import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { V1_41 } from '../../src/telemetry/conventions/v1-41.ts';
import { definitionOf, FAMILIES, FAMILY_NAMES, type FamilyName } from '../../src/telemetry/metrics/families.ts';

const ROOT = new URL('../../../', import.meta.url);
const GUIDE = new URL('docs/guides/metrics.md', ROOT);

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly datasource?: { readonly uid: string };
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const dashboard = JSON.parse(readFileSync(new URL('deploy/grafana/sluice.json', ROOT), 'utf8')) as {
  readonly panels: readonly Panel[];
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly query: string | { query: string } }[];
  };
};
const drawn = dashboard.panels.filter(({ type }) => type !== 'row');
const variables = dashboard.templating.list.flatMap(({ query }) => (typeof query === 'string' ? [] : query.query));
const expressions = [...drawn.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)), ...variables];

/** Names of series by the family that they belong to. */
const SERIES = new Map<string, FamilyName>(
  FAMILY_NAMES.flatMap((name) =>
    definitionOf(name).type === 'histogram'
      ? ['_bucket', '_sum', '_count'].map((suffix) => [`${name}${suffix}`, name] as const)
      : [[name, name] as const],
  ),
);
/** Functions and words of the query language that the dashboard uses. */
const WORDS = new Set(['sum', 'min', 'max', 'by', 'rate', 'increase', 'histogram_quantile', 'time', 'label_values']);
/** Labels that Prometheus itself adds. */
const ADDED = ['job', 'instance'];

/** What is wrong with an expression. */
function faultsOf(expression: string): string[] {
  const faults: string[] = [];
  const bare = expression.replace(/"[^"]*"/g, '""').replace(/\[\$__rate_interval\]/g, '');
  const groups = [...bare.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/, */));
  const matched = [...bare.matchAll(/([a-z_]+)(?:=~|!=|!~|=)""/g)].map(([, label = '']) => label);
  const names = [
    ...bare
      .replace(/\bby \([^)]*\)/g, '')
      .replace(/\{[^}]*\}/g, '')
      .matchAll(/[a-zA-Z_][a-zA-Z0-9_]*/g),
  ]
    .map(([word]) => word)
    .filter((word) => !WORDS.has(word) && !ADDED.includes(word) && !/^e\d+$/.test(word));
  for (const name of names) if (!SERIES.has(name)) faults.push(`no series ${name}`);
  const families = names.flatMap((name) => SERIES.get(name) ?? []);
  for (const label of [...groups, ...matched]) {
    const known = (name: FamilyName) => (definitionOf(name).labels as readonly string[]).includes(label);
    const bucket = label === 'le' && names.some((name) => name.endsWith('_bucket'));
    if (!bucket && !ADDED.includes(label) && !families.every(known)) faults.push(`no label ${label}`);
  }
  if (names.length === 0) faults.push('names no series');
  return faults;
}

describe('the dashboard', () => {
  it.each(expressions)('%s asks for what there is', (expression) => {
    expect(faultsOf(expression)).toEqual([]);
  });

  it('shows every family', () => {
    const named = new Set(
      expressions.flatMap((text) => [...SERIES].flatMap(([s, f]) => (text.includes(s) ? [f] : []))),
    );
    expect(FAMILY_NAMES.filter((name) => !named.has(name))).toEqual([]);
  });

  it('has panels beside each other, each with an id, a text and the data source that is chosen', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    for (const { title, description = '', datasource, gridPos } of drawn) {
      expect(description, title).not.toBe('');
      // biome-ignore lint/suspicious/noTemplateCurlyInString: how Grafana names a variable
      expect(datasource?.uid, title).toBe('${datasource}');
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
    }
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });

  it('with an unknown family, label or function is found', () => {
    expect(faultsOf('sum by (model) (rate(sluice_requests_total[$__rate_interval]))')).toEqual(['no label model']);
    expect(faultsOf('sluice_request_total{job="x"}')).toEqual(['no series sluice_request_total']);
    expect(faultsOf('gen_ai_client_token_usage')).toEqual(['no series gen_ai_client_token_usage']);
    expect(faultsOf('sluice_cache_total{state="hit"}')).toEqual(['no label state']);
    expect(faultsOf('avg(sluice_inflight)')).toEqual(['no series avg']);
  });
});

describe('the guide', () => {
  const [BEGIN, END] = ['<!-- metrics: made by `npm run metrics-table` -->', '<!-- end of the metrics -->'];

  /** The formatter aligns the columns. */
  const unpadded = (text: string) => text.replace(/ *\| */g, '|').replace(/-{3,}/g, '---');

  it('has every family, with its kind, labels and meaning', () => {
    const cells = FAMILY_NAMES.map((name) => {
      const { type, labels, help, byWorkspace } = definitionOf(name);
      const all = [...labels, ...(byWorkspace === true ? ['workspace'] : [])].map((label) => `\`${label}\``);
      return [`\`${name}\``, type, all.join(', '), help.replace(/\.$/, '')];
    });
    const table = [
      '| Family | Kind | Labels | Meaning |',
      '|---|---|---|---|',
      ...cells.map((row) => `| ${row.join(' | ')} |`),
    ];
    const page = readFileSync(GUIDE, 'utf8');
    const made = `${BEGIN}\n\n${table.join('\n')}\n\n${END}`;
    const begin = page.indexOf(BEGIN);
    const end = page.indexOf(END) + END.length;
    expect([begin, end].every((at) => at > 0)).toBe(true);
    if (process.env.SLUICE_WRITE_METRICS_TABLE) writeFileSync(GUIDE, page.slice(0, begin) + made + page.slice(end));
    else expect(unpadded(page.slice(begin, end)), 'run `npm run metrics-table`').toBe(unpadded(made));
  });
});

describe('families', () => {
  it('have names, labels and texts that both formats allow', () => {
    for (const name of FAMILY_NAMES) {
      const { type, help, labels, buckets } = definitionOf(name);
      expect(name).toMatch(/^[a-z][a-z0-9_]*$/);
      expect(name.endsWith('_total'), name).toBe(type === 'counter');
      expect(help, name).toMatch(/^[A-Z1][^\\\n]*\.$/);
      expect(labels.length, name).toBeLessThanOrEqual(4);
      for (const label of labels) expect(label, name).toMatch(/^[a-z][a-z0-9_]*$/);
      expect(buckets === undefined, name).toBe(type !== 'histogram');
      expect([...(buckets ?? [])].sort((a, b) => a - b)).toEqual(buckets ?? []);
    }
    expect(Object.keys(FAMILIES)).toEqual(FAMILY_NAMES);
  });

  it('of the conventions are named after them, with the unit behind the name, and have all of their buckets', () => {
    const { metrics, attributes } = V1_41;
    const flat = (name: string) => name.replaceAll('.', '_');
    expect(FAMILY_NAMES.filter((name) => name.startsWith('gen_ai_'))).toEqual(Object.keys(metrics));
    const known: readonly string[] = Object.values(attributes).map(flat);
    for (const [family, { name, unit, buckets }] of Object.entries(metrics)) {
      expect(family).toBe(`${flat(name)}${unit === 's' ? '_seconds' : ''}`);
      const definition = definitionOf(family as FamilyName);
      expect(definition.buckets).toEqual(buckets);
      expect(definition.labels.filter((label) => !known.includes(label))).toEqual([]);
    }
  });
});
