import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { ConvertContext, ConvertTarget, MessagesTraits } from './conversion.ts';
import { asArray, asObject, asString, fitCallId, invalid, isNeutral, parseDataUri, quoted, refuse } from './fields.ts';

/** Default of `max_tokens`, which Messages requires, for models whose maximum is not known. */
const DEFAULT_MAX_TOKENS = 4096;
/** Thinking budgets of models that know no effort. */
const BUDGETS: Readonly<Record<string, number>> = { minimal: 1024, low: 1024, medium: 4096, high: 16384 };
const MIN_BUDGET = 1024;
const EFFORTS: ReadonlySet<string> = new Set(['low', 'medium', 'high', 'xhigh', 'max']);
const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp']);
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,128}$/;
const CALL_ID = /^[a-zA-Z0-9_-]+$/;

/** A function of this prefix stands for `response_format` where a model has no structured output. */
export const SCHEMA_TOOL_PREFIX = 'json_output_';

const NEWEST: MessagesTraits = { effort: true, structuredOutput: true, maxOutputTokens: null };

export function traitsOf(target: ConvertTarget, model: string): MessagesTraits {
  return target.traits?.(model) ?? NEWEST;
}

/** Fields that are read below, and bookkeeping fields that may be lost. */
const HANDLED: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'stream',
  'tools',
  'functions',
  'tool_choice',
  'function_call',
  'parallel_tool_calls',
  'reasoning_effort',
  'thinking',
  'response_format',
  'service_tier',
  'user',
  'safety_identifier',
  'metadata',
  'store',
  'stream_options',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
]);

/** 400 for fields outside `known` whose value would change the answer. */
export function refuseUnknown(body: JsonObject, known: ReadonlySet<string>): void {
  for (const name of Object.keys(body)) {
    if (!known.has(name) && !isNeutral(name, body[name])) refuse(name, 'it has no equivalent there.');
  }
}

function withCacheControl(block: JsonObject, source: JsonObject): JsonObject {
  return isObject(source.cache_control) ? { ...block, cache_control: source.cache_control } : block;
}

function imageBlock(part: JsonObject, at: string): JsonObject {
  const url = asString(isObject(part.image_url) ? part.image_url.url : part.image_url);
  if (url === null || url === '') invalid(`${at}.image_url`, 'An image part needs "image_url.url".');
  if (/^https?:\/\//i.test(url)) {
    return withCacheControl({ type: 'image', source: { type: 'url', url } }, part);
  }
  const data = parseDataUri(url);
  if (data === null) {
    invalid(`${at}.image_url.url`, 'The image must be an http(s) URL or a data URI with base64 content.');
  }
  if (!IMAGE_TYPES.has(data.mediaType)) {
    refuse(`${at}.image_url.url`, 'images must be image/jpeg, image/png, image/gif or image/webp there.');
  }
  return withCacheControl(
    { type: 'image', source: { type: 'base64', media_type: data.mediaType, data: data.data } },
    part,
  );
}

function documentBlock(part: JsonObject, at: string): JsonObject {
  const file = asObject(part.file);
  const raw = asString(file.file_data);
  if (raw === null) {
    refuse(`${at}.file.file_id`, 'a file stored with another provider cannot be read there; send "file_data".');
  }
  const data = parseDataUri(raw) ?? { mediaType: 'application/pdf', data: raw };
  const title = asString(file.filename);
  let source: JsonObject;
  if (data.mediaType === 'application/pdf') {
    source = { type: 'base64', media_type: 'application/pdf', data: data.data };
  } else if (data.mediaType.startsWith('text/')) {
    source = { type: 'text', media_type: 'text/plain', data: Buffer.from(data.data, 'base64').toString('utf8') };
  } else {
    refuse(`${at}.file.file_data`, 'files must be PDF or text there.');
  }
  return withCacheControl({ type: 'document', source, ...(title === null ? null : { title }) }, part);
}

/** One part of a user or tool message. */
function contentBlock(part: JsonValue, at: string): JsonObject {
  if (!isObject(part)) invalid(at, 'A content part must be an object.');
  switch (part.type) {
    case 'text': {
      const text = asString(part.text);
      if (text === null) invalid(`${at}.text`, 'A text part needs "text".');
      return withCacheControl({ type: 'text', text }, part);
    }
    case 'image_url':
      return imageBlock(part, at);
    case 'file':
      return documentBlock(part, at);
    default:
      return refuse(`${at}.type`, `parts of type ${quoted(part.type)} have no equivalent there.`);
  }
}

function textBlocks(content: JsonValue | undefined, at: string): JsonObject[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }];
  if (!Array.isArray(content)) invalid(at, 'The content must be a text or a list of text parts.');
  return content.map((part, i) => {
    if (!isObject(part) || part.type !== 'text' || typeof part.text !== 'string') {
      invalid(`${at}[${i}]`, 'Only text parts are allowed here.');
    }
    return withCacheControl({ type: 'text', text: part.text }, part);
  });
}

/** Arguments as Messages wants them: an object. Numbers keep every digit. */
export function callInput(text: JsonValue | undefined, at: string): JsonObject {
  if (text === undefined || text === null || text === '') return {};
  if (isObject(text)) return text;
  let value: JsonValue = null;
  try {
    if (typeof text === 'string') value = parseExact(text);
  } catch {
    // Answered below, together with values that are no object.
  }
  if (!isObject(value)) invalid(at, 'Call arguments must be the JSON text of an object.');
  return value;
}

const fitId = (id: string): string => fitCallId(id, CALL_ID, 32);

/** Builds the messages list and remembers what the order rules of Messages need. */
class MessageList {
  readonly out: JsonObject[] = [];
  readonly system: JsonObject[] = [];
  readonly #calls = new Set<string>();
  /** Blocks of the user message that follows calls: results first, whatever order they came in. */
  #answering: { readonly blocks: JsonObject[]; results: number } | null = null;
  #legacyCall: { readonly id: string; readonly name: string } | null = null;

  add(message: JsonValue, i: number): void {
    const at = `messages[${i}]`;
    if (!isObject(message)) invalid(at, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        this.system.push(...textBlocks(message.content, `${at}.content`));
        break;
      case 'user':
        this.#user(message, at);
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

  #user(message: JsonObject, at: string): void {
    const { content } = message;
    if (
      content === null ||
      content === undefined ||
      content === '' ||
      (Array.isArray(content) && content.length === 0)
    ) {
      invalid(`${at}.content`, 'A user message must not be empty.');
    }
    if (typeof content !== 'string' && !Array.isArray(content)) {
      invalid(`${at}.content`, 'The content must be a text or a list of parts.');
    }
    const blocks = (): JsonObject[] =>
      typeof content === 'string'
        ? [{ type: 'text', text: content }]
        : content.map((part, j) => contentBlock(part, `${at}.content[${j}]`));
    if (this.#answering !== null) this.#answering.blocks.push(...blocks());
    else this.out.push({ role: 'user', content: typeof content === 'string' ? content : blocks() });
  }

  #result(id: string | null, message: JsonObject, at: string): void {
    if (id === null || !this.#calls.has(id)) {
      invalid(`${at}.tool_call_id`, `Message ${at} answers a call that no earlier assistant message made.`);
    }
    const { content } = message;
    const block: JsonObject = { type: 'tool_result', tool_use_id: fitId(id) };
    if (typeof content === 'string') block.content = content;
    else if (Array.isArray(content)) block.content = content.map((p, j) => contentBlock(p, `${at}.content[${j}]`));
    else if (content !== null && content !== undefined)
      invalid(`${at}.content`, 'The content must be a text or parts.');
    if (this.#answering === null) {
      // The results of calls that were already answered by an assistant message: the upstream judges the order.
      this.out.push({ role: 'user', content: [block] });
      return;
    }
    this.#answering.blocks.splice(this.#answering.results++, 0, block);
  }

  #assistant(message: JsonObject, at: string, i: number): void {
    if (message.audio !== undefined && message.audio !== null) {
      refuse(`${at}.audio`, 'audio has no equivalent there.');
    }
    const content: JsonObject[] = [];
    // Thinking blocks we showed to a caller outside strict shape come back here, with their signatures.
    for (const block of asArray(message.content_blocks)) {
      if (isObject(block) && (block.type === 'thinking' || block.type === 'redacted_thinking')) content.push(block);
    }
    const parts = typeof message.content === 'string' ? [{ type: 'text', text: message.content }] : message.content;
    asArray(parts).forEach((part, j) => {
      const text = isObject(part) ? asString(part.type === 'refusal' ? part.refusal : part.text) : null;
      if (text === null) invalid(`${at}.content[${j}]`, 'Assistant parts must be of type text or refusal.');
      if (text !== '') content.push(withCacheControl({ type: 'text', text }, asObject(part)));
    });
    const refusal = asString(message.refusal);
    if (refusal !== null && refusal !== '') content.push({ type: 'text', text: refusal });
    let called = false;
    asArray(message.tool_calls).forEach((call, j) => {
      const place = `${at}.tool_calls[${j}]`;
      if (!isObject(call) || !isObject(call.function)) refuse(place, 'only function calls have an equivalent there.');
      const id = asString(call.id);
      if (id === null || id === '') invalid(`${place}.id`, 'A call needs an id.');
      if (this.#calls.has(id)) invalid(`${place}.id`, 'The same call id appears twice in this history.');
      this.#calls.add(id);
      called = true;
      const input = callInput(call.function.arguments, `${place}.function.arguments`);
      const block = { type: 'tool_use', id: fitId(id), name: asString(call.function.name) ?? '', input };
      content.push(withCacheControl(block, call));
    });
    if (isObject(message.function_call)) {
      const name = asString(message.function_call.name) ?? '';
      const id = `call_legacy_${i}`;
      this.#legacyCall = { id, name };
      this.#calls.add(id);
      called = true;
      const input = callInput(message.function_call.arguments, `${at}.function_call.arguments`);
      content.push({ type: 'tool_use', id, name, input });
    }
    // Messages that carry nothing at all are left out: empty content is refused there.
    if (content.length === 0) return;
    this.out.push({ role: 'assistant', content });
    if (!called) {
      this.#answering = null;
      return;
    }
    // Filled by the messages that follow; an answer that never comes leaves no empty message behind.
    const blocks: JsonObject[] = [];
    this.#answering = { blocks, results: 0 };
    this.out.push({ role: 'user', content: blocks });
  }

  messages(): JsonObject[] {
    return this.out.filter((message) => !Array.isArray(message.content) || message.content.length > 0);
  }
}

function toolOf(tool: JsonValue, at: string): JsonObject {
  const definition = isObject(tool) && tool.type === 'function' ? tool.function : undefined;
  if (!isObject(tool) || !isObject(definition)) refuse(at, 'only function tools have an equivalent there.');
  return functionTool(definition, tool, `${at}.function`);
}

function functionTool(definition: JsonObject, holder: JsonObject, at: string): JsonObject {
  const name = asString(definition.name) ?? '';
  if (!TOOL_NAME.test(name)) invalid(`${at}.name`, 'A function name has 1 to 128 letters, digits, "_" or "-".');
  const out: JsonObject = { name };
  if (typeof definition.description === 'string') out.description = definition.description;
  out.input_schema = isObject(definition.parameters) ? definition.parameters : { type: 'object', properties: {} };
  if (typeof definition.strict === 'boolean') out.strict = definition.strict;
  return withCacheControl(out, holder);
}

function nameOfChoice(choice: JsonObject, at: string): string {
  const name = asString(asObject(choice.function).name) ?? asString(choice.name);
  if (name === null) refuse(at, 'only function tools can be chosen there.');
  return name;
}

interface Tools {
  readonly tools: JsonObject[];
  readonly choice: JsonObject | null;
}

function toolsOf(body: JsonObject): Tools {
  let tools = [
    ...asArray(body.tools).map((tool, i) => toolOf(tool, `tools[${i}]`)),
    ...asArray(body.functions).map((tool, i) => functionTool(asObject(tool), asObject(tool), `functions[${i}]`)),
  ];
  if (tools.length === 0) return { tools, choice: null };
  let choice: JsonObject | null = null;
  const wanted = body.tool_choice ?? body.function_call ?? null;
  if (wanted === 'auto') choice = { type: 'auto' };
  else if (wanted === 'required') choice = { type: 'any' };
  else if (wanted === 'none') choice = { type: 'none' };
  else if (isObject(wanted) && wanted.type === 'allowed_tools') {
    const allowed = asObject(wanted.allowed_tools);
    const names = new Set(
      asArray(allowed.tools).map((tool) => nameOfChoice(asObject(tool), 'tool_choice.allowed_tools.tools')),
    );
    tools = tools.filter((tool) => typeof tool.name === 'string' && names.has(tool.name));
    if (tools.length === 0) invalid('tool_choice.allowed_tools.tools', 'None of the allowed tools is in "tools".');
    choice = { type: allowed.mode === 'required' ? 'any' : 'auto' };
  } else if (isObject(wanted)) choice = { type: 'tool', name: nameOfChoice(wanted, 'tool_choice') };
  else if (wanted !== null) invalid('tool_choice', 'The tool choice is not known.');
  if (body.parallel_tool_calls === false) {
    choice = choice ?? { type: 'auto' };
    if (choice.type !== 'none') choice = { ...choice, disable_parallel_tool_use: true };
  }
  return { tools, choice };
}

/** `reasoning_effort` in the words of a Claude model, written into `out`, whose `max_tokens` bounds a budget. */
export function applyEffort(body: JsonObject, out: JsonObject, traits: MessagesTraits): void {
  const effort = body.reasoning_effort;
  if (effort === undefined || effort === null) return;
  if (typeof effort !== 'string') invalid('reasoning_effort', 'The effort must be a text.');
  if (effort === 'none') {
    out.thinking = out.thinking ?? { type: 'disabled' };
    return;
  }
  if (traits.effort) {
    const name = effort === 'minimal' ? 'low' : effort;
    if (!EFFORTS.has(name)) invalid('reasoning_effort', `The effort "${effort}" is not known.`);
    out.output_config = { ...asObject(out.output_config), effort: name };
    return;
  }
  // The caller's own thinking object says more than an effort does.
  if (out.thinking !== undefined) return;
  const budget = Object.hasOwn(BUDGETS, effort) ? BUDGETS[effort] : undefined;
  if (budget === undefined) refuse('reasoning_effort', `this model supports no effort "${effort}".`);
  const max = typeof out.max_tokens === 'number' ? out.max_tokens : DEFAULT_MAX_TOKENS;
  if (max <= MIN_BUDGET) {
    refuse('reasoning_effort', `this model needs max_tokens above ${MIN_BUDGET} to think.`);
  }
  out.thinking = { type: 'enabled', budget_tokens: Math.min(budget, max - 1) };
}

function applyFormat(body: JsonObject, out: JsonObject, traits: MessagesTraits): void {
  const format = body.response_format;
  if (isNeutral('response_format', format)) return;
  const named = asObject(asObject(format).json_schema);
  if (asObject(format).type !== 'json_schema' || !isObject(named.schema)) {
    refuse('response_format', 'only "text" and "json_schema" have an equivalent there.');
  }
  if (traits.structuredOutput) {
    out.output_config = { ...asObject(out.output_config), format: { type: 'json_schema', schema: named.schema } };
    return;
  }
  if (out.tools !== undefined) {
    refuse('response_format', 'this model cannot keep to a schema and use tools in one call.');
  }
  const name = `${SCHEMA_TOOL_PREFIX}${asString(named.name) ?? 'output'}`.slice(0, 128);
  const tool: JsonObject = { name, input_schema: named.schema };
  if (typeof named.description === 'string') tool.description = named.description;
  out.tools = [tool];
  out.tool_choice = { type: 'tool', name };
}

function applyTier(body: JsonObject, out: JsonObject): void {
  const tier = body.service_tier;
  if (tier === undefined || tier === null) return;
  if (tier === 'auto') out.service_tier = 'auto';
  else if (tier === 'default') out.service_tier = 'standard_only';
  else refuse('service_tier', `the tier ${quoted(tier)} has no equivalent there.`);
}

/** A chat completions request as a Messages request. */
export function chatToMessages(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  refuseUnknown(body, HANDLED);
  const traits = traitsOf(target, context.model);
  if (!Array.isArray(body.messages) || body.messages.length === 0) {
    invalid('messages', 'At least one message is needed.');
  }
  const list = new MessageList();
  body.messages.forEach((message, i) => {
    list.add(message, i);
  });
  const max = body.max_completion_tokens ?? body.max_tokens ?? null;
  const out: JsonObject = {
    model: context.model,
    max_tokens: max ?? context.maxOutputTokens ?? traits.maxOutputTokens ?? DEFAULT_MAX_TOKENS,
  };
  if (list.system.length > 0) out.system = list.system;
  out.messages = list.messages();
  const { tools, choice } = toolsOf(body);
  if (tools.length > 0) out.tools = tools;
  if (choice !== null) out.tool_choice = choice;
  if (body.temperature !== undefined && body.temperature !== null) {
    if (typeof body.temperature !== 'number') invalid('temperature', 'The temperature must be a number.');
    if (body.temperature > 1) refuse('temperature', 'it must be between 0 and 1 there.');
    out.temperature = body.temperature;
  }
  if (body.top_p !== undefined && body.top_p !== null) out.top_p = body.top_p;
  if (body.top_k !== undefined && body.top_k !== null) out.top_k = body.top_k;
  if (!isNeutral('stop', body.stop)) out.stop_sequences = Array.isArray(body.stop) ? body.stop : [body.stop ?? null];
  if (body.thinking !== undefined && body.thinking !== null) {
    if (!isObject(body.thinking)) invalid('thinking', 'It must be an object.');
    out.thinking = body.thinking;
  }
  applyEffort(body, out, traits);
  applyFormat(body, out, traits);
  applyTier(body, out);
  const user = asString(body.safety_identifier) ?? asString(body.user);
  if (user !== null && user !== '') out.metadata = { user_id: user };
  if (typeof body.stream === 'boolean') out.stream = body.stream;
  return out;
}
