/** What image requests of several providers have in common that differs from the shape callers use. */

import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { asString, invalid, invalidAnswer, quoted, refuse } from '../operations/convert/fields.ts';
import { IN_ITS_STEAD } from '../operations/dialects/provider-error.ts';
import type { RequestQuirk } from './quirks.ts';

/** Fields of OpenAI's own image models, and the values of them that ask for what happens anyway. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  quality: ['auto', 'standard'],
  background: ['auto'],
  moderation: ['auto'],
  style: ['vivid'],
  stream: [false],
  partial_images: [0],
  output_compression: [100],
};

/** Their names. */
export const OPENAI_IMAGE_FIELDS: readonly string[] = Object.keys(NEUTRAL);

/** Whether `value` of image field `name` changes nothing, so that the field may be left out. */
export const isNeutralImage = (name: string, value: JsonValue): boolean =>
  value === null || (Object.hasOwn(NEUTRAL, name) && NEUTRAL[name]?.includes(value) === true);

/** Refuses the fields that only OpenAI's own image models have; bookkeeping is left out. */
export const plainImages: RequestQuirk = {
  touches: [...OPENAI_IMAGE_FIELDS, 'user'].map((name) => `"${name}"`),
  apply(body) {
    const names = OPENAI_IMAGE_FIELDS.filter((name) => Object.hasOwn(body, name));
    if (names.length === 0 && !Object.hasOwn(body, 'user')) return body;
    const { user: _user, ...out } = body;
    for (const name of names) {
      const value = body[name] ?? null;
      if (!isNeutralImage(name, value)) refuse(name, `the value ${quoted(value)} has no equivalent there.`);
      delete out[name];
    }
    return out;
  },
};

/** `1024x1536` as its sides; null leaves them to the model. */
export function sidesOf(size: JsonValue | undefined): { readonly width: number; readonly height: number } | null {
  if (size === undefined || size === null || size === 'auto') return null;
  const [, width, height] = /^(\d{2,5})x(\d{2,5})$/.exec(asString(size) ?? '') ?? [];
  if (width === undefined || height === undefined) return invalid('size', 'size must be as in "1024x1024", or "auto".');
  return { width: Number(width), height: Number(height) };
}

/** For providers that take width and height by themselves. */
export const sizeAsSides: RequestQuirk = {
  touches: ['"size"'],
  apply(body) {
    if (!Object.hasOwn(body, 'size')) return body;
    const { size, ...rest } = body;
    return { ...rest, ...sidesOf(size) };
  },
};

const divisor = (a: number, b: number): number => (b === 0 ? a : divisor(b, a % b));

/** Sides that are no multiple of a named ratio, and the ratio that models paint so. */
const NEAR: Readonly<Record<string, string>> = { '7:4': '16:9', '4:7': '9:16' };

/** `1024x1792` or `9:16` as a ratio; null leaves it to the model. */
export function ratioOf(size: JsonValue | undefined): string | null {
  if (typeof size === 'string' && /^\d{1,2}:\d{1,2}$/.test(size)) return size;
  const sides = sidesOf(size);
  if (sides === null) return null;
  const by = divisor(sides.width, sides.height);
  const ratio = `${sides.width / by}:${sides.height / by}`;
  return NEAR[ratio] ?? ratio;
}

/** For providers that make one image in each call. */
export function refuseMany(n: JsonValue | undefined): void {
  if (n !== undefined && n !== null && n !== 1) refuse('n', 'one image is made in each call there.');
}

/** For providers whose images only come inside the answer. */
export function refuseUrls(format: JsonValue | undefined): void {
  if (format !== undefined && format !== null && format !== 'b64_json') {
    refuse('response_format', 'images come as base64 there; ask for "b64_json".');
  }
}

/** Images in base64 as an answer. `why` is what the provider says where it made none, such as a filter. */
export function imagesAnswer(images: readonly JsonValue[], now: number, why: string | null = null): JsonObject {
  const made = images.filter((image) => typeof image === 'string' && image !== '');
  if (made.length === 0 && why !== null) {
    throw new SluiceError('provider_error', `The model made no image: ${why.slice(0, 200)}`, {
      provider: IN_ITS_STEAD.filtered,
    });
  }
  if (made.length === 0) throw invalidAnswer('The provider answered without images.');
  return { created: Math.floor(now / 1000), data: made.map((image) => ({ b64_json: image })) };
}
