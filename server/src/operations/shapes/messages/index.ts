/** Messages of Anthropic. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { anthropicErrorStatus, embeddedError, readProviderError } from '../../dialects/provider-error.ts';
import { NO_USAGE } from '../../usage.ts';
import { unknownUse, writtenUse } from '../estimate.ts';
import { FILTERED, isSaid, UNKNOWN, type WireShape } from '../wire-shape.ts';
import { MessagesAssembler } from './assembler.ts';
import { messagesResume } from './resume.ts';
import { messagesUsage } from './usage.ts';

const BLOCK_STOP = Buffer.from('"content_block_stop"');

function says({ type, content_block: block, delta }: JsonObject): boolean {
  if (type === 'content_block_delta')
    return isObject(delta) && Object.entries(delta).some(([name, value]) => name !== 'type' && isSaid(value));
  if (type !== 'content_block_start' || !isObject(block)) return false;
  // Blocks of text and of thinking begin empty; whatever else begins says what it is.
  return (block.type !== 'text' && block.type !== 'thinking') || isSaid(block.text) || isSaid(block.thinking);
}

export const messages: WireShape = {
  ...UNKNOWN,
  dialect: 'anthropic',
  knowsEvents: true,
  member: 'content',
  says,
  isPing: ({ type }) => type === 'ping',
  isFiltered: ({ delta, stop_reason: reason }) => FILTERED.has(isObject(delta) ? delta.stop_reason : reason),
  tellsEnd: ({ type, delta }) => type === 'message_delta' && isObject(delta) && isSaid(delta.stop_reason),
  errorIn(event) {
    const { type, error } = event;
    if (!isObject(error)) return typeof error === 'string' ? embeddedError({ error }) : null;
    if (type !== 'error') return null;
    return readProviderError(typeof error.type === 'string' ? anthropicErrorStatus(error.type) : 500, event);
  },
  resume: messagesResume,
  usage: messagesUsage,
  estimate: writtenUse,
  conversations: ['messages'],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
  assembler: () => new MessagesAssembler(),
  // Content blocks follow one another.
  endsTexts: (event) => event.includes(BLOCK_STOP),
  results: {
    event: (_head, results) => ({
      event: 'hook_results',
      data: JSON.stringify({ type: 'hook_results', ...results }),
    }),
  },
};

/** It has Anthropic's errors, and no stream. */
export const countTokens: WireShape = {
  ...UNKNOWN,
  dialect: 'anthropic',
  usage: NO_USAGE,
  estimate: unknownUse,
  conversations: ['messages'],
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
};
