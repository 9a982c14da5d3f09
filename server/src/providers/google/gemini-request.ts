/** A chat completions body as a Gemini `generateContent` body (providers §12.1), for Vertex AI. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import {
  asArray,
  asObject,
  asString,
  invalid,
  isNeutral,
  parseDataUri,
  refuse,
} from '../../operations/convert/fields.ts';

/** Fields that change nothing in the answer: left out (RULE 41, RULE 47). */
const BOOKKEEPING = new Set([
  'model',
  'user',
  'safety_identifier',
  'metadata',
  'store',
  'prompt_cache_key',
  'stream_options',
]);

/** Plain numbers of `generationConfig`. */
const NUMBERS: Readonly<Record<string, string>> = {
  max_tokens: 'maxOutputTokens',
  max_completion_tokens: 'maxOutputTokens',
  temperature: 'temperature',
  top_p: 'topP',
  top_k: 'topK',
  seed: 'seed',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
  n: 'candidateCount',
};

/** `fileData` needs a type, and a URL has none but its ending. */
const TYPES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  webp: 'image/webp',
  gif: 'image/gif',
  heic: 'image/heic',
  heif: 'image/heif',
};

/** Tokens of thought by effort, of the models that are told a number. */
const BUDGETS: Readonly<Record<string, number>> = { none: 0, minimal: 1024, low: 1024, medium: 8192, high: 24576 };
const LEVELS: Readonly<Record<string, string>> = { minimal: 'MINIMAL', low: 'LOW', medium: 'MEDIUM', high: 'HIGH' };

function imagePart(part: JsonObject, path: string): JsonObject {
  const image = part.image_url;
  const url = asString(isObject(image) ? image.url : image);
  if (url === null) invalid(`${path}.image_url`, 'image_url needs a url.');
  const data = parseDataUri(url);
  if (data !== null) return { inlineData: { mimeType: data.mediaType, data: data.data } };
  if (!/^(https?|gs):\/\//.test(url)) invalid(`${path}.image_url`, 'image_url must be a data, https or gs URL.');
  const ending = /\.([a-z]{3,4})(?:[?#].*)?$/i.exec(url)?.[1]?.toLowerCase() ?? '';
  const mimeType = Object.hasOwn(TYPES, ending) ? TYPES[ending] : undefined;
  if (mimeType === undefined) {
    refuse(`${path}.image_url`, 'the type of the image must show in the ending of its URL, or be in a data URL.');
  }
  return { fileData: { mimeType, fileUri: url } };
}

function mediaPart(part: JsonObject, path: string): JsonObject {
  if (part.type === 'image_url') return imagePart(part, path);
  if (part.type === 'input_audio') {
    const audio = asObject(part.input_audio);
    const [data, format] = [asString(audio.data), asString(audio.format)];
    if (data === null || format === null) invalid(`${path}.input_audio`, 'input_audio needs data and format.');
    return { inlineData: { mimeType: `audio/${format}`, data } };
  }
  if (part.type === 'file') {
    const data = parseDataUri(asString(asObject(part.file).file_data) ?? '');
    if (data === null) refuse(`${path}.file`, 'only files given as a data URL in file_data can be sent.');
    return { inlineData: { mimeType: data.mediaType, data: data.data } };
  }
  return refuse(path, 'parts of this type have no equivalent.');
}

/** Content as parts; empty texts are left out, upstream refuses them. */
function partsOf(content: JsonValue | undefined, path: string): JsonObject[] {
  if (typeof content === 'string') return content === '' ? [] : [{ text: content }];
  if (!Array.isArray(content)) return invalid(path, 'content must be a text or a list of parts.');
  const out: JsonObject[] = [];
  for (const [at, part] of content.entries()) {
    if (!isObject(part)) invalid(`${path}[${at}]`, 'A part must be an object.');
    if (part.type === 'text' || part.type === 'refusal') {
      const text = asString(part.type === 'text' ? part.text : part.refusal);
      if (text === null) invalid(`${path}[${at}].text`, 'A text part needs a text.');
      if (text !== '') out.push({ text });
    } else out.push(mediaPart(part, `${path}[${at}]`));
  }
  return out;
}

function textsOf(content: JsonValue | undefined, path: string): string {
  return partsOf(content, path)
    .map((part) => (typeof part.text === 'string' ? part.text : refuse(path, 'only texts can stand here.')))
    .join('\n');
}

function parsedArguments(text: JsonValue | undefined, path: string): JsonObject {
  if (text === undefined || text === '') return {};
  try {
    const value: unknown = typeof text === 'string' ? JSON.parse(text) : undefined;
    if (isObject(value)) return value;
  } catch {
    // Said below.
  }
  return invalid(path, 'The arguments of a tool call must be a JSON object as text.');
}

function signatureOf(call: JsonObject): JsonObject {
  const signature = asString(asObject(asObject(call.extra_content).google).thought_signature);
  return signature === null ? {} : { thoughtSignature: signature };
}

/** The conversation, with what later messages need of earlier ones. */
class Contents {
  readonly system: string[] = [];
  readonly contents: JsonObject[] = [];
  /** Function names by call id: a tool message names only the id. */
  readonly #names = new Map<string, string>();

  #add(role: 'user' | 'model', parts: JsonObject[], path: string): void {
    if (parts.length === 0) invalid(path, 'A message must not be empty.');
    const last = this.contents.at(-1);
    if (last?.role === role && Array.isArray(last.parts)) last.parts.push(...parts);
    else this.contents.push({ role, parts });
  }

  #call(call: JsonValue, path: string): JsonObject {
    if (!isObject(call) || (call.type !== undefined && call.type !== 'function')) {
      return refuse(path, 'only calls of functions have an equivalent.');
    }
    const id = asString(call.id);
    const name = asString(asObject(call.function).name);
    if (id === null || name === null) return invalid(path, 'A tool call needs an id and a function name.');
    if (this.#names.has(id)) invalid(`${path}.id`, 'Two tool calls have the same id.');
    this.#names.set(id, name);
    const args = parsedArguments(asObject(call.function).arguments, path);
    return { functionCall: { name, args }, ...signatureOf(call) };
  }

  #result(message: JsonObject, path: string): JsonObject {
    const name = this.#names.get(asString(message.tool_call_id) ?? '');
    if (name === undefined) return invalid(`${path}.tool_call_id`, 'The tool result belongs to no earlier tool call.');
    const text = textsOf(message.content, `${path}.content`);
    let response: JsonObject = { output: text };
    try {
      const value: unknown = JSON.parse(text);
      if (isObject(value)) response = value;
    } catch {
      // A plain text stays one.
    }
    return { functionResponse: { name, response } };
  }

  add(message: JsonValue, path: string): void {
    if (!isObject(message)) invalid(path, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        this.system.push(textsOf(message.content, `${path}.content`));
        return;
      case 'user':
        this.#add('user', partsOf(message.content, `${path}.content`), path);
        return;
      case 'assistant': {
        if (!isNeutral('function_call', message.function_call)) refuse(`${path}.function_call`, 'use tool_calls.');
        if (!isNeutral('audio', message.audio)) refuse(`${path}.audio`, 'earlier audio cannot be referred to.');
        const content = message.content ?? '';
        const calls = asArray(message.tool_calls).map((call, at) => this.#call(call, `${path}.tool_calls[${at}]`));
        this.#add('model', [...partsOf(content, `${path}.content`), ...calls], path);
        return;
      }
      case 'tool':
        this.#add('user', [this.#result(message, path)], path);
        return;
      default:
        refuse(`${path}.role`, 'messages of this role have no equivalent.');
    }
  }
}

function toolsOf(tools: JsonValue | undefined): JsonObject[] {
  const declarations = asArray(tools).map((tool, at) => {
    const path = `tools[${at}]`;
    if (!isObject(tool) || tool.type !== 'function') return refuse(path, 'only functions have an equivalent.');
    const { name, description, parameters } = asObject(tool.function);
    if (typeof name !== 'string') return invalid(`${path}.function.name`, 'A function needs a name.');
    return {
      name,
      ...(typeof description === 'string' ? { description } : null),
      ...(isObject(parameters) ? { parametersJsonSchema: parameters } : null),
    };
  });
  return declarations.length === 0 ? [] : [{ functionDeclarations: declarations }];
}

function toolChoice(choice: JsonValue): JsonObject {
  const named = isObject(choice) && choice.type === 'function' ? asString(asObject(choice.function).name) : null;
  if (named !== null) return { mode: 'ANY', allowedFunctionNames: [named] };
  const mode = choice === 'auto' ? 'AUTO' : choice === 'none' ? 'NONE' : choice === 'required' ? 'ANY' : null;
  return mode === null ? refuse('tool_choice', 'this choice has no equivalent.') : { mode };
}

function responseFormat(format: JsonValue): JsonObject {
  const { type, json_schema } = asObject(format);
  if (type === 'json_object') return { responseMimeType: 'application/json' };
  const { schema } = asObject(json_schema);
  if (type !== 'json_schema' || !isObject(schema)) return refuse('response_format', 'this format has no equivalent.');
  return { responseMimeType: 'application/json', responseJsonSchema: schema };
}

/** Models of generation 2.5 are told a number of tokens, later ones a level; of others nothing is known. */
function thinking(effort: JsonValue, model: string): JsonObject {
  const name = asString(effort) ?? '';
  if (model.includes('gemini-2.5') && Object.hasOwn(BUDGETS, name)) return { thinkingBudget: BUDGETS[name] ?? 0 };
  const later = /gemini-([3-9]|\d{2})/.test(model);
  if (later && Object.hasOwn(LEVELS, name)) return { thinkingLevel: LEVELS[name] ?? '' };
  return refuse('reasoning_effort', 'the model does not know this effort.');
}

function stopsOf(stop: JsonValue): string[] {
  const list = typeof stop === 'string' ? [stop] : asArray(stop);
  return list.map((one, at) => asString(one) ?? invalid(`stop[${at}]`, 'stop must be a text or a list of texts.'));
}

/** Throws `unsupported_parameter` for a field that would change the answer and has no equivalent. */
export function chatToGemini(body: JsonObject, model: string): JsonObject {
  const contents = new Contents();
  for (const [at, message] of asArray(body.messages).entries()) contents.add(message, `messages[${at}]`);
  if (contents.contents.length === 0) invalid('messages', 'messages needs a user message.');
  const config: JsonObject = {};
  const out: JsonObject = { contents: contents.contents };
  if (contents.system.length > 0) out.systemInstruction = { parts: contents.system.map((text) => ({ text })) };
  for (const [name, value] of Object.entries(body)) {
    if (name === 'messages' || BOOKKEEPING.has(name) || isNeutral(name, value) || value === undefined) continue;
    const number = Object.hasOwn(NUMBERS, name) ? NUMBERS[name] : undefined;
    if (number !== undefined) {
      config[number] = value;
      continue;
    }
    switch (name) {
      case 'stop':
        config.stopSequences = stopsOf(value);
        break;
      case 'logprobs':
        config.responseLogprobs = value;
        break;
      case 'top_logprobs':
        config.logprobs = value;
        break;
      case 'response_format':
        Object.assign(config, responseFormat(value));
        break;
      case 'reasoning_effort':
        config.thinkingConfig = thinking(value, model);
        break;
      case 'tools':
        out.tools = toolsOf(value);
        break;
      case 'tool_choice':
        out.toolConfig = { functionCallingConfig: toolChoice(value) };
        break;
      case 'stream':
        if (value !== false) refuse('stream', 'lines of a batch are not streamed.');
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
