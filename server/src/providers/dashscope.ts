import { isObject, type JsonObject } from '../kernel/json.ts';
import { embeddingsBinding } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import type { CallContext } from './provider.ts';
import { drop, refuseFields } from './quirks.ts';
import { rankedRows, rerankAsk } from './rerank.ts';

/** What every model of embeddings takes in one call; some older ones take more. */
const MOST_TEXTS = 10;

function rerankRequest(body: JsonObject, { model }: CallContext): JsonObject {
  const { query, documents, topN } = rerankAsk(body, ['instruct']);
  const { instruct } = body;
  return {
    model,
    input: { query, documents: [...documents] },
    parameters: {
      return_documents: false,
      ...(topN === null ? null : { top_n: topN }),
      ...(instruct === undefined || instruct === null ? null : { instruct }),
    },
  };
}

/** Only the total is counted. */
function rerankAnswer({ output, usage, request_id }: JsonObject, { body: asked, model }: CallContext): JsonObject {
  const total = isObject(usage) ? (usage.total_tokens ?? null) : null;
  return {
    object: 'list',
    ...(request_id === undefined ? null : { id: request_id }),
    results: rankedRows(isObject(output) ? output.results : undefined, asked),
    model,
    ...(total === null ? null : { usage: { prompt_tokens: total, total_tokens: total } }),
  };
}

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
  bindings: {
    embeddings: embeddingsBinding({ request: [drop('user')], floatsOnly: true, most: MOST_TEXTS }),
    // The service's own surface; what stands for it at a custom host is below that host's address.
    rerank: {
      path: () => '/services/rerank/text-rerank/text-rerank',
      base: () => 'https://dashscope-intl.aliyuncs.com/api/v1',
      request: rerankRequest,
      response: rerankAnswer,
    },
  },
});
