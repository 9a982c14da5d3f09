/** Embeddings over InvokeModel, whose body is that of the model's own family. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, invalidAnswer, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { tokenCount } from '../../operations/usage.ts';
import { encodeFloats } from '../embeddings.ts';
import type { Binding, CallContext, FanOut } from '../provider.ts';
import { modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

const FIELDS = ['model', 'input', 'dimensions', 'encoding_format', 'user'] as const;

/** What a family knows beyond the published definition of embeddings; its own names pass as they are. */
interface Family {
  readonly prefix: string;
  readonly own: readonly string[];
  body(body: JsonObject): JsonObject;
}

const given = (name: string, value: JsonValue | undefined): JsonObject | null =>
  value === undefined || value === null ? null : { [name]: value };

const pick = (body: JsonObject, names: readonly string[]): JsonObject =>
  Object.fromEntries(names.flatMap((name) => (body[name] === undefined ? [] : [[name, body[name] ?? null]])));

function textsOf(input: JsonValue | undefined): string[] {
  const list = typeof input === 'string' ? [input] : asArray(input);
  if (list.length === 0) invalid('input', 'The input must be a text or a list of texts.');
  return list.map((one) => {
    if (typeof one === 'number' || Array.isArray(one)) refuse('input', 'texts only are known there, no token ids.');
    if (typeof one !== 'string') invalid('input', 'The input must be a text or a list of texts.');
    return one;
  });
}

/** The only thing that is to be embedded: a text, or an object that may also hold an image. */
function single(input: JsonValue | undefined): JsonValue {
  const list = Array.isArray(input) ? input : [input ?? null];
  if (list.length > 1 && list.every((one) => typeof one !== 'number')) {
    refuse('input', 'this model embeds one text in each call; send one request for each.');
  }
  return list[0] ?? null;
}

const singleText = (input: JsonValue | undefined): string => textsOf(single(input) ?? undefined)[0] ?? '';

function noDimensions(body: JsonObject): void {
  if (body.dimensions !== undefined && body.dimensions !== null) {
    refuse('dimensions', 'the vectors of this model have one length.');
  }
}

/** `{text?, image?: {base64}}`, or a text. */
function titanImage(body: JsonObject): JsonObject {
  const one = single(body.input);
  const length = given('outputEmbeddingLength', body.dimensions);
  const config = length === null ? null : { embeddingConfig: length };
  if (!isObject(one)) return { inputText: singleText(body.input), ...config };
  const image = asString(asObject(one.image).base64);
  if (typeof one.text !== 'string' && image === null)
    invalid('input', 'An input object holds "text" or "image.base64".');
  return { ...given('inputText', one.text), ...given('inputImage', image), ...config };
}

function cohere(body: JsonObject, four: boolean): JsonObject {
  if (!four) noDimensions(body);
  const own = pick(body, ['input_type', 'truncate', 'embedding_types', 'images']);
  const images = asArray(body.images).length > 0;
  return {
    ...(images && body.input === undefined ? null : { texts: textsOf(body.input) }),
    input_type: images ? 'image' : 'search_document',
    ...own,
    ...(four ? given('output_dimension', body.dimensions) : null),
  };
}

const FAMILIES: readonly Family[] = [
  {
    prefix: 'amazon.titan-embed-image',
    own: [],
    body: titanImage,
  },
  {
    prefix: 'amazon.titan-embed-text-v2',
    own: ['normalize', 'embeddingTypes'],
    body: (body) => ({
      inputText: singleText(body.input),
      ...given('dimensions', body.dimensions),
      ...pick(body, ['normalize', 'embeddingTypes']),
    }),
  },
  {
    prefix: 'amazon.titan-embed',
    own: [],
    body(body) {
      noDimensions(body);
      return { inputText: singleText(body.input) };
    },
  },
  {
    prefix: 'amazon.nova-2-multimodal-embeddings',
    own: ['embeddingPurpose'],
    body: (body) => ({
      taskType: 'SINGLE_EMBEDDING',
      singleEmbeddingParams: {
        embeddingPurpose: asString(body.embeddingPurpose) ?? 'GENERIC_INDEX',
        ...given('embeddingDimension', body.dimensions),
        text: { truncationMode: 'END', value: singleText(body.input) },
      },
    }),
  },
  {
    prefix: 'cohere.embed-v4',
    own: ['input_type', 'truncate', 'embedding_types', 'images'],
    body: (body) => cohere(body, true),
  },
  {
    prefix: 'cohere.embed',
    own: ['input_type', 'truncate', 'embedding_types', 'images'],
    body: (body) => cohere(body, false),
  },
];

/** The body of the one model's embeddings call; 400 for models whose body is not known. */
function embeddingBody(body: JsonObject, model: string): JsonObject {
  const family = FAMILIES.find(({ prefix }) => model.startsWith(prefix));
  if (family === undefined) {
    refuse('model', 'the body of an embedding request is known for Titan, Nova and Cohere models only.');
  }
  refuseUnknown(body, new Set([...FIELDS, ...family.own]));
  return family.body(body);
}

/** Vectors, wherever the family puts them. */
function vectorsOf(answer: JsonObject): JsonValue[] {
  if (Array.isArray(answer.embedding)) return [answer.embedding];
  const { embeddings } = answer;
  if (Array.isArray(embeddings)) return embeddings.map((one) => (isObject(one) ? (one.embedding ?? null) : one));
  // Cohere by type of number: only floats fit the answer of an OpenAI client.
  const floats = asObject(embeddings).float;
  if (Array.isArray(floats)) return floats;
  throw invalidAnswer('The provider answered without vectors of floats.');
}

function response(answer: JsonObject, context: CallContext): JsonObject {
  const base64 = context.body?.encoding_format === 'base64';
  const tokens = tokenCount(asObject(answer.usage).inputTokens) ?? 0;
  return {
    object: 'list',
    data: vectorsOf(answer).map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: base64 && Array.isArray(vector) ? encodeFloats(vector) : vector,
    })),
    model: context.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

/** More things in one request are refused by the service's own limits sooner or later. */
const MOST = 2048;

const fanOut: FanOut = {
  split({ input, ...rest }, context) {
    if (!Array.isArray(input) || input.length < 2 || modelBehind(context).startsWith('cohere.')) return null;
    if (input.length > MOST) invalid('input', `At most ${MOST} texts can be embedded in one request.`);
    if (input.some((one) => typeof one === 'number')) return null;
    return input.map((one) => ({ ...rest, input: [one] }));
  },
  join(answers) {
    const counts = answers.map((answer) => tokenCount(asObject(answer.usage).inputTokens) ?? 0);
    return {
      embeddings: answers.flatMap(vectorsOf),
      usage: { inputTokens: counts.reduce((sum, count) => sum + count, 0) },
    };
  },
};

/** Some families count in the answer, the service counts for all of them in its head. */
export function withCounts(answer: JsonObject, header: (name: string) => string | undefined): JsonObject {
  const counted = header('x-amzn-bedrock-input-token-count');
  const tokens =
    tokenCount(answer.inputTextTokenCount) ??
    tokenCount(answer.inputTokenCount) ??
    (counted !== undefined && /^\d{1,9}$/.test(counted) ? Number(counted) : null);
  return tokens === null || answer.usage !== undefined ? answer : { ...answer, usage: { inputTokens: tokens } };
}

export const embeddings: Binding = {
  shape: 'embeddings',
  path: ({ model }) => `${modelPath(model)}/invoke`,
  base: runtimeBase,
  ownQuery: true,
  request: (body, context) => embeddingBody(body, modelBehind(context)),
  fanOut,
  received: withCounts,
  response,
  usage: readAnyUsage,
};
