/**
 * The canonical rows of a data set and what makes one invalid. Null counts as absent everywhere: data
 * exported from an API carries `tool_calls: null` and its like. Members no rule names are left alone here; a conversion
 * refuses those its target cannot hold.
 */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { RowFault, type RowKind, type RowReason } from './report.ts';

const ROLES: ReadonlySet<unknown> = new Set(['system', 'developer', 'user', 'assistant', 'tool']);
const ENDPOINTS = /^\/v1\/[a-z/_-]{1,60}$/;

export const has = (row: JsonObject, name: string): boolean => row[name] !== undefined && row[name] !== null;

export function fault(code: RowReason, message: string): never {
  throw new RowFault(code, message);
}

/** What the row is by the members it has. Throws when it has none of them, or those of two kinds. */
export function kindOf(row: JsonObject): RowKind {
  const batch = has(row, 'custom_id') || (has(row, 'body') && has(row, 'url'));
  const chat = has(row, 'messages');
  const preference = has(row, 'input') || has(row, 'preferred_output') || has(row, 'non_preferred_output');
  const text = has(row, 'prompt') || has(row, 'completion');
  if (Number(batch) + Number(chat) + Number(preference) + Number(text) === 1) {
    return batch ? 'batch' : chat ? 'chat' : preference ? 'preference' : 'text';
  }
  return fault(
    'unknown_kind',
    batch || chat || preference || text
      ? 'the row has the fields of two kinds of rows'
      : 'the row has neither "messages", nor "prompt" and "completion", nor "input" with two outputs',
  );
}

/** Throws RowFault. */
export function checkRow(row: JsonObject, kind: RowKind): void {
  switch (kind) {
    case 'chat':
      checkMessages(row.messages, 'messages', true);
      checkTools(row, '');
      return;
    case 'preference':
      checkPreference(row);
      return;
    case 'text':
      checkText(row.prompt, 'prompt');
      checkText(row.completion, 'completion');
      return;
    case 'batch':
      checkBatchLine(row);
  }
}

function checkText(value: JsonValue | undefined, name: string): void {
  if (typeof value !== 'string') fault('text', `"${name}" must be a text`);
  if (isBlank(value)) fault('empty_turn', `"${name}" is empty`);
}

/** Like `trim() === ''`, but almost always decided by the first character. */
function isBlank(text: string): boolean {
  return text.charCodeAt(0) > 32 && text.charCodeAt(0) < 128 ? false : text.trim() === '';
}

function checkBatchLine(row: JsonObject): void {
  if (typeof row.custom_id !== 'string' || row.custom_id === '')
    fault('batch_line', '"custom_id" must be a text that is not empty');
  if (row.method !== 'POST') fault('batch_line', '"method" must be "POST"');
  if (typeof row.url !== 'string' || !ENDPOINTS.test(row.url))
    fault('batch_line', '"url" must be a path such as /v1/chat/completions');
  if (!isObject(row.body)) fault('batch_line', '"body" must be an object');
}

function checkPreference(row: JsonObject): void {
  const input = row.input;
  if (!isObject(input)) fault('messages', '"input" must be an object with "messages"');
  checkMessages(input.messages, 'input.messages', false);
  checkTools(input, 'input.');
  for (const name of ['preferred_output', 'non_preferred_output'] as const) {
    const output = row[name];
    if (!Array.isArray(output) || output.length === 0)
      fault('outputs', `"${name}" must be a list with an assistant message`);
    for (const message of output) {
      if (!isObject(message) || message.role !== 'assistant')
        fault('outputs', `"${name}" may hold assistant messages only`);
    }
    checkMessages(output, name, true);
  }
}

function checkTools(row: JsonObject, at: string): void {
  const { tools, functions } = row;
  if (has(row, 'tools')) {
    if (!Array.isArray(tools)) fault('tools', `"${at}tools" must be a list`);
    for (const tool of tools) {
      if (!isObject(tool) || tool.type !== 'function' || !isFunction(tool.function))
        fault('tools', `"${at}tools" may hold {"type": "function", "function": {"name": …}} only`);
    }
  }
  if (has(row, 'functions') && !(Array.isArray(functions) && functions.every(isFunction)))
    fault('tools', `"${at}functions" must be a list of functions with a name`);
  if (has(row, 'parallel_tool_calls') && typeof row.parallel_tool_calls !== 'boolean')
    fault('tools', `"${at}parallel_tool_calls" must be true or false`);
}

const isFunction = (value: JsonValue | undefined): boolean =>
  isObject(value) && typeof value.name === 'string' && value.name !== '';

/**
 * `answered`: the last message must be the assistant's (training rows and outputs); otherwise it must not be (the
 * input of a preference).
 */
function checkMessages(messages: JsonValue | undefined, at: string, answered: boolean): void {
  if (!Array.isArray(messages) || messages.length === 0) fault('messages', `"${at}" must be a list with messages`);
  /** Ids of calls that wait for their tool message; null when there are none. */
  let waiting: Set<string> | null = null;
  let last: JsonValue | undefined;
  for (let i = 0; i < messages.length; i++) {
    const message = messages[i];
    if (!isObject(message)) fault('messages', `${at}[${i}] is not an object`);
    const { role } = message;
    if (!ROLES.has(role)) fault('role', `${at}[${i}].role must be one of system, developer, user, assistant and tool`);
    if (role === 'tool') {
      const id = message.tool_call_id;
      if (typeof id !== 'string') fault('tool_pairing', `${at}[${i}] has no "tool_call_id"`);
      if (waiting === null || !waiting.delete(id))
        fault('tool_pairing', `${at}[${i}] answers a tool call that the assistant did not just make`);
    } else {
      if (waiting !== null && waiting.size > 0)
        fault('tool_pairing', `a tool call before ${at}[${i}] has no tool message`);
      if (has(message, 'tool_call_id')) fault('tool_pairing', `${at}[${i}]: only tool messages have a "tool_call_id"`);
      waiting = null;
    }
    if (has(message, 'tool_calls')) waiting = callsOf(message, at, i);
    if (has(message, 'weight')) {
      if (role !== 'assistant') fault('weight', `${at}[${i}]: only assistant messages have a "weight"`);
      if (message.weight !== 0 && message.weight !== 1) fault('weight', `${at}[${i}].weight must be 0 or 1`);
    }
    if (has(message, 'name') && typeof message.name !== 'string') fault('messages', `${at}[${i}].name must be a text`);
    checkContent(message, role, at, i);
    last = role;
  }
  if (answered && last !== 'assistant') fault('last_message', `the last of "${at}" must be the assistant's`);
  if (!answered && last === 'assistant') fault('last_message', `the last of "${at}" must not be the assistant's`);
  if (waiting !== null && waiting.size > 0 && last === 'tool')
    fault('tool_pairing', `a tool call in "${at}" has no tool message`);
}

function callsOf(message: JsonObject, at: string, i: number): Set<string> {
  const calls = message.tool_calls;
  if (message.role !== 'assistant') fault('tool_calls', `${at}[${i}]: only assistant messages have "tool_calls"`);
  if (!Array.isArray(calls) || calls.length === 0)
    fault('tool_calls', `${at}[${i}].tool_calls must be a list with calls`);
  const ids = new Set<string>();
  for (const call of calls) {
    if (!isObject(call) || typeof call.id !== 'string' || call.id === '')
      fault('tool_calls', `${at}[${i}].tool_calls: each call needs an "id"`);
    if (call.type !== 'function' || !isFunction(call.function))
      fault('tool_calls', `${at}[${i}].tool_calls: each call needs {"type": "function", "function": {"name": …}}`);
    if (typeof (call.function as JsonObject).arguments !== 'string')
      fault('tool_calls', `${at}[${i}].tool_calls: "arguments" must be JSON as a text`);
    if (ids.has(call.id)) fault('tool_calls', `${at}[${i}].tool_calls: two calls have one "id"`);
    ids.add(call.id);
  }
  return ids;
}

function checkContent(message: JsonObject, role: JsonValue | undefined, at: string, i: number): void {
  const { content } = message;
  if (typeof content === 'string') {
    // A tool may have nothing to say, and an assistant that calls tools may be silent.
    if (role !== 'tool' && isBlank(content) && !(role === 'assistant' && mayBeSilent(message)))
      fault('empty_turn', `${at}[${i}] is empty`);
    return;
  }
  if (content === undefined || content === null) {
    if (role === 'assistant' && mayBeSilent(message)) return;
    fault('empty_turn', `${at}[${i}] has no content`);
  }
  if (!Array.isArray(content)) fault('content', `${at}[${i}].content must be a text or a list of parts`);
  if (content.length === 0) fault('empty_turn', `${at}[${i}] is empty`);
  for (const part of content) checkPart(part, role, at, i);
}

function mayBeSilent(message: JsonObject): boolean {
  return has(message, 'tool_calls') || isObject(message.function_call);
}

function checkPart(part: JsonValue, role: JsonValue | undefined, at: string, i: number): void {
  if (!isObject(part)) fault('content', `${at}[${i}].content: a part is not an object`);
  if (part.type === 'text') {
    if (typeof part.text !== 'string') fault('content', `${at}[${i}].content: a text part has no "text"`);
    if (role !== 'tool' && isBlank(part.text)) fault('empty_turn', `${at}[${i}].content: a text part is empty`);
    return;
  }
  if (part.type !== 'image_url') fault('content', `${at}[${i}].content: parts may be "text" or "image_url"`);
  if (role !== 'user') fault('content', `${at}[${i}].content: only user messages have images`);
  const url = imageUrl(part);
  if (url === null || !isImage(url))
    fault('content', `${at}[${i}].content: an image needs an http://, https:// or gs:// URL or a base64 data URI`);
}

/** The URL of an `image_url` part, which may be given plainly or as `{url}`. */
export function imageUrl(part: JsonObject): string | null {
  const value = isObject(part.image_url) ? part.image_url.url : part.image_url;
  return typeof value === 'string' ? value : null;
}

/** Looks at the beginning only: the data of an image may be megabytes. */
function isImage(url: string): boolean {
  return /^(?:https?:\/\/[^\s/]|gs:\/\/[^\s/]|data:image\/[a-z0-9.+-]{1,40};base64,[A-Za-z0-9+/])/i.test(
    url.slice(0, 100),
  );
}
