import { embeddingsBinding } from '../embeddings.ts';
import { compatible } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import { drop, finishReasons, mapField, refuseFields } from '../quirks.ts';
import { batchesOf } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';

export const togetherAi: Provider = compatible({
  id: 'together-ai',
  title: 'Together AI',
  baseUrl: 'https://api.together.ai/v1',
  serves: ['completions', 'rerank', 'images_generate', 'speech', 'transcribe', 'translate'],
  chat: {
    request: [
      // An integer 0 to 20 here, not a switch.
      mapField('logprobs', (value) => (value === true ? 1 : value === false ? 0 : value)),
      mapField('stop', (value) => (typeof value === 'string' ? [value] : value)),
      refuseFields('parallel_tool_calls'),
      drop('stream_options', 'user', 'store'),
    ],
    answer: [finishReasons({ eos: 'stop' })],
    streamUsageOption: false,
    extensions: ['top_k'],
    omit: ['user', 'store'],
    reasoning: { field: 'reasoning' },
  },
  bindings: { embeddings: embeddingsBinding({ request: [refuseFields('dimensions')], floatsOnly: true }) },
  training: { jobs, files, batches: batchesOf(() => togetherAi) },
});
