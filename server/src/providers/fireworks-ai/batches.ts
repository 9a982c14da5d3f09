/** Batches at Fireworks. They cannot be cancelled there. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { asObject, refuse } from '../../operations/convert/fields.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import { mappedLines, needsOutput, providerBody, readInputLine, resultLine } from '../batch-lines.ts';
import type { Provider } from '../provider.ts';
import { pageSize, takePage } from '../token-pages.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../training.ts';
import {
  bearerHeaders,
  epochOf,
  filled,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  namedIn,
  Refusals,
  sentObject,
  textOf,
  urlOf,
} from '../training-calls.ts';
import { datasetFiles } from './files.ts';
import { LARGEST_PAGE, listed } from './lists.ts';
import { checkedId, controlPlane, failureIn, modelName, modelOf, resourceName, shortId } from './place.ts';

const COLLECTION = 'batchInferenceJobs';
const ENDPOINT = '/v1/chat/completions';

const STATUS: Readonly<Record<string, BatchStatus>> = {
  JOB_STATE_UNSPECIFIED: 'validating',
  JOB_STATE_VALIDATING: 'validating',
  JOB_STATE_CREATING: 'validating',
  JOB_STATE_PENDING: 'validating',
  JOB_STATE_RE_QUEUEING: 'validating',
  JOB_STATE_CREATING_INPUT_DATASET: 'validating',
  JOB_STATE_PAUSED: 'in_progress',
  JOB_STATE_IDLE: 'in_progress',
  JOB_STATE_RUNNING: 'in_progress',
  JOB_STATE_WRITING_RESULTS: 'finalizing',
  JOB_STATE_COMPLETED: 'completed',
  JOB_STATE_EARLY_STOPPED: 'completed',
  JOB_STATE_FAILED: 'failed',
  JOB_STATE_EXPIRED: 'expired',
  JOB_STATE_CANCELLING: 'cancelling',
  JOB_STATE_CANCELLED: 'cancelled',
  JOB_STATE_DELETING: 'cancelled',
  JOB_STATE_DELETING_CLEANING_UP: 'cancelled',
};

/** The field that holds the time at which a batch got into its last state. */
const ENDED_AT: Readonly<Partial<Record<BatchStatus, string>>> = {
  completed: 'completed_at',
  failed: 'failed_at',
  cancelled: 'cancelled_at',
  expired: 'expired_at',
};

function createBody(batch: BatchRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals('fireworks-ai', context);
  refusals.absent({ role_arn: batch.role_arn, metadata: filled(batch.metadata), ...batch.extra });
  if (batch.endpoint !== ENDPOINT) {
    throw new SluiceError(
      'unsupported_parameter',
      `fireworks-ai cannot express endpoint = ${JSON.stringify(batch.endpoint)}; use ${ENDPOINT}`,
      { param: 'endpoint' },
    );
  }
  if (batch.completion_window !== '24h') {
    refusals.refuse('completion_window', batch.completion_window, 'use "24h", or let the gateway run the batch');
  }
  if (batch.model === null || batch.model === '') {
    throw new SluiceError(
      'invalid_request',
      'A batch at fireworks-ai runs one model for all of its lines; name it in "model".',
      { param: 'model' },
    );
  }
  const output = batch.output_data_config;
  return {
    model: modelName(batch.model),
    inputDatasetId: resourceName(context, 'datasets', batch.input_file_id),
    ...(output === null
      ? null
      : {
          outputDatasetId: output.startsWith('accounts/')
            ? output
            : resourceName(context, 'datasets', checkedId(output, 'output_data_config')),
        }),
    ...(batch.job_name === null ? null : { displayName: batch.job_name }),
  };
}

function toBatch(raw: JsonObject): Batch {
  const name = textOf(raw.name);
  const created = epochOf(raw.createTime);
  if (name === null || created === null) throw invalidAnswer('a batch inference job');
  // A state nobody knows yet is not an end.
  const status = namedIn(STATUS, raw.state) ?? 'in_progress';
  const at = ENDED_AT[status];
  const ended = epochOf(raw.completedTime) ?? epochOf(raw.updateTime);
  const progress = asObject(raw.jobProgress);
  const total = integerOf(progress.totalInputRequests);
  const failure = failureIn(raw);
  const output = textOf(raw.outputDatasetId);
  return {
    id: shortId(name),
    object: 'batch',
    endpoint: ENDPOINT,
    errors: failure === null ? null : { object: 'list', data: [{ ...failure, param: null, line: null }] },
    input_file_id: shortId(textOf(raw.inputDatasetId) ?? ''),
    completion_window: '24h',
    status,
    // Known from the start, but nothing is in it before the end. Results and errors are two files of one dataset.
    output_file_id: output !== null && (status === 'completed' || status === 'expired') ? shortId(output) : null,
    error_file_id: null,
    created_at: created,
    ...(at === undefined || ended === null ? null : { [at]: ended }),
    ...(total === null
      ? null
      : {
          request_counts: {
            total,
            completed: integerOf(progress.successfullyProcessedRequests) ?? 0,
            failed: integerOf(progress.failedRequests) ?? 0,
          },
        }),
    metadata: null,
    model: modelOf(textOf(raw.model)),
    ...(textOf(raw.displayName) === null ? null : { job_name: raw.displayName }),
  };
}

async function fetched(id: string, context: AdapterContext): Promise<JsonObject> {
  const url = urlOf(controlPlane(context), `/${COLLECTION}/${idSegment(id)}`);
  return sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
}

/** Ids share the rule of all resources; a name that is no id is only shown. */
function prepare(batch: BatchRequest, context: AdapterContext): PreparedCall {
  const body = createBody(batch, context);
  const id = batch.job_name === null ? null : checkedId(batch.job_name, 'job_name');
  const url = urlOf(controlPlane(context), `/${COLLECTION}`, { batchInferenceJobId: id });
  const { headers } = jsonRequest('POST', url, bearerHeaders(context), body);
  return { method: 'POST', url: url.href, headers, body };
}

/** A row of results: the OpenAI line, or the answer itself where a line has status and body. */
function withStatus(line: JsonObject): JsonObject {
  const response = asObject(line.response);
  if (line.response === undefined || line.response === null || response.body !== undefined) return line;
  return { ...line, response: { status_code: 200, request_id: response.id, body: response } };
}

/** `provider` converts the bodies of single lines as it does those of calls. */
export function batchesOf(provider: () => Provider): BatchesAdapter {
  return {
    prepare,
    async create(batch, context) {
      const { url, body } = prepare(batch, context);
      return toBatch(await sentObject(context, jsonRequest('POST', new URL(url), bearerHeaders(context), body)));
    },
    async list(page, context) {
      const { data, has_more } = await takePage(listed(COLLECTION, pageSize(page, LARGEST_PAGE), context), page);
      return { data: data.map(({ raw }) => toBatch(raw)), has_more };
    },
    async retrieve(id, context) {
      return toBatch(await fetched(id, context));
    },
    cancel() {
      return Promise.reject(new SluiceError('unsupported_operation', 'Fireworks does not offer to cancel batches.'));
    },
    async output(id, context) {
      const batch = toBatch(await fetched(id, context));
      const dataset = textOf(batch.output_file_id);
      needsOutput(batch, dataset === null ? [] : [dataset]);
      const opens = dataset === null ? [] : await datasetFiles(dataset, context);
      return mappedLines(opens, (line) => resultLine(provider(), batch, withStatus(line), context.now));
    },
    inputLine(line, batch) {
      if (batch.endpoint !== ENDPOINT) refuse('endpoint', 'batches of this provider do not serve it.');
      const { customId, body } = readInputLine(line, batch);
      // The model is the job's.
      const { model: _, ...rest } = providerBody(provider(), batch.endpoint, body);
      return { custom_id: customId, body: rest };
    },
    async findByName(batch, context) {
      const dataset = resourceName(context, 'datasets', batch.input_file_id);
      let looked = 0;
      // One page of the newest: a batch that was just made is among them.
      for await (const { id, raw } of listed(COLLECTION, LARGEST_PAGE, context)) {
        if (raw.inputDatasetId === dataset && (batch.job_name === null || id === batch.job_name)) return toBatch(raw);
        if (++looked === LARGEST_PAGE) break;
      }
      return null;
    },
  };
}
