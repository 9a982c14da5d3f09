/** Compares what two stores of records answer. */
import { isDeepStrictEqual } from 'node:util';
import type { LogStore } from '../../src/telemetry/log-query.ts';
import { comparable } from './log-questions.ts';

/** Throws where two stores answer differently; answers what both do. */
export async function sameAnswer<T>(
  one: LogStore,
  other: LogStore,
  ask: (store: LogStore) => Promise<T>,
  about: unknown,
): Promise<T> {
  const [first, second] = [await ask(one), await ask(other)];
  const [mine, theirs] = [comparable(first), comparable(second)];
  if (!isDeepStrictEqual(mine, theirs)) {
    throw new Error(
      `two stores differ:\n${JSON.stringify(mine)}\n${JSON.stringify(theirs)}\nasked ${JSON.stringify(about)}`,
    );
  }
  return first;
}
