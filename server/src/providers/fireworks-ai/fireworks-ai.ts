import { compatible } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import { mapField, refuseValue } from '../quirks.ts';
import { headerValue } from '../settings.ts';
import { batchesOf } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';

/** Calls go to the inference paths, training to the control plane beside them, which needs the account id. */
export const fireworksAi: Provider = compatible({
  id: 'fireworks-ai',
  title: 'Fireworks AI',
  baseUrl: 'https://api.fireworks.ai/inference/v1',
  settings: { fireworks_account_id: headerValue.optional() },
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
  training: { jobs, files, batches: batchesOf(() => fireworksAi) },
});
