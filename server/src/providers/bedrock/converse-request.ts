/** A chat completion request as a Converse request (providers §13.2). */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import {
  asArray,
  asObject,
  asString,
  fitCallId,
  invalid,
  parseDataUri,
  quoted,
  refuse,
} from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';

const IMAGES: Readonly<Record<string, string>> = {
  'image/png': 'png',
  'image/jpeg': 'jpeg',
  'image/gif': 'gif',
  'image/webp': 'webp',
};
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const CALL_ID = /^[a-zA-Z0-9_.:-]{1,64}$/;
const MISTRAL_CALL_ID = /^[a-zA-Z0-9]{9}$/;

/** Fields that are read below, and bookkeeping fields that may be lost (RULE 47). */
const KNOWN: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'tools',
  'tool_choice',
  'response_format',
  'reasoning_effort',
  'thinking',
  'metadata',
  'service_tier',
  'stream',
  'stream_options',
  'user',
  'safety_identifier',
  'store',
  'prompt_cache_key',
  'prompt_cache_retention',
]);

function imageBlock(part: JsonObject, at: string): JsonObject {
  const url = asString(isObject(part.image_url) ? part.image_url.url : part.image_url);
  if (url === null || url === '') invalid(`${at}.image_url`, 'An image part needs "image_url.url".');
  if (url.startsWith('s3://')) {
    const format = /\.(png|jpeg|jpg|gif|webp)$/i.exec(url)?.[1]?.toLowerCase();
    if (format === undefined) refuse(`${at}.image_url.url`, 'the name of an image in S3 must end with its format.');
    return { image: { format: format === 'jpg' ? 'jpeg' : format, source: { s3Location: { uri: url } } } };
  }
  const data = parseDataUri(url);
  if (data === null) refuse(`${at}.image_url.url`, 'images must be data URIs with base64 content, or s3:// URIs.');
  const format = Object.hasOwn(IMAGES, data.mediaType) ? IMAGES[data.mediaType] : undefined;
  if (format === undefined) refuse(`${at}.image_url.url`, 'images must be PNG, JPEG, GIF or WebP there.');
  return { image: { format, source: { bytes: data.data } } };
}

function withCachePoint(block: JsonObject, part: JsonObject): JsonObject[] {
  return isObject(part.cache_control) ? [block, { cachePoint: { type: 'default' } }] : [block];
}

function blocksOf(content: JsonValue | undefined, at: string, images: boolean): JsonObject[] {
  if (content === null || content === undefined) return [];
  if (typeof content === 'string') return content.trim() === '' ? [] : [{ text: content }];
  if (!Array.isArray(content)) invalid(at, 'The content must be a text or a list of parts.');
  return content.flatMap((part, i) => {
    if (!isObject(part)) invalid(`${at}[${i}]`, 'A content part must be an object.');
    if (part.type === 'text') {
      const text = asString(part.text);
      if (text === null) invalid(`${at}[${i}].text`, 'A text part needs "text".');
      return text.trim() === '' ? [] : withCachePoint({ text }, part);
    }
    if (part.type === 'image_url' && images) return withCachePoint(imageBlock(part, `${at}[${i}]`), part);
    return refuse(`${at}[${i}].type`, `parts of type ${quoted(part.type)} have no equivalent there.`);
  });
}

function inputOf(text: JsonValue | undefined, at: string): JsonObject {
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

interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: JsonObject[];
}

interface History {
  readonly system: JsonObject[];
  readonly turns: Turn[];
  /** Names of called functions. */
  readonly called: ReadonlySet<string>;
}

/** Turns alternate and begin with the user: equal neighbours become one, results of calls stand first. */
function historyOf(messages: JsonValue[], model: string): History {
  const system: JsonObject[] = [];
  const turns: Turn[] = [];
  const called = new Set<string>();
  const [pattern, length] = model.includes('mistral.') ? [MISTRAL_CALL_ID, 9] : [CALL_ID, 32];
  const fit = (id: string): string => fitCallId(id, pattern, length);
  const add = (role: Turn['role'], blocks: JsonObject[]): void => {
    const last = turns.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else if (blocks.length > 0) turns.push({ role, content: blocks });
  };
  messages.forEach((message, i) => {
    const at = `messages[${i}]`;
    if (!isObject(message)) invalid(at, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        system.push(...blocksOf(message.content, `${at}.content`, false));
        return;
      case 'user': {
        const blocks = blocksOf(message.content, `${at}.content`, true);
        if (blocks.length === 0) invalid(`${at}.content`, 'A user message must not be empty.');
        add('user', blocks);
        return;
      }
      case 'assistant': {
        if (isObject(message.function_call)) refuse(`${at}.function_call`, 'use tool_calls.');
        if (isObject(message.audio)) refuse(`${at}.audio`, 'audio has no equivalent there.');
        const refusal = asString(message.refusal);
        const blocks = blocksOf(message.content ?? refusal, `${at}.content`, false);
        asArray(message.tool_calls).forEach((call, j) => {
          const place = `${at}.tool_calls[${j}]`;
          if (!isObject(call) || !isObject(call.function))
            refuse(place, 'only function calls have an equivalent there.');
          const name = asString(call.function.name) ?? '';
          const id = asString(call.id);
          if (id === null || id === '') invalid(`${place}.id`, 'A call needs an id.');
          called.add(name);
          const input = inputOf(call.function.arguments, `${place}.function.arguments`);
          blocks.push({ toolUse: { toolUseId: fit(id), name, input } });
        });
        add('assistant', blocks);
        return;
      }
      case 'tool': {
        const id = asString(message.tool_call_id);
        if (id === null) invalid(`${at}.tool_call_id`, 'A tool message needs the id of its call.');
        const content = blocksOf(message.content, `${at}.content`, true);
        const result = { toolResult: { toolUseId: fit(id), content: content.length > 0 ? content : [{ text: ' ' }] } };
        const last = turns.at(-1);
        if (last?.role !== 'user') turns.push({ role: 'user', content: [result] });
        else {
          const results = last.content.filter((block) => block.toolResult !== undefined).length;
          last.content.splice(results, 0, result);
        }
        return;
      }
      default:
        invalid(`${at}.role`, 'The role must be system, developer, user, assistant or tool.');
    }
  });
  if (turns[0]?.role !== 'user') invalid('messages', 'The first message besides system must be of the user.');
  return { system, turns, called };
}

function toolSpec(tool: JsonValue, at: string): JsonObject[] {
  const definition = isObject(tool) && tool.type === 'function' ? asObject(tool.function) : null;
  if (!isObject(tool) || definition === null) refuse(at, 'only function tools have an equivalent there.');
  const name = asString(definition.name) ?? '';
  if (!TOOL_NAME.test(name)) invalid(`${at}.function.name`, 'A function name has 1 to 64 letters, digits, "_" or "-".');
  const description = asString(definition.description);
  const spec: JsonObject = {
    name,
    ...(description === null || description === '' ? null : { description }),
    inputSchema: { json: isObject(definition.parameters) ? definition.parameters : { type: 'object', properties: {} } },
    ...(typeof definition.strict === 'boolean' ? { strict: definition.strict } : null),
  };
  return withCachePoint({ toolSpec: spec }, tool);
}

function toolConfig(body: JsonObject, called: ReadonlySet<string>): JsonObject | null {
  let tools = asArray(body.tools).flatMap((tool, i) => toolSpec(tool, `tools[${i}]`));
  // History with calls needs a list of tools: it names what was called, nothing more (RULE 43).
  if (tools.length === 0) {
    tools = [...called].map((name) => ({
      toolSpec: { name, inputSchema: { json: { type: 'object', properties: {} } } },
    }));
  }
  if (tools.length === 0) return null;
  const wanted = body.tool_choice ?? null;
  if (wanted === 'none') return called.size > 0 ? { tools } : null;
  if (wanted === null || wanted === 'auto')
    return { tools, ...(wanted === null ? null : { toolChoice: { auto: {} } }) };
  if (wanted === 'required') return { tools, toolChoice: { any: {} } };
  const name = isObject(wanted) ? asString(asObject(wanted.function).name) : null;
  if (name === null) refuse('tool_choice', 'only auto, none, required and a named function have an equivalent there.');
  return { tools, toolChoice: { tool: { name } } };
}

function inferenceConfig(body: JsonObject): JsonObject {
  const out: JsonObject = {};
  const most = body.max_completion_tokens ?? body.max_tokens ?? null;
  if (most !== null) {
    if (typeof most === 'number' && (!Number.isInteger(most) || most < 1)) {
      invalid('max_tokens', 'The largest number of tokens is a whole number from 1.');
    }
    out.maxTokens = most;
  }
  for (const [name, target] of [
    ['temperature', 'temperature'],
    ['top_p', 'topP'],
  ] as const) {
    const value = body[name] ?? null;
    if (value === null) continue;
    if (typeof value !== 'number' || value < 0 || value > 1) refuse(name, 'it goes from 0 to 1 there.');
    out[target] = value;
  }
  const stops = typeof body.stop === 'string' ? [body.stop] : asArray(body.stop);
  if (stops.some((stop) => typeof stop !== 'string' || stop === ''))
    invalid('stop', 'Stop sequences are non-empty texts.');
  if (stops.length > 0) out.stopSequences = stops;
  return out;
}

/** What only some models know, under their own names. */
function nativeFields(body: JsonObject, model: string): JsonObject {
  const out: JsonObject = {};
  const { top_k: topK, reasoning_effort: effort, thinking } = body;
  const claude = model.includes('anthropic.');
  if (topK !== undefined && topK !== null) {
    if (model.includes('amazon.nova')) out.inferenceConfig = { topK };
    else if (claude) out.top_k = topK;
    else refuse('top_k', 'its name is not known for this model.');
  }
  if (isObject(thinking)) {
    if (!claude) refuse('thinking', 'this model knows no thinking blocks.');
    out.thinking = thinking;
  }
  if (effort !== undefined && effort !== null) {
    if (claude && typeof effort === 'string') out.output_config = { effort };
    else if (model.includes('openai.')) out.reasoning_effort = effort;
    else if (/amazon\.nova-2/.test(model)) out.reasoningConfig = { type: 'enabled', maxReasoningEffort: effort };
    else refuse('reasoning_effort', 'its name is not known for this model.');
  }
  return out;
}

function textFormat(format: JsonValue | undefined): JsonObject | null {
  if (!isObject(format) || format.type === 'text') return null;
  const schema = asObject(format.json_schema);
  if (format.type !== 'json_schema' || !isObject(schema.schema)) {
    refuse('response_format', 'only "text" and "json_schema" with a schema have an equivalent there.');
  }
  const name = asString(schema.name);
  const description = asString(schema.description);
  return {
    textFormat: {
      type: 'json_schema',
      structure: {
        jsonSchema: {
          schema: JSON.stringify(schema.schema),
          ...(name === null ? null : { name }),
          ...(description === null ? null : { description }),
        },
      },
    },
  };
}

const isEmpty = (value: JsonObject): boolean => Object.keys(value).length === 0;

/** The body of a Converse call, without the model id, which stands in the path or beside it. */
export function converseRequest(body: JsonObject, model: string): JsonObject {
  refuseUnknown(body, KNOWN);
  if (body.stream === true) refuse('stream', 'a batch answers whole.');
  const { system, turns, called } = historyOf(asArray(body.messages), model);
  const config = inferenceConfig(body);
  const tools = toolConfig(body, called);
  const native = nativeFields(body, model);
  const format = textFormat(body.response_format);
  const tier = body.service_tier ?? 'auto';
  if (tier !== 'auto' && !['priority', 'default', 'flex', 'reserved'].includes(asString(tier) ?? '')) {
    refuse('service_tier', 'only auto, default, flex, priority and reserved have an equivalent there.');
  }
  return {
    messages: turns.map(({ role, content }) => ({ role, content })),
    ...(system.length === 0 ? null : { system }),
    ...(isEmpty(config) ? null : { inferenceConfig: config }),
    ...(tools === null ? null : { toolConfig: tools }),
    ...(format === null ? null : { outputConfig: format }),
    ...(tier === 'auto' ? null : { serviceTier: { type: tier } }),
    ...(isObject(body.metadata) && !isEmpty(body.metadata) ? { requestMetadata: body.metadata } : null),
    ...(isEmpty(native) ? null : { additionalModelRequestFields: native }),
  };
}
