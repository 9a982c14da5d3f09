/** What goes between the event loop and the thread that judges what is large. All of it is data. */
import type { CheckHttpClient, Subject, TextPart } from '../../../guardrails/check.ts';
import type { ScanFacts } from '../../../kernel/json-scan.ts';
import type { Failure } from '../../large/jobs.ts';
import type { InputView, JudgedFacts } from '../judged-request.ts';

interface AnyOrder {
  readonly request: JudgedFacts;
  readonly body: Uint8Array;
  /** The guardrails, in the order in which they run (`sourceOf`). */
  readonly guardrails: readonly string[];
}

export interface RequestOrder extends AnyOrder {
  readonly of: 'request';
  readonly view: InputView;
  readonly dryRun: boolean;
}

export interface AnswerOrder extends AnyOrder {
  readonly of: 'answer';
  readonly answer: {
    readonly status: number;
    readonly headers: readonly string[];
    readonly strict: boolean;
    readonly secrets: readonly string[];
    readonly body: readonly Uint8Array[];
  };
  /** Results of the guardrails of the request, as JSON. */
  readonly before: string;
}

/** Texts of a stream that goes on. */
export interface WindowOrder extends AnyOrder {
  readonly of: 'window';
  readonly texts: readonly TextPart[];
  readonly window: Subject['window'];
  readonly callsTools: boolean;
}

/** The place of a long text, and how many characters it has. */
export interface LongText {
  readonly path: readonly (string | number)[];
  readonly length: number;
}

/** An answer with its long texts beside it. */
export interface SplitAnswer {
  readonly json: string;
  readonly texts: readonly LongText[];
  /** The texts one after the other, in UTF-16: half of a pair of surrogates is kept, too. */
  readonly bytes: readonly Uint8Array[];
}

/** A stream that has ended. */
export interface StreamOrder extends AnyOrder {
  readonly of: 'stream';
  readonly said:
    | {
        readonly of: 'events';
        /** All events, one after the other. */
        readonly bytes: readonly Uint8Array[];
        readonly lengths: Uint32Array<ArrayBuffer>;
        /** How many of them are the tail. */
        readonly tail: number;
      }
    /** The answer that they made: they were sent. */
    | ({ readonly of: 'answer' } & SplitAnswer);
}

export type Order = RequestOrder | AnswerOrder | WindowOrder | StreamOrder;

/** Results are JSON: what a webhook gives may hold numbers that no double does. */
export interface RequestJudged {
  readonly of: 'request';
  /** An `Outcome` without what it changes; null for a dry run. */
  readonly outcome: string | null;
  readonly changed: { readonly bytes: Uint8Array; readonly json: boolean; readonly scan: ScanFacts | null } | null;
  /** Why the change cannot be sent. */
  readonly refused: string | null;
}

export interface AnswerJudged {
  readonly of: 'answer';
  /** `same`: as it came. Null: it is refused. */
  readonly body: Uint8Array | 'same' | null;
  readonly after: string;
  readonly failed: boolean;
  readonly soft: boolean;
}

export interface StreamJudged {
  readonly of: 'stream';
  /** An `Outcome` without what it changes; null where a text cannot be read. */
  readonly outcome: string | null;
  readonly unreadable: string | null;
  /** All events but the tail, one after the other. */
  readonly changed: { readonly events: Uint8Array; readonly tail: readonly Uint8Array[] } | null;
  /** Why the events cannot tell what was changed. */
  readonly refused: string | null;
}

export type Judged<O extends Order = Order> = O extends RequestOrder
  ? RequestJudged
  : O extends AnswerOrder
    ? AnswerJudged
    : StreamJudged;

export type CallRequest = Omit<Parameters<CheckHttpClient['call']>[0], 'body'> & { readonly body: Uint8Array | null };
export interface CallAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** A check's own error keeps its words. */
export type CallFailure = { readonly of: 'check'; readonly message: string } | Failure;

export type ToThread =
  | { readonly kind: 'run'; readonly id: number; readonly owner: string; readonly order: Order }
  /** Of a call, or whether a host resolves. */
  | { readonly kind: 'answered'; readonly id: number; readonly call: number; readonly answer: CallAnswer | boolean }
  | { readonly kind: 'failed'; readonly id: number; readonly call: number; readonly failure: CallFailure }
  | { readonly kind: 'ping' };

export type FromThread =
  | { readonly kind: 'call'; readonly id: number; readonly call: number; readonly request: CallRequest }
  | { readonly kind: 'resolves'; readonly id: number; readonly call: number; readonly host: string }
  /** A call was given up. */
  | { readonly kind: 'stop'; readonly id: number; readonly call: number }
  /** The result of a guardrail that runs beside the request, as JSON. */
  | { readonly kind: 'beside'; readonly id: number; readonly result: string }
  | { readonly kind: 'judged'; readonly id: number; readonly judged: Judged | Failure }
  /** No guardrail of the run reads its bytes any more. */
  | { readonly kind: 'ended'; readonly id: number }
  | { readonly kind: 'pong' };
