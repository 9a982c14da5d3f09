import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { responsesUsage } from '../shapes/responses/usage.ts';
import type { TokenUsage } from '../usage.ts';
import { chatUsageObject, readChatUsage, reasoningText, seconds } from './answers.ts';
import { firstChoice, flatAnnotations, paintedData } from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asObject, asString } from './fields.ts';

/** Whether the caller asked for a summary of the reasoning, which is the only place reasoning may be shown in. */
export function wantsSummary(context: ConvertContext): boolean {
  const { summary } = asObject(context.body?.reasoning);
  return typeof summary === 'string';
}

export const messageItem = (id: string, content: JsonObject[], status: string): JsonObject => ({
  type: 'message',
  id: `msg_${id}`,
  role: 'assistant',
  status,
  content,
});
export const textPart = (text: string, annotations: JsonObject[] = [], logprobs: JsonObject[] = []): JsonObject => ({
  type: 'output_text',
  text,
  annotations,
  logprobs,
});
export const paintedItem = (id: string, status: string, result: string | null): JsonObject => ({
  type: 'image_generation_call',
  id: `ig_${id}`,
  status,
  result,
});
export const reasoningItem = (id: string, text: string): JsonObject => ({
  type: 'reasoning',
  id: `rs_${id}`,
  summary: text === '' ? [] : [{ type: 'summary_text', text }],
});
export const callItem = (
  id: string,
  callId: string,
  name: string,
  text: string,
  status: string,
  extra: JsonObject | null,
): JsonObject => ({
  type: 'function_call',
  id: `fc_${id}`,
  call_id: callId,
  name,
  arguments: text,
  status,
  ...(extra === null ? null : { extra_content: extra }),
});

export interface Outcome {
  readonly status: 'completed' | 'incomplete' | 'in_progress';
  readonly reason: string | null;
}

/** What a chat finish reason means for a response. */
export function outcomeOf(finish: unknown): Outcome {
  if (finish === 'length') return { status: 'incomplete', reason: 'max_output_tokens' };
  if (finish === 'content_filter') return { status: 'incomplete', reason: 'content_filter' };
  return { status: 'completed', reason: null };
}

const echo = (asked: JsonObject | undefined, name: string, otherwise: JsonValue): JsonValue =>
  asked?.[name] ?? otherwise;

/** The response object around `output`: identity, state, and what the request asked, as the definition requires. */
export function responseObject(
  parts: {
    readonly id: string;
    readonly model: string;
    readonly outcome: Outcome;
    readonly output: JsonObject[];
    readonly usage: TokenUsage | null;
  },
  context: ConvertContext,
): JsonObject {
  const asked = context.body;
  return {
    id: `resp_${parts.id}`,
    object: 'response',
    created_at: seconds(context),
    status: parts.outcome.status,
    error: null,
    incomplete_details: parts.outcome.reason === null ? null : { reason: parts.outcome.reason },
    instructions: echo(asked, 'instructions', null),
    max_output_tokens: echo(asked, 'max_output_tokens', null),
    metadata: echo(asked, 'metadata', {}),
    model: parts.model,
    output: parts.output,
    parallel_tool_calls: echo(asked, 'parallel_tool_calls', true),
    previous_response_id: null,
    reasoning: { effort: null, summary: null, ...asObject(asked?.reasoning) },
    // Nothing is kept here: a later GET or previous_response_id would not find it.
    store: false,
    temperature: echo(asked, 'temperature', null),
    text: { format: { type: 'text' }, ...asObject(asked?.text) },
    tool_choice: echo(asked, 'tool_choice', 'auto'),
    tools: echo(asked, 'tools', []),
    top_p: echo(asked, 'top_p', null),
    truncation: 'disabled',
    usage: parts.usage === null ? null : responsesUsage.write(parts.usage),
  };
}

/** A chat completion as a Responses answer. */
export function chatAnswerToResponses(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  const { message, text, refusal, calls, images, finish, tokens } = firstChoice(body);
  const id = asString(body.id) ?? '';
  const output: JsonObject[] = [];
  const reasoning = wantsSummary(context) ? reasoningText(message, target) : '';
  if (reasoning !== '') output.push(reasoningItem(id, reasoning));
  const content: JsonObject[] = [];
  if (text !== '') content.push(textPart(text, flatAnnotations(message), tokens));
  if (refusal !== '') content.push({ type: 'refusal', refusal });
  if (content.length > 0) output.push(messageItem(id, content, 'completed'));
  images.forEach((image, i) => {
    output.push(paintedItem(`${id}_${i}`, 'completed', paintedData(image)));
  });
  calls.forEach((call, i) => {
    output.push(callItem(`${id}_${i}`, call.id, call.name, call.text || '{}', 'completed', call.extra));
  });
  return responseObject(
    {
      id,
      model: asString(body.model) ?? context.model,
      outcome: outcomeOf(finish),
      output,
      usage: readChatUsage(chatUsageObject(body, target), target),
    },
    context,
  );
}
