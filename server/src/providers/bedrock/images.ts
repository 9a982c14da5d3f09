/** Images over InvokeModel: Titan and Nova Canvas, and the models of Stability. */

import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { asArray, asString, invalid, invalidAnswer, quoted, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import type { Binding, CallContext } from '../provider.ts';
import { modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

const SHARED = ['model', 'prompt', 'n', 'size', 'response_format', 'user', 'stream'] as const;
const AMAZON: ReadonlySet<string> = new Set([...SHARED, 'quality', 'seed', 'negative_prompt', 'cfg_scale']);
const STABILITY: ReadonlySet<string> = new Set([...SHARED, 'seed', 'negative_prompt', 'output_format', 'aspect_ratio']);
/** Sizes callers know, as the shapes Stability's models make. */
const RATIOS: Readonly<Record<string, string>> = {
  '1024x1024': '1:1',
  '1536x1024': '3:2',
  '1024x1536': '2:3',
  '1792x1024': '16:9',
  '1024x1792': '9:16',
};
const QUALITIES: Readonly<Record<string, string>> = {
  standard: 'standard',
  medium: 'standard',
  low: 'standard',
  auto: 'standard',
  hd: 'premium',
  high: 'premium',
  premium: 'premium',
};

const set = (name: string, value: JsonValue | undefined): JsonObject | null =>
  value === undefined || value === null ? null : { [name]: value };

function refuseForms(body: JsonObject): void {
  if (body.stream === true) refuse('stream', 'images come whole there.');
  if (body.response_format === 'url') refuse('response_format', 'images come as base64 there; ask for "b64_json".');
  if (typeof body.prompt !== 'string' || body.prompt === '') invalid('prompt', 'An image needs a prompt.');
}

function amazon(body: JsonObject): JsonObject {
  refuseUnknown(body, AMAZON);
  const { size, quality } = body;
  let area: JsonObject | null = null;
  if (typeof size === 'string' && size !== 'auto') {
    const [, width, height] = /^(\d{2,4})x(\d{2,4})$/.exec(size) ?? [];
    if (width === undefined) invalid('size', 'The size is written as WIDTHxHEIGHT.');
    area = { width: Number(width), height: Number(height) };
  }
  if (typeof quality === 'string' && !Object.hasOwn(QUALITIES, quality)) {
    refuse('quality', `the quality ${quoted(quality)} has no equivalent there.`);
  }
  return {
    taskType: 'TEXT_IMAGE',
    textToImageParams: { text: body.prompt ?? '', ...set('negativeText', body.negative_prompt) },
    imageGenerationConfig: {
      numberOfImages: typeof body.n === 'number' ? body.n : 1,
      ...area,
      ...(typeof quality === 'string' ? { quality: QUALITIES[quality] ?? 'standard' } : null),
      ...set('cfgScale', body.cfg_scale),
      ...set('seed', body.seed),
    },
  };
}

function stability(body: JsonObject): JsonObject {
  refuseUnknown(body, STABILITY);
  if (typeof body.n === 'number' && body.n !== 1) refuse('n', 'this model makes one image in each call.');
  const { size } = body;
  let ratio = body.aspect_ratio;
  if (typeof size === 'string' && size !== 'auto') {
    ratio = Object.hasOwn(RATIOS, size) ? RATIOS[size] : undefined;
    if (ratio === undefined) refuse('size', `only ${Object.keys(RATIOS).join(', ')} have an equivalent there.`);
  }
  return {
    prompt: body.prompt ?? '',
    ...set('aspect_ratio', ratio),
    ...set('negative_prompt', body.negative_prompt),
    ...set('output_format', body.output_format),
    ...set('seed', body.seed),
  };
}

function request(body: JsonObject, context: CallContext): JsonObject {
  const model = modelBehind(context);
  refuseForms(body);
  if (model.startsWith('amazon.')) return amazon(body);
  if (model.startsWith('stability.')) return stability(body);
  return refuse('model', 'the body of an image request is known for Titan, Nova Canvas and Stability models only.');
}

function response(answer: JsonObject, context: CallContext): JsonObject {
  const reason = asArray(answer.finish_reasons).find((one) => typeof one === 'string');
  const images = asArray(answer.images).filter((one) => asString(one) !== null);
  if (images.length === 0 && typeof reason === 'string') {
    // A reason in the place of an image: the filters of the model refused what was asked for.
    throw new SluiceError('provider_error', `The model made no image: ${reason.slice(0, 200)}`, {
      provider: IN_ITS_STEAD.filtered,
    });
  }
  if (images.length === 0) throw invalidAnswer('The provider answered without images.');
  return { created: Math.floor(context.now() / 1000), data: images.map((image) => ({ b64_json: image })) };
}

export const images: Binding = {
  shape: 'images',
  path: ({ model }) => `${modelPath(model)}/invoke`,
  base: runtimeBase,
  ownQuery: true,
  request,
  response,
};
