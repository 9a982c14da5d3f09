import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, fitCallId } from '../../operations/convert/fields.ts';
import { embeddingsBinding, textsOnly } from '../embeddings.ts';
import { compatible } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import {
  drop,
  emptyContent,
  finishReasons,
  mapChoices,
  mapField,
  mapMessages,
  modelFailed,
  refuseFields,
  refuseValue,
  rename,
} from '../quirks.ts';
import { batchesOf } from './batches.ts';
import { files } from './files.ts';
import { fim } from './fim.ts';
import { jobs } from './jobs.ts';

const CALL_ID = /^[a-zA-Z0-9]{9}$/;

const fit = (id: JsonValue | undefined): JsonValue =>
  typeof id === 'string' ? fitCallId(id, CALL_ID, 9) : (id ?? null);

/** Call ids in a history have exactly nine letters or digits; a call and its result map alike. */
const callIds = mapMessages(['"tool_calls"', '"tool_call_id"'], (message) => {
  if (typeof message.tool_call_id === 'string') {
    const id = fit(message.tool_call_id);
    return id === message.tool_call_id ? message : { ...message, tool_call_id: id };
  }
  if (!asArray(message.tool_calls).some((call) => isObject(call) && fit(call.id) !== call.id)) return message;
  const calls = asArray(message.tool_calls).map((call) => (isObject(call) ? { ...call, id: fit(call.id) } : call));
  return { ...message, tool_calls: calls };
});

/** Content may be a list of text, thinking and reference parts; chat callers know only a text. */
function flatten(holder: JsonObject): JsonObject {
  if (!Array.isArray(holder.content)) return holder;
  let text = '';
  let thinking = '';
  for (const part of holder.content) {
    const { type, text: piece, thinking: thought } = asObject(part);
    if (type === 'text' && typeof piece === 'string') text += piece;
    for (const inner of asArray(thought)) {
      const words = asObject(inner).text;
      if (typeof words === 'string') thinking += words;
    }
  }
  return { ...holder, content: text, ...(thinking === '' ? null : { reasoning_content: thinking }) };
}

const flatContent = mapChoices(['"type"'], (choice) => {
  const message = isObject(choice.message) ? flatten(choice.message) : choice.message;
  const delta = isObject(choice.delta) ? flatten(choice.delta) : choice.delta;
  if (message === choice.message && delta === choice.delta) return choice;
  return { ...choice, ...(message === undefined ? null : { message }), ...(delta === undefined ? null : { delta }) };
});

/** The provider reports one by one which categories apply; callers expect to read whether any does. */
function flagged(body: JsonObject): JsonObject {
  if (!Array.isArray(body.results)) return body;
  const results = body.results.map((row) =>
    isObject(row) && row.flagged === undefined && isObject(row.categories)
      ? { flagged: Object.values(row.categories).includes(true), ...row }
      : row,
  );
  return { ...body, results };
}

export const mistralAi: Provider = compatible({
  id: 'mistral-ai',
  title: 'Mistral AI',
  baseUrl: 'https://api.mistral.ai/v1',
  statelessPaths: [
    'POST fim/completions',
    'POST ocr',
    'POST classifications',
    'POST chat/classifications',
    'POST chat/moderations',
  ],
  serves: ['transcribe'],
  chat: {
    request: [
      refuseFields('logprobs', 'top_logprobs', 'logit_bias'),
      // Usage comes with the last chunk unasked, so leaving the option out keeps its meaning.
      drop('stream_options', 'user', 'store'),
      refuseValue('temperature', (value) => typeof value === 'number' && value > 1.5, 'it must be at most 1.5 there.'),
      rename('seed', 'random_seed'),
      mapField('tool_choice', (value) => (value === 'required' ? 'any' : value)),
      callIds,
      emptyContent,
    ],
    answer: [finishReasons({ model_length: 'length', error: modelFailed }), flatContent],
    streamUsageOption: false,
    omit: ['user', 'store'],
    reasoning: { field: 'reasoning_content' },
  },
  bindings: {
    completions: fim,
    moderations: { response: flagged },
    chat: { prefill: { message: { prefix: true } } },
    embeddings: embeddingsBinding({ request: [textsOnly, rename('dimensions', 'output_dimension'), drop('user')] }),
  },
  training: { jobs, files, batches: batchesOf(() => mistralAi) },
});
