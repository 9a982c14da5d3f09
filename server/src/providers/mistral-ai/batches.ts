/** Batches at Mistral: one model per batch, lists by page number, results through files. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray } from '../../operations/convert/fields.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { batchOutput, providerBody, readInputLine } from '../batch-lines.ts';
import type { Provider } from '../provider.ts';
import { takePage, tokenItems } from '../token-pages.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  cancelled,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  Refusals,
  sentObject,
  textOf,
  urlOf,
} from '../training-calls.ts';
import { files } from './files.ts';

const PATH = '/batch/jobs';
const PAGE_SIZE = 100;
/** A batch that was created a moment ago is among these. */
const NEWEST = 500;
/** What "24h" asks for; the provider stops a batch after this many hours. */
const HOURS = 24;
/** Endpoints of the contract that the provider runs batches for. */
const ENDPOINTS: ReadonlySet<string> = new Set(['/v1/chat/completions', '/v1/embeddings', '/v1/moderations']);

const STATUS: Readonly<Record<string, BatchStatus>> = {
  QUEUED: 'validating',
  RUNNING: 'in_progress',
  SUCCESS: 'completed',
  FAILED: 'failed',
  TIMEOUT_EXCEEDED: 'expired',
  CANCELLATION_REQUESTED: 'cancelling',
  CANCELLED: 'cancelled',
};

/** When a batch ended, under the name of the end it had. */
const ENDED_AT: Partial<Record<BatchStatus, string>> = {
  completed: 'completed_at',
  failed: 'failed_at',
  expired: 'expired_at',
  cancelled: 'cancelled_at',
};

/** A state nobody knows yet is not an end. */
function statusOf(value: JsonValue | undefined): BatchStatus {
  return typeof value === 'string' && Object.hasOwn(STATUS, value) ? (STATUS[value] ?? 'in_progress') : 'in_progress';
}

function metadataOf(value: JsonValue | undefined): Record<string, string> | null {
  if (!isObject(value)) return null;
  const pairs = Object.entries(value).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  return Object.fromEntries(pairs);
}

function batchOf(body: JsonObject): Batch {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a batch', body);
  const status = statusOf(body.status);
  const started = integerOf(body.started_at);
  const ended = integerOf(body.completed_at);
  const errors = asArray(body.errors).filter(isObject);
  const data = errors.map((error) => ({
    code: null,
    message: textOf(error.message) ?? JSON.stringify(error),
    param: null,
    line: null,
  }));
  const endedAt = ENDED_AT[status];
  return {
    id,
    object: 'batch',
    endpoint: textOf(body.endpoint) ?? '',
    input_file_id: textOf(asArray(body.input_files)[0]) ?? '',
    completion_window: '24h',
    status,
    created_at: integerOf(body.created_at) ?? 0,
    output_file_id: textOf(body.output_file),
    error_file_id: textOf(body.error_file),
    ...(data.length === 0 ? null : { errors: { object: 'list' as const, data } }),
    request_counts: {
      total: integerOf(body.total_requests) ?? 0,
      completed: integerOf(body.succeeded_requests) ?? 0,
      failed: integerOf(body.failed_requests) ?? 0,
    },
    metadata: metadataOf(body.metadata),
    ...(started === null ? null : { in_progress_at: started }),
    ...(ended === null || endedAt === undefined ? null : { [endedAt]: ended }),
    ...(textOf(body.model) === null ? null : { model: body.model }),
  };
}

function prepare(batch: BatchRequest, context: AdapterContext): PreparedCall {
  const refusals = new Refusals('mistral-ai', context);
  if (batch.completion_window !== '24h') refusals.refuse('completion_window', batch.completion_window, 'use "24h"');
  refusals.absent({
    job_name: batch.job_name,
    role_arn: batch.role_arn,
    output_data_config: batch.output_data_config,
    ...batch.extra,
  });
  if (!ENDPOINTS.has(batch.endpoint)) {
    throw new SluiceError(
      'unsupported_parameter',
      `mistral-ai cannot express endpoint = ${JSON.stringify(batch.endpoint)}; use one of ${[...ENDPOINTS].join(', ')}`,
      { param: 'endpoint' },
    );
  }
  if (batch.model === null) {
    throw new SluiceError(
      'invalid_request',
      'A batch at mistral-ai runs one model for all of its lines; name it in "model".',
      { param: 'model' },
    );
  }
  const body: JsonObject = {
    input_files: [batch.input_file_id],
    endpoint: batch.endpoint,
    model: batch.model,
    ...(batch.metadata === null ? null : { metadata: { ...batch.metadata } }),
    timeout_hours: HOURS,
  };
  const url = urlOf(context.base, PATH);
  return {
    method: 'POST',
    url: url.href,
    headers: jsonRequest('POST', url, bearerHeaders(context), body).headers,
    body,
  };
}

async function retrieve(id: string, context: AdapterContext): Promise<Batch> {
  const url = urlOf(context.base, `${PATH}/${idSegment(id)}`);
  return batchOf(await sentObject(context, jsonRequest('GET', url, bearerHeaders(context))));
}

/** Batches in the provider's order, newest first. */
function batchItems(context: AdapterContext): AsyncGenerator<Batch> {
  return tokenItems(async (token) => {
    const number = Number(token ?? 0);
    const url = urlOf(context.base, PATH, { page: number, page_size: PAGE_SIZE });
    const { data } = await sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
    // A page past the end has been seen without a list.
    const rows = asArray(data).filter(isObject);
    return { items: rows.map(batchOf), next: rows.length === PAGE_SIZE ? String(number + 1) : null };
  });
}

/** `provider`: whose bindings lines and answers go through, as single calls do. */
export function batchesOf(provider: () => Provider): BatchesAdapter {
  return {
    prepare,
    async create(batch, context) {
      const { url, body } = prepare(batch, context);
      return batchOf(await sentObject(context, jsonRequest('POST', new URL(url), bearerHeaders(context), body)));
    },
    list: (page, context) => takePage(batchItems(context), page),
    retrieve,
    async cancel(id, context) {
      const url = urlOf(context.base, `${PATH}/${idSegment(id)}/cancel`);
      return cancelled(batchOf(await sentObject(context, jsonRequest('POST', url, bearerHeaders(context)))));
    },
    async output(id, context) {
      return batchOutput(provider(), await retrieve(id, context), files, context);
    },
    inputLine(line, batch) {
      const { customId, body } = readInputLine(line, batch);
      // The batch names the model.
      const { model: _, ...rest } = providerBody(provider(), batch.endpoint, body);
      return { custom_id: customId, body: rest };
    },
    async findByName(batch, context) {
      let looked = 0;
      for await (const one of batchItems(context)) {
        if (one.input_file_id === batch.input_file_id) return one;
        if (++looked === NEWEST) break;
      }
      return null;
    },
  };
}
