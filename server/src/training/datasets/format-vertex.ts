/** Vertex AI: Gemini contents. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { scanJson } from '../../kernel/json-scan.ts';
import { callsOf, isSystem, knownMessages, knownTools, messagesOf } from './format-chat.ts';
import { fault, has, imageUrl } from './rows.ts';

const FUNCTION = new Set(['name', 'description', 'parameters']);
/** Media types of images that are named by URL; the target needs one and does not look itself. */
const TYPES: ReadonlyMap<string, string> = new Map([
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['webp', 'image/webp'],
  ['gif', 'image/gif'],
  ['bmp', 'image/bmp'],
  ['heic', 'image/heic'],
  ['heif', 'image/heif'],
]);

export function vertexSupervised(row: JsonObject): JsonObject {
  const messages = messagesOf(row);
  knownMessages(messages);
  if (has(row, 'functions')) fault('unsupported', 'Vertex AI has no "functions"; use "tools"');
  if (row.parallel_tool_calls === false) fault('unsupported', 'Vertex AI has no "parallel_tool_calls"');
  const leading = messages.findIndex((message) => !isSystem(message));
  const system = messages.slice(0, leading).flatMap((message, i) => {
    noExtras(message, `messages[${i}]`);
    return partsOf(message, `messages[${i}]`);
  });
  const tools = toolsOf(row);
  return {
    ...(system.length === 0 ? {} : { systemInstruction: { parts: system } }),
    contents: contentsOf(messages.slice(leading), 'messages', leading),
    ...(tools.length === 0 ? {} : { tools: [{ functionDeclarations: tools }] }),
  };
}

/** The preferred answer scores 1, the other 0. A row has no place for system text: it goes before the first user text. */
export function vertexPreference(row: JsonObject): JsonObject {
  const input = isObject(row.input) ? row.input : {};
  const { tools } = input;
  if (has(input, 'tools') && !(Array.isArray(tools) && tools.length === 0))
    fault('unsupported', 'Vertex AI has no "tools" in preference rows');
  if (input.parallel_tool_calls === false) fault('unsupported', 'Vertex AI has no "parallel_tool_calls"');
  const messages = messagesOf(input);
  knownMessages(messages, 'input.messages');
  const leading = messages.findIndex((message) => !isSystem(message));
  if (leading < 0) fault('unsupported', 'Vertex AI needs a user message in "input"');
  const turns = messages.slice(leading);
  const contents = contentsOf(turns, 'input.messages', leading);
  if (leading > 0) prepend(contents, turns, systemText(messages.slice(0, leading)));
  return {
    contents,
    completions: [
      { score: 1, completion: outputOf(row, 'preferred_output') },
      { score: 0, completion: outputOf(row, 'non_preferred_output') },
    ],
  };
}

function systemText(messages: readonly JsonObject[]): string {
  return messages
    .map((message, i) => {
      noExtras(message, `input.messages[${i}]`);
      const parts = partsOf(message, `input.messages[${i}]`);
      return parts.map((part) => part.text).join('');
    })
    .join('\n\n');
}

/** Puts system text in front of the first user text, or of the first user message when it has none. */
function prepend(contents: readonly JsonObject[], turns: readonly JsonObject[], system: string): void {
  if (turns[0]?.role !== 'user') fault('unsupported', 'Vertex AI needs a user message behind the system text');
  const parts = contents[0]?.parts;
  if (!Array.isArray(parts)) return;
  const [first] = parts;
  if (isObject(first) && typeof first.text === 'string') parts[0] = { text: `${system}\n\n${first.text}` };
  else parts.unshift({ text: system });
}

function outputOf(row: JsonObject, name: 'preferred_output' | 'non_preferred_output'): JsonObject {
  const output = row[name];
  if (!Array.isArray(output) || output.length !== 1)
    fault('unsupported', `"${name}" must hold one message for Vertex AI`);
  const messages = output.filter(isObject);
  knownMessages(messages, name);
  return contentsOf(messages, name, 0)[0] ?? {};
}

/** `offset`: index of the first message in the row, for messages. */
function contentsOf(messages: readonly JsonObject[], at: string, offset: number): JsonObject[] {
  const names = new Map<string, JsonValue | undefined>();
  const contents: JsonObject[] = [];
  /** Parts of the content that answers the calls just made: all answers of one turn belong into one. */
  let answers: JsonValue[] | null = null;
  messages.forEach((message, index) => {
    const where = `${at}[${index + offset}]`;
    if (isSystem(message)) fault('unsupported', `${where}: Vertex AI takes system text before the first turn only`);
    noExtras(message, where);
    if (message.role === 'tool') {
      const part = {
        functionResponse: {
          name: names.get(String(message.tool_call_id)) ?? '',
          response: responseOf(message),
        },
      };
      if (answers === null) {
        answers = [part];
        contents.push({ role: 'user', parts: answers });
      } else {
        answers.push(part);
      }
      return;
    }
    answers = null;
    const parts = has(message, 'content') && message.content !== '' ? partsOf(message, where) : [];
    for (const call of callsOf(message)) {
      const called = isObject(call.function) ? call.function : {};
      names.set(String(call.id), called.name);
      parts.push({ functionCall: { name: called.name, args: argumentsOf(called.arguments, where) } });
    }
    contents.push({ role: message.role === 'assistant' ? 'model' : 'user', parts });
  });
  return contents;
}

function noExtras(message: JsonObject, where: string): void {
  if (has(message, 'name')) fault('unsupported', `${where}: Vertex AI has no "name"`);
  if (message.weight === 0) fault('unsupported', `${where}: Vertex AI has no weight 0`);
}

function partsOf(message: JsonObject, where: string): JsonObject[] {
  if (typeof message.content === 'string') return [{ text: message.content }];
  if (!Array.isArray(message.content)) return [];
  return message.content
    .filter(isObject)
    .map((part) => (part.type === 'text' ? { text: part.text } : imageOf(part, where)));
}

function imageOf(part: JsonObject, where: string): JsonObject {
  const detail = isObject(part.image_url) ? part.image_url.detail : null;
  if (detail !== undefined && detail !== null && detail !== 'auto')
    fault('unsupported', `${where}: Vertex AI has no "detail" of an image`);
  const url = imageUrl(part) ?? '';
  if (/^data:/i.test(url.slice(0, 5))) {
    const comma = url.indexOf(',');
    const mimeType = url
      .slice(5, comma)
      .replace(/;base64$/i, '')
      .toLowerCase();
    return { inlineData: { mimeType, data: url.slice(comma + 1) } };
  }
  const extension = /\.([a-z0-9]{1,5})(?:[?#]|$)/i.exec(url.slice(url.lastIndexOf('/')));
  const mimeType = TYPES.get(extension?.[1]?.toLowerCase() ?? '');
  if (mimeType === undefined)
    fault('unsupported', `${where}: the address of an image must end with its type, such as .png, for Vertex AI`);
  return { fileData: { mimeType, fileUri: url } };
}

function strictObject(text: string): JsonObject | null {
  try {
    // Two members of one name would lose one of them.
    scanJson(Buffer.from(text), []);
    const value = parseExact(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

function argumentsOf(value: JsonValue | undefined, where: string): JsonObject {
  return (
    strictObject(typeof value === 'string' ? value : '') ??
    fault('unsupported', `${where}: "arguments" of a tool call must be a JSON object for Vertex AI`)
  );
}

/** What a tool said, when it is a JSON object; any other text as its `output`. */
function responseOf(message: JsonObject): JsonObject {
  const { content } = message;
  const text = Array.isArray(content)
    ? content.map((part) => (isObject(part) && typeof part.text === 'string' ? part.text : '')).join('')
    : content;
  return strictObject(typeof text === 'string' ? text : '') ?? { output: text };
}

function toolsOf(row: JsonObject): JsonValue[] {
  knownTools(row, FUNCTION);
  if (!Array.isArray(row.tools)) return [];
  return row.tools.filter(isObject).map((tool) => {
    const { name, description, parameters } = isObject(tool.function) ? tool.function : {};
    return {
      name,
      ...(description === undefined || description === null ? {} : { description }),
      ...(parameters === undefined || parameters === null ? {} : { parameters }),
    };
  });
}
