/** Lines of batches: OpenAI requests as Bedrock records, and records with their outcome as OpenAI answers. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { asArray, asObject, asString, quoted, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { errorObject, readProviderError } from '../../operations/dialects/provider-error.ts';
import type { BatchRequest } from '../../operations/training.ts';
import { chatCompletion } from './converse-answer.ts';
import { converseRequest } from './converse-request.ts';
import { foundationModel } from './families.ts';

/** A record of one output line may hold images or long vectors, but not everything. */
const MAX_LINE = 64 * 1024 * 1024;
/** Lines are handed on in pieces of about this size. */
const FLUSH = 64 * 1024;

const EMBEDDING_FIELDS: ReadonlySet<string> = new Set(['model', 'input', 'dimensions', 'encoding_format', 'user']);
const COMPLETION_FIELDS: ReadonlySet<string> = new Set([
  'model',
  'prompt',
  'max_tokens',
  'temperature',
  'top_p',
  'stop',
  'stream',
  'user',
]);

/** `InvokeModel` takes the body of the model's own family. */
function embeddingInput(body: JsonObject, model: string): JsonObject {
  refuseUnknown(body, EMBEDDING_FIELDS);
  const { input, dimensions } = body;
  const format = body.encoding_format ?? 'float';
  if (format !== 'float') refuse('encoding_format', 'vectors come as numbers there.');
  const one = Array.isArray(input) && input.length === 1 ? input[0] : input;
  if (/amazon\.titan-embed-text/.test(model)) {
    if (typeof one !== 'string') refuse('input', 'a record holds one text there.');
    const wanted = typeof dimensions === 'number' ? { dimensions } : null;
    return { inputText: one, ...wanted };
  }
  refuse('model', 'the body of an embedding request is known for Titan Text Embeddings only.');
}

function completionInput(body: JsonObject, model: string): JsonObject {
  refuseUnknown(body, COMPLETION_FIELDS);
  const { prompt, max_tokens: most, temperature, top_p: topP, stop } = body;
  if (typeof prompt !== 'string') refuse('prompt', 'a record holds one text there.');
  if (body.stream === true) refuse('stream', 'a batch answers whole.');
  const given = (name: string, value: JsonValue | undefined): JsonObject | null =>
    value === undefined || value === null ? null : { [name]: value };
  const shared = { ...given('temperature', temperature), ...given('top_p', topP) };
  if (model.includes('meta.llama')) {
    if (stop !== undefined && stop !== null) refuse('stop', 'this model supports no stop sequences.');
    return { prompt, ...given('max_gen_len', most), ...shared };
  }
  if (model.includes('mistral.')) {
    return {
      prompt,
      ...given('max_tokens', most),
      ...shared,
      ...given('stop', typeof stop === 'string' ? [stop] : stop),
    };
  }
  refuse('model', 'the body of a completion request is known for Llama and Mistral only; use /v1/chat/completions.');
}

/** One OpenAI batch line as a record. `recordId` comes back with its outcome, hence what it may hold (W7). */
export function inputLine(line: JsonObject, batch: BatchRequest): JsonObject {
  const id = asString(line.custom_id);
  if (id === null || !/^[A-Za-z0-9_.:-]{1,64}$/.test(id)) {
    throw new SluiceError(
      'unsupported_parameter',
      `Bedrock cannot express custom_id = ${quoted(line.custom_id)}; use 1 to 64 letters, digits and _ . : -`,
      { param: 'custom_id' },
    );
  }
  const body = asObject(line.body);
  const model = batch.model ?? asString(body.model) ?? '';
  if (batch.endpoint === '/v1/embeddings') return { recordId: id, modelInput: embeddingInput(body, model) };
  if (batch.endpoint === '/v1/completions') return { recordId: id, modelInput: completionInput(body, model) };
  if (body.stream === true) refuse('stream', 'a batch answers whole.');
  return { recordId: id, modelInput: converseRequest(body, foundationModel(model)) };
}

export interface OutputAbout {
  readonly jobId: string;
  readonly model: string;
  /** Unix seconds. */
  readonly created: number;
}

const count = (value: JsonValue | undefined): number => (typeof value === 'number' && value >= 0 ? value : 0);

function embeddingAnswer(output: JsonObject, model: string): JsonObject {
  const tokens = count(output.inputTextTokenCount);
  return {
    object: 'list',
    model,
    data: [{ object: 'embedding', index: 0, embedding: asArray(output.embedding) }],
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

function completionAnswer(output: JsonObject, id: string, about: OutputAbout): JsonObject | null {
  const first = asObject(asArray(output.outputs)[0]);
  const text = asString(output.generation) ?? asString(first.text);
  if (text === null) return null;
  const reason = asString(output.stop_reason) ?? asString(first.stop_reason);
  const prompt = count(output.prompt_token_count);
  const completion = count(output.generation_token_count);
  const counted = output.prompt_token_count !== undefined;
  return {
    id,
    object: 'text_completion',
    created: about.created,
    model: about.model,
    choices: [{ index: 0, text, logprobs: null, finish_reason: reason === 'length' ? 'length' : 'stop' }],
    ...(counted
      ? { usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion } }
      : null),
  };
}

/** The body a caller would have got for the record; what is of no known kind stays as the model wrote it. */
function answerBody(output: JsonObject, recordId: string, about: OutputAbout): JsonObject {
  if (isObject(asObject(output.output).message)) {
    return chatCompletion(output, {
      id: `chatcmpl-${about.jobId}-${recordId}`,
      model: about.model,
      created: about.created,
    });
  }
  if (Array.isArray(output.embedding)) return embeddingAnswer(output, about.model);
  return completionAnswer(output, `cmpl-${about.jobId}-${recordId}`, about) ?? output;
}

/** One output record in Sluice's shape of batch results. A failed record is an answer with its status. */
export function outputLine(record: JsonObject, about: OutputAbout): JsonObject {
  const recordId = asString(record.recordId) ?? '';
  const line = (status: number, body: JsonObject): JsonObject => ({
    id: `${about.jobId}-${recordId}`,
    custom_id: recordId,
    response: { status_code: status, request_id: about.jobId, body },
    error: null,
  });
  if (isObject(record.error)) {
    const { errorCode, errorMessage } = record.error;
    const status = typeof errorCode === 'number' && errorCode >= 400 && errorCode <= 599 ? errorCode : 500;
    const message = asString(errorMessage) ?? 'The provider does not say why this record failed.';
    return line(status, errorObject(readProviderError(status, { message }), 'openai'));
  }
  if (!isObject(record.modelOutput)) {
    throw new SluiceError('upstream_invalid', 'The output of the batch holds a record without outcome.');
  }
  return line(200, answerBody(record.modelOutput, recordId, about));
}

function converted(bytes: Buffer, about: OutputAbout): string {
  const text = bytes.toString('utf8').trim();
  if (text === '') return '';
  let record: JsonValue;
  try {
    record = parseExact(text);
  } catch (error) {
    throw new SluiceError('upstream_invalid', 'The output of the batch holds a line that is no JSON.', {
      cause: error,
    });
  }
  if (!isObject(record))
    throw new SluiceError('upstream_invalid', 'The output of the batch holds a line that is no object.');
  return `${JSON.stringify(outputLine(record, about))}\n`;
}

/** Converts an output file while it arrives; at most one line and one piece of answer are in memory. */
export async function* outputLines(source: AsyncIterable<Buffer>, about: OutputAbout): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let held = 0;
  let out = '';
  for await (const chunk of source) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      out += converted(Buffer.concat([...parts, chunk.subarray(from, at)]), about);
      parts = [];
      held = 0;
      from = at + 1;
      if (out.length >= FLUSH) {
        yield Buffer.from(out);
        out = '';
      }
    }
    if (from < chunk.length) {
      parts.push(chunk.subarray(from));
      held += chunk.length - from;
      if (held > MAX_LINE)
        throw new SluiceError('upstream_invalid', 'The output of the batch holds a line that is too long.');
    }
  }
  out += converted(Buffer.concat(parts), about);
  if (out !== '') yield Buffer.from(out);
}
