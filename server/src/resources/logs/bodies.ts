/** Kept bodies of a request, as `GET /logs/{id}` shows them, and why there are none. */
import { z } from 'zod';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { KeptRequest } from '../../telemetry/bodies/chunk.ts';
import { BODY_FLAGS, type BodyPart, type PartFacts } from '../../telemetry/bodies/frame.ts';
import { omittedIn } from '../../telemetry/bodies/omit-base64.ts';
import { Service } from '../services.ts';

export interface BodyReader {
  /** Null when they are not there, or not any more. Rejects with `unavailable` when they cannot be opened. */
  find(location: {
    readonly organisationId: string;
    readonly chunk: string;
    readonly slot: number;
    readonly id: string;
  }): Promise<KeptRequest | null>;
  /** Days that they stay, unless the organisation or workspace says fewer. */
  readonly days: number;
}

export const KEPT_BODIES = new Service<BodyReader>('kept bodies: no store of them is configured');

const headers = z.record(z.string(), z.string()).optional();
const body = z
  .unknown()
  .optional()
  .describe('The JSON of the body. `{events}` for a stream, `{text}` for what is no JSON or is cut.');

export const shownPart = z
  .object({
    url: z.string().optional(),
    method: z.string().optional(),
    status: z.int().optional(),
    headers,
    body,
  })
  .optional();

export const shownBody = { headers, body } as const;

/** Why bodies are not shown. */
export const ABSENT = ['off', 'guardrail', 'no_room', 'pending', 'expired', 'hidden'] as const;

export const shownBodies = z.object({
  kept: z.enum(['all', 'failed_answer', 'none']),
  reason: z
    .enum(ABSENT)
    .nullable()
    .describe(
      'Why there are none. `off`: debug_log is 0, or x-gateway-debug, SLUICE_LOG_BODIES or the sample says so. `guardrail`: one has denied the request. `no_room`: they were dropped. `pending`: another node has them still, ask again in a minute. `expired`: their days are over. `hidden`: you may read the record only.',
    ),
  truncated: z.boolean(),
  redacted: z.boolean().describe('Guardrails have changed the request or its answer.'),
  omitted: z.int().describe('Pictures, sound and files that were left out.'),
});

type ShownBodies = z.input<typeof shownBodies>;
type ShownPart = z.input<typeof shownPart>;

/** Why no body of a record is shown; null where some may be. */
export function absence(flags: number | null, chunk: string | null): (typeof ABSENT)[number] | null {
  if (chunk !== null) return null;
  if (flags === null) return 'off';
  if ((flags & BODY_FLAGS.withheld) !== 0) return 'guardrail';
  return (flags & BODY_FLAGS.lost) !== 0 ? 'no_room' : 'off';
}

export function noBodies(reason: (typeof ABSENT)[number]): ShownBodies {
  return { kept: 'none', reason, truncated: false, redacted: false, omitted: 0 };
}

export function presentBodies({ end }: KeptRequest): ShownBodies {
  const parts = Object.values(end.parts);
  return {
    kept: (end.flags & BODY_FLAGS.answerOnly) === 0 ? 'all' : 'failed_answer',
    reason: null,
    truncated: parts.some(({ truncated }) => truncated === true),
    redacted: (end.flags & BODY_FLAGS.redacted) !== 0,
    omitted: (end.parts.request?.omitted ?? 0) + (end.parts.answer?.omitted ?? 0),
  };
}

/** One part; undefined where there is none. `noMetadata`: what tells of the request's metadata is left out. */
export function presentPart(
  { end, bodies }: KeptRequest,
  part: BodyPart,
  noMetadata: boolean,
  origin: string,
): ShownPart {
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
