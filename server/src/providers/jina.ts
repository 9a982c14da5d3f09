import { embeddingsBinding } from './embeddings.ts';
import { compatible, requestOf } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';

export const jina = compatible({
  id: 'jina',
  title: 'Jina AI',
  baseUrl: 'https://api.jina.ai/v1',
  chat: false,
  serves: ['rerank'],
  bindings: {
    rerank: requestOf([refuseFields('rank_fields'), drop('user')]),
    embeddings: embeddingsBinding({ request: [drop('user')] }),
  },
});
