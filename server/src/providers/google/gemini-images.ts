/** Pictures made by Imagen (`predict`) and by Gemini's image models (`generateContent`). */
import { SluiceError } from '../../kernel/errors.ts';
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
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { responsesUsage } from '../../operations/shapes/responses/usage.ts';
import { isNeutralImage, OPENAI_IMAGE_FIELDS, ratioOf } from '../images.ts';
import type { FormValue } from '../provider.ts';
import { textOf } from '../training-calls.ts';
import { blockReason, candidatesOf } from './gemini-answer.ts';
import { bareName } from './gemini-model.ts';

/** Imagen is asked by `predict`, every other model that paints by `generateContent`. */
export const isImagen = (model: string): boolean => bareName(model).startsWith('imagen');

const KNOWN = new Set(['model', 'prompt', 'n', 'size', 'aspect_ratio', 'output_format', 'output_compression', 'user']);

function checked(body: JsonObject): { readonly prompt: string; readonly ratio: string | null } {
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN.has(name) || value === null || value === undefined) continue;
    const neutral = isNeutralImage(name, value) || (name === 'response_format' && value === 'b64_json');
    if (!neutral) refuse(name, `the value ${quoted(value)} has no equivalent.`);
  }
  const prompt = asString(body.prompt);
  if (prompt === null || prompt === '') invalid('prompt', 'prompt must be a text.');
  return { prompt, ratio: ratioOf(body.aspect_ratio ?? body.size) };
}

function typeOf(body: JsonObject): string | null {
  const format = asString(body.output_format);
  if (format === null) return null;
  if (format !== 'png' && format !== 'jpeg') refuse('output_format', 'only "png" and "jpeg" can be given.');
  return `image/${format}`;
}

/** An images body as Imagen takes it. */
function imagenRequest(body: JsonObject): JsonObject {
  const { prompt, ratio } = checked(body);
  const type = typeOf(body);
  const quality = body.output_compression;
  const options: JsonObject = {
    ...(type === null ? null : { mimeType: type }),
    ...(typeof quality === 'number' ? { compressionQuality: quality } : null),
  };
  return {
    instances: [{ prompt }],
    parameters: {
      sampleCount: body.n ?? 1,
      ...(ratio === null ? null : { aspectRatio: ratio }),
      ...(Object.keys(options).length === 0 ? null : { outputOptions: options }),
    },
  };
}

/** An images body for a Gemini model, told to answer with a picture alone. */
function geminiRequest(body: JsonObject): JsonObject {
  const { prompt, ratio } = checked(body);
  for (const name of ['output_format', 'output_compression']) {
    if (body[name] !== undefined && body[name] !== null) refuse(name, 'the model chooses the form of its pictures.');
  }
  return {
    contents: [{ role: 'user', parts: [{ text: prompt }] }],
    generationConfig: {
      responseModalities: ['IMAGE'],
      ...(typeof body.n === 'number' && body.n !== 1 ? { candidateCount: body.n } : null),
      ...(ratio === null ? null : { imageConfig: { aspectRatio: ratio } }),
    },
  };
}

const TEXTS = new Set([...KNOWN, 'response_format', ...OPENAI_IMAGE_FIELDS]);
const NUMBERS: ReadonlySet<string> = new Set(['n', 'output_compression', 'partial_images']);
const PICTURES: ReadonlySet<string> = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/heic', 'image/heif']);

interface Edit {
  /** The texts of the form as an images body. */
  readonly body: JsonObject;
  readonly pictures: readonly { readonly mimeType: string; readonly data: string }[];
}

/** The form of an edit; throws for what is no picture, and for fields that nothing is known of. */
function editOf(parts: readonly FormValue[]): Edit {
  const body: JsonObject = {};
  const pictures: { mimeType: string; data: string }[] = [];
  for (const { name, filename, contentType, bytes } of parts) {
    if (name === 'mask') refuse('mask', 'only the prompt can say which part to edit.');
    if (name === 'image' || name === 'image[]') {
      const mimeType = contentType?.split(';', 1)[0]?.trim().toLowerCase() ?? 'image/png';
      if (!PICTURES.has(mimeType))
        refuse('image', 'pictures must be PNG, JPEG, WebP, HEIC or HEIF, by their content-type.');
      pictures.push({ mimeType, data: bytes.toString('base64') });
    } else if (filename !== null) invalid(name, 'This field must be a text.');
    else {
      if (Object.hasOwn(body, name)) invalid(name, 'This field is given twice.');
      const text = bytes.toString('utf8');
      const number = NUMBERS.has(name) && /^\d{1,9}$/.test(text) ? Number(text) : null;
      if (TEXTS.has(name)) body[name] = number ?? (name === 'stream' ? text === 'true' : text);
      else refuse(name, 'it has no equivalent.');
    }
  }
  if (pictures.length === 0) invalid('image', 'An edit needs a picture.');
  return { body, pictures };
}

/** An edit as the model takes it: Imagen on Vertex AI by reference pictures, Gemini models by pictures before the prompt. */
export function editRequest(parts: readonly FormValue[], model: string, vertex: boolean): JsonObject {
  const { body, pictures } = editOf(parts);
  if (!isImagen(model)) {
    const made = geminiRequest(body);
    const shown = pictures.map((inlineData) => ({ inlineData }));
    return { ...made, contents: [{ role: 'user', parts: [...shown, { text: asString(body.prompt) ?? '' }] }] };
  }
  if (!vertex) refuse('model', 'Imagen edits pictures on Vertex AI only; use an image model of Gemini.');
  const made = imagenRequest(body);
  const referenceImages = pictures.map(({ data }, i) => ({
    referenceType: 'REFERENCE_TYPE_RAW',
    referenceId: i + 1,
    referenceImage: { bytesBase64Encoded: data },
  }));
  return {
    instances: [{ prompt: asString(body.prompt) ?? '', referenceImages }],
    parameters: { ...asObject(made.parameters), editMode: 'EDIT_MODE_DEFAULT' },
  };
}

/** What was painted, or why nothing was: a filter is the caller's to know, with status 400. */
function answer(
  images: readonly JsonObject[],
  filtered: string | null,
  seconds: number,
  usage: JsonValue | undefined,
): JsonObject {
  if (images.length === 0) {
    if (filtered === null) throw invalidAnswer('The provider answered without an image.');
    throw new SluiceError('invalid_request', `The provider filtered the images: ${filtered}`, {
      reason: 'content_filter',
      param: 'prompt',
    });
  }
  const counts = isObject(usage) ? readAnyUsage(usage) : null;
  return { created: seconds, data: [...images], ...(counts === null ? null : { usage: responsesUsage.write(counts) }) };
}

function imagenAnswer(body: JsonObject, seconds: number): JsonObject {
  const predictions = asArray(body.predictions).filter(isObject);
  const images = predictions
    .filter(({ bytesBase64Encoded }) => typeof bytesBase64Encoded === 'string')
    .map(({ bytesBase64Encoded, prompt }) => ({
      b64_json: bytesBase64Encoded,
      ...(typeof prompt === 'string' ? { revised_prompt: prompt } : null),
    }));
  const reason = predictions.map(({ raiFilteredReason }) => textOf(raiFilteredReason)).find((text) => text !== null);
  // A prompt that is filtered as a whole is answered with nothing at all.
  const nothing = predictions.length === 0 ? 'the prompt or all of its pictures broke its rules.' : null;
  return answer(images, reason ?? nothing, seconds, undefined);
}

function geminiAnswer(body: JsonObject, seconds: number): JsonObject {
  const candidates = candidatesOf(body);
  const images = candidates.flatMap((candidate) =>
    asArray(asObject(candidate.content).parts)
      .map((part) => asString(asObject(asObject(part).inlineData).data))
      .filter((data) => data !== null)
      .map((data) => ({ b64_json: data })),
  );
  const reason = candidates
    .map((one) => textOf(one.finishReason))
    .find((native) => native !== null && native !== 'STOP');
  return answer(images, blockReason(body) ?? reason ?? null, seconds, body.usageMetadata);
}

/** An images body as the model takes it; throws `unsupported_parameter` for what it cannot express. */
export const imagesRequest = (body: JsonObject, model: string): JsonObject =>
  isImagen(model) ? imagenRequest(body) : geminiRequest(body);

/** `seconds` since the epoch. */
export const imagesAnswer = (body: JsonObject, model: string, seconds: number): JsonObject =>
  isImagen(model) ? imagenAnswer(body, seconds) : geminiAnswer(body, seconds);
