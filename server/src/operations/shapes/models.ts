/** Lists of models. */
import { NO_USAGE } from '../usage.ts';
import { unknownUse } from './estimate.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

export const models: WireShape = {
  ...UNKNOWN,
  usage: NO_USAGE,
  estimate: unknownUse,
  conversations: [],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
};
