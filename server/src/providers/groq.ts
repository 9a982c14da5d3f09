import { compatible } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';

export const groq = compatible({
  id: 'groq',
  title: 'Groq',
  baseUrl: 'https://api.groq.com/openai/v1',
  serves: ['embeddings', 'responses', 'speech', 'transcribe', 'translate'],
  chat: {
    maxCompletionTokens: true,
    request: [
      refuseFields('logprobs', 'top_logprobs', 'logit_bias', 'frequency_penalty', 'presence_penalty', 'n'),
      drop('metadata', 'store'),
    ],
    usagePath: ['x_groq', 'usage'],
    omit: ['metadata', 'store'],
    reasoning: { field: 'reasoning' },
  },
});
