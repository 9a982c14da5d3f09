import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { asArray } from '../operations/convert/fields.ts';
import { tokenCount } from '../operations/usage.ts';
import { embeddingsBinding } from './embeddings.ts';
import { compatible } from './openai-compatible.ts';
import { segment } from './path.ts';
import { drop, emptyContent, refuseFields, refuseValue } from './quirks.ts';

const EFFORTS: ReadonlySet<JsonValue> = new Set(['none', 'high']);

/** Document as the text the upstream ranks: `rank_fields` first, then its text, then its JSON. */
function documentText(document: JsonValue, fields: readonly JsonValue[]): string {
  if (typeof document === 'string') return document;
  if (!isObject(document)) return JSON.stringify(document);
  if (fields.length > 0) {
    const picked: JsonObject = {};
    for (const field of fields) if (typeof field === 'string') picked[field] = document[field] ?? null;
    return JSON.stringify(picked);
  }
  return typeof document.text === 'string' ? document.text : JSON.stringify(document);
}

function rerankRequest(body: JsonObject): JsonObject {
  const { return_documents: _return, rank_fields: fields, ...rest } = body;
  return { ...rest, documents: asArray(body.documents).map((one) => documentText(one, asArray(fields))) };
}

/** The upstream does not repeat documents: they come from the caller's own body. */
function rerankAnswer(body: JsonObject, asked: JsonObject | undefined): JsonObject {
  const documents = asked?.return_documents === true ? asArray(asked.documents) : [];
  const results = asArray(body.results).map((row) => {
    if (!isObject(row) || typeof row.index !== 'number') return row;
    const document = documents[row.index];
    if (document === undefined) return row;
    return { ...row, document: typeof document === 'string' ? { text: document } : document };
  });
  const billed = isObject(body.meta) && isObject(body.meta.billed_units) ? body.meta.billed_units : {};
  const units = tokenCount(billed.search_units);
  return {
    object: 'list',
    ...body,
    results,
    model: typeof asked?.model === 'string' ? asked.model : null,
    ...(units === null ? null : { usage: { search_units: units } }),
  };
}

/** The vendor's own list names models by `name`. */
function modelEntry(model: JsonObject): JsonObject {
  return { ...model, id: model.name ?? '', object: 'model', created: 0, owned_by: 'cohere' };
}

function modelList(body: JsonObject): JsonObject {
  const { models, ...rest } = body;
  return { object: 'list', data: asArray(models).map((row) => (isObject(row) ? modelEntry(row) : row)), ...rest };
}

const PREFIX = '/compatibility/v1';

/** Chat and embeddings through the vendor's compatible layer; rerank through its own API on the same host. */
export const cohere = compatible({
  id: 'cohere',
  title: 'Cohere',
  baseUrl: 'https://api.cohere.com',
  prefix: PREFIX,
  serves: ['transcribe'],
  chat: {
    request: [
      refuseFields('logit_bias', 'top_logprobs', 'n', 'modalities', 'prediction', 'audio', 'parallel_tool_calls'),
      refuseValue('reasoning_effort', (value) => !EFFORTS.has(value), 'only "none" and "high" are known there.'),
      drop('store', 'metadata', 'service_tier'),
      emptyContent,
    ],
    omit: ['store', 'metadata', 'service_tier'],
  },
  bindings: {
    embeddings: {
      ...embeddingsBinding({ request: [refuseFields('dimensions'), drop('user')] }),
      path: () => `${PREFIX}/embeddings`,
    },
    models: { path: () => '/v1/models', response: modelList },
    model: { path: (context) => `/v1/models/${segment(context.pathParams.model ?? '')}`, response: modelEntry },
    rerank: {
      path: () => '/v2/rerank',
      request: rerankRequest,
      response: (body, context) => rerankAnswer(body, context.body),
    },
  },
});
