/** Lines of batch files, between the OpenAI shape callers write and read and what a provider takes and gives. */

import { Readable } from 'node:stream';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { linesOf } from '../kernel/lines.ts';
import { invalid, quoted } from '../operations/convert/fields.ts';
import { errorCode } from '../operations/dialects/errors.ts';
import { errorObject, readProviderError } from '../operations/dialects/provider-error.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import { type Batch, type BatchRequest, FINAL_BATCH } from '../operations/training.ts';
import { bindingFor } from './binding.ts';
import type { CallContext, Provider } from './provider.ts';
import type { AdapterContext, FilesAdapter } from './training.ts';
import { textOf } from './training-calls.ts';

/** Longest line of a result: one answer with its images. */
const LONGEST_LINE = 64 * 1024 * 1024;

/** The operation a batch endpoint names (`/v1/chat/completions`); null for one that is none of ours. */
export function operationAt(endpoint: string): OperationId | null {
  if (!endpoint.startsWith('/v1/')) return null;
  const path = endpoint.slice(3);
  for (const operation of Object.values(OPERATIONS)) {
    if (operation.method === 'POST' && operation.path === path) return operation.id;
  }
  return null;
}

const contextOf = (operation: OperationId, model: string, now: () => number): CallContext => ({
  operation,
  model,
  stream: false,
  credentials: { key: null, settings: {} },
  pathParams: {},
  header: () => undefined,
  strict: true,
  now,
});

/** One line of an OpenAI batch file, its rules checked. */
export interface InputLine {
  readonly customId: string;
  /** With the model the line is to run with. */
  readonly body: JsonObject;
}

/** Reads a line; `model` of the batch, where it names one, goes before the line's own. */
export function readInputLine(line: JsonObject, batch: Pick<BatchRequest, 'endpoint' | 'model'>): InputLine {
  const { custom_id: customId, method, url, body, ...others } = line;
  if (typeof customId !== 'string' || customId === '') invalid('custom_id', 'A batch line needs a "custom_id".');
  if (method !== undefined && method !== 'POST') invalid('method', `"method" must be "POST", not ${quoted(method)}.`);
  if (url !== undefined && url !== batch.endpoint) {
    invalid('url', `"url" must be the endpoint of the batch, ${quoted(batch.endpoint)}, not ${quoted(url)}.`);
  }
  if (!isObject(body)) invalid('body', 'A batch line needs a "body" that is an object.');
  const unknown = Object.keys(others)[0]?.slice(0, 100);
  if (unknown !== undefined) {
    invalid(unknown, `A batch line has custom_id, method, url and body only; leave ${quoted(unknown)} out.`);
  }
  if (body.stream === true) invalid('body.stream', 'The lines of a batch are not streamed; leave "stream" out.');
  const model = batch.model ?? textOf(body.model);
  if (model === null) invalid('body.model', 'A batch line needs a "model", or the batch does.');
  const { stream: _, ...rest } = body;
  return { customId, body: { ...rest, model } };
}

/** The body of a line as the provider takes it for one call; throws `unsupported_parameter` as that call would. */
export function providerBody(provider: Provider, endpoint: string, body: JsonObject): JsonObject {
  const operation = operationAt(endpoint);
  const bound = operation === null ? null : bindingFor(provider, operation, textOf(body.model) ?? '');
  if (operation === null || bound === null) {
    throw new SluiceError(
      'unsupported_parameter',
      `${provider.title} runs no batches for ${quoted(endpoint)}; choose another endpoint.`,
      { param: 'endpoint' },
    );
  }
  const context = contextOf(operation, textOf(body.model) ?? '', () => 0);
  return bound.request ? bound.request(body, context) : body;
}

/** The answer of one line in the caller's shape; throws as the call itself would. */
export function callerBody(provider: Provider, endpoint: string, body: JsonObject, now: () => number): JsonObject {
  const operation = operationAt(endpoint);
  const bound = operation === null ? null : bindingFor(provider, operation);
  if (operation === null || !bound?.response) return body;
  return bound.response(body, contextOf(operation, textOf(body.model) ?? '', now));
}

/** One line of a batch's output. */
export interface ResultLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string | null;
    readonly body: JsonValue;
  } | null;
  readonly error: { readonly code: string | null; readonly message: string } | null;
}

/** The line of a failed call; a provider's error body is brought to the OpenAI shape. */
export function failedResponse(status: number, body: JsonValue, requestId: string | null): ResultLine['response'] {
  const known = isObject(body) || typeof body === 'string' ? body : JSON.stringify(body);
  const error = readProviderError(status, known);
  return { status_code: error.status, request_id: requestId, body: errorObject(error, 'openai') };
}

function lineError(value: JsonValue | undefined): ResultLine['error'] {
  if (typeof value === 'string') return value === '' ? null : { code: null, message: value };
  if (!isObject(value)) return null;
  const { code, message } = value;
  return { code: textOf(code), message: textOf(message) ?? quoted(value) };
}

/** A line of a provider whose results look like OpenAI's, with what it leaves out filled in. */
export function resultLine(provider: Provider, batch: Batch, line: JsonObject, now: () => number): ResultLine {
  const customId = textOf(line.custom_id) ?? '';
  const id = textOf(line.id) ?? `${batch.id}:${customId}`;
  const error = lineError(line.error);
  if (!isObject(line.response)) {
    return { id, custom_id: customId, response: null, error: error ?? { code: null, message: 'There is no answer.' } };
  }
  const { status_code: code, request_id: requestId, body } = line.response;
  const status = typeof code === 'number' ? code : error === null ? 200 : 500;
  const request = textOf(requestId);
  if (status >= 400) return { id, custom_id: customId, response: failedResponse(status, body ?? null, request), error };
  if (!isObject(body)) {
    return {
      id,
      custom_id: customId,
      response: { status_code: status, request_id: request, body: body ?? null },
      error,
    };
  }
  try {
    const converted = callerBody(provider, batch.endpoint, body, now);
    return { id, custom_id: customId, response: { status_code: status, request_id: request, body: converted }, error };
  } catch (thrown) {
    if (!(thrown instanceof SluiceError)) throw thrown;
    return { id, custom_id: customId, response: null, error: { code: errorCode(thrown), message: thrown.message } };
  }
}

/** Characters of a batch's first error that the refusal of its output repeats. */
const SHOWN_ERROR = 300;

/** Refuses to read the output of a batch that is not done; one that ended early may have part of it. */
export function needsOutput(batch: Pick<Batch, 'status' | 'errors'>, files: readonly string[]): void {
  if (batch.status === 'completed' || (FINAL_BATCH.has(batch.status) && files.length > 0)) return;
  const status = quoted(batch.status);
  throw new SluiceError(
    'invalid_request',
    FINAL_BATCH.has(batch.status)
      ? `The batch is ${status} and has no output. ${whyNoOutput(batch)}`
      : `The batch is ${status}; its output can be read once it is "completed". GET /v1/batches/{batch_id} shows its progress.`,
  );
}

function whyNoOutput({ errors }: Pick<Batch, 'errors'>): string {
  const [first, ...more] = errors?.data ?? [];
  if (first === undefined) return 'Create the batch again.';
  const line = first.line == null ? 'Its error' : `The error of line ${first.line}`;
  const others = more.length === 0 ? '' : ` (GET /v1/batches/{batch_id} lists ${more.length} more)`;
  const message = first.message.slice(0, SHOWN_ERROR).replace(/\.$/, '');
  return `${line}: ${message}${others}. Mend what it names and create the batch again.`;
}

/**
 * Files of JSON lines, one after the other, each line mapped. The first is opened before this resolves, so that its
 * refusal still has a status; the next when the one before it has been read.
 */
export async function mappedLines(
  opens: readonly (() => Promise<Readable>)[],
  map: (line: JsonObject) => ResultLine,
): Promise<Readable> {
  let source: Readable | null = (await opens[0]?.()) ?? null;
  async function* lines(): AsyncGenerator<Buffer> {
    for (const [i, open] of opens.entries()) {
      if (i > 0) source = await open();
      if (source === null) return;
      for await (const line of linesOf(source, LONGEST_LINE)) {
        const text = line.toString('utf8').trim();
        if (text !== '') yield Buffer.from(`${JSON.stringify(map(parsedLine(text)))}\n`);
      }
    }
  }
  const out = Readable.from(lines(), { objectMode: false });
  // A generator that never ran has no way to let go of its source.
  out.once('close', () => source?.destroy());
  return out;
}

/** The output of a batch whose results are two files of lines that look like OpenAI's. */
export async function batchOutput(
  provider: Provider,
  batch: Batch,
  files: FilesAdapter,
  context: AdapterContext,
): Promise<Readable> {
  const ids = [batch.output_file_id, batch.error_file_id].filter((id) => typeof id === 'string');
  needsOutput(batch, ids);
  return mappedLines(
    ids.map((id) => async () => (await files.content(id, context)).stream),
    (line) => resultLine(provider, batch, line, context.now),
  );
}

function parsedLine(text: string): JsonObject {
  let value: JsonValue = null;
  try {
    value = parseExact(text);
  } catch {
    // Refused below.
  }
  if (!isObject(value)) throw new SluiceError('upstream_invalid', 'A line of the batch output is no JSON object.');
  return value;
}
