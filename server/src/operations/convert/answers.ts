import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { chatUsage } from '../shapes/chat/usage.ts';
import { messagesUsage } from '../shapes/messages/usage.ts';
import { NO_TOKENS, type TokenUsage } from '../usage.ts';
import { firstChoice, unnamedCall } from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, givenObject, givenObjects, givenText, invalidAnswer, needed } from './fields.ts';
import { portableItems, reasoningOf, signatureOf } from './reasoning-items.ts';
import { SCHEMA_TOOL_PREFIX } from './request-chat-to-messages.ts';
import { finishReason, stopReason } from './stop-reasons.ts';

/** Seconds since the epoch, as chat and Responses write times. */
export const seconds = (context: ConvertContext): number => Math.floor(context.now() / 1000);

/** Whether the caller of Messages asked to see thinking. */
export function wantsThinking(context: ConvertContext): boolean {
  const { type } = asObject(context.body?.thinking);
  return type === 'enabled' || type === 'adaptive';
}

/** The usage object of a chat answer or chunk, wherever this provider puts it. */
export function chatUsageObject(body: JsonObject, target: ConvertTarget): JsonObject | null {
  if (isObject(body.usage)) return body.usage;
  if (target.usagePath === undefined) return null;
  let at: unknown = body;
  for (const name of target.usagePath) {
    if (Array.isArray(at)) at = at[Number(name)];
    else if (isObject(at)) at = at[name];
    else return null;
  }
  return isObject(at) ? at : null;
}

export function readChatUsage(usage: JsonObject | null, target: ConvertTarget): TokenUsage {
  if (usage === null) return NO_TOKENS;
  return (target.usage ? target.usage(usage) : chatUsage.read(usage)) ?? NO_TOKENS;
}

/**
 * Reasoning of a message or delta, in the field that the target names (`reasoning_content` by default). Empty when it is
 * absent or anything but a text.
 */
export function reasoningText(message: JsonObject, target: ConvertTarget): string {
  const value = message[target.reasoning?.field ?? 'reasoning_content'];
  return typeof value === 'string' ? value : '';
}

/** Call arguments of an answer as an object; 502 `model_error` when the model wrote no JSON object. */
export function answeredInput(text: string): JsonObject {
  if (text === '') return {};
  try {
    const value = parseExact(text);
    if (isObject(value)) return value;
  } catch {
    // Falls through to the error below.
  }
  throw invalidAnswer('The model called a function with arguments that are no JSON object.');
}

/** Web citations of one text block, which lies there in the whole text, as annotations of it. */
export function citationNotes(citations: readonly JsonValue[], from: number, to: number): JsonObject[] {
  const out: JsonObject[] = [];
  for (const citation of citations) {
    if (!isObject(citation) || citation.type !== 'web_search_result_location') continue;
    const { url, title } = citation;
    out.push({
      type: 'url_citation',
      url_citation: { url, title: asString(title) ?? '', start_index: from, end_index: to },
    });
  }
  return out;
}

/** A Messages answer as a chat completion. */
export function messagesAnswerToChat(body: JsonObject, context: ConvertContext): JsonObject {
  if (!Array.isArray(body.content)) throw invalidAnswer('The provider answered without content.');
  const strict = context.strict !== false;
  let content = '';
  let reasoning = '';
  let unwrapped = false;
  const calls: JsonObject[] = [];
  const notes: JsonObject[] = [];
  const shown: JsonObject[] = [];
  for (const block of givenObjects(body, 'content')) {
    const type = needed(givenText(block, 'type'), 'type');
    if (type === 'text') {
      const text = needed(givenText(block, 'text'), 'text');
      notes.push(...citationNotes(asArray(block.citations), content.length, content.length + text.length));
      content += text;
    } else if (type === 'tool_use') {
      const name = givenText(block, 'name') || unnamedCall();
      const json = JSON.stringify(needed(givenObject(block, 'input'), 'input'));
      if (name.startsWith(SCHEMA_TOOL_PREFIX)) {
        content += json;
        unwrapped = true;
      } else {
        const id = needed(givenText(block, 'id'), 'id');
        calls.push({ id, type: 'function', function: { name, arguments: json } });
      }
    } else {
      if (type === 'thinking') reasoning += asString(block.thinking) ?? '';
      shown.push(block);
    }
  }
  const message: JsonObject = {
    role: 'assistant',
    content: content === '' && calls.length > 0 ? null : content,
    refusal: null,
  };
  if (calls.length > 0) message.tool_calls = calls;
  if (notes.length > 0) message.annotations = notes;
  if (!strict && shown.length > 0) {
    if (reasoning !== '') message.reasoning_content = reasoning;
    message.content_blocks = shown;
  }
  const native = givenText(body, 'stop_reason');
  const finish = unwrapped && native === 'tool_use' ? 'stop' : finishReason(native);
  const choice: JsonObject = { index: 0, message, logprobs: null, finish_reason: finish };
  if (!strict && native !== null) choice.native_finish_reason = native;
  const usage = isObject(body.usage) ? messagesUsage.read(body.usage) : null;
  return {
    id: asString(body.id) ?? '',
    object: 'chat.completion',
    created: seconds(context),
    model: asString(body.model) ?? context.model,
    choices: [choice],
    usage: chatUsage.write(usage ?? NO_TOKENS),
  };
}

/** Reasoning as Messages shows it; a signature is what the model wants back of it, empty where that is nothing. */
function thinkingBlocks(message: JsonObject, target: ConvertTarget): JsonObject[] {
  const items = target.reasoningItems === true ? portableItems(message.content_blocks) : [];
  if (items.length > 0) {
    return items.map((item) => ({ type: 'thinking', thinking: reasoningOf(item), signature: signatureOf(item) }));
  }
  const text = reasoningText(message, target);
  return text === '' ? [] : [{ type: 'thinking', thinking: text, signature: '' }];
}

/** Messages have no place for a picture in an answer: to leave it out would be half an answer. */
export const paintedForMessages = (): Error =>
  invalidAnswer('The model painted a picture, which an answer of Messages cannot hold.');

/** A chat completion as a Messages answer. */
export function chatAnswerToMessages(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  const { message, text, refusal, calls, images, finish } = firstChoice(body);
  if (images.length > 0) throw paintedForMessages();
  const content: JsonObject[] = [];
  if (wantsThinking(context)) content.push(...thinkingBlocks(message, target));
  if (text !== '') content.push({ type: 'text', text });
  if (refusal !== '') content.push({ type: 'text', text: refusal });
  for (const { id, name, text: input, extra } of calls) {
    const more = extra === null ? null : { extra_content: extra };
    content.push({ type: 'tool_use', id, name, input: answeredInput(input), ...more });
  }
  const usage = readChatUsage(chatUsageObject(body, target), target);
  return {
    id: asString(body.id) ?? '',
    type: 'message',
    role: 'assistant',
    model: asString(body.model) ?? context.model,
    content,
    stop_reason: stopReason(finish, calls.length > 0, refusal !== ''),
    stop_sequence: null,
    usage: messagesUsage.write(usage),
  };
}
