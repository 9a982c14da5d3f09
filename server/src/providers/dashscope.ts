import { embeddingsBinding } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import { drop, refuseFields } from './quirks.ts';

/** What every model of embeddings takes in one call; some older ones take more. */
const MOST_TEXTS = 10;

export const dashscope = compatible({
  id: 'dashscope',
  title: 'Alibaba Cloud Model Studio',
  baseUrl: 'https://dashscope-intl.aliyuncs.com/compatible-mode/v1',
  serves: ['completions'],
  chat: {
    request: [refuseFields('frequency_penalty', 'logit_bias'), drop('user')],
    // Later pieces of a call repeat an empty id.
    repairCallIndex: true,
    extensions: ['top_k', 'cache_control'],
    omit: ['user'],
    reasoning: { field: 'reasoning_content' },
  },
  bindings: { embeddings: embeddingsBinding({ request: [drop('user')], floatsOnly: true, most: MOST_TEXTS }) },
});
