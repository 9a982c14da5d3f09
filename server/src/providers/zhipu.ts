import { isObject } from '../kernel/json.ts';
import { type CompatibleRow, compatible } from './openai-compatible.ts';
import { finishReasons, mapField, modelFailed, type RequestQuirk, refuseFields, refuseValue } from './quirks.ts';

/** Arguments of streamed calls only come in pieces when this is set. */
const toolStream: RequestQuirk = {
  touches: ['"tools"'],
  apply: (body) =>
    body.stream === true && Array.isArray(body.tools) && body.tool_stream === undefined
      ? { ...body, tool_stream: true }
      : body,
};

const chat: CompatibleRow['chat'] = {
  request: [
    refuseFields('n', 'logit_bias', 'logprobs', 'top_logprobs', 'frequency_penalty', 'presence_penalty', 'seed'),
    refuseValue('tool_choice', (value) => value !== 'auto', 'only "auto" is known there.'),
    mapField('stop', (value) => (typeof value === 'string' ? [value] : value)),
    refuseValue('stop', (value) => Array.isArray(value) && value.length > 1, 'at most one stop text is known there.'),
    refuseValue(
      'response_format',
      (value) => isObject(value) && value.type === 'json_schema',
      'only "json_object" is known there, not a schema.',
    ),
    toolStream,
  ],
  answer: [finishReasons({ sensitive: 'content_filter', network_error: modelFailed })],
  // Usage comes on the last chunk unasked.
  streamUsageOption: false,
  reasoning: { field: 'reasoning_content', history: true },
};

export const zhipu = compatible({
  id: 'zhipu',
  title: 'Zhipu AI',
  baseUrl: 'https://open.bigmodel.cn/api/paas/v4',
  serves: ['embeddings', 'images_generate', 'rerank'],
  chat,
});

/** The same service under its international address. */
export const zAi = compatible({
  id: 'z-ai',
  title: 'Z.AI',
  baseUrl: 'https://api.z.ai/api/paas/v4',
  serves: ['embeddings', 'images_generate'],
  chat,
});
