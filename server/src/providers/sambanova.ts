import { compatible } from './openai-compatible.ts';
import { refuseFields } from './quirks.ts';

export const sambanova = compatible({
  id: 'sambanova',
  title: 'SambaNova',
  baseUrl: 'https://api.sambanova.ai/v1',
  serves: ['completions', 'embeddings', 'transcribe'],
  chat: {
    // All of these were accepted and ignored there.
    request: [
      refuseFields('logprobs', 'top_logprobs', 'n', 'frequency_penalty', 'presence_penalty', 'logit_bias', 'seed'),
    ],
    extensions: ['top_k'],
    reasoning: { field: 'reasoning_content' },
  },
});
