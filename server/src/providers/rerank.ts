/** What rerank requests of every provider have in common that differs from the shape callers use. */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { asArray, asString, invalid, invalidAnswer } from '../operations/convert/fields.ts';
import { refuseUnknown } from '../operations/convert/request-chat-to-messages.ts';

/** Fields callers may always send. `user` changes nothing and is left out. */
const COMMON = ['model', 'query', 'documents', 'top_n', 'return_documents', 'rank_fields', 'user'] as const;

/** A rerank request, read and checked: documents are the texts that are ranked. */
export interface RerankAsk {
  readonly query: string;
  readonly documents: readonly string[];
  readonly topN: number | null;
}

/** A document as the text that is ranked: the fields that were named, its text, or its JSON. */
function textOf(document: JsonValue, fields: readonly JsonValue[]): string {
  if (typeof document === 'string') return document;
  if (!isObject(document)) return JSON.stringify(document);
  if (fields.length === 0) return asString(document.text) ?? JSON.stringify(document);
  const picked: JsonObject = {};
  for (const name of fields) if (typeof name === 'string') picked[name] = document[name] ?? null;
  return JSON.stringify(picked);
}

/** Throws `unsupported_parameter` for a field that is neither common nor one of `own`, the provider's. */
export function rerankAsk(body: JsonObject, own: readonly string[] = []): RerankAsk {
  refuseUnknown(body, new Set([...COMMON, ...own]));
  const documents = asArray(body.documents).map((one) => textOf(one, asArray(body.rank_fields)));
  if (documents.length === 0) invalid('documents', 'There must be documents to rank.');
  if (typeof body.query !== 'string' || body.query === '') invalid('query', 'There must be a text to rank by.');
  return { query: body.query, documents, topN: typeof body.top_n === 'number' ? body.top_n : null };
}

/**
 * Rows of an answer as callers know them. Providers that do not repeat documents leave that to us: they come from the
 * caller's own body, where it asked for them.
 */
export function rankedRows(
  rows: JsonValue | undefined,
  asked: JsonObject | undefined,
  scoreOf: (row: JsonObject) => JsonValue | undefined = (row) => row.relevance_score,
): JsonObject[] {
  if (!Array.isArray(rows)) throw invalidAnswer('The provider answered without results.');
  const documents = asked?.return_documents === true ? asArray(asked.documents) : [];
  return rows.map((row) => {
    const { index } = isObject(row) ? row : {};
    const document = typeof index === 'number' ? documents[index] : undefined;
    const shown = typeof document === 'string' ? { text: document } : document;
    return {
      index: index ?? null,
      relevance_score: (isObject(row) ? scoreOf(row) : null) ?? null,
      ...(shown === undefined ? null : { document: shown }),
    };
  });
}
