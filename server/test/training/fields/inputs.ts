import type { JsonObject } from '../../../src/kernel/json.ts';
import type { JobRequest } from '../../../src/operations/training.ts';
import type { AdapterContextOptions } from '../../support/adapter-context.ts';
import type { FieldName, FieldTable } from './names.ts';

/** What a file of this folder exports under any name: the fate of every field at one provider. */
export interface FieldSubject {
  /** Id in the provider catalog. */
  readonly provider: string;
  readonly table: FieldTable;
  /** What every request of this provider has, where `BASE` does not fit: model ids, object URIs, required roles. */
  readonly base?: Partial<JobRequest>;
  /** What a row sets, where `VALUES` does not fit. */
  readonly values?: Partial<Record<FieldName, Partial<JobRequest>>>;
  readonly context?: Partial<AdapterContextOptions>;
}

type Fields = Omit<JobRequest, 'body'>;

/** A request every provider takes: neutral hyperparameters, nothing optional. */
export const BASE: Fields = {
  shape: 'C',
  model: 'base-model',
  upstreamModel: 'base-model',
  training_file: 'file-train',
  validation_file: null,
  suffix: 'v1',
  method: 'supervised',
  hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 },
  hyperparametersPath: 'method.supervised.hyperparameters',
  job_name: null,
  role_arn: null,
  output_file: null,
  seed: null,
  integrations: null,
  metadata: null,
  extra: {},
};

const DPO = { method: 'dpo', hyperparametersPath: 'method.dpo.hyperparameters' } as const;
const NEUTRAL = { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 } as const;

/** What each row of a table sets beside the base. */
export const VALUES: Readonly<Record<FieldName, Partial<JobRequest>>> = {
  model: {},
  training_file: {},
  validation_file: { validation_file: 'file-valid' },
  suffix: { suffix: 'v2' },
  'method.type=supervised': {},
  'method.type=dpo': DPO,
  n_epochs: { hyperparameters: { ...NEUTRAL, n_epochs: 5 } },
  'n_epochs=auto': { hyperparameters: { ...NEUTRAL, n_epochs: 'auto' } },
  learning_rate_multiplier: { hyperparameters: { ...NEUTRAL, learning_rate_multiplier: 2 } },
  batch_size: { hyperparameters: { ...NEUTRAL, batch_size: 4 } },
  beta: { ...DPO, hyperparameters: { ...NEUTRAL, beta: 0.2 } },
  job_name: { job_name: 'job-1' },
  role_arn: { role_arn: 'arn:aws:iam::123456789012:role/tuner' },
  output_file: { output_file: 's3://bucket/output/' },
  seed: { seed: 7 },
  integrations: { integrations: [{ type: 'tracker', tracker: { project: 'project-1' } }] },
  metadata: { metadata: { team: 'search' } },
  unknown: { extra: { flavour: 'vanilla' } },
};

/** The caller's body that a request came from, in shape A or B. */
function bodyOf(fields: Fields): JsonObject {
  const { model, training_file, suffix, method, hyperparameters } = fields;
  const body: JsonObject = {
    model,
    training_file,
    suffix,
    method: { type: method, [method]: { hyperparameters: { ...hyperparameters } } },
  };
  for (const name of ['validation_file', 'job_name', 'role_arn', 'output_file', 'seed'] as const) {
    if (fields[name] !== null) body[name] = fields[name];
  }
  if (fields.integrations !== null) body.integrations = JSON.parse(JSON.stringify(fields.integrations));
  if (fields.metadata !== null) body.metadata = { ...fields.metadata };
  return { ...body, ...fields.extra };
}

type Inputs = Pick<FieldSubject, 'base' | 'values'>;

const whole = (fields: Fields): JobRequest => ({ ...fields, body: bodyOf(fields) });

/** The request that row `name` is about. */
export function requestFor(subject: Inputs, name: FieldName): JobRequest {
  return whole({ ...BASE, ...subject.base, ...VALUES[name], ...subject.values?.[name] });
}

/** The same request without what the row is about. */
export function requestWithout(subject: Inputs, name: FieldName): JobRequest {
  const base: Fields = { ...BASE, ...subject.base };
  if (name !== 'beta') return whole(base);
  const { method, hyperparameters, hyperparametersPath } = requestFor(subject, name);
  const { beta: _, ...rest } = hyperparameters;
  return whole({ ...base, method, hyperparametersPath, hyperparameters: rest });
}

/** The caller's body with the model the provider is told, for shapes without `provider_options`. */
export function shapeB(request: JobRequest): JsonObject {
  return { ...request.body, model: request.upstreamModel };
}

/** The caller's body with everything `provider_options` can hold moved there. */
export function shapeC(request: JobRequest): JsonObject {
  const { job_name, role_arn, output_file, ...rest } = request.body;
  return {
    ...rest,
    model: 'name-of-ours',
    gateway_options: { 'x-gateway-virtual-key': 'vkey-1' },
    provider_options: {
      model: request.upstreamModel,
      ...(job_name === undefined ? null : { job_name }),
      ...(role_arn === undefined ? null : { role_arn }),
      ...(output_file === undefined ? null : { output_file }),
    },
  };
}
