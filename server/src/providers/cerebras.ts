import { readProviderError } from '../operations/dialects/provider-error.ts';
import { compatible } from './openai-compatible.ts';
import { refuseFields } from './quirks.ts';

export const cerebras = compatible({
  id: 'cerebras',
  title: 'Cerebras',
  baseUrl: 'https://api.cerebras.ai/v1',
  serves: ['completions'],
  chat: {
    maxCompletionTokens: true,
    request: [refuseFields('n', 'frequency_penalty', 'presence_penalty', 'logit_bias')],
    reasoning: { field: 'reasoning' },
  },
  // Error bodies are flat here: `{message, type, param, code}`, which the common reader knows.
  error: readProviderError,
});
