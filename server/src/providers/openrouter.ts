import { compatible } from './openai-compatible.ts';
import { refuseFields } from './quirks.ts';

/** `n` has no effect on routed models; every other field is judged by the model the router picks. */
export const openrouter = compatible({
  id: 'openrouter',
  title: 'OpenRouter',
  baseUrl: 'https://openrouter.ai/api/v1',
  serves: ['completions', 'embeddings', 'responses'],
  headers(headers, context) {
    for (const name of ['http-referer', 'x-title']) {
      const value = context.header(name);
      if (value !== undefined && value !== '') headers.push(name, value);
    }
  },
  chat: {
    request: [refuseFields('n')],
    extensions: ['top_k', 'cache_control'],
    reasoning: { field: 'reasoning', history: true },
  },
});
