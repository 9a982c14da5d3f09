// Own process: servers of other tests add a step to the one table of the process.
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { TABLE } from '../../src/llm/pipeline.ts';
import { PAGE, printedTable, rowsOf, tableOn } from '../support/pipeline-table.ts';

it('the architecture page shows the pipeline as the code has it: `npm run pipeline-table` writes it', () => {
  const page = readFileSync(PAGE, 'utf8');
  const { from, to, table } = tableOn(page);
  const printed = printedTable();
  if (process.env.SLUICE_WRITE_PIPELINE_TABLE === '1')
    writeFileSync(PAGE, page.slice(0, from) + printed + page.slice(to));
  else expect(table).toBe(printed);
});

it('each step has one row', () => {
  const steps = Object.values(TABLE).flatMap((rows) => rows.map(({ step }) => step.name));
  expect(rowsOf(printedTable()).map(({ step }) => step)).toEqual(steps);
  expect(new Set(steps).size).toBe(steps.length);
});
