import { createHash } from 'node:crypto';

/**
 * A part of a generated matrix: about one case in `share`, chosen by its title, so that the same ones run each time and a
 * new case changes nothing for the others. `SLUICE_CASES=all` runs the whole matrix. The first case always runs.
 */
export function sampled<T>(cases: readonly T[], titleOf: (one: T) => string, share = 3): T[] {
  if (process.env.SLUICE_CASES === 'all') return [...cases];
  return cases.filter((one, index) => index === 0 || numberOf(titleOf(one)) % share === 0);
}

const numberOf = (title: string): number => createHash('sha256').update(title).digest().readUInt32BE(0);
