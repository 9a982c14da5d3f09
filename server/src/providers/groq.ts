import type { ObjectApi } from './openai/training-api.ts';
import { openAiBatches } from './openai/training-batches.ts';
import { openAiFiles } from './openai/training-files.ts';
import { compatible } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';
import { bearerHeaders } from './training-calls.ts';

const api: ObjectApi = { title: 'groq', headers: bearerHeaders, plannedHeaders: bearerHeaders };

export const groq = compatible({
  id: 'groq',
  title: 'Groq',
  baseUrl: 'https://api.groq.com/openai/v1',
  serves: ['embeddings', 'responses', 'speech', 'transcribe', 'translate'],
  bindings: { chat: { prefill: {} } },
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
  training: {
    // Lists come whole and take no filter; uploads in parts are not offered.
    files: openAiFiles({ api, purposes: new Set(['batch']), list: () => 'all', parts: null }),
    batches: openAiBatches({ api, wholeList: true }),
  },
});
