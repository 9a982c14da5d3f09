/** Batches at Together: no pages, times as texts, results through files. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { batchOutput, providerBody, readInputLine } from '../batch-lines.ts';
import type { Provider } from '../provider.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  cancelled,
  epochOf,
  filled,
  idSegment,
  invalidAnswer,
  jsonRequest,
  Refusals,
  sentJson,
  sentObject,
  slicePage,
  textOf,
  urlOf,
} from '../training-calls.ts';
import { files } from './files.ts';

const STATUS: Readonly<Record<string, BatchStatus>> = {
  VALIDATING: 'validating',
  IN_PROGRESS: 'in_progress',
  COMPLETED: 'completed',
  FAILED: 'failed',
  EXPIRED: 'expired',
  CANCELLED: 'cancelled',
};

/** A state nobody knows yet is not an end. */
function statusOf(value: JsonValue | undefined): BatchStatus {
  return typeof value === 'string' && Object.hasOwn(STATUS, value) ? (STATUS[value] ?? 'in_progress') : 'in_progress';
}

function batchOf(body: JsonObject): Batch {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a batch', body);
  const message = textOf(body.error);
  const completed = epochOf(body.completed_at);
  const status = statusOf(body.status);
  const expires = epochOf(body.job_deadline);
  return {
    id,
    object: 'batch',
    endpoint: textOf(body.endpoint) ?? '',
    input_file_id: textOf(body.input_file_id) ?? '',
    completion_window: '24h',
    status,
    created_at: epochOf(body.created_at) ?? 0,
    output_file_id: textOf(body.output_file_id),
    error_file_id: textOf(body.error_file_id),
    ...(message === null
      ? null
      : { errors: { object: 'list' as const, data: [{ code: null, message, param: null, line: null }] } }),
    ...(completed === null ? null : { [`${status === 'completed' ? 'completed' : 'ended'}_at`]: completed }),
    ...(expires === null ? null : { expires_at: expires }),
    ...(typeof body.progress === 'number' ? { progress: body.progress } : null),
    ...(textOf(body.model_id) === null ? null : { model: body.model_id }),
  };
}

function prepare(batch: BatchRequest, context: AdapterContext): PreparedCall {
  const refusals = new Refusals('together-ai', context);
  if (batch.completion_window !== '24h') refusals.refuse('completion_window', batch.completion_window, 'use "24h"');
  refusals.absent({
    metadata: filled(batch.metadata),
    job_name: batch.job_name,
    role_arn: batch.role_arn,
    output_data_config: batch.output_data_config,
    ...batch.extra,
  });
  const body: JsonObject = {
    input_file_id: batch.input_file_id,
    endpoint: batch.endpoint,
    completion_window: '24h',
    ...(batch.model === null ? null : { model_id: batch.model }),
  };
  const url = urlOf(context.base, '/batches');
  return {
    method: 'POST',
    url: url.href,
    headers: jsonRequest('POST', url, bearerHeaders(context), body).headers,
    body,
  };
}

const get = (path: string, context: AdapterContext): Promise<JsonValue> =>
  sentJson(context, jsonRequest('GET', urlOf(context.base, path), bearerHeaders(context)));

async function retrieve(id: string, context: AdapterContext): Promise<Batch> {
  const body = await get(`/batches/${idSegment(id)}`, context);
  if (!isObject(body)) throw invalidAnswer('a batch');
  return batchOf(body);
}

/** Newest first; batches of one instant stay in one order. */
async function allBatches(context: AdapterContext): Promise<Batch[]> {
  const list = await get('/batches', context);
  if (!Array.isArray(list)) throw invalidAnswer('a list');
  const at = (one: JsonObject): number => Date.parse(textOf(one.created_at) ?? '') || 0;
  const id = (one: JsonObject): string => textOf(one.id) ?? '';
  return list
    .filter(isObject)
    .sort((a, b) => at(b) - at(a) || (id(a) < id(b) ? 1 : -1))
    .map(batchOf);
}

/** `provider`: whose bindings lines and answers go through, as single calls do. */
export function batchesOf(provider: () => Provider): BatchesAdapter {
  return {
    prepare,
    async create(batch, context) {
      const { url, body } = prepare(batch, context);
      const answer = await sentObject(context, jsonRequest('POST', new URL(url), bearerHeaders(context), body));
      // Only the answer to a create holds the batch one level down.
      return batchOf(isObject(answer.job) ? answer.job : answer);
    },
    async list(page, context) {
      return slicePage(await allBatches(context), page);
    },
    retrieve,
    async cancel(id, context) {
      const url = urlOf(context.base, `/batches/${idSegment(id)}/cancel`);
      return cancelled(batchOf(await sentObject(context, jsonRequest('POST', url, bearerHeaders(context)))));
    },
    async output(id, context) {
      return batchOutput(provider(), await retrieve(id, context), files, context);
    },
    inputLine(line, batch) {
      const { customId, body } = readInputLine(line, batch);
      return { custom_id: customId, body: providerBody(provider(), batch.endpoint, body) };
    },
    async findByName(batch, context) {
      const found = (await allBatches(context)).find((one) => one.input_file_id === batch.input_file_id);
      return found ?? null;
    },
  };
}
