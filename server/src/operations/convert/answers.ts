import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { chatUsage, messagesUsage, NO_TOKENS, readUsage, type TokenUsage } from '../usage.ts';
import { callExtra } from './chat-calls.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, invalidAnswer } from './fields.ts';
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
  return (target.usage ? target.usage(usage) : readUsage('chat', usage)) ?? NO_TOKENS;
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
export function answeredInput(text: unknown): JsonObject {
  if (text === undefined || text === null || text === '') return {};
  if (isObject(text)) return text;
  try {
    const value = typeof text === 'string' ? parseExact(text) : null;
    if (isObject(value)) return value;
  } catch {
    // Falls through to the error below.
  }
  throw invalidAnswer('The model called a function with arguments that are no JSON object.');
}

/** Web citations of one text block as annotations of the joined text. */
function annotations(block: JsonObject, from: number, to: number): JsonObject[] {
  const out: JsonObject[] = [];
  for (const citation of asArray(block.citations)) {
    if (!isObject(citation) || citation.type !== 'web_search_result_location') continue;
    const { url, title } = citation;
    out.push({
      type: 'url_citation',
      url_citation: { url, title: asString(title) ?? '', start_index: from, end_index: to },
    });
  }
  return out;
}

/** A Messages answer as a chat completion (providers §18.4). */
export function messagesAnswerToChat(body: JsonObject, context: ConvertContext): JsonObject {
  if (!Array.isArray(body.content)) throw invalidAnswer('The provider answered without content.');
  const strict = context.strict !== false;
  let content = '';
  let reasoning = '';
  let unwrapped = false;
  const calls: JsonObject[] = [];
  const notes: JsonObject[] = [];
  const shown: JsonObject[] = [];
  for (const block of body.content) {
    if (!isObject(block)) continue;
    if (block.type === 'text') {
      const text = asString(block.text) ?? '';
      notes.push(...annotations(block, content.length, content.length + text.length));
      content += text;
    } else if (block.type === 'tool_use') {
      const name = asString(block.name) ?? '';
      const json = JSON.stringify(block.input ?? {});
      if (name.startsWith(SCHEMA_TOOL_PREFIX)) {
        content += json;
        unwrapped = true;
      } else calls.push({ id: asString(block.id) ?? '', type: 'function', function: { name, arguments: json } });
    } else {
      if (block.type === 'thinking') reasoning += asString(block.thinking) ?? '';
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
  const native = body.stop_reason;
  const finish = unwrapped && native === 'tool_use' ? 'stop' : finishReason(native);
  const choice: JsonObject = { index: 0, message, logprobs: null, finish_reason: finish };
  if (!strict && typeof native === 'string') choice.native_finish_reason = native;
  const usage = isObject(body.usage) ? readUsage('messages', body.usage) : null;
  return {
    id: asString(body.id) ?? '',
    object: 'chat.completion',
    created: seconds(context),
    model: asString(body.model) ?? context.model,
    choices: [choice],
    usage: chatUsage(usage ?? NO_TOKENS),
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

/** A chat completion as a Messages answer (providers §18.4). */
export function chatAnswerToMessages(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  const choice = asArray(body.choices)[0];
  if (!isObject(choice) || !isObject(choice.message)) throw invalidAnswer('The provider answered without a choice.');
  const { message } = choice;
  const content: JsonObject[] = [];
  if (wantsThinking(context)) content.push(...thinkingBlocks(message, target));
  if (typeof message.content === 'string' && message.content !== '') {
    content.push({ type: 'text', text: message.content });
  } else if (Array.isArray(message.content)) {
    const text = message.content.map((part) => asString(asObject(part).text) ?? '').join('');
    if (text !== '') content.push({ type: 'text', text });
  }
  const refusal = asString(message.refusal);
  if (refusal !== null && refusal !== '') content.push({ type: 'text', text: refusal });
  let called = false;
  for (const call of asArray(message.tool_calls)) {
    const definition = asObject(asObject(call).function);
    content.push({
      type: 'tool_use',
      id: asString(asObject(call).id) ?? '',
      name: asString(definition.name) ?? '',
      input: answeredInput(definition.arguments),
      ...callExtra(asObject(call)),
    });
    called = true;
  }
  if (isObject(message.function_call)) {
    const { name, arguments: text } = message.function_call;
    content.push({ type: 'tool_use', id: 'call_legacy', name: asString(name) ?? '', input: answeredInput(text) });
    called = true;
  }
  const usage = readChatUsage(chatUsageObject(body, target), target);
  return {
    id: asString(body.id) ?? '',
    type: 'message',
    role: 'assistant',
    model: asString(body.model) ?? context.model,
    content,
    stop_reason: stopReason(choice.finish_reason, called, refusal !== null && refusal !== ''),
    stop_sequence: null,
    usage: messagesUsage(usage),
  };
}
