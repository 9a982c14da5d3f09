/**
 * Kept bodies as OpenTelemetry's messages of generative AI (`gen_ai.input.messages`, `gen_ai.output.messages`,
 * `gen_ai.system_instructions`), which are the same in both versions of its conventions that Sluice knows. Bodies of shapes that
 * hold no conversation are sent as they are, as one part of text.
 */
import { isObject, type JsonValue } from '../kernel/json.ts';
import type { LogBodies } from './log-export.ts';
import type { Attribute } from './spans.ts';

interface Part {
  readonly type: string;
  readonly [member: string]: unknown;
}

interface Message {
  readonly role: string;
  readonly parts: readonly Part[];
  readonly finish_reason?: string;
}

/** The attributes of one request; none where nothing is kept. */
export function messageAttributes({ request, response }: LogBodies): Attribute[] {
  const out: Attribute[] = [];
  const add = (name: string, value: readonly unknown[]) => {
    if (value.length > 0) out.push({ name, value: JSON.stringify(value) });
  };
  if (request !== null) {
    const body = request as JsonValue;
    const { system, messages } = inputOf(body);
    add('gen_ai.system_instructions', system);
    add('gen_ai.input.messages', messages.length > 0 ? messages : whole('user', body));
  }
  if (response !== null) {
    const body = response as JsonValue;
    const messages = outputOf(body);
    add('gen_ai.output.messages', messages.length > 0 ? messages : whole('assistant', body));
  }
  return out;
}

const whole = (role: string, body: JsonValue): Message[] => [
  { role, parts: [textPart(typeof body === 'string' ? body : JSON.stringify(body))] },
];

const textPart = (content: string): Part => ({ type: 'text', content });

function inputOf(body: JsonValue): { readonly system: readonly Part[]; readonly messages: readonly Message[] } {
  if (!isObject(body)) return { system: [], messages: [] };
  const { messages, system, instructions, input, prompt } = body;
  const above = partsOf(system ?? instructions);
  if (Array.isArray(messages)) return { system: above, messages: messages.flatMap(messageOf) };
  if (Array.isArray(input) && input.some((one) => isObject(one))) {
    return { system: above, messages: input.flatMap(messageOf) };
  }
  const text = input ?? prompt;
  return { system: above, messages: typeof text === 'string' ? [{ role: 'user', parts: [textPart(text)] }] : [] };
}

function outputOf(body: JsonValue): Message[] {
  if (!isObject(body)) return [];
  const { choices, content, output, role, events, stop_reason: stopReason } = body;
  if (Array.isArray(events)) return streamed(events);
  if (Array.isArray(choices)) return choices.flatMap(choiceOf);
  if (Array.isArray(output)) return output.flatMap(messageOf);
  if (Array.isArray(content)) {
    const finish = typeof stopReason === 'string' ? { finish_reason: stopReason } : {};
    return [{ role: textOr(role, 'assistant'), parts: partsOf(content), ...finish }];
  }
  return [];
}

/** The texts of a stream, put together. */
function streamed(events: readonly JsonValue[]): Message[] {
  let text = '';
  let finish: string | null = null;
  for (const event of events) {
    if (!isObject(event)) continue;
    const { choices, delta, type, response } = event;
    if (type === 'response.completed' && response !== undefined) return outputOf(response);
    const [choice] = Array.isArray(choices) ? choices : [];
    if (isObject(choice)) {
      if (isObject(choice.delta) && typeof choice.delta.content === 'string') text += choice.delta.content;
      if (typeof choice.finish_reason === 'string') finish = choice.finish_reason;
    } else if (isObject(delta)) {
      if (typeof delta.text === 'string') text += delta.text;
      if (typeof delta.stop_reason === 'string') finish = delta.stop_reason;
    }
  }
  if (text === '') return [];
  return [{ role: 'assistant', parts: [textPart(text)], ...(finish === null ? {} : { finish_reason: finish }) }];
}

function choiceOf(choice: JsonValue): Message[] {
  if (!isObject(choice)) return [];
  const { message, text, finish_reason: reason } = choice;
  const finish = typeof reason === 'string' ? { finish_reason: reason } : {};
  if (typeof text === 'string') return [{ role: 'assistant', parts: [textPart(text)], ...finish }];
  return messageOf(message ?? null).map((one) => ({ ...one, ...finish }));
}

function messageOf(message: JsonValue): Message[] {
  if (!isObject(message)) return [];
  const { role, content, tool_calls: calls, tool_call_id: answered, type } = message;
  if (type === 'function_call') return [{ role: 'assistant', parts: [callPart(message, message.call_id)] }];
  if (type === 'function_call_output') {
    return [
      {
        role: 'tool',
        parts: [{ type: 'tool_call_response', id: message.call_id ?? null, response: message.output ?? null }],
      },
    ];
  }
  const parts = partsOf(content);
  if (typeof answered === 'string') {
    return [{ role: 'tool', parts: [{ type: 'tool_call_response', id: answered, response: content ?? null }] }];
  }
  for (const call of Array.isArray(calls) ? calls : []) {
    if (isObject(call)) parts.push(callPart(isObject(call.function) ? call.function : call, call.id));
  }
  return parts.length === 0 ? [] : [{ role: textOr(role, 'assistant'), parts }];
}

const callPart = (call: { readonly [name: string]: JsonValue | undefined }, id: JsonValue | undefined): Part => ({
  type: 'tool_call',
  id: id ?? null,
  name: call.name ?? '',
  arguments: call.arguments ?? call.input ?? null,
});

function partsOf(content: JsonValue | undefined): Part[] {
  if (typeof content === 'string') return content === '' ? [] : [textPart(content)];
  if (!Array.isArray(content)) return [];
  return content.map((part): Part => {
    if (typeof part === 'string') return textPart(part);
    if (!isObject(part)) return { type: 'text', content: JSON.stringify(part) };
    const { type, text } = part;
    if (typeof text === 'string') return textPart(text);
    if (type === 'tool_use') return callPart(part, part.id);
    if (type === 'tool_result') {
      return { type: 'tool_call_response', id: part.tool_use_id ?? null, response: part.content ?? null };
    }
    return { ...part, type: textOr(type, 'unknown') };
  });
}

const textOr = (value: JsonValue | undefined, other: string): string => (typeof value === 'string' ? value : other);
