/** Guardrails over a stream that has ended: in the event loop, or in the thread for what is large. */
import type { Subject, TextPart } from '../../guardrails/check.ts';
import type { Guardrail, Outcome } from '../../guardrails/guardrail.ts';
import { type RunOptions, runGuardrails } from '../../guardrails/run.ts';
import type { JudgedRequest } from './judged-request.ts';
import { type AnswerGuard, judgeWhole, outputSubject, unreadable } from './output.ts';
import { rewriteStream } from './stream-texts.ts';
import { ReplacementError } from './texts.ts';

/** Streams are answers with this status. */
export const STREAM_STATUS = 200;

/** Events that nobody has seen yet. */
export interface HeldEvents {
  readonly events: readonly Buffer[];
  /** The end marker, or the error that ended the stream. */
  readonly tail: readonly Buffer[];
}

export interface StreamVerdict {
  /** Null: a text cannot be read that some guardrail must read; `unreadable` says which. */
  readonly outcome: Outcome | null;
  readonly unreadable: string | null;
  /** The events with what guardrails changed; why they cannot tell that; null where nothing changed. */
  readonly changed: HeldEvents | ReplacementError | null;
}

/**
 * Judges the answer that the events of a stream made.
 *
 * @param held null: the events were sent, and no guardrail of the list changes an answer
 */
export function judgeWholeStream(
  request: JudgedRequest,
  guard: Pick<AnswerGuard, 'outside' | 'onAsync' | 'onBeside'>,
  list: readonly Guardrail[],
  answer: unknown,
  held: HeldEvents | null,
): StreamVerdict | Promise<StreamVerdict> {
  const { texts, outcome, changed } = judgeWhole(request, guard, list, answer, STREAM_STATUS);
  if (outcome === null) return { outcome, unreadable: unreadable(texts), changed: null };
  const verdict = (said: Outcome): StreamVerdict => {
    const untouched = said.denied || (said.replaced === undefined && said.replacements.length === 0);
    const made = untouched || held === null ? null : rewritten(request, held, () => changed(said));
    return { outcome: said, unreadable: null, changed: made };
  };
  return outcome instanceof Promise ? outcome.then(verdict) : verdict(outcome);
}

function rewritten(
  { operation }: JudgedRequest,
  { events, tail }: HeldEvents,
  changed: () => unknown,
): HeldEvents | ReplacementError {
  try {
    const all = rewriteStream(operation, [...events, ...tail], changed());
    return { events: all.slice(0, events.length), tail: all.slice(events.length) };
  } catch (error) {
    if (error instanceof ReplacementError) return error;
    throw error;
  }
}

/** What is judged of a stream that goes on. */
export interface StreamWindow {
  readonly request: JudgedRequest;
  readonly texts: readonly TextPart[];
  readonly window: Subject['window'];
  readonly callsTools: () => boolean;
  readonly options: RunOptions;
}

/** Judges what of a stream follows what was judged before, by guardrails that look back as far as the window does. */
export function judgeStreamWindow(list: readonly Guardrail[], given: StreamWindow): Outcome | Promise<Outcome> {
  const { request, texts, window, callsTools, options } = given;
  const subject = outputSubject(request, {
    texts,
    window,
    callsTools,
    transformed: false,
    status: STREAM_STATUS,
    answer: () => undefined,
  });
  return runGuardrails(list, subject, options);
}
