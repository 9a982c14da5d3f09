import { afterEach, expect, test } from 'vitest';
import { ApiError } from '../api/client.ts';
import { dollars, percent } from '../app/format.ts';
import { chooseLanguage, plural, pseudo, t } from '../app/i18n.ts';
import { PRESETS, scopesFor } from '../pages/keys/presets.ts';
import { csvOf } from '../pages/spend/csv.ts';
import { GROUPS } from '../pages/spend/groups.ts';
import { rangeOf } from '../shell/url-state.ts';
import { roundUp } from './chart.tsx';
import { curlOf } from './curl.tsx';
import { changesOf } from './diff.tsx';
import { faultsOf } from './form.tsx';

afterEach(() => chooseLanguage('en', () => undefined));

test('money is exact beyond what a float can hold, and has thousands marked', () => {
  expect(dollars(9_007_199_254_740_993n)).toBe('$9,007,199,254.740993');
  expect([dollars(1_204_500_000), dollars(-42)]).toEqual(['$1,204.50', '−$0.000042']);
  expect([percent(998, 1000), percent(1, 0)]).toEqual(['99.8 %', '–']);
});

test('a relative range ends now; both ends in the address win; a range that ends before it begins is none', () => {
  const now = Date.UTC(2026, 10, 23, 12);
  const asked = { from: '', to: '', name: '1h' };
  expect(rangeOf(asked, now)).toEqual({ from: '2026-11-23T11:00:00.000Z', to: '2026-11-23T12:00:00.000Z', name: '1h' });
  expect(rangeOf({ ...asked, name: 'month' }, now).from).toBe('2026-11-01T00:00:00.000Z');
  const own = { from: '2026-11-01T00:00:00Z', to: '2026-11-02T00:00:00Z', name: '1h' };
  expect(rangeOf(own, now).name).toBe('custom');
  expect(rangeOf({ ...own, to: '2026-10-01T00:00:00Z' }, now).name).toBe('1h');
  expect(rangeOf({ ...own, to: 'soon' }, now).name).toBe('1h');
});

test('curl has the address, the parameters that are set and the body, and never a key', () => {
  const call = {
    operation: 'POST /v1/api-keys/{type}/{subType}',
    path: { type: 'workspace', subType: 'service' },
    query: { workspace_id: undefined, q: 'a b' },
    body: { name: "Ada's" },
  };
  expect(curlOf('https://sluice.example/v1', call)).toBe(
    [
      "curl -X POST 'https://sluice.example/v1/api-keys/workspace/service?q=a+b' \\",
      '  -H "x-gateway-api-key: $SLUICE_API_KEY" \\',
      "  -H 'content-type: application/json' \\",
      `  -d '{\n  "name": "Ada'\\''s"\n}'`,
    ].join('\n'),
  );
});

test('a diff names the fields that differ, with what is new and what is gone', () => {
  expect(changesOf({ a: 1, b: { c: [1], d: 'x' } }, { a: 1, b: { c: [2] }, e: null })).toEqual([
    { path: 'b.c', before: '[1]', after: '[2]' },
    { path: 'b.d', before: '"x"', after: null },
    { path: 'e', before: null, after: 'null' },
  ]);
});

test('a refusal becomes faults of fields, all of them where there are several', () => {
  expect(faultsOf(new ApiError(400, 'Too short', { param: 'name' }))).toEqual([
    { param: 'name', message: 'Too short' },
  ]);
  const problems = [
    { param: 'name', message: 'Too short' },
    { param: 'scopes', message: 'Empty' },
  ];
  expect(faultsOf(new ApiError(400, 'Too short', { param: 'name', problems }))).toEqual(problems);
  expect(faultsOf(null)).toEqual([]);
});

test('a file for spreadsheets quotes what must be, and computes nothing that somebody wrote', () => {
  const model = GROUPS.find(({ id }) => id === 'model') ?? GROUPS[0];
  const row = { object: 'analytics-group' as const, requests: 2, total_tokens: 9, cost_micros: 42 };
  const rows = [
    { ...row, model: '=HYPERLINK("x")' },
    { ...row, model: 'a,b' },
  ];
  expect(csvOf(rows, [model], { from: 'F', to: 'T' })).toBe(
    [
      'from,to,model,model_name,requests,tokens,cost_micros',
      `F,T,"'=HYPERLINK(""x"")","'=HYPERLINK(""x"")",2,9,42`,
      'F,T,"a,b","a,b",2,9,42',
      '',
    ].join('\r\n'),
  );
});

test('keys of a preset get no right that the maker lacks, and none that only organisations have', () => {
  const own = ['completions.write', 'models.list', 'audit_logs.list', 'organisation_users.read', 'logs.list'];
  const [app, , read] = PRESETS;
  expect(app && scopesFor(app, own)).toEqual(['completions.write', 'models.list']);
  expect(read && scopesFor(read, own)).toEqual(['models.list', 'logs.list']);
});

test('the axis ends at a round number', () => {
  expect([0, 1, 7, 12, 100, 101].map(roundUp)).toEqual([1, 1, 10, 20, 100, 200]);
});

test('texts go through the language, with numbers as it writes them and its plurals', () => {
  expect(t('{n} of {all}', { n: 1204, all: 'x' })).toBe('1,204 of x');
  expect(plural(1, { one: '{n} filter', other: '{n} filters' })).toBe('1 filter');
  chooseLanguage('en', pseudo);
  expect(t('Hi {name}', { name: 'Ada' })).toBe('⟦Hí Ada~~~⟧');
});
