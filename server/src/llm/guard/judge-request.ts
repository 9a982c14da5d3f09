/** The run of the guardrails of a request, wherever it takes place: the same for small requests and for large ones. */

import type { Guardrail, Outcome } from '../../guardrails/guardrail.ts';
import { type RunOptions, runGuardrails } from '../../guardrails/run.ts';
import { mustSee, notCovered, readsTexts } from './enforceability.ts';
import type { InputView, JudgedRequest } from './judged-request.ts';
import { type ChangedBody, GuardedRequest } from './subject.ts';
import { ReplacementError, type SaidPart } from './texts.ts';

export interface RequestVerdict {
  readonly outcome: Outcome;
  /** What is sent in place of what was judged, or why that cannot be; null where it stays as it is. */
  readonly changed: ChangedBody | ReplacementError | null;
}

/** What of a request is judged, and how. */
export interface RequestToJudge {
  readonly request: JudgedRequest;
  readonly list: readonly Guardrail[];
  readonly view: InputView;
  /** Whether its texts can be read is looked at, and nothing more. */
  readonly dryRun: boolean;
}

/**
 * Judges a request by guardrails; null for a dry run. Throws SluiceError('invalid_request') where one of them must read what
 * cannot be read.
 */
export function judgeRequest(
  { request, list, view, dryRun }: RequestToJudge,
  options: Omit<RunOptions, 'view'>,
): RequestVerdict | null | Promise<RequestVerdict> {
  const guarded = new GuardedRequest(
    request,
    view,
    list.some(({ actions }) => actions.async),
  );
  readable(list, guarded);
  if (dryRun) return null;
  const outcome = runGuardrails(list, guarded.view('all', null), { ...options, view: guarded.view });
  const verdict = (said: Outcome): RequestVerdict => ({ outcome: said, changed: changedBy(guarded, said) });
  return outcome instanceof Promise ? outcome.then(verdict) : verdict(outcome);
}

function changedBy(guarded: GuardedRequest, outcome: Outcome): RequestVerdict['changed'] {
  if (outcome.denied || (outcome.replaced === undefined && outcome.replacements.length === 0)) return null;
  try {
    return guarded.changed(outcome);
  } catch (error) {
    if (error instanceof ReplacementError) return error;
    throw error;
  }
}

/** Places whose text cannot be seen (token ids, documents in a binary form) are refused by who denies or redacts. */
function readable(list: readonly Guardrail[], request: GuardedRequest): void {
  for (const guardrail of list) {
    if (!mustSee(guardrail) || !readsTexts(guardrail, 'input')) continue;
    const { texts } = request.view(guardrail.actions.messages, null);
    for (const part of texts as readonly SaidPart[]) {
      if (part.unreadable !== undefined) throw notCovered(guardrail, `${part.path} (${part.unreadable})`);
    }
  }
}
