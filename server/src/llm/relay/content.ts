/** What one event of a stream, or a whole answer, says, in the caller's shape: content, a refusal to go on, a failure. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import {
  anthropicErrorStatus,
  embeddedError,
  type ProviderError,
  readProviderError,
  streamedError,
} from '../../operations/dialects/provider-error.ts';
import type { Operation } from '../../operations/operation.ts';

const said = (value: JsonValue | undefined): boolean =>
  typeof value === 'string' ? value !== '' : Array.isArray(value) ? value.length > 0 : isObject(value);

/** Fields of a chat delta that stand for themselves and are no content. */
const FRAME: ReadonlySet<string> = new Set(['role']);

/** Whether a chat or text chunk says anything: text, reasoning, a refusal, a tool call, sound. */
function chunkSays({ choices }: JsonObject): boolean {
  if (!Array.isArray(choices)) return false;
  return choices.some((choice) => {
    if (!isObject(choice)) return false;
    if (said(choice.text)) return true;
    const { delta } = choice;
    return isObject(delta) && Object.entries(delta).some(([name, value]) => !FRAME.has(name) && said(value));
  });
}

function messageSays(body: JsonObject): boolean {
  const { type, content_block: block, delta } = body;
  if (type === 'content_block_delta')
    return isObject(delta) && Object.entries(delta).some(([name, value]) => name !== 'type' && said(value));
  if (type !== 'content_block_start' || !isObject(block)) return false;
  // Blocks of text and of thinking begin empty; whatever else begins says what it is.
  return (block.type !== 'text' && block.type !== 'thinking') || said(block.text) || said(block.thinking);
}

function responseSays({ type, delta, item }: JsonObject): boolean {
  if (typeof type !== 'string') return false;
  if (type.endsWith('.delta')) return said(delta);
  return (
    type === 'response.output_item.added' && isObject(item) && item.type !== 'message' && item.type !== 'reasoning'
  );
}

/**
 * Whether an event holds content a user would see: text, reasoning, a tool call. Roles, starts of messages and of empty
 * blocks, pings and counts are none. Of streams whose events nobody knows, every event is content.
 */
export function saysSomething({ shape }: Operation, body: JsonObject): boolean {
  switch (shape) {
    case 'chat':
    case 'completions':
      return chunkSays(body);
    case 'messages':
      return messageSays(body);
    case 'responses':
      return responseSays(body);
    default:
      return true;
  }
}

/** Whether the events of this operation's streams are known: each holds a JSON object. */
export function knowsEvents({ shape }: Operation): boolean {
  return shape === 'chat' || shape === 'completions' || shape === 'messages' || shape === 'responses';
}

/** An event that keeps the connection alive and says nothing of the answer. */
export function isPing({ shape }: Operation, body: JsonObject): boolean {
  return shape === 'messages' && body.type === 'ping';
}

/** Why an answer, or the event that ends it, ended early of the provider's own accord. */
const FILTERED: ReadonlySet<JsonValue | undefined> = new Set(['content_filter', 'refusal', 'content_filtered']);

/** The provider has held back what was answered; the same question elsewhere may be answered. */
export function isFiltered({ shape }: Operation, body: JsonObject): boolean {
  switch (shape) {
    case 'chat':
    case 'completions':
      return (
        Array.isArray(body.choices) &&
        body.choices.some((choice) => isObject(choice) && FILTERED.has(choice.finish_reason))
      );
    case 'messages':
      return FILTERED.has(isObject(body.delta) ? body.delta.stop_reason : body.stop_reason);
    case 'responses': {
      const response = isObject(body.response) ? body.response : body;
      return isObject(response.incomplete_details) && FILTERED.has(response.incomplete_details.reason);
    }
    default:
      return false;
  }
}

/** Whether the event tells why the answer ended. */
export function tellsEnd({ shape }: Operation, body: JsonObject): boolean {
  switch (shape) {
    case 'chat':
    case 'completions':
      return Array.isArray(body.choices) && body.choices.some((one) => isObject(one) && said(one.finish_reason));
    case 'messages':
      return body.type === 'message_delta' && isObject(body.delta) && said(body.delta.stop_reason);
    case 'responses':
      return isObject(body.response) && said(body.response.status);
    default:
      return true;
  }
}

/** The error as which a filtered answer counts. */
export const filtered: ProviderError = {
  status: 400,
  message: 'The provider filtered the answer.',
  type: 'invalid_request_error',
  param: null,
  code: 'content_filter',
};

/** The error an event tells, or null. Its status is the one that the same error has outside a stream, 502 when unknown. */
export function errorIn({ shape }: Operation, body: JsonObject): ProviderError | null {
  const inner = shape === 'responses' && isObject(body.response) ? body.response.error : body.error;
  const flat = shape === 'responses' && body.type === 'error' && !isObject(inner);
  const error = flat ? body : inner;
  if (!isObject(error)) return typeof error === 'string' ? embeddedError({ error }) : null;
  if (shape === 'messages') {
    if (body.type !== 'error') return null;
    return readProviderError(typeof error.type === 'string' ? anthropicErrorStatus(error.type) : 500, body);
  }
  return streamedError({ error: flat ? { ...body, type: null } : error });
}

/** What made a whole answer fail that came with a status of success, as Responses do; null for any other. */
export function failureIn(operation: Operation, body: JsonObject): ProviderError | null {
  if (operation.shape !== 'responses' || body.status !== 'failed') return null;
  const told = { response: body };
  return named(errorIn(operation, told), told) ?? unnamed;
}

/** With the provider's own name for it, where the table of errors has none. */
export function named(error: ProviderError | null, body: JsonObject): ProviderError | null {
  if (error === null || error.code !== null) return error;
  const inner = isObject(body.response) ? body.response.error : body.error;
  const { code, type } = isObject(inner) ? inner : { code: body.code, type: null };
  const own = typeof code === 'string' && code !== '' ? code : type;
  return typeof own === 'string' && own !== '' ? { ...error, code: own } : error;
}

const unnamed: ProviderError = {
  status: 502,
  message: 'The provider failed to answer and did not say why.',
  type: 'api_error',
  param: null,
  code: null,
};

/** Where a whole answer of a shape holds what was answered. */
const HOLDS: Readonly<Partial<Record<Operation['shape'], string>>> = {
  chat: 'choices',
  completions: 'choices',
  messages: 'content',
  responses: 'output',
  embeddings: 'data',
};

/** The member without which an answer of this operation is none; null where any is. */
export function memberOf({ shape }: Operation): string | null {
  return HOLDS[shape] ?? null;
}

/**
 * Whether providers say errors of this operation inside an answer with a status of success: those that must hold what was
 * answered. A member `error` of anything else belongs to the object, as that of a video or a run that failed.
 */
export function saysErrors(operation: Operation): boolean {
  return memberOf(operation) !== null;
}
