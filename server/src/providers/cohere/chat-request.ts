/** A chat completions body as a body of Cohere's `/v2/chat`. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, isNeutral, quoted, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { cohereMessages, namesIn } from './messages.ts';

/** Cohere's own fields, which chat callers may send as they are. */
const OWN = ['documents', 'citation_options', 'safety_mode', 'strict_tools', 'priority'] as const;

/** Fields that are read, and bookkeeping fields that may be lost. */
const KNOWN: ReadonlySet<string> = new Set([
  ...OWN,
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'frequency_penalty',
  'presence_penalty',
  'seed',
  'logprobs',
  'tools',
  'tool_choice',
  'response_format',
  'reasoning_effort',
  'thinking',
  'service_tier',
  'stream',
  'stream_options',
  'user',
  'safety_identifier',
  'metadata',
  'store',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
]);

/** Numbers, the name Cohere has for them, and the range it takes. */
const NUMBERS: readonly (readonly [name: string, to: string, least: number, most: number])[] = [
  ['temperature', 'temperature', 0, 1],
  ['top_p', 'p', 0.01, 0.99],
  ['top_k', 'k', 0, 500],
  ['frequency_penalty', 'frequency_penalty', 0, 1],
  ['presence_penalty', 'presence_penalty', 0, 1],
];

const MAX_STOPS = 5;

function numbersOf(body: JsonObject): JsonObject {
  const out: JsonObject = {};
  for (const [name, to, least, most] of NUMBERS) {
    const value = body[name] ?? null;
    // The whole probability is what happens without a bound.
    if (value === null || (name === 'top_p' && value === 1)) continue;
    if (typeof value !== 'number') invalid(name, `${name} must be a number.`);
    if (value < least || value > most) refuse(name, `it must be between ${least} and ${most} there.`);
    out[to] = value;
  }
  return out;
}

function stopsOf(stop: JsonValue | undefined): JsonValue[] {
  const list = typeof stop === 'string' ? [stop] : asArray(stop);
  if (list.length > MAX_STOPS) refuse('stop', `at most ${MAX_STOPS} stop texts are known there.`);
  return list;
}

/** Budgets of the efforts below `high`, which leaves it to the model. */
const BUDGETS: Readonly<Record<string, number>> = { minimal: 512, low: 1024, medium: 4096 };

/** The effort goes before a thinking object, being the newer of the two. Null leaves it to the model. */
function thinkingOf({ reasoning_effort: effort, thinking }: JsonObject): JsonObject | null {
  if (typeof effort === 'string') {
    if (effort === 'none') return { type: 'disabled' };
    if (effort === 'high') return { type: 'enabled' };
    const budget = Object.hasOwn(BUDGETS, effort) ? BUDGETS[effort] : undefined;
    if (budget === undefined) return refuse('reasoning_effort', `the effort ${quoted(effort)} is not known there.`);
    return { type: 'enabled', token_budget: budget };
  }
  if (!isObject(thinking)) return null;
  const { type } = thinking;
  if (type === 'disabled') return { type };
  if (type !== 'enabled' && type !== 'adaptive')
    refuse('thinking', `the type ${quoted(type)} has no equivalent there.`);
  const budget = thinking.token_budget ?? thinking.budget_tokens;
  return { type: 'enabled', ...(typeof budget === 'number' ? { token_budget: budget } : null) };
}

function toolOf(tool: JsonValue, at: string): JsonObject {
  const definition = isObject(tool) && tool.type === 'function' ? asObject(tool.function) : null;
  if (definition === null) return refuse(at, 'only function tools have an equivalent there.');
  const name = asString(definition.name) ?? '';
  if (name === '') invalid(`${at}.function.name`, 'A function needs a name.');
  const description = asString(definition.description);
  return {
    type: 'function',
    function: {
      name,
      ...(description === null ? null : { description }),
      parameters: isObject(definition.parameters) ? definition.parameters : { type: 'object', properties: {} },
    },
  };
}

const nameOf = (tool: JsonObject): JsonValue => asObject(tool.function).name ?? null;

function toolsOf(body: JsonObject): JsonObject {
  const tools = asArray(body.tools).map((tool, i) => toolOf(tool, `tools[${i}]`));
  const choice = body.tool_choice ?? 'auto';
  const strict = asArray(body.tools).some((tool) => asObject(asObject(tool).function).strict === true);
  const given = (left: JsonObject[], wanted: JsonObject = {}): JsonObject => ({
    tools: left,
    ...wanted,
    ...(strict ? { strict_tools: true } : null),
  });
  if (tools.length === 0) {
    if (choice !== 'auto' && choice !== 'none') invalid('tool_choice', 'A tool is chosen, but there are no tools.');
    return {};
  }
  if (choice === 'auto') return given(tools);
  if (choice === 'none') return given(tools, { tool_choice: 'NONE' });
  if (choice === 'required') return given(tools, { tool_choice: 'REQUIRED' });
  if (!isObject(choice) || (choice.type !== 'function' && choice.type !== 'allowed_tools')) {
    return refuse('tool_choice', 'only auto, none, required and functions have an equivalent there.');
  }
  // A function cannot be named there: it is made the only one.
  const names = namesIn(choice);
  const left = tools.filter((tool) => names.has(nameOf(tool)));
  if (left.length === 0) invalid('tool_choice', 'None of the chosen tools is in "tools".');
  const must = choice.type === 'function' || asObject(choice.allowed_tools).mode === 'required';
  return given(left, must ? { tool_choice: 'REQUIRED' } : {});
}

function formatOf(body: JsonObject): JsonObject | null {
  const format = body.response_format;
  if (isNeutral('response_format', format)) return null;
  const { type, json_schema: named } = asObject(format);
  if (asArray(body.tools).length > 0) refuse('response_format', 'it cannot be combined with tools there.');
  if (type === 'json_object') return { type };
  const { schema } = asObject(named);
  if (type !== 'json_schema' || !isObject(schema)) refuse('response_format', 'this format has no equivalent there.');
  return { type: 'json_object', json_schema: schema };
}

/** Throws `unsupported_parameter` for what would change the answer and has no equivalent. */
export function cohereChat(body: JsonObject, model: string): JsonObject {
  refuseUnknown(body, KNOWN);
  const { service_tier: tier, seed, logprobs } = body;
  if (tier !== undefined && tier !== null && tier !== 'auto') refuse('service_tier', 'only "auto" is known there.');
  const format = formatOf(body);
  const thinking = thinkingOf(body);
  const stops = stopsOf(body.stop);
  const most = body.max_completion_tokens ?? body.max_tokens ?? null;
  const own: JsonObject = {};
  for (const name of OWN) if (body[name] !== undefined && body[name] !== null) own[name] = body[name];
  return {
    model,
    messages: cohereMessages(body.messages),
    stream: body.stream === true,
    ...(most === null ? null : { max_tokens: most }),
    ...numbersOf(body),
    ...(stops.length === 0 ? null : { stop_sequences: stops }),
    ...(seed === undefined || seed === null ? null : { seed }),
    ...(logprobs === true ? { logprobs } : null),
    ...own,
    ...toolsOf(body),
    ...(format === null ? null : { response_format: format }),
    ...(thinking === null ? null : { thinking }),
  };
}
