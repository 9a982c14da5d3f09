/** Rerank over InvokeModel, in the body of Cohere's and Amazon's models. */
import type { JsonObject } from '../../kernel/json.ts';
import { refuse } from '../../operations/convert/fields.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import type { Binding, CallContext } from '../provider.ts';
import { rankedRows, rerankAsk } from '../rerank.ts';
import { withCounts } from './embeddings.ts';
import { modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

function request(body: JsonObject, context: CallContext): JsonObject {
  const { query, documents, topN } = rerankAsk(body, ['max_tokens_per_doc']);
  const cohere = modelBehind(context).startsWith('cohere.');
  const most = body.max_tokens_per_doc ?? null;
  if (most !== null && !cohere) refuse('max_tokens_per_doc', 'this model decides itself how much it reads.');
  return {
    query,
    documents: [...documents],
    ...(topN === null ? null : { top_n: topN }),
    ...(most === null ? null : { max_tokens_per_doc: most }),
    ...(cohere ? { api_version: 2 } : null),
  };
}

function response(answer: JsonObject, context: CallContext): JsonObject {
  return { object: 'list', results: rankedRows(answer.results, context.body), model: context.model };
}

export const rerank: Binding = {
  shape: 'rerank',
  path: ({ model }) => `${modelPath(model)}/invoke`,
  base: runtimeBase,
  ownQuery: true,
  request,
  received: withCounts,
  response,
  usage: readAnyUsage,
};
