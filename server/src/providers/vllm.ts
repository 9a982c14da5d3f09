import { compatible } from './openai-compatible.ts';
import { drop, emptyContent } from './quirks.ts';

/** Self-hosted: the address is always a custom host (`http://host:8000/v1`). */
export const vllm = compatible({
  id: 'vllm',
  title: 'vLLM',
  baseUrl: null,
  needsKey: false,
  serves: ['completions', 'embeddings', 'rerank', 'responses', 'messages', 'transcribe'],
  bindings: { chat: { prefill: { body: { continue_final_message: true, add_generation_prompt: false } } } },
  chat: {
    request: [emptyContent, drop('user')],
    extensions: ['top_k'],
    omit: ['user'],
    reasoning: { field: 'reasoning_content', history: true },
  },
});
