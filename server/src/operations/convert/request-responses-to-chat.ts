import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { callExtra } from './chat-calls.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, invalid, isNeutral, quoted, refuse } from './fields.ts';
import { refuseUnknown } from './request-chat-to-messages.ts';
import { movedParts } from './request-messages-to-chat.ts';

/** Fields that are read below, and bookkeeping fields that may be lost. */
const HANDLED: ReadonlySet<string> = new Set([
  'model',
  'input',
  'instructions',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'max_output_tokens',
  'temperature',
  'top_p',
  'top_logprobs',
  'text',
  'reasoning',
  'include',
  'stream',
  'stream_options',
  'service_tier',
  'store',
  'metadata',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
]);

function imagePart(part: JsonObject, at: string): JsonObject {
  const url = asString(part.image_url);
  if (url === null) refuse(`${at}.file_id`, 'a file stored with another provider cannot be read there; send a URL.');
  const detail = asString(part.detail);
  return { type: 'image_url', image_url: detail === null ? { url } : { url, detail } };
}

function filePart(part: JsonObject, at: string): JsonObject {
  const data = asString(part.file_data);
  if (data === null) {
    refuse(`${at}.${part.file_url === undefined ? 'file_id' : 'file_url'}`, 'files must be sent as "file_data" there.');
  }
  return { type: 'file', file: { filename: asString(part.filename) ?? 'file', file_data: data } };
}

/** One part of a message or of a call's output. */
function contentPart(part: JsonValue, at: string): JsonObject {
  if (!isObject(part)) invalid(at, 'A content part must be an object.');
  switch (part.type) {
    case 'input_text':
    case 'output_text':
    case 'text':
    case 'summary_text':
      return { type: 'text', text: asString(part.text) ?? '' };
    case 'refusal':
      return { type: 'refusal', refusal: asString(part.refusal) ?? '' };
    case 'input_image':
      return imagePart(part, at);
    case 'input_file':
      return filePart(part, at);
    default:
      return refuse(`${at}.type`, `parts of type ${quoted(part.type)} have no equivalent there.`);
  }
}

/** Parts as chat writes them: one plain text where there is only text. */
function contentOf(content: JsonValue | undefined, at: string): JsonValue {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) invalid(at, 'The content must be a text or a list of parts.');
  const parts = content.map((part, i) => contentPart(part, `${at}[${i}]`));
  const [only] = parts;
  return parts.length === 1 && only?.type === 'text' ? (only.text ?? '') : parts;
}

/** Turns items into messages: calls that follow each other, and the text before them, are one assistant message. */
class ItemReader {
  readonly messages: JsonObject[] = [];
  readonly #reasoningField: string | null;
  readonly #callExtra: boolean;
  readonly #calls = new Set<string>();
  /** The assistant message that further calls join. */
  #open: { readonly message: JsonObject; readonly calls: JsonObject[] } | null = null;
  #reasoning = '';
  readonly #moved: JsonObject[] = [];

  constructor(reasoningField: string | null, keepsExtra: boolean) {
    this.#reasoningField = reasoningField;
    this.#callExtra = keepsExtra;
  }

  add(item: JsonValue, at: string): void {
    if (!isObject(item)) invalid(at, 'An input item must be an object.');
    if (item.type !== 'function_call_output') this.settle();
    switch (item.type) {
      case undefined:
      case 'message':
        this.#message(item, at);
        break;
      case 'function_call':
        this.#call(item, at);
        break;
      case 'function_call_output':
        this.#output(item, at);
        break;
      case 'reasoning':
        // Encrypted reasoning means nothing to another vendor; its summary is all that can be handed on.
        this.#reasoning += asArray(item.summary)
          .map((part) => asString(asObject(part).text) ?? '')
          .join('');
        break;
      default:
        refuse(`${at}.type`, `items of type ${quoted(item.type)} have no equivalent there.`);
    }
  }

  #assistant(content: JsonValue): { readonly message: JsonObject; readonly calls: JsonObject[] } {
    const message: JsonObject = { role: 'assistant', content };
    if (this.#reasoningField !== null && this.#reasoning !== '') message[this.#reasoningField] = this.#reasoning;
    this.#reasoning = '';
    this.messages.push(message);
    this.#open = { message, calls: [] };
    return this.#open;
  }

  #message(item: JsonObject, at: string): void {
    const { role } = item;
    const content = contentOf(item.content, `${at}.content`);
    if (role === 'assistant') {
      this.#assistant(content);
      return;
    }
    if (role !== 'user' && role !== 'system' && role !== 'developer') {
      invalid(`${at}.role`, 'The role must be user, assistant, system or developer.');
    }
    this.#open = null;
    this.messages.push({ role, content });
  }

  #call(item: JsonObject, at: string): void {
    const id = asString(item.call_id);
    if (id === null || id === '') invalid(`${at}.call_id`, 'A call needs a call_id.');
    if (this.#calls.has(id)) invalid(`${at}.call_id`, 'The same call id appears twice in this history.');
    this.#calls.add(id);
    const { message, calls } = this.#open ?? this.#assistant(null);
    calls.push({
      id,
      type: 'function',
      function: { name: asString(item.name) ?? '', arguments: asString(item.arguments) ?? '' },
      ...(this.#callExtra ? callExtra(item) : null),
    });
    message.tool_calls = calls;
  }

  #output(item: JsonObject, at: string): void {
    const id = asString(item.call_id) ?? '';
    if (!this.#calls.has(id)) {
      invalid(`${at}.call_id`, `Item ${at} answers a call that no earlier item made.`);
    }
    this.#open = null;
    const content = contentOf(item.output, `${at}.output`);
    const parts = asArray(content).map(asObject);
    const moved = parts.filter((part) => part.type !== 'text');
    const said = moved.length === 0 ? content : parts.filter((part) => part.type === 'text');
    this.messages.push({
      role: 'tool',
      tool_call_id: id,
      content: Array.isArray(said) && said.length === 0 ? '' : said,
    });
    if (moved.length > 0) this.#moved.push(...movedParts(id, moved));
  }

  /** Pictures and files of results, which chat does not take in tool messages, follow the last of them. */
  settle(): void {
    if (this.#moved.length > 0) this.messages.push({ role: 'user', content: this.#moved.splice(0) });
  }
}

function toolsOf(body: JsonObject): JsonObject[] {
  return asArray(body.tools).map((tool, i) => {
    if (!isObject(tool) || tool.type !== 'function') {
      refuse(`tools[${i}]`, `tools of type ${quoted(asObject(tool).type)} have no equivalent there.`);
    }
    const definition: JsonObject = { name: asString(tool.name) ?? '' };
    if (typeof tool.description === 'string') definition.description = tool.description;
    if (isObject(tool.parameters)) definition.parameters = tool.parameters;
    if (typeof tool.strict === 'boolean') definition.strict = tool.strict;
    return { type: 'function', function: definition };
  });
}

const named = (choice: JsonObject): JsonObject => {
  if (choice.type !== 'function') refuse('tool_choice', `${quoted(choice.type)} has no equivalent there.`);
  return { type: 'function', function: { name: asString(choice.name) ?? '' } };
};

function choiceOf(choice: JsonValue): JsonValue {
  if (!isObject(choice)) return choice;
  if (choice.type !== 'allowed_tools') return named(choice);
  const tools = asArray(choice.tools).map((tool) => named(asObject(tool)));
  return { type: 'allowed_tools', allowed_tools: { mode: choice.mode ?? 'auto', tools } };
}

function formatOf(format: JsonObject): JsonObject {
  if (format.type !== 'json_schema') return { type: format.type };
  const { type: _type, ...schema } = format;
  return { type: 'json_schema', json_schema: schema };
}

/** A Responses request as a chat completions request in OpenAI's published form (read backwards). */
export function responsesToChat(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  refuseUnknown(body, HANDLED);
  const keeps = (name: string): boolean => target.omit?.has(name) !== true;
  const has = (name: string): boolean => target.extensions?.has(name) === true;
  const reader = new ItemReader(
    target.reasoning?.history === true ? target.reasoning.field : null,
    has('extra_content'),
  );
  const { instructions } = body;
  if (instructions !== undefined && instructions !== null && typeof instructions !== 'string') {
    invalid('instructions', 'The instructions must be a text.');
  }
  if (typeof body.instructions === 'string' && body.instructions !== '') {
    reader.messages.push({ role: 'developer', content: body.instructions });
  }
  if (typeof body.input === 'string') reader.messages.push({ role: 'user', content: body.input });
  else if (Array.isArray(body.input)) {
    body.input.forEach((item, i) => {
      reader.add(item, `input[${i}]`);
    });
    reader.settle();
  } else invalid('input', 'The input must be a text or a list of items.');
  const out: JsonObject = { model: context.model, messages: reader.messages };
  if (body.max_output_tokens !== undefined && body.max_output_tokens !== null) {
    out.max_completion_tokens = body.max_output_tokens;
  }
  const tools = toolsOf(body);
  if (tools.length > 0) {
    out.tools = tools;
    if (body.tool_choice !== undefined && body.tool_choice !== null) out.tool_choice = choiceOf(body.tool_choice);
    if (body.parallel_tool_calls === false) out.parallel_tool_calls = false;
  }
  for (const name of ['temperature', 'top_p'] as const) {
    if (body[name] !== undefined && body[name] !== null) out[name] = body[name];
  }
  const wantsLogprobs = asArray(body.include).includes('message.output_text.logprobs');
  if (wantsLogprobs || !isNeutral('top_logprobs', body.top_logprobs)) {
    out.logprobs = true;
    if (!isNeutral('top_logprobs', body.top_logprobs)) out.top_logprobs = body.top_logprobs;
  }
  const text = asObject(body.text);
  if (isObject(text.format) && text.format.type !== 'text') out.response_format = formatOf(text.format);
  if (!isNeutral('verbosity', text.verbosity)) out.verbosity = text.verbosity;
  const { effort, summary } = asObject(body.reasoning);
  if (effort !== undefined && effort !== null) out.reasoning_effort = effort;
  // Thoughts come only from a provider that is asked for them.
  if (has('thinking') && typeof summary === 'string') out.thinking = { type: 'adaptive', display: 'summarized' };
  const user = asString(body.safety_identifier) ?? asString(body.user);
  if (user !== null && user !== '' && keeps('user')) out.user = user;
  const tier = body.service_tier;
  if (tier !== undefined && tier !== null && tier !== 'auto') {
    if (has('service_tier')) out.service_tier = tier;
    else if (tier !== 'default') refuse('service_tier', `the tier ${quoted(tier)} has no equivalent there.`);
  }
  if (typeof body.stream === 'boolean') out.stream = body.stream;
  if (body.stream === true && keeps('stream_options')) out.stream_options = { include_usage: true };
  return out;
}
