import { z } from 'zod';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { CheckError, type CheckHttpClient } from '../check.ts';
import { check, INPUT, LLM, text } from './support.ts';

const MAX_IMAGES = 20;

/** Media type of an image by its first bytes; null for anything else, whatever the server calls it. */
function imageType(bytes: Uint8Array): string | null {
  const at = (offset: number, ...expected: readonly number[]) =>
    expected.every((byte, i) => bytes[offset + i] === byte);
  if (at(0, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return 'image/png';
  if (at(0, 0xff, 0xd8, 0xff)) return 'image/jpeg';
  if (at(0, 0x47, 0x49, 0x46, 0x38) && (bytes[4] === 0x37 || bytes[4] === 0x39) && bytes[5] === 0x61)
    return 'image/gif';
  if (at(0, 0x52, 0x49, 0x46, 0x46) && at(8, 0x57, 0x45, 0x42, 0x50)) return 'image/webp';
  if (at(0, 0x42, 0x4d) && at(6, 0, 0, 0, 0)) return 'image/bmp';
  if (at(0, 0x49, 0x49, 0x2a, 0) || at(0, 0x4d, 0x4d, 0, 0x2a)) return 'image/tiff';
  if (at(4, 0x66, 0x74, 0x79, 0x70)) {
    const brand = String.fromCharCode(...bytes.subarray(8, 12));
    if (brand === 'avif' || brand === 'avis') return 'image/avif';
    if (/^(?:heic|heix|hevc|mif1)$/.test(brand)) return 'image/heic';
  }
  return null;
}

/** A place that names an image by URL, and how it is written once the image is there. */
interface Place {
  readonly url: string;
  readonly path: string;
  put(type: string, base64: string): void;
}

const remote = (value: unknown): value is string => typeof value === 'string' && /^https?:\/\//i.test(value);

/** Image URLs in a body, in the forms of chat completions, responses and messages. `body` is what `put` writes into. */
function places(body: unknown): Place[] {
  const out: Place[] = [];
  const waiting: { readonly value: JsonValue; readonly path: string; readonly depth: number }[] = [];
  const below = (value: unknown, path: string, depth: number) => {
    if (typeof value === 'object' && value !== null && depth < 12)
      waiting.push({ value: value as JsonValue, path, depth });
  };
  const dataUrl = (type: string, base64: string) => `data:${type};base64,${base64}`;
  const part = (object: JsonObject, path: string) => {
    const { image_url: image, source } = object;
    if (remote(image))
      out.push({
        url: image,
        path: `${path}.image_url`,
        put: (type, data) => {
          object.image_url = dataUrl(type, data);
        },
      });
    else if (isObject(image) && remote(image.url))
      out.push({
        url: image.url,
        path: `${path}.image_url.url`,
        put: (type, data) => {
          image.url = dataUrl(type, data);
        },
      });
    if (object.type === 'image' && isObject(source) && source.type === 'url' && remote(source.url))
      out.push({
        url: source.url,
        path: `${path}.source.url`,
        put: (type, data) => {
          object.source = { type: 'base64', media_type: type, data };
        },
      });
  };
  if (isObject(body)) {
    below(body.messages, 'messages', 0);
    below(body.input, 'input', 0);
  }
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, path, depth } = next;
    if (Array.isArray(value)) for (const [i, item] of value.entries()) below(item, `${path}[${i}]`, depth + 1);
    else if (isObject(value)) {
      part(value, path);
      below(value.content, `${path}.content`, depth + 1);
    }
  }
  return out.reverse();
}

/**
 * `default.inlineImageUrls`: puts images that the request names by URL into the request, for providers that cannot reach
 * them; `providers` absent is all of them. A file that is no image by its bytes, too large or out of reach is an error of the
 * check with `failOnError`, else that URL stays.
 */
export const inlineImageUrls = check({
  id: 'default.inlineImageUrls',
  phases: INPUT,
  targets: LLM,
  parameters: z.strictObject({
    providers: z.array(text(100)).max(200).optional(),
    maxSizeBytes: z.number().int().min(1).max(20_971_520).default(20_971_520),
    timeoutMs: z.number().int().min(1).max(60_000).default(30_000),
  }),
  timeoutMs: 60_000,
  mutates: true,
  compile: ({ providers, maxSizeBytes, timeoutMs }, { failOnError }) => ({
    lookBehind: null,
    async judge(subject, outside) {
      const meant = providers === undefined || (subject.provider !== null && providers.includes(subject.provider));
      const request = meant ? subject.request() : undefined;
      if (places(request).length === 0) return { verdict: true, data: { explanation: 'No image is named by URL.' } };
      // The request is shared with other checks: what is written into is a copy.
      const copy = structuredClone(request);
      const found = places(copy);
      if (found.length > MAX_IMAGES) throw new CheckError(`There are more than ${MAX_IMAGES} image URLs.`);
      const got = new Map<string, Promise<Image | string>>();
      let left = 0;
      for (const { url, path, put } of found) {
        let image = got.get(url);
        if (image === undefined) {
          image = load(url, maxSizeBytes, timeoutMs, outside);
          got.set(url, image);
        }
        const loaded = await image;
        if (typeof loaded !== 'string') put(loaded.type, loaded.base64);
        else if (failOnError) throw new CheckError(`The image at ${path} ${loaded}.`);
        else left += 1;
      }
      const data = { explanation: `${found.length - left} of ${found.length} images were put into the request.` };
      return left === found.length ? { verdict: true, data } : { verdict: true, data, replaced: copy };
    },
  }),
});

interface Image {
  readonly type: string;
  readonly base64: string;
}

/** The image, or why there is none. */
async function load(
  url: string,
  maxBytes: number,
  timeoutMs: number,
  outside: CheckHttpClient,
): Promise<Image | string> {
  try {
    const answer = await outside.call({
      url,
      method: 'GET',
      headers: { accept: 'image/*' },
      body: null,
      maxBytes,
      timeoutMs,
    });
    if (answer.status !== 200) return `was answered with ${answer.status}`;
    if (answer.body.length > maxBytes) return `is larger than ${maxBytes} bytes`;
    const type = imageType(answer.body);
    return type === null ? 'is not an image' : { type, base64: answer.body.toString('base64') };
  } catch (error) {
    if (outside.signal.aborted) throw error;
    return 'cannot be loaded';
  }
}
