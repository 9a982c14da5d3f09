/** A chat completions body as a Gemini `generateContent` body. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, isNeutral, quoted, refuse } from '../../operations/convert/fields.ts';
import { Contents } from './gemini-contents.ts';
import { type GeminiModel, geminiModel } from './gemini-model.ts';
import { geminiSchema } from './gemini-schema.ts';

export interface GeminiOptions {
  /** Vertex AI, which bills by labels. */
  readonly vertex: boolean;
  /** A line of a batch, which is not streamed. */
  readonly batch?: boolean;
  /** The caller is shown what the model thought. */
  readonly thoughts?: boolean;
}

/** Fields that change nothing in the answer: left out. */
const BOOKKEEPING = new Set([
  'model',
  'user',
  'safety_identifier',
  'metadata',
  'store',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'stream_options',
]);

/** Plain values of `generationConfig`. */
const PLAIN: Readonly<Record<string, string>> = {
  max_tokens: 'maxOutputTokens',
  max_completion_tokens: 'maxOutputTokens',
  temperature: 'temperature',
  top_p: 'topP',
  top_k: 'topK',
  seed: 'seed',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
  n: 'candidateCount',
  logprobs: 'responseLogprobs',
  top_logprobs: 'logprobs',
  media_resolution: 'mediaResolution',
};

/** Tokens of thought by effort, of the models that take a number. */
const BUDGETS: Readonly<Record<string, number>> = { none: 0, minimal: 1024, low: 1024, medium: 8192, high: 24576 };
const LEVELS: Readonly<Record<string, string>> = { minimal: 'MINIMAL', low: 'LOW', medium: 'MEDIUM', high: 'HIGH' };
/** A budget up to each is this effort, one above the last is `high`. */
const LOW_BUDGET = 2048;
const MEDIUM_BUDGET = 8192;

/** Tools Google runs itself, by the names of both spellings. */
const HOSTED: Readonly<Record<string, string>> = {
  google_search: 'googleSearch',
  googleSearch: 'googleSearch',
  google_maps: 'googleMaps',
  googleMaps: 'googleMaps',
  code_execution: 'codeExecution',
  codeExecution: 'codeExecution',
  url_context: 'urlContext',
  urlContext: 'urlContext',
};

/** `safety_settings` as `safetySettings`, at every depth of Google's own extensions. */
function camelCase(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(camelCase);
  if (!isObject(value)) return value;
  const renamed = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [renamed(name), camelCase(inner ?? null)]));
}

/** A hosted tool by itself: `{google_search: {}}`, or `{type: "google_search"}`. */
function hostedTool(tool: JsonObject, path: string): JsonObject {
  const [name = ''] = typeof tool.type === 'string' ? [tool.type] : Object.keys(tool);
  const hosted = Object.hasOwn(HOSTED, name) ? HOSTED[name] : undefined;
  if (hosted === undefined) return refuse(path, 'only functions and tools that Google runs have an equivalent.');
  const { type: _, [name]: options, ...rest } = tool;
  return { [hosted]: camelCase(isObject(options) ? options : rest) };
}

function toolsOf(tools: JsonValue | undefined): { readonly tools: JsonObject[]; readonly strict: boolean } {
  const declarations: JsonObject[] = [];
  const hosted: JsonObject[] = [];
  let strict = false;
  for (const [at, tool] of asArray(tools).entries()) {
    const path = `tools[${at}]`;
    if (!isObject(tool)) return invalid(path, 'A tool must be an object.');
    if (tool.type !== 'function') {
      hosted.push(hostedTool(tool, path));
      continue;
    }
    const { name, description, parameters, strict: exact } = asObject(tool.function);
    if (typeof name !== 'string') return invalid(`${path}.function.name`, 'A function needs a name.');
    strict ||= exact === true;
    declarations.push({
      name,
      ...(typeof description === 'string' ? { description } : null),
      ...(isObject(parameters) ? { parametersJsonSchema: geminiSchema(parameters) } : null),
    });
  }
  return { tools: [...(declarations.length === 0 ? [] : [{ functionDeclarations: declarations }]), ...hosted], strict };
}

const MODES: Readonly<Record<string, string>> = { auto: 'AUTO', none: 'NONE', required: 'ANY' };

function nameIn(choice: JsonValue): string {
  const name = isObject(choice) && choice.type === 'function' ? asString(asObject(choice.function).name) : null;
  return name ?? refuse('tool_choice', 'only functions can be chosen.');
}

function toolChoice(choice: JsonValue): JsonObject {
  if (isObject(choice) && choice.type === 'allowed_tools') {
    const { mode, tools } = asObject(choice.allowed_tools);
    return { mode: mode === 'required' ? 'ANY' : 'VALIDATED', allowedFunctionNames: asArray(tools).map(nameIn) };
  }
  if (isObject(choice)) return { mode: 'ANY', allowedFunctionNames: [nameIn(choice)] };
  const mode = typeof choice === 'string' && Object.hasOwn(MODES, choice) ? MODES[choice] : undefined;
  return mode === undefined ? refuse('tool_choice', 'this choice has no equivalent.') : { mode };
}

function responseFormat(format: JsonValue): JsonObject {
  const { type, json_schema } = asObject(format);
  if (type === 'json_object') return { responseMimeType: 'application/json' };
  const { schema } = asObject(json_schema);
  if (type !== 'json_schema' || !isObject(schema)) return refuse('response_format', 'this format has no equivalent.');
  return { responseMimeType: 'application/json', responseJsonSchema: geminiSchema(schema) };
}

/** The thinking an effort asks for. */
function ofEffort(effort: JsonValue, { thinking }: GeminiModel): JsonObject {
  const name = asString(effort) ?? '';
  if (thinking === 'budget' && Object.hasOwn(BUDGETS, name)) return { thinkingBudget: BUDGETS[name] ?? 0 };
  if (thinking === 'level' && Object.hasOwn(LEVELS, name)) return { thinkingLevel: LEVELS[name] ?? '' };
  return refuse('reasoning_effort', `the model does not know the effort ${quoted(effort)}.`);
}

/** The thinking that Messages' own object asks for; null leaves it to the model. */
function ofThinking(thinking: JsonObject, model: GeminiModel): JsonObject | null {
  const { type, budget_tokens: budget } = thinking;
  if (model.thinking === null) return type === 'disabled' ? null : refuse('thinking', 'the model does not think.');
  if (type === 'disabled') {
    if (model.thinking === 'level') refuse('thinking', 'the model always thinks; ask for less by its effort.');
    return { thinkingBudget: 0 };
  }
  if (type !== 'enabled' && type !== 'adaptive') refuse('thinking', `the type ${quoted(type)} has no equivalent.`);
  if (typeof budget !== 'number') return {};
  if (model.thinking === 'budget') return { thinkingBudget: budget };
  return { thinkingLevel: budget <= LOW_BUDGET ? 'LOW' : budget <= MEDIUM_BUDGET ? 'MEDIUM' : 'HIGH' };
}

/** What `thinking` and `reasoning_effort` mean together: the effort goes before a budget, being the newer of the two. */
function thinkingConfig(body: JsonObject, model: GeminiModel, shown: boolean): JsonObject | null {
  const { reasoning_effort: effort, thinking } = body;
  const asked = isObject(thinking) ? ofThinking(thinking, model) : null;
  const config = typeof effort === 'string' ? ofEffort(effort, model) : asked;
  if (config === null) return null;
  const visible = asked === null ? shown : asObject(thinking).type !== 'disabled';
  const omitted = asObject(thinking).display === 'omitted' || config.thinkingBudget === 0;
  return { ...config, ...(visible && !omitted ? { includeThoughts: true } : null) };
}

function stopsOf(stop: JsonValue): string[] {
  const list = typeof stop === 'string' ? [stop] : asArray(stop);
  return list.map((one, at) => asString(one) ?? invalid(`stop[${at}]`, 'stop must be a text or a list of texts.'));
}

function modalities(value: JsonValue): string[] {
  return asArray(value).map((one) => {
    if (one !== 'text' && one !== 'image') refuse('modalities', 'only "text" and "image" have an equivalent.');
    return one.toUpperCase();
  });
}

/** Google's own fields, as its OpenAI-compatible API takes them in `extra_body.google`. */
function googleFields(value: JsonValue, out: JsonObject, config: JsonObject): void {
  const { google, ...others } = asObject(value);
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) refuse(`extra_body.${unknown}`, 'it has no equivalent.');
  for (const [name, inner] of Object.entries(asObject(google))) {
    if (name === 'thinking_config') config.thinkingConfig = camelCase(inner ?? null);
    else if (name === 'cached_content' || name === 'safety_settings') {
      Object.assign(out, camelCase({ [name]: inner ?? null }));
    } else refuse(`extra_body.google.${name}`, 'it has no equivalent.');
  }
}

/** Throws `unsupported_parameter` for a field that would change the answer and has no equivalent. */
export function chatToGemini(body: JsonObject, modelName: string, options: GeminiOptions): JsonObject {
  const model = geminiModel(modelName);
  const contents = new Contents(model, options.vertex);
  for (const [at, message] of asArray(body.messages).entries()) contents.add(message, `messages[${at}]`);
  if (contents.contents.length === 0) invalid('messages', 'messages needs a user message.');
  const config: JsonObject = {};
  const out: JsonObject = { contents: contents.contents };
  if (contents.system.length > 0) out.systemInstruction = { parts: contents.system.map((text) => ({ text })) };
  const { tools, strict } = toolsOf(body.tools);
  if (tools.length > 0) out.tools = tools;
  if (strict) out.toolConfig = { functionCallingConfig: { mode: 'VALIDATED' } };
  for (const [name, value] of Object.entries(body)) {
    if (name === 'messages' || name === 'tools' || BOOKKEEPING.has(name)) continue;
    if (value === undefined || isNeutral(name, value)) continue;
    const plain = Object.hasOwn(PLAIN, name) ? PLAIN[name] : undefined;
    if (plain !== undefined) {
      config[plain] = value;
      continue;
    }
    switch (name) {
      case 'stop':
        config.stopSequences = stopsOf(value);
        break;
      case 'response_format':
        Object.assign(config, responseFormat(value));
        break;
      case 'reasoning_effort':
      case 'thinking': {
        const thinking = thinkingConfig(body, model, options.thoughts === true);
        if (thinking !== null) config.thinkingConfig = thinking;
        break;
      }
      case 'modalities':
        config.responseModalities = modalities(value);
        break;
      case 'image_config':
        config.imageConfig = camelCase(value);
        break;
      case 'tool_choice':
        out.toolConfig = { functionCallingConfig: toolChoice(value) };
        break;
      case 'web_search_options':
        if (Object.keys(asObject(value)).length > 0) refuse(name, 'the search takes no options; send an empty object.');
        out.tools = [...asArray(out.tools), { googleSearch: {} }];
        break;
      case 'safety_settings':
        out.safetySettings = camelCase(value);
        break;
      case 'cached_content':
        out.cachedContent = value;
        break;
      case 'labels':
        if (!options.vertex) refuse(name, 'only Vertex AI has labels.');
        out.labels = value;
        break;
      case 'extra_body':
        googleFields(value, out, config);
        break;
      case 'stream':
        if (options.batch && value === true) refuse('stream', 'lines of a batch are not streamed.');
        break;
      case 'service_tier':
        if (value !== 'auto' && value !== 'default') refuse('service_tier', 'there is only one.');
        break;
      default:
        refuse(name, 'it has no equivalent.');
    }
  }
  if (Object.keys(config).length > 0) out.generationConfig = config;
  return out;
}
