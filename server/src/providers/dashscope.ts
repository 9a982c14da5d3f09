import { compatible } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';

export const dashscope = compatible({
  id: 'dashscope',
  title: 'Alibaba Cloud Model Studio',
  baseUrl: 'https://dashscope-intl.aliyuncs.com/compatible-mode/v1',
  serves: ['completions', 'embeddings'],
  chat: {
    request: [refuseFields('frequency_penalty', 'logit_bias'), drop('user')],
    // Later pieces of a call repeat an empty id.
    repairCallIndex: true,
    extensions: ['top_k', 'cache_control'],
    omit: ['user'],
    reasoning: { field: 'reasoning_content' },
  },
});
