/** Documents by how they fit a query. */

import { type Estimate, unknownUse } from './estimate.ts';
import { inputUsage } from './input-usage.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

const estimate: Estimate = (body, input, isText) => {
  if (body === null) return unknownUse(body, input, isText);
  // Some vendors count the query once for each document.
  const documents = Array.isArray(body.documents) ? body.documents.length : 1;
  const query = typeof body.query === 'string' ? Buffer.byteLength(body.query) : input;
  return { input: input + documents * query, output: 0, bounded: isText };
};

export const rerank: WireShape = {
  ...UNKNOWN,
  usage: inputUsage,
  estimate,
  conversations: [],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
};
