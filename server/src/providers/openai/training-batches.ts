/** Batches as OpenAI defines them (OpenAPI 2.3.0). */
import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import {
  type Batch,
  type BatchRequest,
  type BatchStatus,
  FINAL_BATCH,
  type Page,
  type PageRequest,
} from '../../operations/training.ts';
import type { AdapterContext, BatchesAdapter } from '../training.ts';
import { integerOf, invalidAnswer, Refusals, slicePage, textOf } from '../training-calls.ts';
import { bytes, idSegment, type ObjectApi, object, planned } from './training-api.ts';
import { listPage } from './training-jobs.ts';

export interface BatchesOptions {
  readonly api: ObjectApi;
  /** The list comes whole and takes no cursor. */
  readonly wholeList?: boolean;
  /** The provider's own name of an endpoint and back. */
  readonly endpoint?: {
    toUpstream(endpoint: string, context: AdapterContext): string;
    toCaller(endpoint: string): string;
  };
  /** Members of the create request for `output_data_config`; absent: the provider has no place for it. */
  readonly outputPlace?: (place: string) => JsonObject;
  /** Throws when the results of a finished batch are where this account cannot read them. */
  readonly readable?: (raw: JsonObject) => void;
  readonly inputLine?: BatchesAdapter['inputLine'];
}

const STATUS: ReadonlySet<unknown> = new Set<BatchStatus>([
  'validating',
  'in_progress',
  'finalizing',
  'completed',
  'failed',
  'expired',
  'cancelling',
  'cancelled',
]);

/** Longest first line that is read to learn its model. */
const FIRST_LINE_BYTES = 1024 * 1024;
const NEWLINE = 0x0a;

function toBatch(raw: JsonObject, options: BatchesOptions): Batch {
  const created = integerOf(raw.created_at);
  if (typeof raw.id !== 'string' || created === null) throw invalidAnswer('a batch');
  if (!STATUS.has(raw.status)) throw invalidAnswer('a batch in a known state', raw.status);
  const endpoint = textOf(raw.endpoint) ?? '';
  return {
    ...(raw as object),
    id: raw.id,
    object: 'batch',
    endpoint: options.endpoint?.toCaller(endpoint) ?? endpoint,
    input_file_id: textOf(raw.input_file_id) ?? '',
    completion_window: textOf(raw.completion_window) ?? '24h',
    status: raw.status as BatchStatus,
    created_at: created,
    // Present but empty where there is none.
    output_file_id: textOf(raw.output_file_id),
    error_file_id: textOf(raw.error_file_id),
  };
}

function batchBody(batch: BatchRequest, context: AdapterContext, options: BatchesOptions): JsonObject {
  const refusals = new Refusals(options.api.title, context);
  // What does not wait for a window is run by the gateway itself, line by line.
  if (batch.completion_window !== '24h') {
    throw new SluiceError(
      'unsupported_parameter',
      `${options.api.title} runs batches within 24h; for "immediate" use a gateway-managed batch.`,
      { param: 'completion_window' },
    );
  }
  refusals.absent({ job_name: batch.job_name, role_arn: batch.role_arn });
  const { output_data_config: place } = batch;
  if (options.outputPlace === undefined) refusals.absent({ output_data_config: place });
  return {
    ...batch.extra,
    input_file_id: batch.input_file_id,
    endpoint: options.endpoint?.toUpstream(batch.endpoint, context) ?? batch.endpoint,
    completion_window: batch.completion_window,
    ...(batch.metadata === null ? null : { metadata: { ...batch.metadata } }),
    ...(place === null ? null : options.outputPlace?.(place)),
  };
}

/** The first line of a file as JSON; null when it is none or too long to be looked at. */
async function firstLine(stream: Readable): Promise<JsonValue> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const end = chunk.indexOf(NEWLINE);
    parts.push(end < 0 ? chunk : chunk.subarray(0, end));
    size += chunk.length;
    if (end >= 0 || size > FIRST_LINE_BYTES) break;
  }
  try {
    return parseJson(Buffer.concat(parts).toString('utf8')) as JsonValue;
  } catch {
    return null;
  }
}

/** Every line of a batch names its model, so the model of the batch may only repeat it. */
async function checkModel(batch: BatchRequest, context: AdapterContext, options: BatchesOptions): Promise<void> {
  if (batch.model === null || context.dropParams.has('model')) return;
  const answer = await bytes(options.api, context, `/files/${idSegment(batch.input_file_id)}/content`);
  const line = await firstLine(answer.stream);
  const body = isObject(line) && isObject(line.body) ? line.body : {};
  if (body.model === batch.model) return;
  throw new SluiceError(
    'unsupported_parameter',
    `${options.api.title} runs each line of a batch with the model that the line names, and the first line names another one. Leave model out, or name it in the lines.`,
    { param: 'model' },
  );
}

/** Files one after the other, the next one asked for when the one before is through; each ends with a line break. */
async function* concatenated(
  first: Readable,
  rest: readonly string[],
  open: (id: string) => Promise<Readable>,
): AsyncGenerator<Buffer> {
  let last = NEWLINE;
  const lines = async function* (stream: Readable): AsyncGenerator<Buffer> {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      if (chunk.length === 0) continue;
      last = chunk[chunk.length - 1] ?? NEWLINE;
      yield chunk;
    }
    if (last !== NEWLINE) yield Buffer.from('\n');
    last = NEWLINE;
  };
  yield* lines(first);
  for (const id of rest) yield* lines(await open(id));
}

export function openAiBatches(options: BatchesOptions): BatchesAdapter {
  const { api } = options;
  const path = (id: string): string => `/batches/${idSegment(id)}`;
  const retrieve = (id: string, context: AdapterContext): Promise<JsonObject> => object(api, context, 'GET', path(id));
  const list = async (page: PageRequest, context: AdapterContext): Promise<Page<Batch>> => {
    if (options.wholeList !== true) return listPage(api, context, '/batches', page, (raw) => toBatch(raw, options));
    const answer = await object(api, context, 'GET', '/batches');
    if (!Array.isArray(answer.data)) throw invalidAnswer('a list of batches');
    const all = answer.data.filter(isObject).map((raw) => toBatch(raw, options));
    return slicePage(
      all.sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? 1 : -1)),
      page,
    );
  };
  return {
    prepare: (batch, context) => planned(api, context, '/batches', batchBody(batch, context, options)),
    async create(batch, context) {
      const body = batchBody(batch, context, options);
      await checkModel(batch, context, options);
      return toBatch(await object(api, context, 'POST', '/batches', { body }), options);
    },
    list,
    retrieve: async (id, context) => toBatch(await retrieve(id, context), options),
    cancel: async (id, context) => toBatch(await object(api, context, 'POST', `${path(id)}/cancel`), options),
    async output(id, context) {
      const raw = await retrieve(id, context);
      const batch = toBatch(raw, options);
      if (batch.status !== 'completed') {
        throw new SluiceError(
          'invalid_request',
          FINAL_BATCH.has(batch.status)
            ? `The batch is ${batch.status}; what it finished before is in its output_file_id, if it names one.`
            : `The batch is ${batch.status}; its output can be read when it is completed.`,
          { param: 'batch_id' },
        );
      }
      const files = [batch.output_file_id, batch.error_file_id].filter((one) => typeof one === 'string');
      const [first, ...rest] = files;
      if (first === undefined) {
        options.readable?.(raw);
        return Readable.from([], { objectMode: false });
      }
      const open = async (file: string): Promise<Readable> =>
        (await bytes(api, context, `/files/${idSegment(file)}/content`)).stream;
      // Opened before the answer begins, so that a refusal is a status and not a cut stream.
      const opened = await open(first);
      const out = Readable.from(concatenated(opened, rest, open), { objectMode: false });
      out.once('close', () => opened.destroy());
      opened.once('error', (error) => out.destroy(error));
      return out;
    },
    ...(options.inputLine === undefined ? null : { inputLine: options.inputLine }),
    async findByName(batch, context) {
      const page = await list({ after: null, limit: 100 }, context);
      return page.data.find((one) => one.input_file_id === batch.input_file_id) ?? null;
    },
  };
}
