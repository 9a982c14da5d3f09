/**
 * Create requests of fine-tuning jobs and batches: their own rules, checked before
 * anything is looked up or called. What a provider cannot express is the adapter's to refuse.
 */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import type { BatchRequest, Hyperparameters, JobIntegration, JobRequest } from '../operations/training.ts';
import { parseModel } from '../providers/models.ts';
import type { ObjectCall } from '../runtime/object-call.ts';
import { Faults, int32, invalid, metadata, object, oneOf, optionalText, positiveFloat, text } from './fields.ts';
import { type GatewayOptions, readGatewayOptions, readProviderOptions } from './options.ts';

/** A create request and where its `gateway_options` send it. */
export interface ReadJob {
  readonly job: JobRequest;
  readonly options: GatewayOptions | null;
}

export interface ReadBatch {
  readonly batch: BatchRequest;
  readonly options: GatewayOptions | null;
}

const JOB_FIELDS = new Set([
  'model',
  'training_file',
  'validation_file',
  'suffix',
  'method',
  'hyperparameters',
  'job_name',
  'role_arn',
  'output_file',
  'seed',
  'integrations',
  'metadata',
  'gateway_options',
  'provider_options',
]);
const BATCH_FIELDS = new Set([
  'input_file_id',
  'endpoint',
  'completion_window',
  'metadata',
  'model',
  'job_name',
  'role_arn',
  'output_data_config',
  'gateway_options',
  'provider_options',
]);
const JOB_OPTIONS = ['job_name', 'role_arn', 'output_file', 'model'] as const;
const BATCH_OPTIONS = ['job_name', 'output_data_config', 'model', 'role_arn'] as const;
const METHODS = ['supervised', 'dpo'] as const;
const HYPERPARAMETERS = ['n_epochs', 'learning_rate_multiplier', 'batch_size'] as const;
const ENDPOINTS = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] as const;
const WINDOWS = ['immediate', '24h'] as const;

/** The body of a create call as one JSON object, numbers of any size kept, with the config's own parameters. */
export function bodyOf(call: ObjectCall): JsonObject {
  let parsed: JsonValue;
  try {
    parsed = parseExact(call.body.toString('utf8'));
  } catch {
    throw new SluiceError('malformed_call', 'The body must be one JSON object.');
  }
  if (!isObject(parsed)) throw new SluiceError('malformed_call', 'The body must be one JSON object.');
  return call.shaped(parsed);
}

/**
 * Checks a job create request in shape A, B or C. `dropParams`: optional fields listed there are left out; a required
 * one stays, for the adapter to leave out where its provider cannot express it.
 */
export function readJob(given: JsonObject, dropParams: ReadonlySet<string>): ReadJob {
  const body = without(given, dropParams, ['model', 'training_file', 'suffix', 'method', 'hyperparameters']);
  const extra: Record<string, JsonValue | undefined> = {};
  for (const [name, value] of Object.entries(body)) if (!JOB_FIELDS.has(name)) keep(extra, name, value);
  const faults = new Faults();
  const model = faults.read(() => modelOf(body.model), '');
  const training_file = faults.read(() => text(body.training_file, 'training_file'), '');
  const validation_file = faults.read(() => optionalText(body.validation_file, 'validation_file'), null);
  const suffix = faults.read(() => text(body.suffix, 'suffix'), '');
  const method = faults.read(() => readMethod(body, extra), NO_METHOD);
  const job_name = faults.read(() => optionalText(body.job_name, 'job_name'), null);
  const role_arn = faults.read(() => optionalText(body.role_arn, 'role_arn'), null);
  const output_file = faults.read(() => optionalText(body.output_file, 'output_file'), null);
  const seed = faults.read(
    () => (body.seed === undefined || body.seed === null ? null : int32(body.seed, 'seed', 0)),
    null,
  );
  const integrations = faults.read(() => readIntegrations(body.integrations, extra), null);
  const labels = faults.read(() => metadata(body.metadata), null);
  const options = faults.read(() => readGatewayOptions(body.gateway_options), null);
  const provider = faults.read(() => readProviderOptions(body.provider_options, JOB_OPTIONS), null);
  faults.done();
  const shapeB = job_name !== null || role_arn !== null || output_file !== null;
  return {
    options,
    job: {
      shape: options !== null || provider !== null ? 'C' : shapeB ? 'B' : 'A',
      model,
      upstreamModel: provider?.model ?? model,
      training_file,
      validation_file,
      suffix,
      ...method,
      job_name: job_name ?? provider?.job_name ?? null,
      role_arn: role_arn ?? provider?.role_arn ?? null,
      output_file: output_file ?? provider?.output_file ?? null,
      seed,
      integrations,
      metadata: labels,
      extra,
      body,
    },
  };
}

/** In the place of one that was refused. */
const NO_METHOD: Method = {
  method: 'supervised',
  hyperparameters: { n_epochs: 'auto', learning_rate_multiplier: 'auto', batch_size: 'auto' },
  hyperparametersPath: '',
};
const METHOD_EXAMPLE =
  '{"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3, "learning_rate_multiplier": 1, "batch_size": 1}}}';

function modelOf(value: JsonValue | undefined): string {
  const { model } = parseModel(text(value, 'model'));
  if (model === '') throw invalid('model', 'model names a provider but no model; send @slug/model.');
  return model;
}

/** Names come from the caller: `__proto__` is a member like any other. */
function keep(into: Record<string, JsonValue | undefined>, name: string, value: JsonValue | undefined): void {
  Object.defineProperty(into, name, { value, enumerable: true, configurable: true, writable: true });
}

/** `body` without the members `names` lists, `required` ones left alone. */
function without(body: JsonObject, names: ReadonlySet<string>, required: readonly string[]): JsonObject {
  const dropped = [...names].filter((name) => Object.hasOwn(body, name) && !required.includes(name));
  if (dropped.length === 0) return body;
  const out = { ...body };
  for (const name of dropped) delete out[name];
  return out;
}

type Method = Pick<JobRequest, 'method' | 'hyperparameters' | 'hyperparametersPath'>;

/** `method`, or the older top-level `hyperparameters`, which may also say `auto`. */
function readMethod(body: JsonObject, extra: Record<string, JsonValue | undefined>): Method {
  const older =
    body.hyperparameters === undefined || body.hyperparameters === null
      ? null
      : readHyperparameters(object(body.hyperparameters, 'hyperparameters'), 'hyperparameters', true, extra);
  if (body.method === undefined && older !== null) {
    return { method: 'supervised', hyperparameters: older, hyperparametersPath: 'hyperparameters' };
  }
  if (body.method === undefined) throw invalid('method', `method is required, for example ${METHOD_EXAMPLE}.`);
  const method = object(body.method, 'method');
  const type = oneOf(method.type, 'method.type', METHODS);
  for (const [name, value] of Object.entries(method)) {
    if (name !== 'type' && name !== type && value !== null) keep(extra, `method.${name}`, value);
  }
  if ((method[type] === undefined || method[type] === null) && older !== null) {
    return { method: type, hyperparameters: older, hyperparametersPath: 'hyperparameters' };
  }
  const path = `method.${type}.hyperparameters`;
  const block = needed(method[type], `method.${type}`, 'with hyperparameters: ');
  for (const [name, value] of Object.entries(block)) {
    if (name !== 'hyperparameters') keep(extra, `method.${type}.${name}`, value);
  }
  const hyperparameters = readHyperparameters(
    needed(block.hyperparameters, path, 'with '),
    path,
    false,
    extra,
    type === 'dpo',
  );
  if (older !== null && HYPERPARAMETERS.some((name) => older[name] !== hyperparameters[name])) {
    throw invalid('hyperparameters', `hyperparameters and ${path} differ; send one of them.`);
  }
  return { method: type, hyperparameters, hyperparametersPath: path };
}

/** An object whose absence says at once what belongs into it. */
function needed(value: JsonValue | undefined, param: string, lead: string): JsonObject {
  if (value === undefined)
    throw invalid(param, `${param} is required: an object ${lead}${HYPERPARAMETERS.join(', ')}.`);
  return object(value, param);
}

function readHyperparameters(
  given: JsonObject,
  path: string,
  auto: boolean,
  extra: Record<string, JsonValue | undefined>,
  dpo = false,
): Hyperparameters {
  for (const [name, value] of Object.entries(given)) {
    const known = HYPERPARAMETERS.some((one) => one === name) || (dpo && name === 'beta');
    if (!known) keep(extra, `${path}.${name}`, value);
  }
  const faults = new Faults();
  const number = <T>(name: string, read: (value: JsonValue | undefined, param: string) => T): T | 'auto' =>
    auto && given[name] === 'auto' ? 'auto' : faults.read(() => read(given[name], `${path}.${name}`), 'auto' as const);
  const count = (value: JsonValue | undefined, param: string) => int32(value, param, 1);
  const beta = dpo && given.beta !== undefined && given.beta !== null ? given.beta : undefined;
  const out = {
    n_epochs: number('n_epochs', count),
    learning_rate_multiplier: number('learning_rate_multiplier', positiveFloat),
    batch_size: number('batch_size', count),
    ...(beta === undefined
      ? null
      : { beta: beta === 'auto' ? ('auto' as const) : faults.read(() => positiveFloat(beta, `${path}.beta`), 1) }),
  };
  faults.done();
  return out;
}

function readIntegrations(
  value: JsonValue | undefined,
  extra: Record<string, JsonValue | undefined>,
): JobIntegration[] | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value)) throw invalid('integrations', 'integrations must be a list.');
  if (value.length > 5) throw invalid('integrations', `integrations must have at most 5 entries; got ${value.length}.`);
  return value.map((entry, index) => {
    const at = `integrations[${index}]`;
    const given = object(entry, at);
    oneOf(given.type, `${at}.type`, ['tracker']);
    const tracker = object(given.tracker, `${at}.tracker`);
    for (const [name, other] of Object.entries(given)) {
      if (name !== 'type' && name !== 'tracker') keep(extra, `${at}.${name}`, other);
    }
    for (const [name, other] of Object.entries(tracker)) {
      if (!['project', 'name', 'entity', 'tags'].includes(name)) keep(extra, `${at}.tracker.${name}`, other);
    }
    return {
      type: 'tracker' as const,
      tracker: {
        project: text(tracker.project, `${at}.tracker.project`),
        ...nullable('name', tracker, at),
        ...nullable('entity', tracker, at),
        ...(tracker.tags === undefined ? null : { tags: readTags(tracker.tags, `${at}.tracker.tags`) }),
      },
    };
  });
}

function nullable(name: 'name' | 'entity', tracker: JsonObject, at: string): Record<string, string | null> {
  const value = tracker[name];
  return value === undefined ? {} : { [name]: value === null ? null : text(value, `${at}.tracker.${name}`) };
}

function readTags(value: JsonValue, param: string): string[] {
  if (!Array.isArray(value)) throw invalid(param, `${param} must be a list of texts.`);
  return value.map((tag, index) => text(tag, `${param}[${index}]`));
}

/** Checks a batch create request. */
export function readBatch(given: JsonObject, dropParams: ReadonlySet<string>): ReadBatch {
  const body = without(given, dropParams, ['input_file_id', 'endpoint', 'completion_window']);
  const extra: Record<string, JsonValue | undefined> = {};
  for (const [name, value] of Object.entries(body)) if (!BATCH_FIELDS.has(name)) keep(extra, name, value);
  const faults = new Faults();
  const optional = (name: string) => faults.read(() => optionalText(body[name], name), null);
  const input_file_id = faults.read(() => text(body.input_file_id, 'input_file_id'), '');
  const endpoint = faults.read(() => oneOf(body.endpoint, 'endpoint', ENDPOINTS), '');
  const window = faults.read(() => oneOf(body.completion_window, 'completion_window', WINDOWS), WINDOWS[0]);
  const labels = faults.read(() => metadata(body.metadata), null);
  const model = optional('model');
  const [job_name, role_arn, output] = [optional('job_name'), optional('role_arn'), optional('output_data_config')];
  const options = faults.read(() => readGatewayOptions(body.gateway_options, ['x-gateway-config']), null);
  const provider = faults.read(() => readProviderOptions(body.provider_options, BATCH_OPTIONS), null);
  faults.done();
  return {
    options,
    batch: {
      input_file_id,
      endpoint,
      completion_window: window,
      metadata: labels,
      model: model === null ? (provider?.model ?? null) : parseModel(model).model,
      job_name: job_name ?? provider?.job_name ?? null,
      role_arn: role_arn ?? provider?.role_arn ?? null,
      output_data_config: output ?? provider?.output_data_config ?? null,
      extra,
      body,
    },
  };
}
