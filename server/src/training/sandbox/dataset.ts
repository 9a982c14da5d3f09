/** What the sandbox asks of a training file: enough that a wrong one fails as it would elsewhere. */
import { createHash } from 'node:crypto';
import { isObject, type JsonValue } from '../../kernel/json.ts';
import { isBlank, linesOf } from '../managed/lines.ts';

export interface DatasetReport {
  readonly rows: number;
  /** A quarter of the bytes: the sandbox trains nothing, so the tokeniser is spared. */
  readonly tokens: number;
  /** Of the rows, hexadecimal; empty when there is a fault. */
  readonly digest: string;
  /** What is wrong with the first bad row, or with the file; null when it is good. */
  readonly fault: string | null;
}

const MAX_ROW_BYTES = 16 * 1024 * 1024;

export async function checkDataset(
  stream: AsyncIterable<Buffer>,
  method: 'supervised' | 'dpo',
): Promise<DatasetReport> {
  let rows = 0;
  let bytes = 0;
  const digest = createHash('sha256');
  for await (const line of linesOf(stream, MAX_ROW_BYTES)) {
    if (isBlank(line)) continue;
    rows += 1;
    bytes += line.length;
    digest.update(line.bytes).update('\n');
    const fault = line.length > line.bytes.length ? 'is longer than 16 MiB' : rowFault(line.bytes, method);
    if (fault !== null) return { rows, tokens: 0, digest: '', fault: `Line ${line.number} ${fault}.` };
  }
  const tokens = Math.ceil(bytes / 4);
  return { rows, tokens, digest: digest.digest('hex'), fault: rows === 0 ? 'The file holds no rows.' : null };
}

function rowFault(bytes: Buffer, method: 'supervised' | 'dpo'): string | null {
  let row: unknown;
  try {
    row = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return 'is not valid JSON in UTF-8';
  }
  if (!isObject(row)) return 'is not a JSON object';
  if (method === 'dpo') {
    const { input, preferred_output: preferred, non_preferred_output: other } = row;
    if (!isObject(input) || !isConversation(input.messages)) return 'lacks input.messages';
    if (!isConversation(preferred)) return 'lacks preferred_output';
    return isConversation(other) ? null : 'lacks non_preferred_output';
  }
  if (typeof row.prompt === 'string' && typeof row.completion === 'string') return null;
  const { messages } = row;
  if (!isConversation(messages)) return 'lacks messages: a list of {"role", "content"}';
  return messages.some((message) => isObject(message) && message.role === 'assistant')
    ? null
    : 'has no message of the assistant to learn from';
}

function isConversation(value: JsonValue | undefined): value is JsonValue[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((message) => isObject(message) && typeof message.role === 'string')
  );
}
