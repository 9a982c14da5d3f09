/** Targets whose rows are chat messages with their own rules. */
import { hash } from 'node:crypto';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { RowKind } from './report.ts';
import { fault, has } from './rows.ts';

/** A canonical chat row; a row of prompt and completion as a user and an assistant turn. */
export function turnsOf(row: JsonObject, kind: RowKind): JsonObject {
  if (kind !== 'text') return row;
  return {
    messages: [
      { role: 'user', content: row.prompt },
      { role: 'assistant', content: row.completion },
    ],
  };
}

/** Messages of a row that was checked. */
export function messagesOf(row: JsonObject): JsonObject[] {
  return Array.isArray(row.messages) ? row.messages.filter(isObject) : [];
}

export const isSystem = (message: JsonObject): boolean => message.role === 'system' || message.role === 'developer';

const MESSAGE = new Set(['role', 'content', 'name', 'tool_calls', 'tool_call_id', 'weight']);
const TOOL = new Set(['type', 'function']);
const CALL = new Set(['id', 'type', 'function']);
const CALLED = new Set(['name', 'arguments']);
const TEXT_PART = new Set(['type', 'text']);
const IMAGE_PART = new Set(['type', 'image_url']);
const IMAGE = new Set(['url', 'detail']);

function known(value: JsonValue | undefined, names: ReadonlySet<string>, where: string): void {
  if (!isObject(value)) return;
  for (const name of Object.keys(value)) {
    if (!names.has(name) && has(value, name)) fault('unsupported', `${where} has a field that the target cannot hold`);
  }
}

/** Refuses what the canonical message does not have, for targets whose rows are built anew. */
export function knownMessages(messages: readonly JsonObject[], at = 'messages'): void {
  messages.forEach((message, i) => {
    known(message, MESSAGE, `${at}[${i}]`);
    if (Array.isArray(message.content)) {
      for (const part of message.content) {
        if (!isObject(part)) continue;
        known(part, part.type === 'text' ? TEXT_PART : IMAGE_PART, `a part of ${at}[${i}]`);
        known(part.image_url, IMAGE, `an image of ${at}[${i}]`);
      }
    }
    if (Array.isArray(message.tool_calls)) {
      for (const call of message.tool_calls) {
        known(call, CALL, `a tool call of ${at}[${i}]`);
        if (isObject(call)) known(call.function, CALLED, `a tool call of ${at}[${i}]`);
      }
    }
  });
}

/** The same for the definitions of tools; `names` are the members the target has for a function. */
export function knownTools(row: JsonObject, names: ReadonlySet<string>): void {
  if (!Array.isArray(row.tools)) return;
  for (const tool of row.tools) {
    known(tool, TOOL, 'a tool');
    if (!isObject(tool) || !isObject(tool.function)) continue;
    for (const name of Object.keys(tool.function)) {
      // Not strict is what happens anyway.
      if (name === 'strict' && tool.function.strict === false) continue;
      if (!names.has(name) && has(tool.function, name))
        fault('unsupported', 'the definition of a tool has a field that the target cannot hold');
    }
  }
}

/** Fireworks: canonical rows, but a system message must be the first; the developer's is one under another name. */
export function systemFirst(row: JsonObject, kind: RowKind): JsonObject | null {
  const messages = messagesOf(row);
  if (has(row, 'functions') || messages.some((message) => has(message, 'function_call')))
    fault('unsupported', 'Fireworks has no "functions"; use "tools"');
  messages.forEach((message, i) => {
    if (i > 0 && isSystem(message))
      fault('unsupported', `messages[${i}]: Fireworks wants one system message, the first`);
  });
  const [first] = messages;
  if (first?.role !== 'developer') return kind === 'text' ? row : null;
  return { ...row, messages: [{ ...first, role: 'system' }, ...messages.slice(1)] };
}

const MISTRAL_ID = /^[A-Za-z0-9]{9}$/;

/**
 * Mistral: `{messages, tools?}`. Call ids must be nine letters or digits: others become nine characters of a hash, the
 * same in the call and its answer. An assistant that calls tools has no content beside the calls, and its calls must be
 * answered.
 */
export function mistral(row: JsonObject): JsonObject {
  const messages = messagesOf(row);
  knownMessages(messages);
  if (has(row, 'functions')) fault('unsupported', 'Mistral has no "functions"; use "tools"');
  if (row.parallel_tool_calls === false) fault('unsupported', 'Mistral has no "parallel_tool_calls"');
  const ids = new Map<string, string>();
  const used = new Set<string>();
  const idOf = (id: JsonValue | undefined): string => {
    const text = String(id);
    const given = ids.get(text);
    if (given !== undefined) return given;
    let fit = MISTRAL_ID.test(text) ? text : '';
    for (let round = 0; fit === '' || used.has(fit); round++)
      fit = hash('sha256', `${round}:${text}`, 'hex').slice(0, 9);
    ids.set(text, fit);
    used.add(fit);
    return fit;
  };
  // Ids that fit keep their place, whatever the others become.
  for (const message of messages) {
    for (const call of callsOf(message)) if (MISTRAL_ID.test(String(call.id))) idOf(call.id);
  }
  const out = messages.map((message, i): JsonObject => {
    const role = isSystem(message) ? 'system' : message.role;
    if (has(message, 'name') && role !== 'tool') fault('unsupported', `messages[${i}]: Mistral has no "name"`);
    const calls = callsOf(message);
    if (calls.length > 0) {
      if (has(message, 'content') && message.content !== '')
        fault('unsupported', `messages[${i}]: Mistral has no content beside tool calls`);
      if (messages[i + 1]?.role !== 'tool')
        fault('unsupported', `messages[${i}]: Mistral wants a tool message behind tool calls`);
    }
    const copy: JsonObject = { role };
    if (calls.length === 0) copy.content = message.content;
    if (has(message, 'name')) copy.name = message.name;
    if (calls.length > 0) copy.tool_calls = calls.map((call) => ({ ...call, id: idOf(call.id) }));
    if (role === 'tool') copy.tool_call_id = idOf(message.tool_call_id);
    if (has(message, 'weight')) copy.weight = message.weight;
    return copy;
  });
  return has(row, 'tools') ? { messages: out, tools: row.tools } : { messages: out };
}

export function callsOf(message: JsonObject): JsonObject[] {
  return Array.isArray(message.tool_calls) ? message.tool_calls.filter(isObject) : [];
}
