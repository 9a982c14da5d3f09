/** Batch prediction jobs of Vertex AI, API v1, from and to Cloud Storage. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject } from '../../operations/convert/fields.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { mappedLines, needsOutput } from '../batch-lines.ts';
import { googleHeaders } from '../google/credentials.ts';
import {
  insideBucket,
  isPattern,
  listObjects,
  type ObjectPlace,
  openObject,
  PATTERN,
  parseUri,
  type StoredObject,
  uriOf,
} from '../google/storage.ts';
import { pageSize, takePage, tokenItems } from '../token-pages.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../training.ts';
import {
  cancelled,
  epochOf,
  integerOf,
  invalidAnswer,
  jsonRequest,
  namedIn,
  Refusals,
  sent,
  sentJson,
  textOf,
  urlOf,
} from '../training-calls.ts';
import { ENDPOINTS, endpointNamed, inputRow, outputLine } from './batch-rows.ts';
import { labelsOf, placeOf, resourcePath, rpcStatus, shortId } from './place.ts';

const COLLECTION = 'batchPredictionJobs';
const LARGEST_PAGE = 100;
const GOOGLE_MODEL = 'publishers/google/models/';
/** Label that keeps the endpoint, which upstream has no field for. */
const ENDPOINT_LABEL = 'gateway-endpoint';
const MAX_ERRORS = 20;

const STATUS: Readonly<Record<string, BatchStatus>> = {
  JOB_STATE_UNSPECIFIED: 'validating',
  JOB_STATE_QUEUED: 'validating',
  JOB_STATE_PENDING: 'validating',
  JOB_STATE_PAUSED: 'validating',
  JOB_STATE_RUNNING: 'in_progress',
  JOB_STATE_UPDATING: 'in_progress',
  JOB_STATE_SUCCEEDED: 'completed',
  JOB_STATE_PARTIALLY_SUCCEEDED: 'completed',
  JOB_STATE_FAILED: 'failed',
  JOB_STATE_CANCELLING: 'cancelling',
  JOB_STATE_CANCELLED: 'cancelled',
  JOB_STATE_EXPIRED: 'expired',
};

/** The field that holds the time at which a batch got into its last state. */
const ENDED_AT: Readonly<Partial<Record<BatchStatus, string>>> = {
  completed: 'completed_at',
  failed: 'failed_at',
  cancelled: 'cancelled_at',
  expired: 'expired_at',
};

function wrong(param: string, message: string): SluiceError {
  return new SluiceError('invalid_request', message, { param });
}

function objectNamed(text: string, param: string, context: AdapterContext): ObjectPlace {
  const place = parseUri(text);
  if (place === null) throw wrong(param, `${param} must be a gs:// URI here.`);
  insideBucket(context, place.bucket, param);
  return place;
}

/** Resource name of a model; a short name is one of Google's. */
function modelOf(batch: BatchRequest): string {
  if (batch.model === null || batch.model === '') throw wrong('model', 'Batches of this provider need a model.');
  const { model } = batch;
  if (model.startsWith('projects/') || model.startsWith(GOOGLE_MODEL)) return model;
  const short = model.startsWith('google/') ? model.slice(7) : model;
  // Rows for other publishers' models look different and cannot be written here.
  if (short.includes('/')) throw wrong('model', "model must be one of Google's or a tuned model of the project.");
  return GOOGLE_MODEL + short;
}

function createBody(batch: BatchRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('vertex-ai', context);
  refusals.absent({ role_arn: batch.role_arn, ...batch.extra });
  const endpoint = namedIn(ENDPOINTS, batch.endpoint);
  if (endpoint === undefined) {
    throw new SluiceError(
      'unsupported_parameter',
      `vertex-ai cannot express endpoint = ${JSON.stringify(batch.endpoint)}; use one of ${Object.keys(ENDPOINTS).join(', ')}`,
      { param: 'endpoint' },
    );
  }
  if (batch.completion_window !== '24h') {
    refusals.refuse('completion_window', batch.completion_window, 'use "24h", or let the gateway run the batch');
  }
  const displayName = batch.job_name ?? `gw-batch-${context.uuid()}`;
  if ([...displayName].length > 128) throw wrong('job_name', 'job_name may have at most 128 characters here.');
  const labels = labelsOf(batch.metadata);
  if (Object.hasOwn(labels, ENDPOINT_LABEL)) {
    throw wrong(`metadata.${ENDPOINT_LABEL}`, 'This key is kept for the gateway; choose another one.');
  }
  const input = objectNamed(batch.input_file_id, 'input_file_id', context);
  if (input.name === '') throw wrong('input_file_id', 'input_file_id must name an object, not a bucket.');
  if (isPattern(input)) throw wrong('input_file_id', PATTERN);
  const folder = { bucket: input.bucket, name: input.name.slice(0, input.name.lastIndexOf('/') + 1) };
  const output =
    batch.output_data_config === null ? folder : objectNamed(batch.output_data_config, 'output_data_config', context);
  return {
    displayName,
    model: modelOf(batch),
    inputConfig: { instancesFormat: 'jsonl', gcsSource: { uris: [uriOf(input)] } },
    // Rows of Gemini models carry further columns by themselves, those of the embedding models do not.
    ...(endpoint.label === 'embeddings' ? { instanceConfig: { excludedFields: ['custom_id'] } } : null),
    outputConfig: { predictionsFormat: 'jsonl', gcsDestination: { outputUriPrefix: uriOf(output) } },
    labels: { ...labels, [ENDPOINT_LABEL]: endpoint.label },
  };
}

function countsOf(stats: JsonObject): Batch['request_counts'] | null {
  // -1 is "unknown".
  const known = (name: string): number => Math.max(0, integerOf(stats[name]) ?? 0);
  const [completed, failed] = [known('successfulCount'), known('failedCount')];
  const total = completed + failed + known('incompleteCount');
  return Object.keys(stats).length === 0 ? null : { total, completed, failed };
}

function errorsOf(raw: JsonObject): Batch['errors'] {
  const list = [raw.error, ...asArray(raw.partialFailures)].filter(isObject).slice(0, MAX_ERRORS);
  if (list.length === 0) return null;
  return { object: 'list', data: list.map((one) => ({ ...rpcStatus(one), param: null, line: null })) };
}

/** Where the results lie, as a prefix that ends in a slash; null before upstream made the directory. */
function outputOf(raw: JsonObject): ObjectPlace | null {
  const uri = textOf(asObject(raw.outputInfo).gcsOutputDirectory);
  const place = uri === null ? null : parseUri(uri);
  if (place === null) return null;
  return place.name === '' || place.name.endsWith('/') ? place : { ...place, name: `${place.name}/` };
}

function toBatch(value: unknown): Batch {
  const raw = isObject(value) ? value : {};
  const name = textOf(raw.name);
  const created = epochOf(raw.createTime);
  if (name === null || created === null) throw invalidAnswer('a batch prediction job');
  // A state nobody knows yet is not an end.
  const status = namedIn(STATUS, raw.state) ?? 'in_progress';
  const { [ENDPOINT_LABEL]: endpoint, ...metadata } = asObject(raw.labels);
  const model = textOf(raw.model) ?? '';
  const [input] = asArray(asObject(asObject(raw.inputConfig).gcsSource).uris);
  const started = epochOf(raw.startTime);
  const ended = epochOf(raw.endTime) ?? epochOf(raw.updateTime);
  const at = ENDED_AT[status];
  const counts = countsOf(asObject(raw.completionStats));
  const output = outputOf(raw);
  return {
    id: shortId(name),
    object: 'batch',
    endpoint: endpointNamed(endpoint, model),
    errors: errorsOf(raw),
    input_file_id: encodeURIComponent(textOf(input) ?? ''),
    completion_window: '24h',
    status,
    // Results are a directory of rows in the provider's own shape; the output operation reads them.
    output_file_id: null,
    error_file_id: null,
    created_at: created,
    ...(started === null ? null : { in_progress_at: started }),
    ...(at === undefined || ended === null ? null : { [at]: ended }),
    ...(counts === null ? null : { request_counts: counts }),
    metadata: metadata as Readonly<Record<string, string>>,
    model: model.startsWith(GOOGLE_MODEL) ? shortId(model) : model,
    ...(textOf(raw.displayName) === null ? null : { job_name: raw.displayName }),
    ...(output === null ? null : { output_data_config: uriOf(output) }),
  };
}

async function fetched(id: string, context: AdapterContext): Promise<JsonObject> {
  const url = urlOf(context.base, resourcePath(context, COLLECTION, id));
  const body = await sentJson(context, jsonRequest('GET', url, await googleHeaders(context)));
  if (!isObject(body)) throw invalidAnswer('a batch prediction job');
  return body;
}

function rawBatches(size: number, context: AdapterContext): AsyncGenerator<{ id: string; raw: JsonObject }> {
  return tokenItems(async (pageToken) => {
    const url = urlOf(context.base, `/${placeOf(context).parent}/${COLLECTION}`, { pageSize: size, pageToken });
    const body = await sentJson(context, jsonRequest('GET', url, await googleHeaders(context)));
    if (!isObject(body)) throw invalidAnswer('a list of batch prediction jobs');
    const rows = asArray(body.batchPredictionJobs).filter(isObject);
    return {
      items: rows.map((raw) => ({ id: shortId(textOf(raw.name) ?? ''), raw })),
      next: textOf(body.nextPageToken),
    };
  });
}

function prepare(batch: BatchRequest, context: AdapterContext): PreparedCall {
  return {
    method: 'POST',
    url: urlOf(context.base, `/${placeOf(context).parent}/${COLLECTION}`).href,
    headers: ['authorization', 'Bearer ***', 'accept', 'application/json', 'content-type', 'application/json'],
    body: createBody(batch, context),
  };
}

export const batches: BatchesAdapter = {
  prepare,
  async create(batch, context) {
    const { url, body } = prepare(batch, context);
    return toBatch(await sentJson(context, jsonRequest('POST', new URL(url), await googleHeaders(context), body)));
  },
  async list(page, context) {
    const { data, has_more } = await takePage(rawBatches(pageSize(page, LARGEST_PAGE), context), page);
    return { data: data.map(({ raw }) => toBatch(raw)), has_more };
  },
  async retrieve(id, context) {
    return toBatch(await fetched(id, context));
  },
  async cancel(id, context) {
    const path = resourcePath(context, COLLECTION, id);
    const answer = await sent(
      context,
      jsonRequest('POST', urlOf(context.base, `${path}:cancel`), await googleHeaders(context), {}),
    );
    answer.stream.destroy();
    const batch = cancelled(toBatch(await fetched(id, context)));
    if (batch.status === 'cancelled' || batch.status === 'cancelling') return batch;
    return { ...batch, status: 'cancelling', cancelling_at: Math.floor(context.now() / 1000) };
  },
  async output(id, context) {
    const raw = await fetched(id, context);
    const batch = toBatch(raw);
    const directory = outputOf(raw);
    needsOutput(batch, directory === null ? [] : [uriOf(directory)]);
    const found: StoredObject[] = [];
    if (directory !== null) {
      insideBucket(context, directory.bucket, null);
      // The names inside differ between models; other endings are not rows.
      for await (const object of listObjects(context, directory.bucket, directory.name)) {
        if (object.name.endsWith('.jsonl')) found.push(object);
      }
    }
    let row = 0;
    return mappedLines(
      found.map((object) => async () => (await openObject(context, object)).stream),
      (line) => outputLine(line, batch, row++),
    );
  },
  inputLine: inputRow,
  async findByName(batch, context) {
    const input = parseUri(batch.input_file_id);
    if (input === null) return null;
    let looked = 0;
    // One page of the newest: a batch that was just made is among them.
    for await (const { raw } of rawBatches(LARGEST_PAGE, context)) {
      const [uri] = asArray(asObject(asObject(raw.inputConfig).gcsSource).uris);
      const named = batch.job_name === null || raw.displayName === batch.job_name;
      if (named && uri === uriOf(input) && toBatch(raw).endpoint === batch.endpoint) return toBatch(raw);
      if (++looked === LARGEST_PAGE) break;
    }
    return null;
  },
};
