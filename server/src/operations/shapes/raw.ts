/** Bodies of an API that nobody knows. */
import { NO_USAGE } from '../usage.ts';
import { unknownUse } from './estimate.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

export const raw: WireShape = {
  ...UNKNOWN,
  dialect: null,
  isOpen: true,
  // Of what only reads; that of requests passed through is told apart by its names (`any-usage.ts`).
  usage: NO_USAGE,
  estimate: unknownUse,
  conversations: ['messages', 'input', 'contents'],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: true,
};
