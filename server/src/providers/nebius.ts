import { compatible } from './openai-compatible.ts';

export const nebius = compatible({
  id: 'nebius',
  title: 'Nebius',
  baseUrl: 'https://api.studio.nebius.com/v1',
  serves: ['completions', 'embeddings', 'images_generate'],
  chat: { extensions: ['top_k'], reasoning: { field: 'reasoning_content' } },
});
