/** Kept bodies as readers see them: parsed, with what was left out as objects, and why there are none. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { KeptRequest } from './chunk.ts';
import { BODY_FLAGS, type BodyPart, type PartFacts } from './frame.ts';
import { omittedIn } from './omit-base64.ts';

/** Why bodies are not shown. */
export const ABSENT = ['off', 'guardrail', 'no_room', 'pending', 'expired', 'hidden'] as const;

export type BodyAbsence = (typeof ABSENT)[number];

/** `unreadable`: their chunk was changed or moved, or its data key is gone. */
export type MissingBodies = BodyAbsence | 'unreadable';

export interface PresentedPart {
  readonly url?: string;
  readonly method?: string;
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly body?: JsonValue;
}

/** Why no body of a record is shown; null where some may be. */
export function absence(flags: number | null, chunk: string | null): BodyAbsence | null {
  if (chunk !== null) return null;
  if (flags === null) return 'off';
  if ((flags & BODY_FLAGS.withheld) !== 0) return 'guardrail';
  return (flags & BODY_FLAGS.lost) !== 0 ? 'no_room' : 'off';
}

/** One part; undefined where there is none. `noMetadata`: what tells of the request's metadata is left out. */
export function presentPart(
  { end, bodies }: KeptRequest,
  part: BodyPart,
  noMetadata: boolean,
  origin: string,
): PresentedPart | undefined {
  const facts = end.parts[part];
  if (facts === undefined) return undefined;
  const { url, method, status } = facts;
  const value = valueIn(bodies[facts.same ?? part], facts);
  const shown = Object.entries(facts.headers ?? {}).filter(([name]) => !noMetadata || !METADATA_HEADERS.has(name));
  return {
    ...(url === undefined ? {} : { url: url.startsWith('/') ? origin + url : url }),
    ...(method === undefined ? {} : { method }),
    ...(status === undefined ? {} : { status }),
    ...(facts.headers === undefined ? {} : { headers: Object.fromEntries(shown) }),
    ...(value === undefined ? {} : { body: noMetadata ? withoutMetadataIn(value) : value }),
  };
}

const METADATA_HEADERS: ReadonlySet<string> = new Set(['x-gateway-metadata']);
/** Members of a request that say who its end user is, and what else its sender says of it. */
const METADATA_MEMBERS = ['user', 'metadata', 'safety_identifier'];

function withoutMetadataIn(value: JsonValue): JsonValue {
  if (!isObject(value)) return value;
  const out: JsonObject = { ...value };
  for (const name of METADATA_MEMBERS) delete out[name];
  return out;
}

function valueIn(bytes: Buffer | undefined, { truncated, headers: given }: PartFacts): JsonValue | undefined {
  if (bytes === undefined || bytes.length === 0) return undefined;
  const text = bytes.toString('utf8');
  if (truncated === true) return { text };
  if ((given?.['content-type'] ?? '').startsWith('text/event-stream')) return { events: eventsIn(text) };
  return parsed(text) ?? { text };
}

function parsed(text: string): JsonValue | null {
  try {
    return withOmitted(parseJson(text));
  } catch {
    return null;
  }
}

/** The data of the events of a stream; those that are no JSON as texts. */
function eventsIn(text: string): JsonValue[] {
  return text
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trim())
    .map((data) => parsed(data) ?? data);
}

function withOmitted(value: JsonValue): JsonValue {
  if (typeof value === 'string') return (omittedIn(value) as JsonObject | null) ?? value;
  if (Array.isArray(value)) return value.map(withOmitted);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withOmitted(member ?? null)]));
}
