/** Vectors of texts. */
import { unknownUse } from './estimate.ts';
import { inputUsage } from './input-usage.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

export const embeddings: WireShape = {
  ...UNKNOWN,
  member: 'data',
  usage: inputUsage,
  estimate: (body, input, isText) =>
    body === null ? unknownUse(body, input, isText) : { input, output: 0, bounded: isText },
  conversations: [],
  answersSay: false,
  holdsMedia: false,
  answersPlainly: false,
};
