import type { JsonObject } from '../kernel/json.ts';
import { chatUsage } from '../operations/shapes/chat/usage.ts';
import type { TokenUsage } from '../operations/usage.ts';
import { compatible } from './openai-compatible.ts';
import { refuseFields } from './quirks.ts';

/** Reasoning is counted outside `completion_tokens`, and cached tokens sometimes outside `prompt_tokens`. */
function usage(raw: JsonObject): TokenUsage | null {
  const read = chatUsage.read(raw);
  if (read === null) return null;
  const prompt = typeof raw.prompt_tokens === 'number' ? Math.max(0, raw.prompt_tokens) : 0;
  const completion = typeof raw.completion_tokens === 'number' ? Math.max(0, raw.completion_tokens) : 0;
  return {
    ...read,
    input: read.cache_read > prompt ? prompt + read.cache_read : read.input,
    output: Math.max(read.output, completion + read.reasoning),
  };
}

export const xai = compatible({
  id: 'xai',
  title: 'xAI',
  baseUrl: 'https://api.x.ai/v1',
  statelessPaths: [
    'GET language-models',
    'GET language-models/*',
    'GET embedding-models',
    'GET embedding-models/*',
    'GET image-generation-models',
    'GET image-generation-models/*',
    'POST tokenize-text',
  ],
  serves: ['responses', 'embeddings', 'images_generate'],
  chat: {
    maxCompletionTokens: true,
    request: [refuseFields('logit_bias')],
    usage,
    reasoning: { field: 'reasoning_content' },
  },
});
