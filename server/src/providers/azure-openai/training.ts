/** Fine-tuning, files and batches of Azure OpenAI on both of its surfaces (`v1` and `2025-04-01-preview` authoring). */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { JobRequest } from '../../operations/training.ts';
import type { ObjectApi } from '../openai/training-api.ts';
import { openAiBatches } from '../openai/training-batches.ts';
import { openAiFiles, UPLOAD_PARTS } from '../openai/training-files.ts';
import { jobBody, openAiJobs, refuseCloudFields, seedFits, toUpstreamTracker } from '../openai/training-jobs.ts';
import type { AdapterContext, TrainingAdapter } from '../training.ts';
import { Refusals, textOf } from '../training-calls.ts';
import { azureHeaders, plannedAzureHeaders } from './credentials.ts';
import { azureError } from './errors.ts';
import { resourceOf, surfaceOf } from './settings.ts';

const api: ObjectApi = {
  title: 'azure-openai',
  headers: azureHeaders,
  plannedHeaders: plannedAzureHeaders,
  query: (context) => ({ 'api-version': surfaceOf(context.credentials).version }),
  error: azureError,
};

const isDated = (context: AdapterContext): boolean => surfaceOf(context.credentials).dated;

const DATED_SUFFIX = /^[A-Za-z0-9_-]{1,40}$/;
/** Members beyond the definition that guides of the dated surface name. */
const DATED_EXTRA: ReadonlySet<string> = new Set(['trainingType']);

/**
 * The create request of the dated surface: hyperparameters are at the top level and `method` holds its type alone.
 * Unknown members are refused by name, since the service would answer 400 without saying more.
 */
function datedBody(job: JobRequest, context: AdapterContext): JsonObject {
  const refusals = new Refusals(api.title, context);
  refuseCloudFields(job, refusals);
  refusals.absent({ metadata: job.metadata });
  const out: JsonObject = {};
  for (const [name, value] of Object.entries(job.extra)) {
    if (DATED_EXTRA.has(name) && Object.hasOwn(job.body, name)) out[name] = value;
    else refusals.absent({ [name]: value });
  }
  out.model = job.upstreamModel;
  out.training_file = job.training_file;
  if (job.validation_file !== null) out.validation_file = job.validation_file;
  if (DATED_SUFFIX.test(job.suffix)) out.suffix = job.suffix;
  else refusals.refuse('suffix', job.suffix, 'use 1 to 40 letters, digits, hyphens and underscores');
  out.method = { type: job.method };
  out.hyperparameters = datedHyperparameters(job, refusals);
  if (seedFits(job.seed, refusals)) out.seed = job.seed;
  if (job.integrations !== null) {
    out.integrations = job.integrations.map((one, at) => {
      const { project, ...rest } = one.tracker;
      const filled = Object.entries(rest).filter(([, value]) => !Array.isArray(value) || value.length > 0);
      refusals.absent(
        Object.fromEntries(filled.map(([name, value]) => [`integrations[${at}].tracker.${name}`, value])),
      );
      return toUpstreamTracker({ tracker: { project } });
    });
  }
  return out;
}

const NUMBERS: Readonly<Record<string, { readonly fits: (value: number) => boolean; readonly text: string }>> = {
  n_epochs: { fits: (value) => Number.isInteger(value) && value >= 1, text: 'an integer of 1 or more' },
  batch_size: { fits: (value) => Number.isInteger(value) && value >= 1, text: 'an integer of 1 or more' },
  learning_rate_multiplier: { fits: (value) => value > 0, text: 'a number above 0' },
};

function datedHyperparameters(job: JobRequest, refusals: Refusals): JsonObject {
  const out: JsonObject = {};
  for (const [name, value] of Object.entries<unknown>(job.hyperparameters)) {
    const rule = Object.hasOwn(NUMBERS, name) ? NUMBERS[name] : undefined;
    const param = `${job.hyperparametersPath}.${name}`;
    if (rule === undefined) refusals.absent({ [param]: value });
    else if (typeof value === 'number' && rule.fits(value)) out[name] = value;
    else if (value !== undefined) refusals.refuse(param, value, `use ${rule.text}`);
  }
  return out;
}

const BLOBS = ['output_blob', 'error_blob'];

const stripVersion = (path: string): string => (path.startsWith('/v1/') ? path.slice(3) : path);

export const azureTraining: TrainingAdapter = {
  jobs: openAiJobs({
    api,
    body: (job, context) => (isDated(context) ? datedBody(job, context) : jobBody(job, context, api.title)),
    owner: (context) => resourceOf(context.credentials),
  }),
  files: openAiFiles({
    api,
    purposes: new Set(['assistants', 'batch', 'fine-tune']),
    list: (context) => (isDated(context) ? 'purpose' : 'pages'),
    parts: UPLOAD_PARTS,
  }),
  batches: openAiBatches({
    api,
    endpoint: {
      toUpstream: (endpoint, context) => (isDated(context) ? stripVersion(endpoint) : endpoint),
      toCaller: (endpoint) => (endpoint.startsWith('/v1/') || !endpoint.startsWith('/') ? endpoint : `/v1${endpoint}`),
    },
    outputPlace: (place) => ({ output_folder: { url: place } }),
    // Lines are the same on both surfaces, and their model is the deployment that runs them.
    inputLine: (line) => (typeof line.url === 'string' ? { ...line, url: stripVersion(line.url) } : line),
    readable(raw) {
      if (!BLOBS.some((name) => textOf(raw[name]) !== null)) return;
      throw new SluiceError(
        'invalid_request',
        'The results of this batch are in the blob storage of its owner, for which this account has no credentials; read output_blob and error_blob there.',
        { param: 'batch_id' },
      );
    },
  }),
};
