/** Embeddings of Google's models. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import {
  asArray,
  asObject,
  asString,
  invalid,
  invalidAnswer,
  quoted,
  refuse,
} from '../../operations/convert/fields.ts';
import { encodeFloats } from '../embeddings.ts';

/** Fields of an embeddings body that are read here, or change nothing. */
const KNOWN = new Set(['input', 'model', 'encoding_format', 'dimensions', 'user', 'task_type', 'input_type', 'title']);

/** What kind of text it is, by the names other vendors give it. */
const TASKS: Readonly<Record<string, string>> = {
  query: 'RETRIEVAL_QUERY',
  search_query: 'RETRIEVAL_QUERY',
  document: 'RETRIEVAL_DOCUMENT',
  search_document: 'RETRIEVAL_DOCUMENT',
  classification: 'CLASSIFICATION',
  clustering: 'CLUSTERING',
};

/** An embeddings request, read and checked. */
export interface EmbeddingAsk {
  readonly texts: readonly string[];
  readonly dimensions: number | null;
  readonly task: string | null;
  readonly title: string | null;
}

function taskOf(body: JsonObject): string | null {
  const task = asString(body.task_type);
  if (task !== null) return task;
  const type = asString(body.input_type);
  if (type === null) return null;
  const known = Object.hasOwn(TASKS, type) ? TASKS[type] : undefined;
  return known ?? refuse('input_type', `the type ${quoted(type)} has no equivalent.`);
}

/** Throws `unsupported_parameter` for what Google's embeddings cannot express, such as lists of tokens. */
export function embeddingAsk(body: JsonObject): EmbeddingAsk {
  for (const [name, value] of Object.entries(body)) {
    if (!KNOWN.has(name) && value !== null) refuse(name, 'it has no equivalent.');
  }
  const format = body.encoding_format ?? 'float';
  if (format !== 'float' && format !== 'base64') refuse('encoding_format', 'only "float" and "base64" can be given.');
  const list = typeof body.input === 'string' ? [body.input] : asArray(body.input);
  if (list.length === 0) invalid('input', 'input must be a text or a list of texts.');
  const texts = list.map((text, at) => {
    if (typeof text === 'string') return text;
    return refuse(`input[${at}]`, 'only texts can be embedded.');
  });
  const { dimensions } = body;
  if (dimensions !== undefined && dimensions !== null && typeof dimensions !== 'number') {
    invalid('dimensions', 'dimensions must be a number.');
  }
  return { texts, dimensions: dimensions ?? null, task: taskOf(body), title: asString(body.title) };
}

/** Lists of numbers as the caller wants them, with usage where it is known: 0 stands for what was not told. */
export function embeddingAnswer(
  vectors: readonly JsonValue[],
  more: { readonly model: string; readonly tokens: number; readonly asked: JsonObject | undefined },
): JsonObject {
  const base64 = more.asked?.encoding_format === 'base64';
  const data = vectors.map((vector, index) => {
    if (!Array.isArray(vector)) throw invalidAnswer('The provider answered without an embedding.');
    return { object: 'embedding', index, embedding: base64 ? encodeFloats(vector) : vector };
  });
  return {
    object: 'list',
    data,
    model: more.model,
    usage: { prompt_tokens: more.tokens, total_tokens: more.tokens },
  };
}

/** An embeddings body for `batchEmbedContents`, which takes many texts at once. */
export function batchEmbedRequest(body: JsonObject, model: string): JsonObject {
  const { texts, dimensions, task, title } = embeddingAsk(body);
  const requests = texts.map((text) => ({
    model: `models/${model}`,
    content: { parts: [{ text }] },
    ...(task === null ? null : { taskType: task }),
    ...(title === null ? null : { title }),
    ...(dimensions === null ? null : { outputDimensionality: dimensions }),
  }));
  return { requests };
}

export function batchEmbedAnswer(answer: JsonObject, model: string, asked: JsonObject | undefined): JsonObject {
  const { embeddings, usageMetadata } = answer;
  if (!Array.isArray(embeddings)) throw invalidAnswer('The provider answered without embeddings.');
  const { promptTokenCount } = asObject(usageMetadata);
  return embeddingAnswer(
    embeddings.map((one) => (isObject(one) ? (one.values ?? null) : null)),
    { model, tokens: typeof promptTokenCount === 'number' ? promptTokenCount : 0, asked },
  );
}
