/**
 * Tokens of a row with the `o200k_base` encoding, the measure of cost estimates. Providers train with their own
 * encodings, so for most of them this is an estimate.
 */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { Tokenizer } from '../../operations/tokens.ts';
import type { RowKind } from './report.ts';

/** What frames a turn, and what starts the next one. */
const PER_MESSAGE = 3;
const PER_ROW = 3;
/** What one image costs at the least; no provider publishes a figure for training. */
const PER_IMAGE = 85;

/** Tokens of a row that was checked. */
export function rowTokens(row: JsonObject, kind: RowKind, tokenizer: Tokenizer): number {
  const text = (value: JsonValue | undefined): number => (typeof value === 'string' ? tokenizer.count(value) : 0);
  const definition = (value: JsonValue | undefined): number =>
    value === undefined || value === null ? 0 : tokenizer.count(JSON.stringify(value));

  const message = (value: JsonValue): number => {
    if (!isObject(value)) return 0;
    let sum = PER_MESSAGE + text(value.role) + text(value.name) + text(value.content) + definition(value.function_call);
    if (Array.isArray(value.content)) {
      for (const part of value.content) {
        if (isObject(part)) sum += part.type === 'text' ? text(part.text) : PER_IMAGE;
      }
    }
    if (Array.isArray(value.tool_calls)) {
      for (const call of value.tool_calls) {
        if (isObject(call) && isObject(call.function)) sum += text(call.function.name) + text(call.function.arguments);
      }
    }
    return sum;
  };
  const messages = (value: JsonValue | undefined): number =>
    Array.isArray(value) ? value.reduce<number>((sum, one) => sum + message(one), 0) : 0;
  const chat = (value: JsonObject): number =>
    PER_ROW + messages(value.messages) + definition(value.tools) + definition(value.functions);

  switch (kind) {
    case 'chat':
      return chat(row);
    case 'text':
      return text(row.prompt) + text(row.completion);
    case 'preference':
      return (
        (isObject(row.input) ? chat(row.input) : 0) +
        messages(row.preferred_output) +
        messages(row.non_preferred_output)
      );
    case 'batch':
      return isObject(row.body) ? chat(row.body) + text(row.body.input) + text(row.body.prompt) : 0;
  }
}
