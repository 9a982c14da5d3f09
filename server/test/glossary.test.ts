/** The glossary names files, types, tables and paths: all of them exist, so that a rename cannot leave it behind. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { SCHEMA } from '../src/store/schema.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(ROOT, 'docs/glossary.md'), 'utf8');
/** Of the log store, which is not in the schema of the control store. */
const LOG_TABLES = ['logs', 'journals'];

interface Row {
  readonly term: string;
  readonly api: string;
  readonly code: string;
  readonly disk: string;
}

const rows: readonly Row[] = page
  .split('\n')
  .filter((line) => /^\| (?!Term |-)/.test(line))
  .map((line) => {
    const [, term = '', , api = '', code = '', disk = ''] = line.split('|').map((cell) => cell.trim());
    return { term, api, code, disk };
  });

const quoted = (text: string): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);

/** What of the code column does not exist: files, and names that the file before them does not have. */
function missingCode(code: string): string[] {
  let text = '';
  const missing: string[] = [];
  for (const word of quoted(code)) {
    if (word.endsWith('.ts')) {
      const file = join(ROOT, 'server/src', word);
      text = existsSync(file) ? readFileSync(file, 'utf8') : '';
      if (text === '') missing.push(word);
    } else if (!new RegExp(`(?<![\\w-])${word}(?![\\w-])`).test(text)) missing.push(word);
  }
  return missing;
}

/** Tables and `table.column`s that the schema does not have; a word before "in a record" is a field of records. */
function missingTables(disk: string): string[] {
  const record = readFileSync(join(ROOT, 'server/src/telemetry/record.ts'), 'utf8');
  const tables: Readonly<Record<string, { readonly columns: object }>> = SCHEMA;
  return quoted(disk).filter((word) => {
    if (disk.includes(`\`${word}\` in a record`)) return !record.includes(`readonly ${word}`);
    const [table = '', column] = word.split('.');
    if (LOG_TABLES.includes(table)) return false;
    const known = tables[table];
    return known === undefined || (column !== undefined && !(column in known.columns));
  });
}

describe('the glossary', () => {
  it('has a row for each term, and no term twice', () => {
    const terms = rows.map(({ term }) => term);
    expect(terms.length).toBeGreaterThan(40);
    expect(new Set(terms).size).toBe(terms.length);
  });

  it('names files and names of the code that exist', () => {
    expect(rows.flatMap(({ term, code }) => missingCode(code).map((word) => `${term}: ${word}`))).toEqual([]);
  });

  it('names tables and columns that exist', () => {
    expect(rows.flatMap(({ term, disk }) => missingTables(disk).map((word) => `${term}: ${word}`))).toEqual([]);
  });

  it('names paths that the API has', () => {
    const { paths } = JSON.parse(readFileSync(join(ROOT, 'docs/openapi.json'), 'utf8')) as { paths: object };
    const named = rows.flatMap(({ api }) => quoted(api).filter((word) => word.startsWith('/')));
    expect(named.filter((path) => !(path in paths))).toEqual([]);
  });

  it('finds what is not there', () => {
    expect(missingCode('`llm/target.ts` `Target` `Nowhere`, `llm/apart.ts`')).toEqual(['Nowhere', 'llm/apart.ts']);
    expect(missingTables('`workspaces.slug`, `workspaces.colour`, `budgets`, `attempts` in a record')).toEqual([
      'workspaces.colour',
      'budgets',
    ]);
  });
});

/** Words of the code that readers who know gateways had to learn, by the word of the glossary. */
const LEARNED: Readonly<Record<string, string>> = {
  Apart: 'on a thread, or fan-out',
  Asked: 'requested',
  Book: 'bucket',
  Books: 'buckets',
  Desk: 'runner',
  Foresight: 'usage forecast',
  Hold: 'reservation',
  Inner: 'internal',
  Joint: 'stream resume',
  Late: 'deferred',
  Leg: 'limits of one target',
  Linger: 'drain',
  Shown: 'delivered, where a client has seen it',
  Stamp: 'timestamp',
  Terms: 'limit spec',
  Tried: 'input',
};

const EXPORT = /^export (?:abstract |async )*(?:function\*?|const|class|interface|type) +([A-Za-z_$][\w$]*)/gm;
const wordsOf = (name: string): string[] =>
  name.split(/(?=[A-Z][a-z])|_/).map((word) => word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase());

/** Of the product's exports, those with a word that has to be learned: a type, or a name that is nothing else. */
function learnedNames(path: string, text: string): string[] {
  return [...text.matchAll(EXPORT)].flatMap(([, name = '']) => {
    const words = /^[A-Z][a-z]/.test(name)
      ? wordsOf(name)
      : [wordsOf(name)].filter(({ length }) => length === 1).flat();
    return words.filter((word) => Object.hasOwn(LEARNED, word)).map((word) => `${path} ${name}: say ${LEARNED[word]}`);
  });
}

it('no export of the product has a word that readers have to learn first', () => {
  const root = join(ROOT, 'server/src');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
    (path) => path.endsWith('.ts') && !path.endsWith('.test.ts'),
  );
  expect(files.length).toBeGreaterThan(500);
  expect(files.flatMap((path) => learnedNames(path, readFileSync(join(root, path), 'utf8')))).toEqual([]);
  expect(
    learnedNames('x.ts', 'export interface NodeHold {\nexport function linger() {\nexport class Reservation {'),
  ).toEqual(['x.ts NodeHold: say reservation', 'x.ts linger: say drain']);
});
