/** Messages of a chat as Cohere's v2 API takes them. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, quoted, refuse } from '../../operations/convert/fields.ts';

function textOf(part: JsonObject, at: string): JsonObject {
  const text = asString(part.type === 'refusal' ? part.refusal : part.text);
  return text === null ? invalid(`${at}.text`, 'A text part needs "text".') : { type: 'text', text };
}

function imageOf(part: JsonObject, at: string): JsonObject {
  const { url, detail } = isObject(part.image_url) ? part.image_url : { url: part.image_url };
  if (typeof url !== 'string' || url === '') invalid(`${at}.image_url`, 'An image part needs "image_url.url".');
  return { type: 'image_url', image_url: { url, ...(typeof detail === 'string' ? { detail } : null) } };
}

function documentOf(part: JsonObject, at: string): JsonObject {
  if (!isObject(part.document)) invalid(`${at}.document`, 'A document part needs "document".');
  return { type: 'document', document: part.document };
}

/** Content as it stands, or its parts one by one. `more` are the types beyond text that may stand here. */
function contentOf(
  content: JsonValue | undefined,
  at: string,
  more: Readonly<Record<string, (part: JsonObject, at: string) => JsonObject>>,
): string | JsonObject[] {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return invalid(at, 'The content must be a text or a list of parts.');
  return content.map((part, i) => {
    const place = `${at}[${i}]`;
    if (!isObject(part)) return invalid(place, 'A content part must be an object.');
    const { type } = part;
    if (type === 'text') return textOf(part, place);
    const read = typeof type === 'string' && Object.hasOwn(more, type) ? more[type] : undefined;
    return read?.(part, place) ?? refuse(`${place}.type`, `parts of type ${quoted(type)} have no equivalent there.`);
  });
}

const IMAGES = { image_url: imageOf };
const DOCUMENTS = { document: documentOf };
const REFUSALS = { refusal: textOf };

const asParts = (content: string | JsonObject[]): JsonObject[] =>
  typeof content !== 'string' ? content : content === '' ? [] : [{ type: 'text', text: content }];

/** One conversation: calls are remembered, so that each result belongs to one. */
class Conversation {
  readonly #calls = new Set<string>();

  #call(call: JsonValue, at: string): JsonObject {
    if (!isObject(call) || !isObject(call.function)) return refuse(at, 'only function calls have an equivalent there.');
    const id = asString(call.id) ?? '';
    if (id === '') invalid(`${at}.id`, 'A call needs an id.');
    if (this.#calls.has(id)) invalid(`${at}.id`, 'The same call id appears twice in this history.');
    this.#calls.add(id);
    const { name, arguments: given } = call.function;
    // The text is kept as it came: reading and writing it again would lose digits of large numbers.
    const text = asString(given) ?? '';
    return { id, type: 'function', function: { name: name ?? '', arguments: text.trim() === '' ? '{}' : text } };
  }

  #assistant(message: JsonObject, at: string): JsonObject | null {
    if (isObject(message.function_call)) refuse(`${at}.function_call`, 'use tool_calls.');
    if (isObject(message.audio)) refuse(`${at}.audio`, 'audio has no equivalent there.');
    const calls = asArray(message.tool_calls).map((call, i) => this.#call(call, `${at}.tool_calls[${i}]`));
    let content = contentOf(message.content ?? asString(message.refusal) ?? '', `${at}.content`, REFUSALS);
    let plan = asString(message.tool_plan);
    // A text before calls is what Cohere calls their plan.
    if (calls.length > 0 && plan === null) {
      plan = asParts(content)
        .map(({ text }) => asString(text) ?? '')
        .join('');
      content = '';
    }
    const thinking = asString(message.reasoning_content) ?? '';
    if (thinking !== '') content = [{ type: 'thinking', thinking }, ...asParts(content)];
    // What carries nothing at all is left out.
    if (calls.length === 0 && content.length === 0) return null;
    return {
      role: 'assistant',
      ...(content.length === 0 ? null : { content }),
      ...(calls.length === 0 ? null : { tool_calls: calls }),
      ...(calls.length === 0 || plan === null || plan === '' ? null : { tool_plan: plan }),
      ...(asArray(message.citations).length === 0 ? null : { citations: message.citations ?? null }),
    };
  }

  #tool(message: JsonObject, at: string): JsonObject {
    const id = asString(message.tool_call_id) ?? '';
    if (!this.#calls.has(id)) {
      invalid(`${at}.tool_call_id`, `Message ${at} answers a call that no earlier assistant message made.`);
    }
    return { role: 'tool', tool_call_id: id, content: contentOf(message.content ?? '', `${at}.content`, DOCUMENTS) };
  }

  message(message: JsonValue, at: string): JsonObject | null {
    if (!isObject(message)) return invalid(at, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        return { role: 'system', content: contentOf(message.content, `${at}.content`, {}) };
      case 'user':
        return { role: 'user', content: contentOf(message.content, `${at}.content`, IMAGES) };
      case 'assistant':
        return this.#assistant(message, at);
      case 'tool':
        return this.#tool(message, at);
      default:
        return refuse(`${at}.role`, 'messages of this role have no equivalent there.');
    }
  }
}

/** Throws `invalid_request` for a conversation that is wrong in itself, `unsupported_parameter` for parts Cohere lacks. */
export function cohereMessages(messages: JsonValue | undefined): JsonObject[] {
  const conversation = new Conversation();
  const out = asArray(messages)
    .map((message, i) => conversation.message(message, `messages[${i}]`))
    .filter((message) => message !== null);
  return out.length === 0 ? invalid('messages', 'At least one message is needed.') : out;
}

/** Names of the functions in a choice of `allowed_tools`, or of the one that is chosen. */
export function namesIn(choice: JsonObject): Set<JsonValue> {
  const tools = choice.type === 'allowed_tools' ? asArray(asObject(choice.allowed_tools).tools) : [choice];
  return new Set(tools.map((one) => asObject(asObject(one).function).name ?? null));
}
