import type { Shape } from '../operation.ts';
import { chatAnswerToResponses } from './answer-chat-to-responses.ts';
import { chatAnswerToMessages, messagesAnswerToChat } from './answers.ts';
import { type Conversion, type ConversionTable, type ConvertTarget, compose } from './conversion.ts';
import { chatToMessages } from './request-chat-to-messages.ts';
import { messagesToChat } from './request-messages-to-chat.ts';
import { responsesToChat } from './request-responses-to-chat.ts';
import { ChatToMessagesStream } from './stream-chat-to-messages.ts';
import { ChatToResponsesStream } from './stream-chat-to-responses.ts';
import { MessagesToChatStream } from './stream-messages-to-chat.ts';

const chatOverMessages = (target: ConvertTarget): Conversion => ({
  request: (body, context) => chatToMessages(body, context, target),
  response: (body, context) => messagesAnswerToChat(body, context),
  stream: (context) => new MessagesToChatStream(context),
});

const messagesOverChat = (target: ConvertTarget): Conversion => ({
  request: (body, context) => messagesToChat(body, context, target),
  response: (body, context) => chatAnswerToMessages(body, context, target),
  stream: (context) => new ChatToMessagesStream(context, target),
});

const responsesOverChat = (target: ConvertTarget): Conversion => ({
  request: (body, context) => responsesToChat(body, context, target),
  response: (body, context) => chatAnswerToResponses(body, context, target),
  stream: (context) => new ChatToResponsesStream(context, target),
});

/** The chat in between is ours: it knows Messages' own extensions and shows its thinking under one name. */
const BETWEEN: ConvertTarget = {
  extensions: new Set(['service_tier']),
  reasoning: { field: 'reasoning_content' },
};

/** Caller's shape, then provider's shape. */
const TABLE: ConversionTable = {
  chat: { messages: chatOverMessages },
  messages: { chat: messagesOverChat },
  responses: {
    chat: responsesOverChat,
    messages: (target) => compose(responsesOverChat(BETWEEN), chatOverMessages(target)),
  },
};

/** How callers of `from` are served by a provider that speaks `to`; null when there is no such conversion. */
export function conversion(from: Shape, to: Shape, target: ConvertTarget = {}): Conversion | null {
  return TABLE[from]?.[to]?.(target) ?? null;
}
