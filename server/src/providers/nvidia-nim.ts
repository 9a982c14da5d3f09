import type { JsonObject } from '../kernel/json.ts';
import { compatible, requestOf } from './openai-compatible.ts';
import { restOfPath } from './path.ts';
import type { CallContext } from './provider.ts';
import { drop, type RequestQuirk } from './quirks.ts';
import { rankedRows, rerankAsk } from './rerank.ts';

/** Most models here need to know whether a text is searched for or searched in; callers rarely say. */
const inputType: RequestQuirk = {
  touches: ['"input"'],
  apply: (body): JsonObject =>
    body.input === undefined || body.input_type !== undefined ? body : { ...body, input_type: 'passage' },
};

/** Every model has its own address, dots in its name written otherwise; a container has but one. */
function rerankPath({ model, elsewhere }: CallContext): string {
  if (elsewhere === true) return '/ranking';
  return `/retrieval${restOfPath(model).replaceAll('.', '_')}/reranking`;
}

function rerankRequest(body: JsonObject, { model }: CallContext): JsonObject {
  const { query, documents } = rerankAsk(body, ['truncate']);
  const { truncate } = body;
  return {
    model,
    query: { text: query },
    passages: documents.map((text) => ({ text })),
    ...(truncate === undefined || truncate === null ? null : { truncate }),
  };
}

/** All are ranked, so that the best `top_n` are taken here. Scores are logits: they order, and are no shares of one. */
function rerankAnswer({ rankings, ...rest }: JsonObject, { body: asked, model }: CallContext): JsonObject {
  const rows = rankedRows(rankings, asked, (row) => row.logit);
  const most = typeof asked?.top_n === 'number' ? asked.top_n : rows.length;
  return { object: 'list', ...rest, results: rows.slice(0, most), model };
}

export const nvidiaNim = compatible({
  id: 'nvidia-nim',
  title: 'NVIDIA NIM',
  baseUrl: 'https://integrate.api.nvidia.com/v1',
  serves: ['completions'],
  chat: {
    request: [drop('user')],
    omit: ['user'],
    reasoning: { field: 'reasoning_content' },
  },
  bindings: {
    embeddings: requestOf([inputType, drop('user')]),
    rerank: {
      path: rerankPath,
      base: () => 'https://ai.api.nvidia.com/v1',
      request: rerankRequest,
      response: rerankAnswer,
    },
  },
});
