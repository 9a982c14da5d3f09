/** Pictures. */
import { type Estimate, whole } from './estimate.ts';
import { readOnlyUsage } from './responses/usage.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

/** Output tokens of the largest published size of one image. */
const IMAGE_TOKENS: Readonly<Record<string, number>> = { low: 408, medium: 1584 };
const LARGEST_IMAGE = 6240;

const estimate: Estimate = (body) => {
  const quality = body?.quality;
  const each = typeof quality === 'string' ? (IMAGE_TOKENS[quality] ?? LARGEST_IMAGE) : LARGEST_IMAGE;
  return { input: null, output: each * (whole(body?.n) ?? 1), bounded: false };
};

export const images: WireShape = {
  ...UNKNOWN,
  usage: readOnlyUsage,
  estimate,
  conversations: [],
  answersSay: true,
  holdsMedia: true,
  answersPlainly: true,
};
