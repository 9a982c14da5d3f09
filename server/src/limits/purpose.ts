/** What a request is for, which decides the limits that it counts under: for requests and for simulations of them. */
import type { Operation, OperationId } from '../operations/operation.ts';

/**
 * `reads` is free; `ends` (stops or removes what may cost money or space) counts under rate limits only, because who has
 * used up a budget must be able to end what still costs; `uses` counts under every limit.
 */
export type Purpose = 'reads' | 'ends' | 'uses';

const ENDS: ReadonlySet<OperationId> = new Set(['batch_cancel', 'finetune_cancel', 'finetune_pause']);
/** A cancellation as providers have it: nothing in it could ask for an answer, whatever the path is taken for. */
const CANCEL = /^(?:\/[\w-]+)+\/cancel$/;

/**
 * @param path without the query
 * @param empty whether it has no body
 */
export function purposeOf(operation: Pick<Operation, 'id'>, method: string, path: string, empty: boolean): Purpose {
  if (method === 'GET') return 'reads';
  if (method === 'DELETE' || ENDS.has(operation.id)) return 'ends';
  return operation.id === 'proxy' && method === 'POST' && empty && CANCEL.test(path) ? 'ends' : 'uses';
}
