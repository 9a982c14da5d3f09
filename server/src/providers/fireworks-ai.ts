import { compatible } from './openai-compatible.ts';
import { mapField, refuseValue } from './quirks.ts';

export const fireworksAi = compatible({
  id: 'fireworks-ai',
  title: 'Fireworks AI',
  baseUrl: 'https://api.fireworks.ai/inference/v1',
  serves: ['completions', 'embeddings', 'responses', 'messages', 'rerank'],
  chat: {
    maxCompletionTokens: true,
    request: [
      mapField('reasoning_effort', (value) => (value === 'minimal' ? 'low' : value === 'xhigh' ? 'high' : value)),
      refuseValue('reasoning_effort', (value) => value === 'max', 'the strongest effort there is "high".'),
    ],
    // Usage comes on the last chunk, asked for or not.
    extensions: ['top_k'],
    reasoning: { field: 'reasoning_content', history: true },
  },
});
