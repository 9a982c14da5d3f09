/** What models answer by the Responses API, for tests: a whole response and the items it is made of. */
import type { JsonObject, JsonValue } from '../../kernel/json.ts';

const USAGE = {
  input_tokens: 30,
  input_tokens_details: { cached_tokens: 20, cache_write_tokens: 4 },
  output_tokens: 12,
  output_tokens_details: { reasoning_tokens: 7 },
  total_tokens: 42,
};
export const text = (words: string, more: JsonObject = {}): JsonObject => ({
  type: 'output_text',
  text: words,
  annotations: [],
  logprobs: [],
  ...more,
});
export const message = (...content: JsonObject[]): JsonObject => ({
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content,
});
export const call = (callId: string, args: string): JsonObject => ({
  type: 'function_call',
  id: `fc_${callId}`,
  call_id: callId,
  name: 'f',
  arguments: args,
  status: 'completed',
});
export const thought = (words: string, more: JsonObject = {}): JsonObject => ({
  type: 'reasoning',
  id: 'rs_1',
  summary: words === '' ? [] : words.split('|').map((one) => ({ type: 'summary_text', text: one })),
  ...more,
});
export const response = (output: JsonValue, more: JsonObject = {}): JsonObject => ({
  id: 'resp_1',
  object: 'response',
  created_at: 1_690_000_000,
  status: 'completed',
  error: null,
  incomplete_details: null,
  model: 'gpt-5-pro-2025-10-06',
  output,
  usage: USAGE,
  ...more,
});
