/** One line of a data set or a batch as JSON, read so that nothing in it can exhaust the process. */
import { isUtf8 } from 'node:buffer';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact, parseJson } from '../../kernel/json-exact.ts';
import { JsonScanError, scanJson } from '../../kernel/json-scan.ts';
import type { RowReason } from './report.ts';
import { fault } from './rows.ts';

/** Containers inside each other; what is deeper could not be written again without exhausting the stack. */
const DEPTH = 128;

const SYNTAX: Readonly<Partial<Record<JsonScanError['reason'], readonly [RowReason, string]>>> = {
  encoding: ['not_utf8', 'the line is not UTF-8'],
  duplicate_key: ['duplicate_key', 'an object in the row names a key twice'],
  not_object: ['not_object', 'the line is not a JSON object'],
  depth: ['invalid_json', 'the row is nested too deeply'],
  keys: ['invalid_json', 'the row has too many keys'],
  number: ['invalid_json', 'the row has a number that is too long'],
  weight: ['invalid_json', 'the row has too many values'],
};

const NO_JSON = ['invalid_json', 'the line is not valid JSON'] as const;

/** Strict: what two parsers could read differently is refused. Big integers are kept. Throws RowFault. */
export function parseRow(bytes: Buffer): JsonObject {
  try {
    scanJson(bytes, [], { depth: DEPTH });
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    if (!isUtf8(bytes)) fault('not_utf8', 'the line is not UTF-8');
    // Any JSON value but an object is told apart from what is no JSON at all.
    const [code, reason] = SYNTAX[error.reason] ?? NO_JSON;
    fault(...(code === 'not_object' && !isJson(bytes) ? NO_JSON : ([code, reason] as const)));
  }
  const value = parseExact(bytes.toString('utf8')) as JsonValue;
  return isObject(value) ? value : fault('not_object', 'the line is not a JSON object');
}

function isJson(bytes: Buffer): boolean {
  try {
    parseJson(bytes.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}
