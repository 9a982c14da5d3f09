/** What is wrong with a text. */
import { NO_USAGE } from '../usage.ts';
import { unknownUse } from './estimate.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

export const moderations: WireShape = {
  ...UNKNOWN,
  usage: NO_USAGE,
  estimate: unknownUse,
  conversations: [],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
};
