import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, fitCallId, invalid, isNeutral, quoted, refuse } from './fields.ts';
import { portableItems } from './reasoning-items.ts';
import { refuseUnknown } from './request-chat-to-messages.ts';
import { budgetEffort } from './request-messages-to-chat.ts';

/** Longest call id Responses takes. */
const CALL_ID = /^[\s\S]{1,64}$/;
/** Least `max_output_tokens` it takes. */
const LEAST_OUTPUT = 16;

/** Fields that go along under their own names. */
const SAME = [
  'temperature',
  'top_p',
  'metadata',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'service_tier',
  'stream',
] as const;

/** Fields that are read below, and bookkeeping fields that may be lost. */
const HANDLED: ReadonlySet<string> = new Set([
  ...SAME,
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'tools',
  'functions',
  'tool_choice',
  'function_call',
  'parallel_tool_calls',
  'reasoning_effort',
  'thinking',
  'verbosity',
  'response_format',
  'logprobs',
  'top_logprobs',
  'web_search_options',
  'store',
  'stream_options',
]);

/** The mark up to which a prompt may be kept, which both shapes know on parts. */
const withMark = (item: JsonObject, part: JsonObject): JsonObject =>
  isObject(part.prompt_cache_breakpoint) ? { ...item, prompt_cache_breakpoint: part.prompt_cache_breakpoint } : item;

/** A part of the model's input, by whichever role but the assistant. */
function inputPart(part: JsonValue, at: string): JsonObject {
  if (!isObject(part)) invalid(at, 'A content part must be an object.');
  switch (part.type) {
    case 'text': {
      const text = asString(part.text);
      if (text === null) invalid(`${at}.text`, 'A text part needs "text".');
      return withMark({ type: 'input_text', text }, part);
    }
    case 'image_url': {
      const image = isObject(part.image_url) ? part.image_url : { url: part.image_url ?? null };
      const url = asString(image.url);
      if (url === null || url === '') invalid(`${at}.image_url`, 'An image part needs "image_url.url".');
      return withMark({ type: 'input_image', image_url: url, detail: asString(image.detail) ?? 'auto' }, part);
    }
    case 'file': {
      const out: JsonObject = { type: 'input_file' };
      const file = asObject(part.file);
      for (const name of ['file_id', 'filename', 'file_data'] as const) {
        if (typeof file[name] === 'string') out[name] = file[name];
      }
      if (out.file_id === undefined && out.file_data === undefined) {
        invalid(`${at}.file`, 'A file part needs "file.file_data" or "file.file_id".');
      }
      return withMark(out, part);
    }
    default:
      return refuse(`${at}.type`, `parts of type ${quoted(part.type)} have no equivalent there.`);
  }
}

function inputContent(content: JsonValue | undefined, at: string): JsonValue {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) invalid(at, 'The content must be a text or a list of parts.');
  return content.map((part, i) => inputPart(part, `${at}[${i}]`));
}

const outputText = (text: string): JsonObject => ({ type: 'output_text', text, annotations: [] });

/** Messages as items, calls and their results in the order in which they were made. */
class ItemList {
  readonly items: JsonObject[] = [];
  /** What kind of call an id belongs to. */
  readonly #calls = new Map<string, 'function' | 'custom'>();
  #legacyCall: { readonly id: string; readonly name: string } | null = null;

  add(message: JsonValue, i: number): void {
    const at = `messages[${i}]`;
    if (!isObject(message)) invalid(at, 'A message must be an object.');
    const { role } = message;
    switch (role) {
      case 'system':
      case 'developer':
      case 'user':
        this.items.push({ type: 'message', role, content: inputContent(message.content, `${at}.content`) });
        break;
      case 'assistant':
        this.#assistant(message, at, i);
        break;
      case 'tool':
        this.#result(asString(message.tool_call_id), message, at);
        break;
      case 'function':
        this.#result(this.#legacyCall?.name === message.name ? (this.#legacyCall?.id ?? null) : null, message, at);
        break;
      default:
        invalid(`${at}.role`, 'The role must be system, developer, user, assistant or tool.');
    }
  }

  #assistant(message: JsonObject, at: string, i: number): void {
    if (message.audio !== undefined && message.audio !== null) {
      refuse(`${at}.audio`, 'audio has no equivalent there.');
    }
    // Reasoning we showed to a caller outside strict shape comes back here, before the calls it led to. Reasoning without
    // encryption would have to be stored there, which nothing of ours is.
    for (const { status: _, ...item } of portableItems(message.content_blocks)) this.items.push(item);
    const refusal = asString(message.refusal);
    if (typeof message.content === 'string' && !refusal) {
      if (message.content !== '') this.#say(message.content);
    } else {
      const parts = typeof message.content === 'string' ? [{ type: 'text', text: message.content }] : message.content;
      const said = asArray(parts).map((part, j): JsonObject => {
        const one = asObject(part);
        const text = asString(one.type === 'refusal' ? one.refusal : one.text);
        if (text === null) invalid(`${at}.content[${j}]`, 'Assistant parts must be of type text or refusal.');
        return one.type === 'refusal' ? { type: 'refusal', refusal: text } : outputText(text);
      });
      if (refusal) said.push({ type: 'refusal', refusal });
      if (said.length > 0) this.#say(said);
    }
    asArray(message.tool_calls).forEach((call, j) => {
      this.#call(asObject(call), `${at}.tool_calls[${j}]`);
    });
    if (isObject(message.function_call)) {
      const id = `call_legacy_${i}`;
      this.#legacyCall = { id, name: asString(message.function_call.name) ?? '' };
      this.#call({ id, function: message.function_call }, `${at}.function_call`);
    }
  }

  #say(content: JsonValue): void {
    this.items.push({ type: 'message', role: 'assistant', content });
  }

  #call(call: JsonObject, at: string): void {
    const id = asString(call.id);
    if (id === null || id === '') invalid(`${at}.id`, 'A call needs an id.');
    if (this.#calls.has(id)) invalid(`${at}.id`, 'The same call id appears twice in this history.');
    const callId = fitCallId(id, CALL_ID, 64);
    if (call.type === 'custom' && isObject(call.custom)) {
      this.#calls.set(id, 'custom');
      const { name, input } = call.custom;
      const text = asString(input) ?? '';
      this.items.push({ type: 'custom_tool_call', call_id: callId, name: asString(name) ?? '', input: text });
      return;
    }
    if (!isObject(call.function)) refuse(at, 'only calls of functions and custom tools have an equivalent there.');
    this.#calls.set(id, 'function');
    const { name, arguments: args } = call.function;
    // Not parsed: numbers keep every digit, and what the model wrote goes back as it was.
    const text = isObject(args) ? JSON.stringify(args) : asString(args) || '{}';
    this.items.push({ type: 'function_call', call_id: callId, name: asString(name) ?? '', arguments: text });
  }

  #result(id: string | null, message: JsonObject, at: string): void {
    const kind = id === null ? undefined : this.#calls.get(id);
    if (id === null || kind === undefined) {
      invalid(`${at}.tool_call_id`, `Message ${at} answers a call that no earlier assistant message made.`);
    }
    const { content } = message;
    const output = content === null || content === undefined ? '' : inputContent(content, `${at}.content`);
    const type = kind === 'custom' ? 'custom_tool_call_output' : 'function_call_output';
    this.items.push({ type, call_id: fitCallId(id, CALL_ID, 64), output });
  }
}

function functionTool(definition: JsonObject): JsonObject {
  const out: JsonObject = { type: 'function', name: asString(definition.name) ?? '' };
  if (typeof definition.description === 'string') out.description = definition.description;
  // Without parameters chat means none; without `strict` Responses would mean true.
  out.parameters = isObject(definition.parameters) ? definition.parameters : { type: 'object', properties: {} };
  out.strict = definition.strict === true;
  return out;
}

function customTool(definition: JsonObject): JsonObject {
  const { name, description, format } = definition;
  const out: JsonObject = { type: 'custom', name: asString(name) ?? '' };
  if (typeof description === 'string') out.description = description;
  if (isObject(format)) {
    out.format = format.type === 'grammar' ? { ...asObject(format.grammar), type: 'grammar' } : format;
  }
  return out;
}

/** `web_search_options` as the tool that searches; where its user is stands one level higher there. */
function searchTool(options: JsonObject, type: string): JsonObject {
  const { search_context_size: size, user_location: place, ...others } = options;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) refuse(`web_search_options.${unknown}`, 'it has no equivalent there.');
  const out: JsonObject = { type };
  if (typeof size === 'string') out.search_context_size = size;
  if (isObject(place)) out.user_location = { ...asObject(place.approximate), type: 'approximate' };
  return out;
}

function toolsOf(body: JsonObject, searches: string): JsonObject[] {
  const tools = [
    ...asArray(body.tools).map((tool, i) => {
      const { type, function: fn, custom } = asObject(tool);
      if (type === 'function' && isObject(fn)) return functionTool(fn);
      if (type === 'custom' && isObject(custom)) return customTool(custom);
      return refuse(`tools[${i}]`, `tools of type ${quoted(type)} have no equivalent there.`);
    }),
    ...asArray(body.functions).map((fn) => functionTool(asObject(fn))),
  ];
  return isObject(body.web_search_options) ? [...tools, searchTool(body.web_search_options, searches)] : tools;
}

function named(choice: JsonObject, at: string): JsonObject {
  const type = choice.type === 'custom' ? 'custom' : 'function';
  const name = asString(asObject(choice[type]).name) ?? asString(choice.name);
  if (name === null) refuse(at, 'only functions and custom tools can be chosen there.');
  return { type, name };
}

function choiceOf(choice: JsonValue): JsonValue {
  if (!isObject(choice)) return choice;
  if (choice.type !== 'allowed_tools') return named(choice, 'tool_choice');
  const { mode, tools } = asObject(choice.allowed_tools);
  const at = 'tool_choice.allowed_tools.tools';
  return { type: 'allowed_tools', mode: mode ?? 'auto', tools: asArray(tools).map((one) => named(asObject(one), at)) };
}

function formatOf(format: JsonValue): JsonObject {
  if (!isObject(format)) invalid('response_format', 'The response format must be an object.');
  if (format.type !== 'json_schema') return { type: format.type ?? null };
  return { ...asObject(format.json_schema), type: 'json_schema' };
}

/** Effort, and a summary where thinking is to be shown: `thinking` is our own field of chat. */
function reasoningOf(body: JsonObject): JsonObject | null {
  const out: JsonObject = {};
  const thinking = asObject(body.thinking);
  if (body.reasoning_effort !== undefined && body.reasoning_effort !== null) out.effort = body.reasoning_effort;
  else if (thinking.type === 'enabled') out.effort = budgetEffort(thinking);
  const shown = thinking.type === 'enabled' || thinking.type === 'adaptive';
  if (shown && thinking.display !== 'omitted') out.summary = 'auto';
  return Object.keys(out).length === 0 ? null : out;
}

function textOf(body: JsonObject): JsonObject | null {
  const out: JsonObject = {};
  if (!isNeutral('response_format', body.response_format)) out.format = formatOf(body.response_format ?? null);
  if (!isNeutral('verbosity', body.verbosity)) out.verbosity = body.verbosity;
  return Object.keys(out).length === 0 ? null : out;
}

const wantsLogprobs = (body: JsonObject): boolean =>
  body.logprobs === true || !isNeutral('top_logprobs', body.top_logprobs);

/** Of two limits the one under the newer name holds, as in the other conversions. */
function maximumOf(body: JsonObject): JsonValue | undefined {
  const name = body.max_completion_tokens == null ? 'max_tokens' : 'max_completion_tokens';
  const most = body[name];
  if (typeof most === 'number' && most < LEAST_OUTPUT) {
    invalid(name, `"${name}" must be at least ${LEAST_OUTPUT} with this model.`);
  }
  return most ?? undefined;
}

/** A chat completions request as a Responses request. Nothing of it is stored unless it says so. */
export function chatToResponses(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  refuseUnknown(body, HANDLED);
  if (!Array.isArray(body.messages) || body.messages.length === 0) {
    invalid('messages', 'At least one message is needed.');
  }
  const list = new ItemList();
  body.messages.forEach((message, i) => {
    list.add(message, i);
  });
  const out: JsonObject = { model: context.model, input: list.items };
  const most = maximumOf(body);
  if (most !== undefined) out.max_output_tokens = most;
  const tools = toolsOf(body, target.searchTool?.(context.model) ?? 'web_search');
  if (tools.length > 0) {
    out.tools = tools;
    const choice = body.tool_choice ?? body.function_call ?? null;
    if (choice !== null) out.tool_choice = choiceOf(choice);
    if (typeof body.parallel_tool_calls === 'boolean') out.parallel_tool_calls = body.parallel_tool_calls;
  }
  const reasoning = reasoningOf(body);
  if (reasoning !== null) out.reasoning = reasoning;
  const text = textOf(body);
  if (text !== null) out.text = text;
  const include: string[] = [];
  if (wantsLogprobs(body)) {
    include.push('message.output_text.logprobs');
    if (!isNeutral('top_logprobs', body.top_logprobs)) out.top_logprobs = body.top_logprobs;
  }
  // Only who is shown more than chat has can send it back; only models that reason know it.
  const thinks = reasoning !== null || asObject(body.thinking).type === 'adaptive';
  if (context.strict === false && thinks) include.push('reasoning.encrypted_content');
  if (include.length > 0) out.include = include;
  for (const name of SAME) if (body[name] !== undefined && body[name] !== null) out[name] = body[name];
  // Chat stores nothing unless it is asked to, Responses everything unless the request says no.
  out.store = body.store === true;
  const { include_obfuscation: obfuscated } = asObject(body.stream_options);
  if (body.stream === true && typeof obfuscated === 'boolean') {
    out.stream_options = { include_obfuscation: obfuscated };
  }
  return out;
}
