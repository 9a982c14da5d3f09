/** Embeddings on Vertex AI: `predict` for most models, `embedContent` for the newest. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, parseDataUri, refuse } from '../../operations/convert/fields.ts';
import { type EmbeddingAsk, embeddingAnswer, embeddingAsk } from '../google/gemini-embeddings.ts';
import type { FanOut } from '../provider.ts';
import { integerOf } from '../training-calls.ts';
import { vertexModel } from './model.ts';

/** Takes one text by itself, and nothing by `predict`. */
const single = (name: string): boolean => /^gemini-embedding-[2-9]/.test(name);
/** Takes pictures beside texts, and answers each under its own name. */
const multimodal = (name: string): boolean => name.startsWith('multimodalembedding');

export const embeddingMethod = (name: string): string => (single(name) ? 'embedContent' : 'predict');

/** More texts in one request would run into the service's own limits sooner or later. */
const MOST = 2048;

/** Texts for a model that takes one at a time, each in a separate call. */
export const embeddingsFanOut: FanOut = {
  split(body, { model }) {
    const { input } = body;
    if (!single(vertexModel(model).name) || !Array.isArray(input) || input.length < 2) return null;
    if (input.length > MOST) invalid('input', `At most ${MOST} texts can be embedded in one request.`);
    // Faults are reported by their place in the whole list.
    embeddingAsk(body);
    return input.map((one) => ({ ...body, input: one }));
  },
  join(answers) {
    const tokens = answers.map((answer) => integerOf(asObject(answer.usageMetadata).promptTokenCount) ?? 0);
    return {
      embeddings: answers.map((answer) => answer.embedding ?? null),
      usageMetadata: { promptTokenCount: tokens.reduce((sum, count) => sum + count, 0) },
    };
  },
};

function contentRequest({ texts, dimensions, task, title }: EmbeddingAsk): JsonObject {
  const [text] = texts;
  return {
    content: { parts: [{ text }] },
    ...(task === null ? null : { taskType: task }),
    ...(title === null ? null : { title }),
    ...(dimensions === null ? null : { outputDimensionality: dimensions }),
  };
}

function imageOf(value: JsonValue | undefined, path: string): JsonObject {
  const url = asString(isObject(value) ? value.url : value) ?? '';
  if (url.startsWith('gs://')) return { gcsUri: url };
  const data = parseDataUri(url);
  return data === null
    ? invalid(path, 'An image must be a data URL or a gs URL.')
    : { bytesBase64Encoded: data.data, mimeType: data.mediaType };
}

/** One input of a model for texts and pictures: a text, `{text}` or `{image}`. */
function instance(input: JsonValue, path: string): JsonObject {
  if (typeof input === 'string') return { text: input };
  const { text, image, ...others } = asObject(input);
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) refuse(`${path}.${unknown}`, 'an input is a text or an image.');
  if ((text === undefined) === (image === undefined)) invalid(path, 'An input must be either a text or an image.');
  return image === undefined ? { text: text ?? null } : { image: imageOf(image, `${path}.image`) };
}

function multimodalRequest(body: JsonObject): JsonObject {
  const inputs = Array.isArray(body.input) ? body.input : [body.input ?? null];
  const { dimensions, task, title } = embeddingAsk({ ...body, input: 'checked below' });
  if (task !== null || title !== null)
    refuse(task === null ? 'title' : 'task_type', 'this model supports no kinds of text.');
  return {
    instances: inputs.map((input, at) => instance(input, `input[${at}]`)),
    ...(dimensions === null ? null : { parameters: { dimension: dimensions } }),
  };
}

/** An embeddings body as the model takes it; throws `unsupported_parameter` for what it cannot express. */
export function embeddingRequest(body: JsonObject, name: string): JsonObject {
  if (multimodal(name)) return multimodalRequest(body);
  const ask = embeddingAsk(body);
  if (single(name)) return contentRequest(ask);
  const { texts, dimensions, task, title } = ask;
  return {
    instances: texts.map((content) => ({
      content,
      ...(task === null ? null : { task_type: task }),
      ...(title === null ? null : { title }),
    })),
    ...(dimensions === null ? null : { parameters: { outputDimensionality: dimensions } }),
  };
}

export function vertexEmbeddings(answer: JsonObject, name: string, asked: JsonObject | undefined): JsonObject {
  if (single(name)) {
    const tokens = integerOf(asObject(answer.usageMetadata).promptTokenCount) ?? 0;
    const all = Array.isArray(answer.embeddings) ? answer.embeddings : [answer.embedding];
    const vectors = all.map((one) => asObject(one).values ?? null);
    return embeddingAnswer(vectors, { model: name, tokens, asked });
  }
  let tokens = 0;
  const vectors = asArray(answer.predictions).map((prediction) => {
    const { embeddings, textEmbedding, imageEmbedding } = asObject(prediction);
    const { values, statistics } = asObject(embeddings);
    tokens += integerOf(asObject(statistics).token_count) ?? 0;
    return values ?? textEmbedding ?? imageEmbedding ?? null;
  });
  return embeddingAnswer(vectors, { model: name, tokens, asked });
}
