/** The refusal by a guardrail, with its reason where clients show it. */
import type { CheckResult, GuardrailResult } from '../guardrails/guardrail.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { GuardrailState } from './guardrail-state.ts';

const SENTENCE = 'The guardrail checks failed; see hook_results.';
/** Of kinds of findings: they come from services, too. */
const KIND = /^[\w .:/-]{1,60}$/;
/** The member of the body, and which one of a list: the caller may have named the levels below it. */
const PLACE = /^[a-z_]{1,30}(?:\[\d{1,6}\])?/;
const MAX_KINDS = 3;

/** Those that have failed and deny, by name, with what they found. */
export function denying(
  guard: GuardrailState,
): readonly { readonly name: string; readonly slug: string; readonly why: string }[] {
  const known = [...guard.input, ...guard.output];
  const named = (result: GuardrailResult, place: string | null) => ({
    name: known.find(({ slug }) => slug === result.id)?.name ?? result.id,
    slug: result.id,
    why: result.checks.filter(({ verdict }) => !verdict).map((check) => reason(check, place))[0] ?? 'it failed',
  });
  const refuses = ({ verdict, deny }: GuardrailResult) => !verdict && deny;
  return [
    ...guard.before.filter(refuses).map((result) => named(result, null)),
    ...guard.after.filter(refuses).map((result) => named(result, 'the answer')),
  ];
}

/** Never holds what was found: its kind and its place only. */
function reason({ id, error, excerpts }: CheckResult, place: string | null): string {
  if (error !== null) return `the check ${id} could not be carried out`;
  const kinds = [...new Set(excerpts.map(({ kind }) => kind))].filter((kind) => KIND.test(kind)).slice(0, MAX_KINDS);
  if (kinds.length === 0) return `the check ${id} failed`;
  const at = place ?? PLACE.exec(excerpts[0]?.path ?? '')?.[0] ?? 'the request';
  return `${kinds.join(', ')} found in ${at}`;
}

/**
 * The refusal, once the results are on `guard`: `Blocked by guardrail "No cards": CREDIT_CARD found in messages[0]. The
 * guardrail checks failed; see hook_results.`
 */
export function denial(guard: GuardrailState | null): SluiceError {
  const [first] = guard === null ? [] : denying(guard);
  const why = first === undefined ? '' : `Blocked by guardrail ${JSON.stringify(first.name)}: ${first.why}. `;
  return new SluiceError('guardrail_denied', why + SENTENCE);
}
