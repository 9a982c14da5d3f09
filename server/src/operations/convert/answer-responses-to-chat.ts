import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { ProviderError } from '../dialects/provider-error.ts';
import { chatUsage } from '../shapes/chat/usage.ts';
import { responsesUsage } from '../shapes/responses/usage.ts';
import { NO_TOKENS, type TokenUsage } from '../usage.ts';
import { seconds } from './answers.ts';
import { argumentsIn } from './chat-calls.ts';
import { unnamedCall } from './chat-choice.ts';
import type { ConvertContext, ConvertTarget } from './conversion.ts';
import { asArray, asObject, asString, givenObject, givenObjects, givenText, invalidAnswer, needed } from './fields.ts';
import { isPortable, reasoningOf } from './reasoning-items.ts';

/** Codes of failures whose cause is the request: the same everywhere. Those of images all name them. */
const BAD_REQUESTS: ReadonlySet<string> = new Set(['invalid_prompt', 'context_length_exceeded', 'bio_policy']);

/** What a failed response, or the event that ends a stream, says. */
export function failureOf(error: JsonObject): ProviderError {
  const code = asString(error.code);
  const bad = code !== null && (BAD_REQUESTS.has(code) || code.includes('image') || code.endsWith('policy_violation'));
  const [status, type] = bad
    ? [400, 'invalid_request_error']
    : code === 'rate_limit_exceeded' || code === 'insufficient_quota'
      ? [429, 'rate_limit_error']
      : [502, 'api_error'];
  const message = asString(error.message) || 'The provider failed while it answered, and does not say why.';
  return { status, type, message, param: asString(error.param), code };
}

/** Why a response ended, in the words of chat: null when it did not end as an answer does. */
export function finishOf(response: JsonObject, hasCalls: boolean): string | null {
  const status = givenText(response, 'status');
  const reason = givenText(givenObject(response, 'incomplete_details') ?? {}, 'reason');
  // Some compatible servers leave the status out.
  if (status === 'incomplete' || (status === null && reason !== null)) {
    if (reason === 'max_output_tokens') return 'length';
    return reason === 'content_filter' ? 'content_filter' : 'stop';
  }
  if (status !== 'completed' && status !== null) return null;
  return hasCalls ? 'tool_calls' : 'stop';
}

/** The provider's own word for why it ended. */
export function nativeReason(response: JsonObject): string {
  return asString(asObject(response.incomplete_details).reason) ?? asString(response.status) ?? 'completed';
}

/** A source as chat writes it; `before` is how much text stands before the part it belongs to. */
export function annotationOf(annotation: JsonValue, before: number): JsonObject | null {
  if (!isObject(annotation) || annotation.type !== 'url_citation') return null;
  const { type, ...cited } = annotation;
  const moved: JsonObject = {};
  for (const name of ['start_index', 'end_index'] as const) {
    const at = cited[name];
    if (typeof at === 'number') moved[name] = at + before;
  }
  return { type, url_citation: { ...cited, ...moved } };
}

/** A call as chat writes it; null for items that are none. */
export function callOf(item: JsonObject): JsonObject | null {
  const { type } = item;
  if (type !== 'function_call' && type !== 'custom_tool_call') return null;
  const id = givenText(item, 'call_id') ?? givenText(item, 'id') ?? '';
  const name = givenText(item, 'name') ?? '';
  return type === 'function_call'
    ? { id, type: 'function', function: { name, arguments: argumentsIn(item) } }
    : { id, type: 'custom', custom: { name, input: givenText(item, 'input') ?? '' } };
}

export function usageOfResponse(usage: JsonValue | undefined, target: ConvertTarget): TokenUsage {
  if (!isObject(usage)) return NO_TOKENS;
  return (target.usage ? target.usage(usage) : responsesUsage.read(usage)) ?? NO_TOKENS;
}

/** Whole messages of a response, gathered into one. */
class Gathered {
  content = '';
  refusal = '';
  readonly reasoning: string[] = [];
  readonly calls: JsonObject[] = [];
  readonly notes: JsonObject[] = [];
  readonly logprobs: JsonValue[] = [];
  readonly shown: JsonObject[] = [];

  add(item: JsonObject): void {
    const type = needed(givenText(item, 'type'), 'type');
    const call = callOf(item);
    if (call !== null) {
      if (asObject(call.function ?? call.custom).name === '') unnamedCall();
      this.calls.push(call);
    } else if (type === 'message') for (const part of givenObjects(item, 'content')) this.#part(part);
    else if (type === 'reasoning') {
      const text = reasoningOf(item);
      if (text !== '') this.reasoning.push(text);
      if (isPortable(item)) this.shown.push(item);
    }
    // The text that a provider's tool led to shows what the tool did.
  }

  #part(part: JsonObject): void {
    const type = needed(givenText(part, 'type'), 'type');
    if (type === 'refusal') this.refusal += needed(givenText(part, 'refusal'), 'refusal');
    if (type !== 'output_text') return;
    for (const one of asArray(part.annotations)) {
      const note = annotationOf(one, this.content.length);
      if (note !== null) this.notes.push(note);
    }
    this.logprobs.push(...asArray(part.logprobs));
    this.content += needed(givenText(part, 'text'), 'text');
  }
}

/** A Responses answer as a chat completion. */
export function responsesAnswerToChat(body: JsonObject, context: ConvertContext, target: ConvertTarget): JsonObject {
  if (body.status === 'failed') {
    const { message, param, status, type, code } = failureOf(asObject(body.error));
    throw new SluiceError('provider_error', message, {
      param,
      provider: { status, type, code },
      reason: 'model_error',
    });
  }
  if (!Array.isArray(body.output)) throw invalidAnswer('The provider answered without output.');
  const all = new Gathered();
  for (const item of givenObjects(body, 'output')) all.add(item);
  const finish = finishOf(body, all.calls.length > 0);
  if (finish === null) throw invalidAnswer('The provider answered before the response was complete.');
  const strict = context.strict !== false;
  const silent = all.content === '' && (all.calls.length > 0 || all.refusal !== '');
  const message: JsonObject = {
    role: 'assistant',
    content: silent ? null : all.content,
    refusal: all.refusal === '' ? null : all.refusal,
  };
  if (all.calls.length > 0) message.tool_calls = all.calls;
  if (all.notes.length > 0) message.annotations = all.notes;
  if (!strict && all.reasoning.length > 0) message.reasoning_content = all.reasoning.join('\n\n');
  if (!strict && all.shown.length > 0) message.content_blocks = all.shown;
  const logprobs = all.logprobs.length === 0 ? null : { content: all.logprobs, refusal: null };
  const choice: JsonObject = { index: 0, message, logprobs, finish_reason: finish };
  if (!strict) choice.native_finish_reason = nativeReason(body);
  const out: JsonObject = {
    id: asString(body.id) ?? '',
    object: 'chat.completion',
    created: typeof body.created_at === 'number' ? Math.floor(body.created_at) : seconds(context),
    model: asString(body.model) ?? context.model,
    choices: [choice],
    usage: chatUsage.write(usageOfResponse(body.usage, target)),
  };
  if (typeof body.service_tier === 'string') out.service_tier = body.service_tier;
  return out;
}
