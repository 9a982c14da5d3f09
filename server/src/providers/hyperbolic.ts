import { compatible } from './openai-compatible.ts';

export const hyperbolic = compatible({
  id: 'hyperbolic',
  title: 'Hyperbolic',
  baseUrl: 'https://api.hyperbolic.xyz/v1',
  serves: ['completions'],
  chat: { extensions: ['top_k'] },
});
