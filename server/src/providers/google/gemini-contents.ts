/** Chat messages as Gemini `contents`. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import {
  asArray,
  asObject,
  asString,
  invalid,
  isNeutral,
  parseDataUri,
  refuse,
} from '../../operations/convert/fields.ts';
import type { GeminiModel } from './gemini-model.ts';

/** `fileData` needs a type, and a URL has none but its ending. */
const TYPES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  webp: 'image/webp',
  gif: 'image/gif',
  heic: 'image/heic',
  heif: 'image/heif',
  pdf: 'application/pdf',
  txt: 'text/plain',
  mp3: 'audio/mp3',
  wav: 'audio/wav',
  flac: 'audio/flac',
  mp4: 'video/mp4',
  mov: 'video/quicktime',
  webm: 'video/webm',
};

/** Files kept by the Gemini API, which knows their types. */
const KEPT = /^https:\/\/generativelanguage\.googleapis\.com\/[a-z0-9]+\/files\/[a-z0-9-]+$/;
/** Videos the Gemini API watches where they are. */
const WATCHED = /^https:\/\/(?:(?:www\.)?youtube\.com\/watch\?v=|youtu\.be\/)[\w-]{1,64}$/;

/** What the Gemini API reads itself are its own files and videos; what is at any other address is sent along. */
export const inlinesMedia = (url: string): boolean => /^https?:\/\//.test(url) && !KEPT.test(url) && !WATCHED.test(url);

/**
 * Stands where a signature belongs that was lost on the way, or never was because another model made the call: later
 * models refuse a call of the current turn that has none.
 */
const NO_SIGNATURE = 'skip_thought_signature_validator';

/** What is at a URL, fetched by Google. */
function remotePart(url: string, path: string, vertex: boolean): JsonObject {
  if (!vertex && (KEPT.test(url) || WATCHED.test(url))) return { fileData: { fileUri: url } };
  if (!vertex && url.startsWith('gs:')) refuse(path, 'only Vertex AI reads from Cloud Storage.');
  if (!/^(https?|gs):\/\//.test(url)) invalid(path, 'This must be a data, https or gs URL.');
  const ending = /\.([a-z0-9]{3,4})(?:[?#].*)?$/i.exec(url)?.[1]?.toLowerCase() ?? '';
  const mimeType = Object.hasOwn(TYPES, ending) ? TYPES[ending] : undefined;
  if (mimeType === undefined) {
    refuse(path, 'the type of the content must show in the ending of its URL, or be in a data URL.');
  }
  return { fileData: { mimeType, fileUri: url } };
}

function dataOrRemote(url: string, path: string, vertex: boolean): JsonObject {
  const data = parseDataUri(url);
  return data === null ? remotePart(url, path, vertex) : { inlineData: { mimeType: data.mediaType, data: data.data } };
}

function filePart(file: JsonObject, path: string, vertex: boolean): JsonObject {
  const data = asString(file.file_data);
  if (data !== null) {
    if (!data.startsWith('data:')) refuse(path, 'file_data must be a data URL, which names the type of the file.');
    return dataOrRemote(data, path, vertex);
  }
  const id = asString(file.file_id) ?? '';
  if (!/^(https|gs):\/\//.test(id)) {
    refuse(path, 'a file is sent as a data URL in file_data, or named by its https or gs URI in file_id.');
  }
  return remotePart(id, path, vertex);
}

function mediaPart(part: JsonObject, path: string, vertex: boolean): JsonObject {
  if (part.type === 'image_url') {
    const image = part.image_url;
    const url = asString(isObject(image) ? image.url : image);
    if (url === null) invalid(`${path}.image_url`, 'image_url needs a url.');
    return dataOrRemote(url, `${path}.image_url`, vertex);
  }
  if (part.type === 'input_audio') {
    const audio = asObject(part.input_audio);
    const [data, format] = [asString(audio.data), asString(audio.format)];
    if (data === null || format === null) invalid(`${path}.input_audio`, 'input_audio needs data and format.');
    return { inlineData: { mimeType: `audio/${format}`, data } };
  }
  if (part.type === 'file') return filePart(asObject(part.file), `${path}.file`, vertex);
  return refuse(path, 'parts of this type have no equivalent.');
}

/** Content as parts; empty texts are left out, upstream refuses them. */
function partsOf(content: JsonValue | undefined, path: string, vertex: boolean): JsonObject[] {
  if (typeof content === 'string') return content === '' ? [] : [{ text: content }];
  if (!Array.isArray(content)) return invalid(path, 'content must be a text or a list of parts.');
  const out: JsonObject[] = [];
  for (const [at, part] of content.entries()) {
    if (!isObject(part)) invalid(`${path}[${at}]`, 'A part must be an object.');
    if (part.type === 'text' || part.type === 'refusal') {
      const text = asString(part.type === 'text' ? part.text : part.refusal);
      if (text === null) invalid(`${path}[${at}].text`, 'A text part needs a text.');
      if (text !== '') out.push({ text });
    } else out.push(mediaPart(part, `${path}[${at}]`, vertex));
  }
  return out;
}

function textsOf(content: JsonValue | undefined, path: string): string {
  return partsOf(content, path, false)
    .map((part) => (typeof part.text === 'string' ? part.text : refuse(path, 'only texts are allowed here.')))
    .join('\n');
}

function parsedArguments(text: JsonValue | undefined, path: string): JsonObject {
  if (text === undefined || text === null || text === '') return {};
  try {
    const value = typeof text === 'string' ? parseExact(text) : null;
    if (isObject(value)) return value;
  } catch {
    // Said below.
  }
  return invalid(path, 'The arguments of a tool call must be a JSON object as text.');
}

const signatureOf = (holder: JsonObject): string | null =>
  asString(asObject(asObject(holder.extra_content).google).thought_signature);

/** The conversation, with what later messages need of earlier ones. */
export class Contents {
  readonly system: string[] = [];
  readonly contents: JsonObject[] = [];
  readonly #model: GeminiModel;
  readonly #vertex: boolean;
  /** Function names by call id: a tool message names only the id. */
  readonly #names = new Map<string, string>();

  constructor(model: GeminiModel, vertex: boolean) {
    this.#model = model;
    this.#vertex = vertex;
  }

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
    const signature = signatureOf(call);
    return {
      functionCall: { ...(this.#model.callIds ? { id } : null), name, args },
      ...(signature === null ? null : { thoughtSignature: signature }),
    };
  }

  #result(message: JsonObject, path: string): JsonObject {
    const id = asString(message.tool_call_id) ?? '';
    const name = this.#names.get(id);
    if (name === undefined) return invalid(`${path}.tool_call_id`, 'The tool result belongs to no earlier tool call.');
    const text = textsOf(message.content, `${path}.content`);
    let response: JsonObject = { output: text };
    try {
      const value = parseExact(text);
      if (isObject(value)) response = value;
    } catch {
      // A plain text stays one.
    }
    return { functionResponse: { ...(this.#model.callIds ? { id } : null), name, response } };
  }

  #assistant(message: JsonObject, path: string): void {
    if (!isNeutral('function_call', message.function_call)) refuse(`${path}.function_call`, 'use tool_calls.');
    if (!isNeutral('audio', message.audio)) refuse(`${path}.audio`, 'earlier audio cannot be referred to.');
    const parts = partsOf(message.content ?? '', `${path}.content`, this.#vertex);
    const refusal = asString(message.refusal);
    if (refusal !== null && refusal !== '') parts.push({ text: refusal });
    const signature = signatureOf(message);
    const last = parts.at(-1);
    if (signature !== null && last !== undefined) last.thoughtSignature = signature;
    // Images the model made come back to it, so that it can continue from them.
    for (const [at, image] of asArray(message.images).entries()) {
      parts.push(mediaPart({ ...asObject(image), type: 'image_url' }, `${path}.images[${at}]`, this.#vertex));
    }
    const calls = asArray(message.tool_calls).map((call, at) => this.#call(call, `${path}.tool_calls[${at}]`));
    const [first] = calls;
    if (this.#model.signsCalls && first !== undefined) first.thoughtSignature ??= NO_SIGNATURE;
    // What carries nothing at all is left out: empty content is refused there.
    if (parts.length + calls.length > 0) this.#add('model', [...parts, ...calls], path);
  }

  add(message: JsonValue, path: string): void {
    if (!isObject(message)) invalid(path, 'A message must be an object.');
    switch (message.role) {
      case 'system':
      case 'developer':
        this.system.push(textsOf(message.content, `${path}.content`));
        return;
      case 'user':
        this.#add('user', partsOf(message.content, `${path}.content`, this.#vertex), path);
        return;
      case 'assistant':
        this.#assistant(message, path);
        return;
      case 'tool':
        this.#add('user', [this.#result(message, path)], path);
        return;
      default:
        refuse(`${path}.role`, 'messages of this role have no equivalent.');
    }
  }
}
