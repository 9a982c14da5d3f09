import type { JsonObject } from '../../kernel/json.ts';
import { embeddingsBinding, textsOnly } from '../embeddings.ts';
import { plainImages, sizeAsSides } from '../images.ts';
import { answerOf, compatible, requestOf } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import { drop, finishReasons, mapField, refuseFields } from '../quirks.ts';
import { batchesOf } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';

const stopList = mapField('stop', (value) => (typeof value === 'string' ? [value] : value));
const ends = finishReasons({ eos: 'stop' });

export const togetherAi: Provider = compatible({
  id: 'together-ai',
  title: 'Together AI',
  baseUrl: 'https://api.together.ai/v1',
  serves: ['rerank', 'speech', 'transcribe', 'translate'],
  chat: {
    request: [
      // An integer 0 to 20 here, not a switch.
      mapField('logprobs', (value) => (value === true ? 1 : value === false ? 0 : value)),
      stopList,
      refuseFields('parallel_tool_calls'),
      drop('stream_options', 'user', 'store'),
    ],
    answer: [ends],
    streamUsageOption: false,
    extensions: ['top_k'],
    omit: ['user', 'store'],
    reasoning: { field: 'reasoning' },
  },
  bindings: {
    completions: { ...requestOf([stopList, drop('stream_options', 'user')]), ...answerOf([ends]) },
    embeddings: embeddingsBinding({
      request: [textsOnly, refuseFields('dimensions'), drop('user')],
      floatsOnly: true,
    }),
    images_generate: {
      ...requestOf([
        plainImages,
        sizeAsSides,
        mapField('response_format', (value) => (value === 'b64_json' ? 'base64' : value)),
      ]),
      response: (body, context): JsonObject => ({ created: Math.floor(context.now() / 1000), ...body }),
    },
  },
  training: { jobs, files, batches: batchesOf(() => togetherAi) },
});
