import { Resolver } from 'node:dns/promises';
import type { Clock } from '../kernel/clock.ts';

const DEADLINE_MS = 2_000;

/** Texts of the TXT records of a name; empty when there are none, or no name server answers in two seconds. */
export async function txtRecords(clock: Clock, name: string): Promise<readonly string[]> {
  const resolver = new Resolver({ timeout: 900, tries: 2 });
  const stop = clock.after(DEADLINE_MS, () => resolver.cancel());
  try {
    return (await resolver.resolveTxt(name)).map((parts) => parts.join(''));
  } catch {
    return [];
  } finally {
    stop();
  }
}
