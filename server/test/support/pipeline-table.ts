/** The table of the pipeline, as the architecture page shows it. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { TABLE } from '../../src/llm/pipeline.ts';

export const PAGE = new URL('../../../docs/architecture.md', import.meta.url);
const STEPS = fileURLToPath(new URL('../../src/llm/steps/', import.meta.url));
const BEGIN = '<!-- pipeline: made by `npm run pipeline-table` -->\n\n';
const END = '\n\n<!-- end of the pipeline -->';

export type Part = keyof typeof TABLE;

/** Where a step is, below `steps/`, and the first sentence of what its source says of it. Throws where that is not one file. */
function sourceOf(step: string): { readonly file: string; readonly says: string } {
  const found = readdirSync(STEPS)
    .filter((file) => !file.endsWith('.test.ts'))
    .flatMap((file) => {
      const comment = '/\\*\\*((?:(?!\\*/)[\\s\\S])*)\\*/\\s*';
      const text = readFileSync(STEPS + file, 'utf8');
      const [, doc] = new RegExp(`${comment}export (?:async )?function ${step}\\b`).exec(text) ?? [];
      return doc === undefined ? [] : [{ file, says: firstSentence(doc) }];
    });
  const [one] = found;
  if (one === undefined || found.length !== 1) throw new Error(`${step} is in ${found.length} files of llm/steps`);
  return one;
}

function firstSentence(comment: string): string {
  const text = comment.replace(/\s*\n\s*\* ?/g, ' ').trim();
  return /^.*?\.(?=\s|$)/.exec(text)?.[0] ?? text;
}

/** The table in Markdown. */
export function printedTable(): string {
  const lines = ['| Part | Step | Requests | When | What it does |', '|---|---|---|---|---|'];
  for (const [part, rows] of Object.entries(TABLE)) {
    for (const { step, group, when } of rows) {
      const { file, says } = sourceOf(step.name);
      const link = `[${step.name}](../server/src/llm/steps/${file})`;
      lines.push(`| ${part} | ${link} | ${group} | ${when.join(', ')} | ${says} |`);
    }
  }
  return lines.join('\n');
}

/** The page, and where on it the table is. */
export function tableOn(page: string): { readonly from: number; readonly to: number; readonly table: string } {
  const from = page.indexOf(BEGIN) + BEGIN.length;
  const to = page.indexOf(END);
  if (from < BEGIN.length || to < from) throw new Error('docs/architecture.md has no place for the pipeline');
  return { from, to, table: page.slice(from, to) };
}

export interface PrintedRow {
  readonly part: Part;
  readonly step: string;
  readonly group: string;
  readonly when: readonly string[];
}

/** The rows of a printed table. */
export function rowsOf(table: string): PrintedRow[] {
  return table
    .split('\n')
    .slice(2)
    .map((line) => {
      const [, part, link, group, when] = line.split('|').map((cell) => cell.trim());
      return {
        part: part as Part,
        step: /^\[(\w+)\]/.exec(link ?? '')?.[1] ?? '',
        group: group ?? '',
        when: when === '' || when === undefined ? [] : when.split(', '),
      };
    });
}
