/** Texts that are spoken. */
import { type Estimate, unknownUse } from './estimate.ts';
import { readOnlyUsage } from './responses/usage.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

const estimate: Estimate = (body, input, isText) => {
  if (body === null) return unknownUse(body, input, isText);
  // About 20 tokens a second, in which some 15 characters are spoken.
  const length = typeof body.input === 'string' ? body.input.length : 0;
  return { input: null, output: 2 * length, bounded: false };
};

export const speech: WireShape = {
  ...UNKNOWN,
  usage: readOnlyUsage,
  estimate,
  conversations: [],
  answersSay: true,
  holdsMedia: true,
  answersPlainly: false,
};
