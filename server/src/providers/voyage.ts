import { isObject, type JsonObject } from '../kernel/json.ts';
import { asArray } from '../operations/convert/fields.ts';
import { embeddingsBinding } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import { drop, type RequestQuirk, rename } from './quirks.ts';

/** Floats are what comes when nothing is asked; the word itself is not known. */
const floatsByDefault: RequestQuirk = {
  touches: ['"encoding_format"'],
  apply(body) {
    if (body.encoding_format !== 'float') return body;
    const { encoding_format: _format, ...rest } = body;
    return rest;
  },
};

/** The list stands under `data`, and documents are plain texts. */
function rerankAnswer(body: JsonObject): JsonObject {
  const { data, ...rest } = body;
  const results = asArray(data).map((row) =>
    isObject(row) && typeof row.document === 'string' ? { ...row, document: { text: row.document } } : row,
  );
  return { ...rest, object: 'list', results };
}

export const voyage = compatible({
  id: 'voyage',
  title: 'Voyage AI',
  baseUrl: 'https://api.voyageai.com/v1',
  chat: false,
  bindings: {
    embeddings: embeddingsBinding({
      request: [rename('dimensions', 'output_dimension'), floatsByDefault, drop('user')],
    }),
    rerank: {
      request: (body, context) => rename('top_n', 'top_k').apply(body, context),
      requestTouches: ['"top_n"'],
      response: rerankAnswer,
    },
  },
});
