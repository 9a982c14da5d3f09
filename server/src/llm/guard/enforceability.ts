/** What of a request guardrails cannot look at: who denies or redacts refuses it, rather than letting it pass. */

import { isUtf8 } from 'node:buffer';
import type { Phase } from '../../guardrails/check.ts';
import type { Guardrail, GuardrailCheck, GuardrailResult } from '../../guardrails/guardrail.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Uses } from '../exchange.ts';
import { isManaged } from '../managed.ts';
import type { LlmRequest } from '../state/request.ts';
import { contentType } from '../steps/read-body.ts';
import { addressTexts } from './address.ts';
import type { InputView } from './judged-request.ts';

/** Whether a check judges by the head, the model or the settings of a request: it needs no texts. */
export const needsNoTexts = ({ judges }: GuardrailCheck): boolean => judges !== undefined;

/** Whether a guardrail judges texts in this phase. */
export function readsTexts(guardrail: Guardrail, phase: Phase): boolean {
  return guardrail.checks.some((check) => check.phases.includes(phase) && !needsNoTexts(check));
}

/** Whether a request that the guardrail cannot look at must not be sent: it denies, or was asked to take something out. */
export const mustSee = ({ actions, checks }: Guardrail): boolean =>
  !actions.async && (actions.deny || checks.some(({ redacts, phases }) => redacts && phases.includes('input')));

/** The guardrail with the checks only that need no texts. What could not be made ready fails whatever there is to judge. */
export function withoutTexts(guardrail: Guardrail): Guardrail {
  return { ...guardrail, checks: guardrail.checks.filter((check) => needsNoTexts(check) || check.judge === null) };
}

/** What of the request a guardrail that denies would have to look at and cannot; null for nothing. */
export function unseenBy(guardrail: Guardrail, view: InputView, { operation }: LlmRequest): string | null {
  if (!mustSee(guardrail)) return null;
  if (view === 'unseen' && readsTexts(guardrail, 'input')) return `what ${operation.id} sends to a provider`;
  if (!guardrail.actions.deny) return null;
  if (view === 'unseen' && operation.family === 'proxy' && guardrail.checks.some(({ judges }) => judges === 'fields'))
    return `the model and the fields of what ${operation.id} sends to a provider`;
  // The form of an upload is read as it passes.
  const parameters = guardrail.checks.some(({ judge }) => judge?.judgesParameters === true);
  return operation.body === 'stream' && parameters ? `the fields of ${operation.id}` : null;
}

export function inputView(x: Uses<'attempt' | 'request'>): InputView {
  const {
    request: { operation },
  } = x;
  switch (operation.sends) {
    case 'nothing':
      return 'none';
    case 'dataset':
      return 'unseen';
    case 'kept':
      return isManaged(x.request) ? 'none' : 'unseen';
    case 'text':
      break;
  }
  if (x.attempt.body.bytes.length === 0) return addressTexts(x.request).length > 0 ? 'texts' : 'none';
  const type = contentType(x.request.header('content-type'));
  if (type === 'application/json' || x.attempt.body.scan !== null) return 'texts';
  if (type === 'multipart/form-data') return 'texts';
  // Sound has no texts; what is a text, whatever it calls itself, has.
  return type.startsWith('audio/') && soundsLike(x.attempt.body.bytes) ? 'none' : 'unseen';
}

/** Sound has bytes early on that no text has, and never begins as JSON does: servers do not all believe a content type. */
function soundsLike(body: Buffer): boolean {
  if (isUtf8(body)) return false;
  const head = body.toString('latin1', 0, 512);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they tell binary data from text
  return /[\0-\x08\x0e-\x1f]/.test(head) && !/^\s*["[{]/.test(head);
}

const REFUSED = { reason: 'guardrail_not_enforced' } as const;

/** The refusal of what a guardrail that must read it cannot look at. */
export function notCovered({ slug, actions }: Guardrail, what: string): SluiceError {
  return new SluiceError(
    'invalid_request',
    `Guardrail ${slug} ${actions.deny ? 'denies what fails its checks' : 'redacts'}, and its checks cannot look at ${what}; the request was refused rather than passed unchecked.`,
    REFUSED,
  );
}

/** The refusal of a request that would go out without what its guardrails have changed. */
export function notChanged(results: readonly GuardrailResult[], why: string): SluiceError {
  const names = results.filter(({ transformed }) => transformed).map(({ id }) => id);
  return new SluiceError(
    'invalid_request',
    `Sluice cannot send the text that guardrail ${names.join(', ')} changed. ${why} It refused the request rather than send it unchanged.`,
    REFUSED,
  );
}
