import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { countTokens } from '../../operations/tokens.ts';
import { type Answer, jsonAnswer, wholeAnswer } from './answer.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid } from './problem.ts';

const MAX_DOCUMENTS = 10_000;
/** Documents in one search unit, as Cohere counts. */
const UNIT = 100;

const wordsOf = (text: string): Set<string> => new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);

function textOfDocument(value: JsonValue, i: number, fields: readonly string[]): string {
  if (typeof value === 'string') return value;
  if (!isObject(value))
    throw invalid(
      `Invalid type for 'documents[${i}]': expected a string or an object.`,
      `documents[${i}]`,
      'invalid_type',
    );
  const names = fields.length > 0 ? fields : Object.hasOwn(value, 'text') ? ['text'] : Object.keys(value);
  return names
    .map((name) => (Object.hasOwn(value, name) ? value[name] : undefined))
    .filter((item) => typeof item === 'string')
    .join('\n');
}

/** `POST /rerank`: the share of the query's words that a document holds, shorter documents first among equals. */
export async function rerank(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const query = fields.needText('query');
  const documents = fields.needList('documents');
  if (documents.length > MAX_DOCUMENTS) {
    throw invalid(`Invalid 'documents': at most ${MAX_DOCUMENTS} are accepted.`, 'documents', 'array_above_max_length');
  }
  const top = fields.integer('top_n', 1, Number.MAX_SAFE_INTEGER) ?? documents.length;
  const withDocuments = fields.bool('return_documents') ?? false;
  const rankFields = fields.texts('rank_fields', 100);
  const wanted = wordsOf(query);
  let tokens = await countTokens(query);
  const ranked: { index: number; score: number; text: string }[] = [];
  for (const [index, document] of documents.entries()) {
    const text = textOfDocument(document, index, rankFields);
    tokens += await countTokens(text);
    const words = wordsOf(text);
    let shared = 0;
    for (const word of wanted) if (words.has(word)) shared += 1;
    const score = wanted.size === 0 ? 0 : shared / wanted.size - 0.01 * (words.size / (words.size + 100));
    ranked.push({ index, score: Number(Math.max(0, score).toPrecision(6)), text });
  }
  ranked.sort((a, b) => b.score - a.score || a.index - b.index);
  const body: JsonObject = {
    object: 'list',
    id: `rerank-${input.hash.slice(0, 32)}`,
    model: model.name,
    results: ranked.slice(0, top).map(({ index, score, text }) => ({
      index,
      relevance_score: score,
      ...(withDocuments ? { document: isObject(documents[index]) ? (documents[index] ?? null) : { text } } : null),
    })),
    usage: { search_units: Math.ceil(documents.length / UNIT), prompt_tokens: tokens, total_tokens: tokens },
    system_fingerprint: 'sandbox',
  };
  return wholeAnswer(model, 0, jsonAnswer(200, body));
}
