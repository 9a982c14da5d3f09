import type { JsonObject } from '../kernel/json.ts';
import { embeddingsBinding, textsOnly } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import type { CallContext } from './provider.ts';
import { drop, type RequestQuirk, rename } from './quirks.ts';
import { rankedRows, rerankAsk } from './rerank.ts';

/** Floats are what comes when nothing is asked; the word itself is not known. */
const floatsByDefault: RequestQuirk = {
  touches: ['"encoding_format"'],
  apply(body) {
    if (body.encoding_format !== 'float') return body;
    const { encoding_format: _format, ...rest } = body;
    return rest;
  },
};

/** Documents are texts there, and come back from the caller's own body. */
function rerankRequest(body: JsonObject, { model }: CallContext): JsonObject {
  const { query, documents, topN } = rerankAsk(body, ['truncation']);
  const { truncation } = body;
  return {
    model,
    query,
    documents: [...documents],
    ...(topN === null ? null : { top_k: topN }),
    ...(truncation === undefined || truncation === null ? null : { truncation }),
  };
}

/** The list is under `data`. */
function rerankAnswer(body: JsonObject, context: CallContext): JsonObject {
  const { data, ...rest } = body;
  return { ...rest, object: 'list', results: rankedRows(data, context.body) };
}

/** Most texts of one call. */
const MOST_TEXTS = 1000;

export const voyage = compatible({
  id: 'voyage',
  title: 'Voyage AI',
  baseUrl: 'https://api.voyageai.com/v1',
  statelessPaths: ['POST multimodalembeddings', 'POST contextualizedembeddings'],
  chat: false,
  bindings: {
    embeddings: embeddingsBinding({
      request: [textsOnly, rename('dimensions', 'output_dimension'), floatsByDefault, drop('user')],
      most: MOST_TEXTS,
    }),
    rerank: { request: rerankRequest, response: rerankAnswer },
  },
});
