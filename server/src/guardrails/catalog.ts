/**
 * What a guardrail's `checks` must be. A stored guardrail is validated again when it is
 * compiled: rules become stricter, and a header that must not be forwarded must not be forwarded by an old row either.
 */
import { z } from 'zod';
import { editDistance } from '../kernel/nearest.ts';
import type { Steps } from '../kernel/turns.ts';
import { canonically } from './canonical.ts';
import type { Check, CheckTraits, Common, Judge, Phase, Target } from './check.ts';
import { CHECKS } from './checks/index.ts';
import { forwardHeaders } from './forward-headers.ts';

/** Longest a check may be given, in milliseconds. */
const MAX_TIMEOUT_MS = 60_000;
export const MAX_CHECKS = 100;

/** Parameters that any check may have besides its own; they are taken out before the check's own schema sees the rest. */
const common = z.object({
  timeout: z.number().int('must be a whole number of milliseconds').min(1).max(MAX_TIMEOUT_MS).optional(),
  failOnError: z.boolean().optional(),
  forwardHeaders: forwardHeaders.optional(),
  credentials: z.record(z.string(), z.unknown()).optional(),
});
const COMMON_KEYS = new Set(Object.keys(common.shape));

/** One check as the administration API sends and shows it. Parameters are kept as they were sent: defaults may change. */
export interface CheckEntry {
  readonly id: string;
  readonly name?: string;
  readonly is_enabled: boolean;
  readonly parameters?: Readonly<Record<string, unknown>>;
}

interface Parsed {
  readonly check: Check;
  readonly own: unknown;
  readonly common: Common;
}

type Issues = readonly z.core.$ZodIssue[];

/** The parameters of a check by its own schema and the common one, or what is wrong with them, with paths inside them. */
function parse(made: Check, parameters: Readonly<Record<string, unknown>>): Parsed | Issues {
  const own: Record<string, unknown> = {};
  const shared: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(parameters)) {
    // `__proto__` as a key of JSON is a key like others.
    Object.defineProperty(COMMON_KEYS.has(key) ? shared : own, key, { value, enumerable: true, configurable: true });
  }
  const [mine, theirs] = [made.parameters.safeParse(own), common.safeParse(shared)];
  const keys = (made.credentials ?? common.shape.credentials).safeParse(shared.credentials);
  if (!mine.success || !theirs.success || !keys.success) {
    const wrong = keys.error?.issues.map((issue) => ({ ...issue, path: ['credentials', ...issue.path] }));
    const others = theirs.error?.issues.filter(({ path }) => path[0] !== 'credentials');
    return [...(mine.error?.issues ?? []), ...(others ?? []), ...(wrong ?? [])];
  }
  const { timeout = made.timeoutMs, failOnError = false, forwardHeaders: names = [], credentials = null } = theirs.data;
  return {
    check: made,
    own: mine.data,
    common: { timeoutMs: timeout, failOnError, forwardHeaders: names, credentials },
  };
}

/** The known id that a wrong one was most likely meant to be. */
export function nearestId(id: string): string | null {
  const wanted = id.toLowerCase();
  let best: string | null = null;
  let least = Math.max(3, wanted.length / 4) + 1;
  if (id.length <= 80)
    for (const known of CHECKS.keys()) {
      const lower = known.toLowerCase();
      const short = lower.slice(lower.indexOf('.') + 1);
      const distance = Math.min(
        editDistance(wanted, lower),
        editDistance(wanted.slice(wanted.indexOf('.') + 1), short) + 1,
      );
      if (distance < least) [best, least] = [known, distance];
    }
  return best;
}

/** One check as it is sent; what its parameters must be depends on the id and the target (`readChecks`). */
export const checkEntry = z.strictObject({
  id: z.string().min(1).max(100).describe('A check of the catalogue: `default.regexMatch`.'),
  name: z.string().max(255).optional(),
  is_enabled: z.boolean().default(true),
  parameters: z.record(z.string(), z.unknown()).optional(),
});

/** What is wrong with the id of a check in a guardrail with this target, as a phrase; null for nothing. */
export function idProblem(id: string, target: Target | null): string | null {
  const made = CHECKS.get(id);
  if (made === undefined) {
    const near = nearestId(id);
    return `is not a known check${near === null ? '' : `; did you mean ${near}?`}`;
  }
  if (target === null || made.targets.includes(target)) return null;
  return `cannot be used in a guardrail with target ${target}`;
}

const entries = z.array(checkEntry).min(1).max(MAX_CHECKS);

type ReadChecks =
  | { readonly success: true; readonly data: CheckEntry[]; readonly error?: undefined }
  | { readonly success: false; readonly error: { readonly issues: z.core.$ZodIssue[] } };

/**
 * The `checks` of a guardrail: at least one, known ids that the target allows, parameters that each check accepts. Issues
 * carry the path inside the list (`[1].parameters.rule`). Each check is a step: its patterns may take milliseconds.
 *
 * @param target null where it is not known yet: `idProblem` says the rest
 */
export function* readChecks(target: Target | null, value: unknown): Steps<ReadChecks> {
  const read = entries.safeParse(value);
  if (!read.success) return read;
  const issues: z.core.$ZodIssue[] = [];
  for (const [index, { id, parameters = {} }] of read.data.entries()) {
    const problem = idProblem(id, target);
    if (problem !== null) issues.push({ code: 'custom', path: [index, 'id'], message: problem, input: id });
    else {
      yield;
      const parsed = parse(CHECKS.get(id) as Check, parameters);
      if ('check' in parsed) continue;
      for (const issue of parsed) issues.push({ ...issue, path: [index, 'parameters', ...issue.path] });
    }
  }
  return issues.length === 0 ? read : { success: false, error: { issues } };
}

/** A check ready to judge, and what the runner must know of it. */
export interface CompiledCheck extends CheckTraits {
  readonly id: string;
  /** What it was made of. */
  readonly entry: CheckEntry;
  readonly phases: readonly Phase[];
  /** Whether it may replace texts or bodies; `redacts`: because something is to be taken out. */
  readonly mutates: boolean;
  readonly redacts: boolean;
  readonly common: Common;
  readonly judge: Judge;
}

/** Makes the judge of a stored check; null where it is not (or no longer) valid, which must count as a check that fails. */
export function compileCheck(stored: CheckEntry, target: Target): CompiledCheck | null {
  const made = CHECKS.get(stored.id);
  if (made === undefined || !made.targets.includes(target)) return null;
  const parsed = parse(made, stored.parameters ?? {});
  if (!('check' in parsed)) return null;
  const { id, phases } = made;
  const redacts = made.redacts?.(parsed.own) ?? false;
  const judge = made.compile(parsed.own, parsed.common);
  return {
    id,
    entry: stored,
    phases,
    mutates: made.mutates || redacts,
    redacts,
    common: parsed.common,
    judge: made.canonical === true ? canonically(judge) : judge,
    ...traitsOf(made),
  };
}

export function traitsOf({ judges, replacesWhole }: CheckTraits): CheckTraits {
  return { ...(judges ? { judges } : null), ...(replacesWhole ? { replacesWhole } : null) };
}
