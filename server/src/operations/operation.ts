/** What can be asked of a provider. The id is what configs, limits, guardrails and records call it. */
import type { Family, OperationRow } from './row.ts';
import { SHAPES, type WireShape } from './shapes/index.ts';
import { ROWS } from './table.ts';

export type { Dialect } from './dialects/dialect.ts';
export type { Family, LimitClass } from './row.ts';
export type { Shape } from './shapes/index.ts';

export type OperationId = keyof typeof ROWS;

/** Operations of one family. */
export type OperationOf<F extends Family> = {
  [Id in OperationId]: (typeof ROWS)[Id]['family'] extends F ? Id : never;
}[OperationId];

export interface Operation extends OperationRow {
  readonly id: OperationId;
  /** How its events and answers are read. */
  readonly wire: WireShape;
}

export interface JobOperation extends Operation {
  readonly id: OperationOf<'job'>;
}

export const isJob = (operation: Operation): operation is JobOperation => operation.family === 'job';

export const OPERATIONS = Object.fromEntries(
  // The first row gives all of them one order of properties: reads of them stay as fast as of one.
  Object.entries<OperationRow>(ROWS).map(([id, row]) => [id, { id, ...ROWS.chat, ...row, wire: SHAPES[row.shape] }]),
) as Readonly<Record<OperationId, Operation>>;
