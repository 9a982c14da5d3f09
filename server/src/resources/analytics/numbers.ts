/** How answers write what a store has measured: whole numbers of the contract, and the exact ones beside them. */
import { z } from 'zod';
import type { LogCoverage } from '../../telemetry/log-query.ts';
import { toIso } from '../body-fields.ts';

const MICROS_PER_CENT = 10_000;

/** Half up; null, of which nothing is known, is 0. Never -0. */
export const whole = (value: number | null | undefined): number => Math.floor((value ?? 0) + 0.5) + 0;

/** Micro-dollars as whole cents, rounded half up. */
export const centsOf = (micros: number | null | undefined): number => whole((micros ?? 0) / MICROS_PER_CENT);

/** Microseconds as whole milliseconds. */
export const millisOf = (micros: number | null | undefined): number => whole((micros ?? 0) / 1_000);

/** Percent with two digits behind the point; 0 of nothing. */
export const percentOf = (part: number | null | undefined, of: number | null | undefined): number =>
  of ? whole(((part ?? 0) / of) * 10_000) / 100 : 0;

/** 0 of nothing. */
export const ratioOf = (sum: number | null | undefined, count: number | null | undefined): number =>
  count ? (sum ?? 0) / count : 0;

/** A range of time whose requests an answer lacks. */
export const rangeWithout = z.object({
  from: z.string(),
  to: z.string(),
  node: z.string().optional().describe('The node whose requests are missing: it is away or late.'),
});

export function rangeOf({ from, to, node }: LogCoverage['incomplete'][number]) {
  return { from: toIso(from), to: toIso(to), ...(node === undefined ? {} : { node }) };
}

export const coverageFields = {
  complete_to: z.string().describe('Requests up to this time are all in the answer.'),
  incomplete: z
    .array(rangeWithout)
    .optional()
    .describe('Ranges of which stored requests could not be read; absent as a rule.'),
} as const;

/** What an answer says of itself. */
export function coverageOf({ completeTo, incomplete }: LogCoverage) {
  const ranges = incomplete.map(rangeOf);
  return { complete_to: toIso(completeTo), ...(ranges.length === 0 ? {} : { incomplete: ranges }) };
}

export const approximateField = {
  approximate: z
    .array(z.string())
    .optional()
    .describe('Figures that are not exact because there are too many requests.'),
} as const;
