/** What guardrails have said of a request that goes to several targets, so that the same body is judged once. */
import type { Guardrail, GuardrailResult } from '../../guardrails/guardrail.ts';
import type { RequestBody } from '../state/body.ts';
import type { GuardrailVerdict, JudgedBody } from '../state/route-execution.ts';
import { needsNoTexts } from './enforceability.ts';

/**
 * How many guardrails at the start of a list need not judge again. A check that asks for the model does so for each; after a
 * change only who comes after the same guardrails sees the same body.
 */
export function alreadyJudged(known: JudgedBody | undefined, list: readonly Guardrail[], asked: string): number {
  if (known === undefined) return 0;
  const holds = (guardrail: Guardrail): boolean => {
    const said = known.said.get(guardrail);
    return said !== undefined && (said.asked === asked || !guardrail.checks.some(needsNoTexts));
  };
  if (known.changed) {
    const { length } = known.list;
    return known.list.every((guardrail, i) => guardrail === list[i] && holds(guardrail)) ? length : 0;
  }
  const first = list.findIndex((guardrail) => !holds(guardrail));
  return first === -1 ? list.length : first;
}

/** What is known after a run over the rest of a list. */
export function nowJudged(parts: {
  readonly known: JudgedBody | undefined;
  readonly list: readonly Guardrail[];
  /** Of `list`, from where it ran; with the results of those that do not run beside the request. */
  readonly from: number;
  readonly results: readonly GuardrailResult[];
  readonly asked: string;
  readonly body: RequestBody;
  readonly changed: boolean;
}): JudgedBody {
  const { known, list, from, results, asked, body, changed } = parts;
  // Another order, or another body before it, is another judgement.
  const said = new Map<Guardrail, GuardrailVerdict>(changed || known?.changed === true ? [] : known?.said);
  for (const guardrail of list.slice(0, from)) {
    const before = known?.said.get(guardrail);
    if (before !== undefined) said.set(guardrail, before);
  }
  let denied: Guardrail | null = null;
  let ran = from;
  let at = 0;
  for (const guardrail of list.slice(from)) {
    const result = guardrail.actions.async ? null : (results[at++] ?? null);
    if (denied !== null) continue;
    ran += 1;
    said.set(guardrail, { result, asked });
    if (result !== null && !result.verdict && guardrail.actions.deny) denied = guardrail;
  }
  return { list: list.slice(0, ran), said, denied, body, changed };
}
