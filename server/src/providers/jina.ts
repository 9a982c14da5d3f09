import { embeddingsBinding } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import { drop } from './quirks.ts';

export const jina = compatible({
  id: 'jina',
  title: 'Jina AI',
  baseUrl: 'https://api.jina.ai/v1',
  chat: false,
  serves: ['rerank'],
  bindings: { embeddings: embeddingsBinding({ request: [drop('user')] }) },
});
