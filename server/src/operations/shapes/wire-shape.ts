/** What a wire shape decides: how its events and answers are read. One object for each shape, in this folder. */
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { isObject } from '../../kernel/json.ts';
import type { Dialect } from '../dialects/dialect.ts';
import type { ProviderError } from '../dialects/provider-error.ts';
import { embeddedError, streamedError } from '../dialects/provider-error.ts';
import type { StreamEvent } from '../stream.ts';
import type { UsageForm } from '../usage.ts';
import { type Assembler, EventList } from './assembler.ts';
import type { Estimate } from './estimate.ts';
import type { Resume } from './resume.ts';

/** A request of which some texts may differ. */
export interface Similar {
  readonly text: string;
  /** The body without it. */
  readonly rest: JsonObject;
}

/** What is said of an answer that Sluice itself makes: `id` without the prefix of its kind, `created` in seconds. */
export interface AnswerHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

/** An answer in one piece, and the events of the same answer as a stream. */
export interface MadeAnswer {
  readonly body: JsonObject;
  readonly events: readonly StreamEvent[];
}

/** Where a stream has the results of guardrails; `results` is the member that holds them. */
export interface ResultsPlace {
  /** An event before those that end the stream. */
  readonly event?: (head: AnswerHead, results: JsonObject) => StreamEvent;
  /** The body of an event that ends the stream, with the results in it; null where that event has no place for them. */
  readonly inEnd?: (body: JsonObject, results: JsonObject) => JsonObject | null;
}

export interface WireShape {
  /** The dialect in which an upstream of this shape reports errors; null: that of the operation. */
  readonly dialect: Dialect | null;
  /** Each event of a stream holds a JSON object of a known form, and a defined marker ends it: a close without it is a cut. */
  readonly knowsEvents: boolean;
  /** The member without which a whole answer is none; null where any is. */
  readonly member: string | null;
  /**
   * Whether an event holds content a user would see: text, reasoning, a tool call. Roles, starts of messages and of empty
   * blocks, pings and counts are none. Of streams whose events nobody knows, every event is content.
   */
  says(event: JsonObject): boolean;
  /** An event that keeps the connection alive and says nothing of the answer. */
  isPing(event: JsonObject): boolean;
  /** Of a whole answer or the event that ends it: the provider has held back what was answered. */
  isFiltered(body: JsonObject): boolean;
  /** Whether the event tells why the answer ended. */
  tellsEnd(event: JsonObject): boolean;
  /** The error an event tells, or null. Its status is the one that the same error has outside a stream, 502 when unknown. */
  errorIn(event: JsonObject): ProviderError | null;
  /** Whether a whole answer with a status of success says that it failed. */
  hasFailed(body: JsonObject): boolean;
  /** How a stream that broke is continued; null where it is not. */
  readonly resume: Resume | null;
  /** What the user said, and the body without it; null where a similar request may not share its answer. */
  similar(body: JsonObject, system: 'ignore' | 'match'): Similar | null;
  /** Work may go on at the provider after the answer, if its body says so. */
  readonly hasBackground: boolean;
  /** How token counts are read and written. */
  readonly usage: UsageForm;
  /** What a request will use. */
  readonly estimate: Estimate;
  /** An API that Sluice does not know: any member may be text, and an error may be part of the object that was asked for. */
  readonly isOpen: boolean;
  /** Members of a request that may hold a conversation; an answer to it is no part of them. */
  readonly conversations: readonly string[];
  /** Calls of tools in a conversation have a place for what only the provider that made them understands. */
  readonly hasCallExtras: boolean;
  /** Answers say something; false: they hold numbers only. */
  readonly answersSay: boolean;
  /** Bodies may be pictures or sound: bytes that are no text hide none. */
  readonly holdsMedia: boolean;
  /** Answers may be something else than JSON, such as a plain text. */
  readonly answersPlainly: boolean;
  /** Follows the events of one stream, for who reads its texts. */
  assembler(): Assembler;
  /** Whether an event ends every text that has begun. */
  endsTexts(event: Buffer): boolean;
  /** Where a stream has the results of guardrails; null: nowhere. */
  readonly results: ResultsPlace | null;
  /**
   * An answer that says `text` and nothing else, with `results` in the stream where there are some. Null: made from a chat
   * completion by conversion, or there is none.
   */
  readonly answerOf: ((head: AnswerHead, text: string, results: JsonObject | null) => MadeAnswer) | null;
}

/** What each shape says for itself: nothing in it is safe to assume. */
type Own = 'usage' | 'estimate' | 'conversations' | 'answersSay' | 'holdsMedia' | 'answersPlainly';

/** Whether a value holds anything: a text, a list or an object. */
export const isSaid = (value: JsonValue | undefined): boolean =>
  typeof value === 'string' ? value !== '' : Array.isArray(value) ? value.length > 0 : isObject(value);

/** Why an answer, or the event that ends it, ended early of the provider's own accord. */
export const FILTERED: ReadonlySet<JsonValue | undefined> = new Set(['content_filter', 'refusal', 'content_filtered']);

const never = () => false;
const always = () => true;

/** A shape whose streams nobody knows, and that has none of what only some shapes have. */
export const UNKNOWN: Omit<WireShape, Own> = {
  dialect: 'openai',
  knowsEvents: false,
  member: null,
  says: always,
  isPing: never,
  isFiltered: never,
  tellsEnd: always,
  errorIn({ error }) {
    if (isObject(error)) return streamedError({ error });
    return typeof error === 'string' ? embeddedError({ error }) : null;
  },
  hasFailed: never,
  resume: null,
  similar: () => null,
  hasBackground: false,
  isOpen: false,
  hasCallExtras: false,
  assembler: () => new EventList(),
  endsTexts: never,
  results: null,
  answerOf: null,
};
