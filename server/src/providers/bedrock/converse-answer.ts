/** A Converse answer as a chat completion. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { unnamedCall } from '../../operations/convert/chat-choice.ts';
import {
  asObject,
  asString,
  givenObject,
  givenObjects,
  givenText,
  invalidAnswer,
  needed,
} from '../../operations/convert/fields.ts';
import { SCHEMA_TOOL_PREFIX } from '../../operations/convert/request-chat-to-messages.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { NO_TOKENS } from '../../operations/usage.ts';

const FINISH: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  model_context_window_exceeded: 'length',
  guardrail_intervened: 'content_filter',
  content_filtered: 'content_filter',
};
/** The model wrote something that cannot be read: an error unless there is content to show. */
const MALFORMED: ReadonlySet<string> = new Set(['malformed_model_output', 'malformed_tool_use']);

/** What an answer or stream held besides its stop reason. */
interface Held {
  readonly text: boolean;
  readonly calls: number;
  /** A call stood for the format of the answer and was shown as its text. */
  readonly unwrapped: boolean;
}

/** The chat finish reason of a stop reason; 502 where the model failed and there is nothing to show. */
export function finishOf(reason: string, held: Held): string {
  if (MALFORMED.has(reason) && !held.text && held.calls === 0) {
    throw invalidAnswer('The model wrote an answer or a call that the provider could not read.');
  }
  const finish = Object.hasOwn(FINISH, reason) ? (FINISH[reason] ?? 'stop') : 'stop';
  if (held.calls > 0 && finish === 'stop') return 'tool_calls';
  return held.unwrapped && held.calls === 0 && finish === 'tool_calls' ? 'stop' : finish;
}

/** Token counts: Bedrock leaves cached input out of `inputTokens`, chat completions count it in. */
export function converseUsage(usage: JsonValue | undefined): JsonObject {
  return chatUsage.write(readAnyUsage(asObject(usage)) ?? NO_TOKENS);
}

/** A block of thought as Messages shows it, or null for any other block. */
function thinkingBlock(block: JsonObject): JsonObject | null {
  if (!isObject(block.reasoningContent)) return null;
  const { reasoningText, redactedContent } = block.reasoningContent;
  if (typeof redactedContent === 'string') return { type: 'redacted_thinking', data: redactedContent };
  const { text, signature } = asObject(reasoningText);
  return { type: 'thinking', thinking: asString(text) ?? '', signature: asString(signature) ?? '' };
}

/** What a stream's last events and an answer have in common beyond chat's own fields. */
export function extras(answer: JsonObject, strict: boolean): JsonObject {
  const tier = asString(asObject(answer.serviceTier).type);
  return {
    ...(tier === null ? null : { service_tier: tier }),
    ...(strict || !isObject(answer.trace) ? null : { trace: answer.trace }),
    ...(strict || !isObject(answer.performanceConfig) ? null : { performanceConfig: answer.performanceConfig }),
    ...(strict || !isObject(answer.additionalModelResponseFields)
      ? null
      : { additionalModelResponseFields: answer.additionalModelResponseFields }),
  };
}

export function chatCompletion(
  answer: JsonObject,
  about: { readonly id: string; readonly model: string; readonly created: number; readonly strict?: boolean },
): JsonObject {
  const strict = about.strict !== false;
  const message = givenObject(givenObject(answer, 'output') ?? {}, 'message') ?? {};
  if (!Array.isArray(message.content)) throw invalidAnswer('The answer of the model has no content.');
  const texts: string[] = [];
  const calls: JsonObject[] = [];
  const thoughts: JsonObject[] = [];
  let unwrapped = false;
  for (const block of givenObjects(message, 'content')) {
    const said = givenText(block, 'text');
    if (said !== null) texts.push(said);
    const toolUse = givenObject(block, 'toolUse');
    if (toolUse !== null) {
      const name = givenText(toolUse, 'name') || unnamedCall();
      const text = JSON.stringify(needed(givenObject(toolUse, 'input'), 'input'));
      if (name.startsWith(SCHEMA_TOOL_PREFIX)) {
        texts.push(text);
        unwrapped = true;
      } else {
        calls.push({
          id: needed(givenText(toolUse, 'toolUseId'), 'toolUseId'),
          type: 'function',
          function: { name, arguments: text },
        });
      }
    }
    const thought = thinkingBlock(block);
    if (thought !== null) thoughts.push(thought);
    // A text with citations lies in a separate block.
    for (const part of givenObjects(givenObject(block, 'citationsContent') ?? {}, 'content')) {
      const text = givenText(part, 'text');
      if (text !== null) texts.push(text);
    }
  }
  const reason = needed(givenText(answer, 'stopReason'), 'stopReason');
  const reasoning = thoughts.map((one) => asString(one.thinking) ?? '').join('');
  return {
    id: about.id,
    object: 'chat.completion',
    created: about.created,
    model: about.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: texts.length === 0 ? null : texts.join(''),
          refusal: null,
          ...(calls.length === 0 ? null : { tool_calls: calls }),
          ...(strict || reasoning === '' ? null : { reasoning_content: reasoning }),
          ...(strict || thoughts.length === 0 ? null : { content_blocks: thoughts }),
        },
        logprobs: null,
        finish_reason: finishOf(reason, { text: texts.length > 0, calls: calls.length, unwrapped }),
        ...(strict ? null : { native_finish_reason: reason }),
      },
    ],
    usage: converseUsage(answer.usage),
    ...extras(answer, strict),
  };
}
