import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { decodeString, type JsonFault, JsonScanError, scanJson } from '../../kernel/json-scan.ts';
import type { LlmRequest } from '../state/request.ts';

const FACTS = ['usage', 'usageMetadata', 'model', 'error'] as const;
const WITHOUT_ERROR = FACTS.slice(0, -1);
/** Answers of known providers are not attackers' bodies: only the shape of the scan matters, not its small limits. */
const LIMITS = { depth: 512, keys: 200_000, number: 4096, weight: 800_000 };
const MAX_USAGE_BYTES = 64 * 1024;
/** Begins the name of a usage: `usage`, or Gemini's `usageMetadata`. */
export const USAGE = Buffer.from('"usage');
const REST_OF_NAME = Buffer.from('Metadata"');
const isSpace = (byte: number | undefined): boolean => byte === 32 || byte === 9 || byte === 10 || byte === 13;

export interface AnswerFacts {
  readonly usage: JsonObject | null;
  readonly model: string | null;
  /** The answer, parsed, when it carries a top-level `error` and `errors` was set. */
  readonly error: JsonObject | null;
  /** It is no JSON object, or only a part of one. */
  readonly broken: boolean;
}

const NOTHING: AnswerFacts = { usage: null, model: null, error: null, broken: false };
/** What the scan refuses beyond that is JSON for others. */
const BROKEN: ReadonlySet<JsonFault> = new Set(['empty', 'not_object', 'syntax', 'trailing']);

/**
 * Usage, model and, where `errors` asks for it, the error of a JSON answer, found in its bytes. `cut` means only the end of it
 * is at hand.
 */
export function readAnswerFacts(body: Buffer, cut: boolean, errors: boolean): AnswerFacts {
  if (cut) return { ...NOTHING, usage: usageNearEnd(body) };
  let scan: ReturnType<typeof scanJson>;
  try {
    scan = scanJson(body, errors ? FACTS : WITHOUT_ERROR, LIMITS);
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    return BROKEN.has(error.reason) ? { ...NOTHING, broken: true } : { ...NOTHING, usage: usageNearEnd(body) };
  }
  const usage = scan.get('usage') ?? scan.get('usageMetadata');
  const model = scan.get('model');
  const failure = scan.get('error');
  return {
    usage: usage?.kind === 'object' ? objectAt(body, usage.start, usage.end) : null,
    model: model?.kind === 'string' ? decodeString(body, model) : null,
    error: failure?.kind === 'object' || failure?.kind === 'string' ? objectAt(body, 0, body.length) : null,
    broken: false,
  };
}

function objectAt(body: Buffer, start: number, end: number): JsonObject | null {
  try {
    const value: unknown = parseJson(body.toString('utf8', start, end));
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** The last `"usage": {…}` before the end of a long answer, or of a large event. */
export function usageNearEnd(body: Buffer): JsonObject | null {
  const tail = body.subarray(-MAX_USAGE_BYTES);
  for (let at = tail.lastIndexOf(USAGE); at !== -1; at = at === 0 ? -1 : tail.lastIndexOf(USAGE, at - 1)) {
    const open = usageOpensAt(tail, at);
    if (open !== -1) return usageAt(tail, open);
  }
  return null;
}

/** Where the object of a usage begins whose name may begin at `at`; -1 where it is none, or has not come yet. */
export function usageOpensAt(body: Buffer, at: number): number {
  let i = at + USAGE.length;
  if (body[i] === 34) i++;
  else if (body.compare(REST_OF_NAME, 0, REST_OF_NAME.length, i, Math.min(body.length, i + REST_OF_NAME.length)) === 0)
    i += REST_OF_NAME.length;
  else return -1;
  while (isSpace(body[i])) i++;
  if (body[i++] !== 58) return -1;
  while (isSpace(body[i])) i++;
  return body[i] === 123 ? i : -1;
}

/** The object of a usage that begins at `open`; null where it is too large, or cut off. */
export function usageAt(body: Buffer, open: number): JsonObject | null {
  let depth = 0;
  const last = Math.min(body.length, open + MAX_USAGE_BYTES);
  for (let i = open; i < last; i++) {
    if (body[i] === 123) depth += 1;
    else if (body[i] === 125 && --depth === 0) return objectAt(body, open, i + 1);
  }
  return null;
}

/** Where usage is: at the binding's own `path`, beside the answer, in Anthropic's message, or in a Responses event. */
export function findUsage(body: JsonObject, path: readonly string[] | undefined): JsonObject | null {
  if (path !== undefined) {
    const own = at(body, path);
    if (isObject(own)) return own;
  }
  if (isObject(body.usage)) return body.usage;
  if (isObject(body.usageMetadata)) return body.usageMetadata;
  for (const holder of ['message', 'response'] as const) {
    const inner = body[holder];
    if (isObject(inner) && isObject(inner.usage)) return inner.usage;
  }
  return null;
}

/** The value at a path of keys and array indexes. */
function at(body: JsonObject, path: readonly string[]): unknown {
  let value: unknown = body;
  for (const key of path) {
    if (Array.isArray(value)) value = value[Number(key)];
    else if (isObject(value)) value = value[key];
    else return undefined;
  }
  return value;
}

const GENERATION = /\/(?:completions|messages|responses)\/*(?:\?|$)/i;

/** What is passed through and yet asks for text: by `/v1/proxy/…`, or by a spelling of its path that no route has. */
export function passesGeneration({ operation, incoming }: LlmRequest): boolean {
  return operation.family === 'proxy' && incoming.method === 'POST' && GENERATION.test(incoming.url ?? '');
}

const LATER = /\/(?:batches|fine_tuning\/jobs)\/*(?:\?|$)/i;

/** What is passed through and makes its provider work for hours, which no answer tells. */
export function passesJob({ operation, incoming }: LlmRequest): boolean {
  return operation.family === 'proxy' && incoming.method === 'POST' && LATER.test(incoming.url ?? '');
}
