/** The input file of a batch: one request per line, checked before any of them is sent. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseModel } from '../../providers/models.ts';
import { parseRow } from '../datasets/parse-row.ts';
import { RowFault } from '../datasets/report.ts';
import { type FileLine, isBlank, linesOf } from './lines.ts';

/** Requests in one batch: OpenAI's figure; it also bounds what is remembered to find a `custom_id` given twice. */
const MAX_BATCH_REQUESTS = 50_000;
/** Faults listed; the total is given beside them. */
const MAX_ERRORS = 100;
const MAX_CUSTOM_ID = 512;

export interface BatchLine {
  readonly custom_id: string;
  readonly url: string;
  readonly body: JsonObject;
}

export interface BatchFault {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  readonly line: number | null;
}

export interface BatchRules {
  /** `/v1/chat/completions` … */
  readonly endpoint: string;
  /** What every line must name or leave out; null: lines name their own. */
  readonly model: string | null;
  /** Longest line, bytes. */
  readonly maxLineBytes: number;
}

export interface BatchReport {
  /** Requests in the file: lines that are not empty. */
  readonly total: number;
  /** At most 100. */
  readonly errors: readonly BatchFault[];
  readonly errorCount: number;
  /** Of the requests together. */
  readonly bytes: number;
  /** Output tokens they allow together; a guess for those that set no maximum. */
  readonly output: number;
}

/** Reads one line; a fault says what is wrong with it. */
export function readBatchLine(line: FileLine, rules: BatchRules): BatchLine | BatchFault {
  const fault = (code: string, message: string, param: string | null = null): BatchFault => ({
    code,
    message,
    param,
    line: line.number,
  });
  if (line.length > line.bytes.length) {
    return fault(
      'line_too_long',
      `The line has ${line.length} bytes; a request may have at most ${rules.maxLineBytes}.`,
    );
  }
  let value: JsonObject;
  try {
    value = parseRow(line.bytes);
  } catch (error) {
    if (!(error instanceof RowFault)) throw error;
    const { code, message } = error;
    if (code === 'not_utf8') return fault('invalid_encoding', 'The line is not valid UTF-8.');
    return fault('invalid_json_line', `Write one JSON object per line: ${message}.`);
  }
  const { custom_id: id, method, url, body, ...others } = value;
  if (typeof id !== 'string' || id === '' || id.length > MAX_CUSTOM_ID) {
    return fault('invalid_custom_id', `custom_id must be a text of 1 to ${MAX_CUSTOM_ID} characters.`, 'custom_id');
  }
  if (method !== 'POST') return fault('invalid_method', 'method must be "POST".', 'method');
  if (url !== rules.endpoint) {
    return fault('invalid_url', `url must be the endpoint of the batch, ${JSON.stringify(rules.endpoint)}.`, 'url');
  }
  if (!isObject(body)) return fault('invalid_body', 'body must be a JSON object.', 'body');
  // It would reach nobody: a request says all in its body.
  const unknown = Object.keys(others)[0]?.slice(0, 100);
  if (unknown !== undefined) {
    const message = `A line has custom_id, method, url and body only; ${JSON.stringify(unknown)} is not known here.`;
    return fault('unknown_field', message, unknown);
  }
  if (body.stream !== undefined && body.stream !== null && body.stream !== false) {
    return fault('invalid_body', 'A request of a batch cannot stream; leave stream out.', 'body.stream');
  }
  if (rules.model === null) {
    if (typeof body.model !== 'string' || body.model === '') {
      return fault('missing_model', 'body.model must name the model.', 'body.model');
    }
  } else if (body.model !== undefined && body.model !== null) {
    const same = typeof body.model === 'string' && parseModel(body.model).model === parseModel(rules.model).model;
    if (!same) {
      return fault(
        'mismatched_model',
        `body.model must be the model of the batch, ${JSON.stringify(rules.model.slice(0, 200))}, or be left out.`,
        'body.model',
      );
    }
  }
  return { custom_id: id, url, body };
}

export function isFault(line: BatchLine | BatchFault): line is BatchFault {
  return 'code' in line;
}

/** Reads a whole input file in flat memory, save for the set of its custom ids. */
export async function checkBatchInput(stream: AsyncIterable<Buffer>, rules: BatchRules): Promise<BatchReport> {
  const seen = new Map<string, number>();
  const errors: BatchFault[] = [];
  let total = 0;
  let errorCount = 0;
  let bytes = 0;
  let output = 0;
  const add = (fault: BatchFault) => {
    errorCount += 1;
    if (errors.length < MAX_ERRORS) errors.push(fault);
  };
  for await (const line of linesOf(stream, rules.maxLineBytes)) {
    if (isBlank(line)) continue;
    total += 1;
    if (total > MAX_BATCH_REQUESTS) {
      add({
        code: 'too_many_requests',
        message: `A batch may hold at most ${MAX_BATCH_REQUESTS} requests; split the file.`,
        param: 'input_file_id',
        line: line.number,
      });
      break;
    }
    const read = readBatchLine(line, rules);
    if (isFault(read)) {
      add(read);
      continue;
    }
    bytes += line.length;
    output += outputOf(rules.endpoint, read.body);
    const first = seen.get(read.custom_id);
    if (first === undefined) seen.set(read.custom_id, line.number);
    else {
      add({
        code: 'duplicate_custom_id',
        message: `custom_id is the same as in line ${first}; it must be unique within the file.`,
        param: 'custom_id',
        line: line.number,
      });
    }
  }
  if (total === 0) {
    add({ code: 'empty_file', message: 'The input file holds no request.', param: 'input_file_id', line: null });
  }
  return { total, errors, errorCount, bytes, output };
}

const MAXIMA = ['max_completion_tokens', 'max_output_tokens', 'max_tokens'] as const;
const GUESSED_OUTPUT = 1024;
/** Larger maxima are callers' ways of saying none. */
const MAX_OUTPUT = 1_000_000;

function outputOf(endpoint: string, body: JsonObject): number {
  if (endpoint.endsWith('/embeddings')) return 0;
  for (const name of MAXIMA) {
    const most = body[name];
    if (typeof most !== 'number' || !(most >= 1 && most <= MAX_OUTPUT)) continue;
    const choices = typeof body.n === 'number' && body.n >= 1 && body.n <= 128 ? body.n : 1;
    return Math.ceil(most * choices);
  }
  return GUESSED_OUTPUT;
}
