/**
 * What people read is plain: active, at most 30 words a sentence, without the phrases that readers stumbled over.
 * Judged are the texts of the server (errors, log lines, help, the API reference), the console's, and all pages.
 * Comments are judged by the phrases alone.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { withoutSecrets } from '../src/kernel/quoted.ts';
import { commentStumbles, comments, literals, paragraphs, sentences, stumbles } from './support/prose.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Pages for users and contributors. */
const PAGES = [
  'README.md',
  'CHANGELOG.md',
  'docs/architecture.md',
  'docs/glossary.md',
  'SECURITY.md',
  'CONTRIBUTING.md',
  ...readdirSync(join(ROOT, 'docs/guides')).map((name) => `docs/guides/${name}`),
  ...readdirSync(join(ROOT, 'docs/decisions')).map((name) => `docs/decisions/${name}`),
];

function files(dir: string): string[] {
  return readdirSync(join(ROOT, dir), { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return /__fixtures__|conformance|node_modules/.test(entry.name) ? [] : files(path);
    return /(?<!\.test)\.tsx?$/.test(entry.name) ? [path] : [];
  });
}

/** A text for people has a few words; it is no list of field names and no statement of SQL. */
const isProse = (text: string): boolean =>
  /\p{L}{2,} +\p{L}+ +\p{L}+ +\p{L}+/u.test(text) &&
  !/^[\w ]*_[\w ]*$/.test(text) &&
  !/\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER)\b/.test(text);

/** Errors leave out what has the form of a credential: nothing of ours may have it. Examples of settings are in no error of a request. */
const hides = (text: string): string[] =>
  withoutSecrets(text) === text || /:\/\/\[?user:password@/.test(text) ? [] : [`reads as a credential: ${text}`];

describe('texts that people read', () => {
  it.each(PAGES)('%s says it plainly', (page) => {
    const found = paragraphs(readFileSync(join(ROOT, page), 'utf8')).flatMap(({ line, text }) =>
      stumbles(text).map((stumble) => `${page}:${line} ${stumble}`),
    );
    expect(found).toEqual([]);
  });

  it('errors, log lines, help and the reference say it plainly', () => {
    const found = [...files('server/src'), ...files('console/src')].flatMap((path) =>
      literals(readFileSync(join(ROOT, path), 'utf8'))
        .filter(({ text }) => isProse(text))
        .flatMap(({ line, text }) =>
          [...stumbles(text), ...hides(text)].map(
            (stumble) => `${relative(ROOT, join(ROOT, path))}:${line} ${stumble}`,
          ),
        ),
    );
    expect(found).toEqual([]);
  });
});

describe('comments', () => {
  const found = (path: string): string[] =>
    comments(readFileSync(join(ROOT, path), 'utf8')).flatMap(({ line, text }) =>
      commentStumbles(text).map((stumble) => `${path}:${line} ${stumble}`),
    );

  it('have none of the phrases that readers stumbled over', () => {
    expect([...files('server/src'), ...files('console/src')].flatMap(found)).toEqual([]);
  });
});

describe('the reader behind this rule', () => {
  it('finds comments in code, line comments below each other as one, and no literals', () => {
    const source = [
      '/** A label',
      ' * of two `lines`. */',
      "const a = '// not this'; // One",
      '// two.',
      'const p = /\\/\\*no/;',
      '// Three.',
    ].join('\n');
    expect(comments(source)).toEqual([
      { line: 1, text: ' A label\nof two X.' },
      { line: 3, text: 'One\ntwo.' },
      { line: 6, text: 'Three.' },
    ]);
  });

  it('finds the phrases in comments, over their lines, and leaves terms and labels of docstrings', () => {
    for (const text of [
      'The caller is\ntold so.',
      'Nobody may do it.',
      'A key: whoever has it may call.',
      'It has a key of its own.',
      'What is empty is refused.',
      ' What is known. What is empty is refused.',
      'It stands behind the head.',
      'The user and his key.',
      'It goes on with the rest.',
    ])
      expect(commentStumbles(text), text).toHaveLength(1);
    for (const text of [' What is known of a call.', 'One letter stands for a word.', 'They cannot be told apart.'])
      expect(commentStumbles(text), text).toEqual([]);
  });

  it('finds texts in code, joined over lines, with what is inserted, and no comments', () => {
    const source = [
      "// 'not this'",
      "const a = 'One ' +",
      `  \`two \${f('three')} four\`;`,
      "const p = /'no'/; const d = a / 2; /* 'nor this' */",
    ].join('\n');
    expect(literals(source)).toEqual([
      { line: 2, text: 'One two X four' },
      { line: 3, text: 'three' },
    ]);
  });

  it('finds the prose of a page and leaves its code out', () => {
    const page =
      '# Title\n\nA [link](x) and `code`\ngoes on.\n\n```\nno prose\n```\n\n| a cell | b |\n|---|---|\n- item\n';
    expect(paragraphs(page).map(({ text }) => text)).toEqual(['Title', 'A link and X goes on.', 'a cell', 'b', 'item']);
  });

  it('finds long sentences and phrases that readers stumbled over', () => {
    expect(sentences('One. Two: three? Four')).toHaveLength(3);
    expect(stumbles(`${'word '.repeat(31)}.`)).toHaveLength(1);
    for (const text of [
      'The caller is told so.',
      'Nobody may do it.',
      'It has a key of its own.',
      'What is empty is refused.',
    ])
      expect(stumbles(text), text).toHaveLength(1);
    expect(stumbles('Sluice returns 400. What is a workspace?')).toEqual([]);
  });
});
