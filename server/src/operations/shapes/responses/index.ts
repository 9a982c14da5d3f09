/** Responses of OpenAI. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { embeddedError, streamedError } from '../../dialects/provider-error.ts';
import { writtenUse } from '../estimate.ts';
import { FILTERED, isSaid, UNKNOWN, type WireShape } from '../wire-shape.ts';
import { ResponsesAssembler } from './assembler.ts';
import { responsesResume } from './resume.ts';
import { responsesUsage } from './usage.ts';

function says({ type, delta, item }: JsonObject): boolean {
  if (typeof type !== 'string') return false;
  if (type.endsWith('.delta')) return isSaid(delta);
  return (
    type === 'response.output_item.added' && isObject(item) && item.type !== 'message' && item.type !== 'reasoning'
  );
}

export const responses: WireShape = {
  ...UNKNOWN,
  dialect: 'responses',
  knowsEvents: true,
  member: 'output',
  says,
  isFiltered(body) {
    const { incomplete_details: details } = isObject(body.response) ? body.response : body;
    return isObject(details) && FILTERED.has(details.reason);
  },
  tellsEnd: ({ response }) => isObject(response) && isSaid(response.status),
  errorIn(event) {
    const inner = isObject(event.response) ? event.response.error : event.error;
    // An event of the type `error` may hold its fields itself.
    if (event.type === 'error' && !isObject(inner)) return streamedError({ error: { ...event, type: null } });
    if (isObject(inner)) return streamedError({ error: inner });
    return typeof inner === 'string' ? embeddedError({ error: inner }) : null;
  },
  hasFailed: ({ status }) => status === 'failed',
  resume: responsesResume,
  hasBackground: true,
  usage: responsesUsage,
  estimate: writtenUse,
  conversations: ['input'],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
  assembler: () => new ResponsesAssembler(),
  // Clients fail on events that they do not know; fields that they do not know they keep.
  results: {
    inEnd: (body, results) =>
      isObject(body.response) ? { ...body, response: { ...body.response, ...results } } : null,
  },
};
