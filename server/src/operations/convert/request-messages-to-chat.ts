import { createHash } from 'node:crypto';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { callExtra } from './chat-calls.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, invalid, quoted, refuse } from './fields.ts';
import { itemOf } from './reasoning-items.ts';
import { refuseUnknown } from './request-chat-to-messages.ts';

/** Longest `user` value OpenAI takes. */
const USER_LENGTH = 64;
/** A thinking budget up to each is this effort, above the last is `high`. */
const LOW_BUDGET = 2048;
const MEDIUM_BUDGET = 8192;

const HANDLED: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'system',
  'max_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop_sequences',
  'stream',
  'tools',
  'tool_choice',
  'thinking',
  'output_config',
  'metadata',
  'service_tier',
  'cache_control',
]);

interface Options {
  readonly cacheControl: boolean;
  readonly reasoningField: string | null;
  readonly callExtra: boolean;
  readonly reasoningItems: boolean;
}

const keepCache = (part: JsonObject, block: JsonObject, options: Options): JsonObject =>
  options.cacheControl && isObject(block.cache_control) ? { ...part, cache_control: block.cache_control } : part;

/** `system` as the text or parts of one message; null when there is none. */
function systemContent(system: JsonValue | undefined, options: Options): JsonValue {
  if (system === undefined || system === null || system === '') return null;
  if (typeof system === 'string') return system;
  if (!Array.isArray(system)) invalid('system', 'The system prompt must be a text or a list of text blocks.');
  const blocks = system.map((block, i) => {
    if (!isObject(block) || block.type !== 'text' || typeof block.text !== 'string') {
      invalid(`system[${i}]`, 'The system prompt takes text blocks only.');
    }
    return block;
  });
  if (blocks.length === 0) return null;
  if (options.cacheControl && blocks.some((block) => isObject(block.cache_control))) {
    return blocks.map((block) => keepCache({ type: 'text', text: block.text }, block, options));
  }
  return blocks.map((block) => block.text).join('\n\n');
}

function imagePart(block: JsonObject, at: string): JsonObject {
  const source = asObject(block.source);
  if (source.type === 'base64') {
    const url = `data:${asString(source.media_type) ?? 'image/png'};base64,${asString(source.data) ?? ''}`;
    return { type: 'image_url', image_url: { url } };
  }
  if (source.type === 'url') return { type: 'image_url', image_url: { url: asString(source.url) ?? '' } };
  return refuse(`${at}.source`, 'a file stored with another provider cannot be read there; send base64 or a URL.');
}

function documentPart(block: JsonObject, at: string): JsonObject {
  if (asObject(block.citations).enabled === true) refuse(`${at}.citations`, 'citations have no equivalent there.');
  if (asString(block.context)) refuse(`${at}.context`, 'a document context has no equivalent there.');
  const source = asObject(block.source);
  const title = asString(block.title);
  if (source.type === 'base64') {
    const data = `data:${asString(source.media_type) ?? 'application/pdf'};base64,${asString(source.data) ?? ''}`;
    return { type: 'file', file: { filename: title ?? 'document.pdf', file_data: data } };
  }
  if (source.type === 'text') {
    const text = asString(source.data) ?? '';
    return { type: 'text', text: title === null ? text : `${title}\n${text}` };
  }
  return refuse(`${at}.source`, 'documents must be sent as base64 or text there.');
}

function searchResultText(block: JsonObject): string {
  const text = asArray(block.content).map((part) => asString(asObject(part).text) ?? '');
  return [asString(block.title) ?? '', asString(block.source) ?? '', ...text].filter((line) => line !== '').join('\n');
}

/** A block of a user message as a chat part. */
function userPart(block: JsonObject, at: string, options: Options): JsonObject {
  switch (block.type) {
    case 'text':
      return keepCache({ type: 'text', text: asString(block.text) ?? '' }, block, options);
    case 'image':
      return keepCache(imagePart(block, at), block, options);
    case 'document':
      return keepCache(documentPart(block, at), block, options);
    case 'search_result':
      return { type: 'text', text: searchResultText(block) };
    default:
      return refuse(`${at}.type`, `blocks of type ${quoted(block.type)} have no equivalent there.`);
  }
}

interface ToolResult {
  readonly message: JsonObject;
  /** Images and files, which chat does not take in tool messages. */
  readonly moved: readonly JsonObject[];
}

function toolResult(block: JsonObject, at: string, options: Options): ToolResult {
  const id = asString(block.tool_use_id) ?? '';
  const texts: string[] = [];
  const moved: JsonObject[] = [];
  if (typeof block.content === 'string') texts.push(block.content);
  else {
    asArray(block.content).forEach((inner, i) => {
      const part = userPart(asObject(inner), `${at}.content[${i}]`, options);
      if (part.type === 'text') texts.push(asString(part.text) ?? '');
      else moved.push(part);
    });
  }
  const text = texts.join('\n');
  const said = block.is_error === true ? `Error: ${text}` : text;
  // The mark of the result, or else the last one inside it.
  const marks = [...asArray(block.content), block].map(asObject).filter((one) => isObject(one.cache_control));
  const part = keepCache({ type: 'text', text: said }, marks.at(-1) ?? {}, options);
  const marked = part.cache_control !== undefined;
  const message: JsonObject = { role: 'tool', tool_call_id: id, content: marked ? [part] : said };
  if (moved.length === 0) return { message, moved };
  return { message, moved: movedParts(id, moved) };
}

/** What a user message has in place of the result it belongs to. */
export function movedParts(id: string, parts: readonly JsonObject[]): JsonObject[] {
  return [{ type: 'text', text: `Content of the result of call ${id}:` }, ...parts];
}

function userMessages(content: JsonValue[], at: string, options: Options): JsonObject[] {
  const out: JsonObject[] = [];
  const parts: JsonObject[] = [];
  content.forEach((block, i) => {
    const place = `${at}.content[${i}]`;
    if (!isObject(block)) invalid(place, 'A content block must be an object.');
    if (block.type === 'tool_result') {
      const result = toolResult(block, place, options);
      out.push(result.message);
      parts.push(...result.moved);
    } else parts.push(userPart(block, place, options));
  });
  const [only] = parts;
  if (parts.length === 1 && only?.type === 'text' && only.cache_control === undefined) {
    out.push({ role: 'user', content: only.text });
  } else if (parts.length > 0) out.push({ role: 'user', content: parts });
  return out;
}

function assistantMessage(content: JsonValue[], at: string, options: Options): JsonObject | null {
  let text = '';
  let reasoning = '';
  const texts: JsonObject[] = [];
  const calls: JsonObject[] = [];
  const items: JsonObject[] = [];
  content.forEach((block, i) => {
    const place = `${at}.content[${i}]`;
    if (!isObject(block)) invalid(place, 'A content block must be an object.');
    switch (block.type) {
      case 'text':
        text += asString(block.text) ?? '';
        texts.push(keepCache({ type: 'text', text: asString(block.text) ?? '' }, block, options));
        break;
      case 'tool_use':
        calls.push({
          id: asString(block.id) ?? '',
          type: 'function',
          function: { name: asString(block.name) ?? '', arguments: JSON.stringify(block.input ?? {}) },
          ...(options.callExtra ? callExtra(block) : null),
          ...keepCache({}, block, options),
        });
        break;
      case 'thinking': {
        reasoning += asString(block.thinking) ?? '';
        const item = options.reasoningItems ? itemOf(block) : null;
        if (item !== null) items.push(item);
        break;
      }
      case 'redacted_thinking':
        break;
      default:
        refuse(`${place}.type`, `blocks of type ${quoted(block.type)} have no equivalent there.`);
    }
  });
  if (text === '' && calls.length === 0) return null;
  const marked = texts.some((part) => part.cache_control !== undefined);
  const out: JsonObject = { role: 'assistant', content: text === '' ? null : marked ? texts : text };
  if (options.reasoningField !== null && reasoning !== '') out[options.reasoningField] = reasoning;
  if (items.length > 0) out.content_blocks = items;
  if (calls.length > 0) out.tool_calls = calls;
  return out;
}

function messagesOf(body: JsonObject, options: Options): JsonObject[] {
  const out: JsonObject[] = [];
  const system = systemContent(body.system, options);
  if (system !== null) out.push({ role: 'system', content: system });
  const calls = new Set<string>();
  asArray(body.messages).forEach((message, i) => {
    const at = `messages[${i}]`;
    if (!isObject(message)) invalid(at, 'A message must be an object.');
    const { role, content } = message;
    if (typeof content !== 'string' && !Array.isArray(content)) {
      invalid(`${at}.content`, 'The content must be a text or a list of blocks.');
    }
    const blocks: JsonValue[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
    if (role === 'system') {
      const text = systemContent(content, options);
      if (text !== null) out.push({ role: 'system', content: text });
    } else if (role === 'assistant') {
      const converted = assistantMessage(blocks, at, options);
      if (converted === null) return;
      for (const call of asArray(converted.tool_calls)) {
        const id = asString(asObject(call).id) ?? '';
        if (calls.has(id)) invalid(at, 'The same call id appears twice in this history.');
        calls.add(id);
      }
      out.push(converted);
    } else if (role === 'user') {
      for (const converted of userMessages(blocks, at, options)) {
        if (converted.role === 'tool' && !calls.has(asString(converted.tool_call_id) ?? '')) {
          invalid(at, `Message ${at} answers a call that no earlier assistant message made.`);
        }
        out.push(converted);
      }
    } else invalid(`${at}.role`, 'The role must be user or assistant.');
  });
  return out;
}

function toolsOf(body: JsonObject, options: Options): JsonObject[] {
  if (body.tools !== undefined && body.tools !== null && !Array.isArray(body.tools)) {
    refuse('tools', 'a tool set has no equivalent there.');
  }
  return asArray(body.tools).map((tool, i) => {
    const at = `tools[${i}]`;
    if (!isObject(tool)) invalid(at, 'A tool must be an object.');
    if (tool.type !== undefined && tool.type !== null && tool.type !== 'custom') {
      refuse(at, `the server tool ${quoted(tool.type)} has no equivalent there.`);
    }
    const definition: JsonObject = { name: asString(tool.name) ?? '' };
    if (typeof tool.description === 'string') definition.description = tool.description;
    definition.parameters = isObject(tool.input_schema) ? tool.input_schema : { type: 'object', properties: {} };
    if (typeof tool.strict === 'boolean') definition.strict = tool.strict;
    return keepCache({ type: 'function', function: definition }, tool, options);
  });
}

function choiceOf(choice: JsonObject): JsonValue {
  switch (choice.type) {
    case 'auto':
      return 'auto';
    case 'any':
      return 'required';
    case 'none':
      return 'none';
    case 'tool':
      return { type: 'function', function: { name: asString(choice.name) ?? '' } };
    default:
      return invalid('tool_choice.type', 'The tool choice must be auto, any, tool or none.');
  }
}

/** The effort that the budget of an enabled `thinking` stands for. */
export function budgetEffort(thinking: JsonObject): string {
  const budget = typeof thinking.budget_tokens === 'number' ? thinking.budget_tokens : LOW_BUDGET;
  return budget <= LOW_BUDGET ? 'low' : budget <= MEDIUM_BUDGET ? 'medium' : 'high';
}

/** `output_config.effort`, else the effort a thinking budget stands for; null leaves it to the model. */
function effortOf(body: JsonObject): string | null {
  const effort = asString(asObject(body.output_config).effort);
  if (effort !== null) return effort;
  const thinking = asObject(body.thinking);
  return thinking.type === 'enabled' ? budgetEffort(thinking) : null;
}

function formatOf(body: JsonObject): JsonObject | null {
  const { format, effort: _effort, ...more } = asObject(body.output_config);
  for (const [name, value] of Object.entries(more)) {
    if (value !== null) refuse(`output_config.${name}`, 'it has no equivalent there.');
  }
  if (format === undefined || format === null) return null;
  if (!isObject(format) || format.type !== 'json_schema' || !isObject(format.schema)) {
    refuse('output_config.format', 'only "json_schema" has an equivalent there.');
  }
  return { type: 'json_schema', json_schema: { name: 'output', schema: format.schema, strict: true } };
}

const userOf = (id: string): string =>
  id.length <= USER_LENGTH ? id : createHash('sha256').update(id).digest('hex').slice(0, USER_LENGTH);

/** A Messages request as a chat completions request in OpenAI's published form. */
export function messagesToChat(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  refuseUnknown(body, HANDLED);
  if (!Array.isArray(body.messages) || body.messages.length === 0) {
    invalid('messages', 'At least one message is needed.');
  }
  const has = (name: string): boolean => target.extensions?.has(name) === true;
  const keeps = (name: string): boolean => target.omit?.has(name) !== true;
  const options: Options = {
    cacheControl: has('cache_control'),
    reasoningField: target.reasoning?.history === true ? target.reasoning.field : null,
    callExtra: has('extra_content'),
    reasoningItems: target.reasoningItems === true,
  };
  if (typeof body.max_tokens !== 'number') invalid('max_tokens', '"max_tokens" is required.');
  if (body.max_tokens === 0) refuse('max_tokens', '0 only warms a cache, which has no equivalent there.');
  const out: JsonObject = {
    model: context.model,
    messages: messagesOf(body, options),
    max_completion_tokens: body.max_tokens,
  };
  const tools = toolsOf(body, options);
  if (tools.length > 0) {
    out.tools = tools;
    if (isObject(body.tool_choice)) {
      out.tool_choice = choiceOf(body.tool_choice);
      if (body.tool_choice.disable_parallel_tool_use === true) out.parallel_tool_calls = false;
    }
  }
  if (body.temperature !== undefined && body.temperature !== null) out.temperature = body.temperature;
  if (body.top_p !== undefined && body.top_p !== null) out.top_p = body.top_p;
  if (body.top_k !== undefined && body.top_k !== null) {
    if (!has('top_k')) refuse('top_k', 'it has no equivalent there.');
    out.top_k = body.top_k;
  }
  if (asArray(body.stop_sequences).length > 0) out.stop = body.stop_sequences;
  const whole = has('thinking') && isObject(body.thinking);
  if (whole) out.thinking = body.thinking;
  const effort = whole ? asString(asObject(body.output_config).effort) : effortOf(body);
  if (effort !== null) out.reasoning_effort = effort;
  const format = formatOf(body);
  if (format !== null) out.response_format = format;
  const user = asString(asObject(body.metadata).user_id);
  if (user !== null && user !== '' && keeps('user')) out.user = userOf(user);
  if (body.service_tier === 'standard_only' && has('service_tier')) out.service_tier = 'default';
  if (typeof body.stream === 'boolean') out.stream = body.stream;
  if (body.stream === true && keeps('stream_options')) out.stream_options = { include_usage: true };
  return out;
}
