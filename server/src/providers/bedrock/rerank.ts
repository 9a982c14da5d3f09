/** Rerank over InvokeModel, in the body of Cohere's and Amazon's models (providers §13.4). */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asString, invalid, invalidAnswer, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { readAnyUsage } from '../../operations/usage.ts';
import type { Binding, CallContext } from '../provider.ts';
import { withCounts } from './embeddings.ts';
import { modelBehind, modelPath } from './families.ts';
import { runtimeBase } from './hosts.ts';

const FIELDS: ReadonlySet<string> = new Set([
  'model',
  'query',
  'documents',
  'top_n',
  'return_documents',
  'rank_fields',
  'max_tokens_per_doc',
  'user',
]);

/** A document as the text that is ranked: the fields that were named, its text, or its JSON. */
function textOf(document: JsonValue, fields: readonly JsonValue[]): string {
  if (typeof document === 'string') return document;
  if (!isObject(document)) return JSON.stringify(document);
  if (fields.length === 0) return asString(document.text) ?? JSON.stringify(document);
  const picked: JsonObject = {};
  for (const name of fields) if (typeof name === 'string') picked[name] = document[name] ?? null;
  return JSON.stringify(picked);
}

function request(body: JsonObject, context: CallContext): JsonObject {
  refuseUnknown(body, FIELDS);
  const cohere = modelBehind(context).startsWith('cohere.');
  const documents = asArray(body.documents).map((one) => textOf(one, asArray(body.rank_fields)));
  if (documents.length === 0) invalid('documents', 'There must be documents to rank.');
  if (typeof body.query !== 'string' || body.query === '') invalid('query', 'There must be a text to rank by.');
  const most = body.max_tokens_per_doc ?? null;
  if (most !== null && !cohere) refuse('max_tokens_per_doc', 'this model decides itself how much it reads.');
  return {
    query: body.query,
    documents,
    ...(typeof body.top_n === 'number' ? { top_n: body.top_n } : null),
    ...(most === null ? null : { max_tokens_per_doc: most }),
    ...(cohere ? { api_version: 2 } : null),
  };
}

function response(answer: JsonObject, context: CallContext): JsonObject {
  if (!Array.isArray(answer.results)) throw invalidAnswer('The provider answered without results.');
  const documents = context.body?.return_documents === true ? asArray(context.body.documents) : [];
  const results = answer.results.map((row) => {
    const { index, relevance_score } = isObject(row) ? row : {};
    const document = typeof index === 'number' ? documents[index] : undefined;
    const shown = typeof document === 'string' ? { text: document } : document;
    return {
      index: index ?? null,
      relevance_score: relevance_score ?? null,
      ...(shown === undefined ? null : { document: shown }),
    };
  });
  return { object: 'list', results, model: context.model };
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
