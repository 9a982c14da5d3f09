/** What a request is for, which decides the limits that it counts under: for requests and for simulations of them. */
import type { LimitClass, Operation } from '../operations/operation.ts';

export type { LimitClass };

/** A cancellation as providers have it: nothing in it could ask for an answer, whatever the path is taken for. */
const CANCEL = /^(?:\/[\w-]+)+\/cancel$/;

/**
 * @param path without the query
 * @param empty whether it has no body
 */
export function limitClassOf(
  { limitClass }: Pick<Operation, 'limitClass'>,
  method: string,
  path: string,
  empty: boolean,
): LimitClass {
  if (limitClass !== 'path') return limitClass;
  if (method === 'GET') return 'reads';
  if (method === 'DELETE') return 'ends';
  return method === 'POST' && empty && CANCEL.test(path) ? 'ends' : 'uses';
}
