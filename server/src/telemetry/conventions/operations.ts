import { OPERATIONS } from '../../operations/operation.ts';

/** The conventions' names of operations, by Sluice's id; one that has none there keeps its id. */
export const CONVENTION_NAMES: ReadonlyMap<string, string> = new Map(
  Object.values(OPERATIONS).map(({ id, conventionName }) => [id, conventionName ?? id]),
);
