/** What requests and answers say: every text of them with its place, and how changed texts are put back. */
import type { Replacement, TextPart } from '../../guardrails/check.ts';
import type { Operation } from '../../operations/operation.ts';

/** Why a text cannot be read: token ids in place of text, a document in a binary form, more or deeper than is looked at. */
export type Unreadable = 'tokens' | 'file' | 'bounds';

/** A text; `unreadable` marks a place whose text cannot be seen (`text` is empty then): who denies must refuse it. */
export interface SaidPart extends TextPart {
  readonly unreadable?: Unreadable;
}

/** A multipart body, to be read by its fields. */
export class FormBody {
  readonly bytes: Buffer;
  readonly contentType: string;

  constructor(bytes: Buffer, contentType: string) {
    this.bytes = bytes;
    this.contentType = contentType;
  }
}

/** A path that names no text of the body: what was to be replaced would go out unchanged. */
export class ReplacementError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ReplacementError';
  }
}

/** Body: parsed JSON, a `FormBody`, a text (`srt`), or a Buffer of anything else. */
export function requestTexts(
  _operation: Operation,
  _body: unknown,
  _which: 'all' | 'new' | 'last',
): readonly SaidPart[] {
  throw new Error('not there yet');
}

/** What is said last in a request: the text of its last message, without names and metadata. */
export function latestRequestText(_operation: Operation, _body: unknown): string {
  throw new Error('not there yet');
}

export function answerTexts(_operation: Operation, _body: unknown): readonly SaidPart[] {
  throw new Error('not there yet');
}

/** What an answer says, without reasoning, names and metadata; the arguments of its tool calls where it says nothing else. */
export function latestAnswerText(_operation: Operation, _body: unknown): string {
  throw new Error('not there yet');
}

export function answerCallsTools(_operation: Operation, _body: unknown): boolean {
  throw new Error('not there yet');
}

/** A copy with texts replaced, of the kind that was given; what is unchanged is shared. Throws `ReplacementError`. */
export function applyReplacements(
  _operation: Operation,
  _body: unknown,
  _replacements: readonly Replacement[],
): unknown {
  throw new Error('not there yet');
}
