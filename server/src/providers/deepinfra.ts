import type { JsonObject } from '../kernel/json.ts';
import { chatUsage } from '../operations/shapes/chat/usage.ts';
import { type TokenUsage, tokenCount } from '../operations/usage.ts';
import { compatible } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';

/** Some models count reasoning outside the completion: then it is larger than the completion, and is added. */
function usage(raw: JsonObject): TokenUsage | null {
  const read = chatUsage.read(raw);
  const completion = tokenCount(raw.completion_tokens);
  if (read === null || completion === null || read.reasoning <= completion) return read;
  return { ...read, output: completion + read.reasoning };
}

export const deepinfra = compatible({
  id: 'deepinfra',
  title: 'DeepInfra',
  baseUrl: 'https://api.deepinfra.com/v1/openai',
  serves: [
    'completions',
    'embeddings',
    'images_generate',
    'images_edit',
    'images_vary',
    'speech',
    'transcribe',
    'translate',
  ],
  chat: {
    request: [refuseFields('logit_bias'), drop('user')],
    usage,
    extensions: ['top_k'],
    omit: ['user'],
    reasoning: { field: 'reasoning_content' },
  },
});
