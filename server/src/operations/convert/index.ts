import type { JsonObject } from '../../kernel/json.ts';
import type { Shape } from '../operation.ts';
import { chatAnswerToResponses } from './answer-chat-to-responses.ts';
import { responsesAnswerToChat } from './answer-responses-to-chat.ts';
import { chatAnswerToMessages, messagesAnswerToChat, wantsThinking } from './answers.ts';
import { type Conversion, type ConversionTable, type ConvertTarget, compose, underNames } from './conversion.ts';
import { asObject, isNeutral } from './fields.ts';
import { chatToMessages } from './request-chat-to-messages.ts';
import { chatToResponses } from './request-chat-to-responses.ts';
import { messagesToChat } from './request-messages-to-chat.ts';
import { responsesToChat } from './request-responses-to-chat.ts';
import { ChatToMessagesStream } from './stream-chat-to-messages.ts';
import { ChatToResponsesStream } from './stream-chat-to-responses.ts';
import { MessagesToChatStream } from './stream-messages-to-chat.ts';
import { ResponsesToChatStream } from './stream-responses-to-chat.ts';

const chatOverMessages = (target: ConvertTarget): Conversion => ({
  request: (body, context) => chatToMessages(body, context, target),
  response: (body, context) => messagesAnswerToChat(body, context),
  stream: (context) => new MessagesToChatStream(context),
});

const OF_MESSAGES: Readonly<Record<string, string>> = {
  max_completion_tokens: 'max_tokens',
  stop: 'stop_sequences',
  response_format: 'output_config.format',
  parallel_tool_calls: 'tool_choice.disable_parallel_tool_use',
};

/** A field of chat as a caller of Messages knows it. */
function nameInMessages(field: string, { output_config: output }: JsonObject): string | null {
  if (field === 'reasoning_effort')
    return (asObject(output).effort ?? null) === null ? 'thinking' : 'output_config.effort';
  return Object.hasOwn(OF_MESSAGES, field) ? (OF_MESSAGES[field] ?? null) : null;
}

const OF_RESPONSES: Readonly<Record<string, string>> = {
  messages: 'input',
  max_completion_tokens: 'max_output_tokens',
  max_tokens: 'max_output_tokens',
  response_format: 'text.format',
  verbosity: 'text.verbosity',
  reasoning_effort: 'reasoning.effort',
  thinking: 'reasoning.summary',
};

/** The same for a caller of Responses. */
function nameInResponses(field: string, { top_logprobs: top }: JsonObject): string | null {
  if (field === 'logprobs') return isNeutral('top_logprobs', top) ? 'include' : 'top_logprobs';
  return Object.hasOwn(OF_RESPONSES, field) ? (OF_RESPONSES[field] ?? null) : null;
}

const messagesOverChat = (target: ConvertTarget): Conversion => ({
  nameOf: nameInMessages,
  request: (body, context) => messagesToChat(body, context, target),
  response: (body, context) => chatAnswerToMessages(body, context, target),
  stream: (context) => new ChatToMessagesStream(context, target),
});

const chatOverResponses = (target: ConvertTarget): Conversion => ({
  request: (body, context) => chatToResponses(body, context, target),
  response: (body, context) => responsesAnswerToChat(body, context, target),
  stream: (context) => new ResponsesToChatStream(context, target),
});

const responsesOverChat = (target: ConvertTarget): Conversion => ({
  nameOf: nameInResponses,
  request: (body, context) => responsesToChat(body, context, target),
  response: (body, context) => chatAnswerToResponses(body, context, target),
  stream: (context) => new ChatToResponsesStream(context, target),
});

/** The chat in between is ours: it knows Messages' own extensions and shows its thinking under one name. */
const BETWEEN: ConvertTarget = {
  extensions: new Set(['service_tier']),
  reasoning: { field: 'reasoning_content' },
};

/** The same where Responses is asked: thinking is a wish there, which is shown as a summary and comes back as it was. */
const BETWEEN_RESPONSES: ConvertTarget = {
  ...BETWEEN,
  extensions: new Set(['service_tier', 'thinking']),
  reasoningItems: true,
};

function messagesOverResponses(target: ConvertTarget): Conversion {
  const outer = messagesOverChat(BETWEEN_RESPONSES);
  const inner = chatOverResponses(target);
  return {
    ...compose(outer, inner),
    request(body, context) {
      // What can be sent back has its place in thinking blocks, which only come to who asks for them.
      const made = outer.request(body, context);
      const strict = !wantsThinking({ ...context, body });
      return underNames(outer, body, () => inner.request(made, { ...context, strict }));
    },
  };
}

/** Caller's shape, then provider's shape. */
const TABLE: ConversionTable = {
  chat: { messages: chatOverMessages, responses: chatOverResponses },
  messages: { chat: messagesOverChat, responses: messagesOverResponses },
  responses: {
    chat: responsesOverChat,
    messages: (target) => compose(responsesOverChat(BETWEEN), chatOverMessages(target)),
  },
};

/** How callers of `from` are served by a provider that speaks `to`; null when there is no such conversion. */
export function conversion(from: Shape, to: Shape, target: ConvertTarget = {}): Conversion | null {
  return TABLE[from]?.[to]?.(target) ?? null;
}
