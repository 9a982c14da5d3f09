/** What a wire shape decides: how its events and answers are read. One object for each shape, in this folder. */
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { isObject } from '../../kernel/json.ts';
import type { ProviderError } from '../dialects/provider-error.ts';
import { embeddedError, streamedError } from '../dialects/provider-error.ts';
import type { Dialect } from '../row.ts';
import type { Resume } from './resume.ts';

/** A request of which some texts may differ. */
export interface Similar {
  readonly text: string;
  /** The body without it. */
  readonly rest: JsonObject;
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
}

/** Whether a value holds anything: a text, a list or an object. */
export const isSaid = (value: JsonValue | undefined): boolean =>
  typeof value === 'string' ? value !== '' : Array.isArray(value) ? value.length > 0 : isObject(value);

/** Why an answer, or the event that ends it, ended early of the provider's own accord. */
export const FILTERED: ReadonlySet<JsonValue | undefined> = new Set(['content_filter', 'refusal', 'content_filtered']);

const never = () => false;
const always = () => true;

/** A shape whose streams nobody knows. */
export const UNKNOWN: WireShape = {
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
};
