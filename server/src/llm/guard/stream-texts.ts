/** What the events of a stream say, by the paths of the whole answer. */
import type { TextPart } from '../../guardrails/check.ts';
import type { Operation } from '../../operations/operation.ts';
import type { SaidPart, Unreadable } from './texts.ts';

/** A piece of text of one event. */
export interface StreamPiece extends TextPart {
  /** In the whole answer: `choices[0].message.content`, `content[1].input`, `output[0].content[0].text`. */
  readonly path: string;
  /** What this event adds to the text at `path`; empty where it only repeats what was said. */
  readonly text: string;
  /** Where the event gives the text at `path` complete (`response.output_text.done`): all of it. Null for a delta. */
  readonly whole: string | null;
  readonly unreadable?: Unreadable;
}

/** Reads the events of one answer. */
export class StreamTexts {
  constructor(_operation: Operation) {}

  /** Pieces of the event's text, in order. */
  push(_event: Buffer): readonly StreamPiece[] {
    throw new Error('not there yet');
  }

  /** The whole answer so far, as an answer in one piece would be. */
  answer(): unknown {
    throw new Error('not there yet');
  }

  /** `answerTexts` of it. */
  assembled(): readonly SaidPart[] {
    throw new Error('not there yet');
  }

  get callsTools(): boolean {
    throw new Error('not there yet');
  }

  /** The event with other texts at the paths that are given (for a delta: in place of the delta). */
  rewriteEvent(_event: Buffer, _texts: ReadonlyMap<string, string>): Buffer {
    throw new Error('not there yet');
  }
}

/**
 * The events of a whole held-back stream with the texts of `changed` (the answer after replacements) in place of those they
 * held: the first event of each path gets all of its text, later ones none, and events that repeat it repeat the new one.
 */
export function rewriteStream(_operation: Operation, _events: readonly Buffer[], _changed: unknown): Buffer[] {
  throw new Error('not there yet');
}
