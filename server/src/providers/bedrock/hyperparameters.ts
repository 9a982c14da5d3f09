/** Hyperparameters of Bedrock by model family, in both directions. */
import { isObject, type JsonValue } from '../../kernel/json.ts';
import type { FineTuningJob, JobRequest } from '../../operations/training.ts';
import type { Refusals } from '../training-calls.ts';

type Range = readonly [min: number, max: number];

/** How a family takes its learning rate: as a multiplier, or as a rate with a documented default. */
type Rate =
  | { readonly kind: 'multiplier'; readonly range: Range }
  | { readonly kind: 'rate'; readonly range: Range; readonly standard: number }
  | { readonly kind: 'unknown' };

interface Family {
  readonly match: RegExp;
  /** Null: the family counts steps, so that epochs cannot be said. */
  readonly epochs: Range | 'any' | null;
  /** Whether `Auto` is a number of epochs. */
  readonly autoEpochs?: boolean;
  /** `none`: the family has no batch size; `any`: its range is not documented. */
  readonly batch: Range | 'none' | 'any';
  readonly rate: Rate;
}

/**
 * First match wins. Ids come bare (`amazon.nova-lite-v1:0:300k`), inside an ARN of a foundation model, or inside one of
 * a custom model made from it.
 */
const FAMILIES: readonly Family[] = [
  { match: /amazon\.nova-(?:canvas|reel)/, epochs: null, batch: 'any', rate: { kind: 'unknown' } },
  {
    match: /amazon\.nova-/,
    epochs: [1, 5],
    batch: 'none',
    rate: { kind: 'rate', range: [1e-6, 1e-4], standard: 1e-5 },
  },
  {
    match: /amazon\.titan-text-premier/,
    epochs: [1, 5],
    batch: [1, 1],
    rate: { kind: 'rate', range: [1e-7, 1e-5], standard: 1e-6 },
  },
  {
    match: /amazon\.titan-text-/,
    epochs: [1, 10],
    batch: [1, 64],
    rate: { kind: 'rate', range: [0, 1], standard: 1e-5 },
  },
  {
    match: /amazon\.titan-embed-image/,
    epochs: [1, 100],
    autoEpochs: true,
    batch: [256, 9216],
    rate: { kind: 'rate', range: [5e-8, 1], standard: 5e-5 },
  },
  { match: /amazon\.titan-image-generator/, epochs: null, batch: 'any', rate: { kind: 'unknown' } },
  { match: /anthropic\.claude-3-/, epochs: [1, 10], batch: [4, 256], rate: { kind: 'multiplier', range: [0.1, 2] } },
  {
    match: /cohere\.command-light-/,
    epochs: [1, 100],
    batch: [8, 32],
    rate: { kind: 'rate', range: [5e-6, 0.1], standard: 1e-5 },
  },
  {
    match: /cohere\.command-/,
    epochs: [1, 100],
    batch: [8, 8],
    rate: { kind: 'rate', range: [5e-6, 0.1], standard: 1e-5 },
  },
  { match: /meta\.llama/, epochs: [1, 10], batch: [1, 1], rate: { kind: 'rate', range: [5e-6, 0.1], standard: 1e-4 } },
];

/** Of a model that is not in the table the provider itself judges what can be sent as it is. */
const UNKNOWN: Family = { match: /^/, epochs: 'any', batch: 'any', rate: { kind: 'unknown' } };

const familyOf = (model: string): Family => FAMILIES.find(({ match }) => match.test(model)) ?? UNKNOWN;

const within = (value: number, [min, max]: Range): boolean => value >= min && value <= max;

/** Products of decimal fractions carry noise in their last digits: 1e-5 · 3 is 0.000030000000000000004. */
const clean = (value: number): number => Number(value.toPrecision(12));

/**
 * The `hyperParameters` map: every value is a text. What the family cannot take is refused by name unless drop_params
 * lists it; a learning rate of `auto` and a batch size of `auto` mean the provider's own default and are left out.
 */
export function hyperParametersOf(job: JobRequest, refusals: Refusals): Record<string, string> {
  const family = familyOf(job.upstreamModel);
  const { n_epochs: epochs, batch_size: batch, learning_rate_multiplier: multiplier } = job.hyperparameters;
  const path = (field: string): string => `${job.hyperparametersPath}.${field}`;
  const out: Record<string, string> = {};

  if (family.epochs === null) {
    refusals.refuse(path('n_epochs'), epochs, 'this model is trained by steps, which this request cannot name');
  } else if (epochs === 'auto') {
    if (family.autoEpochs) out.epochCount = 'Auto';
    else refusals.refuse(path('n_epochs'), epochs, 'use a whole number');
  } else if (family.epochs === 'any' || within(epochs, family.epochs)) {
    out.epochCount = String(epochs);
  } else {
    refusals.refuse(path('n_epochs'), epochs, `use ${family.epochs[0]} to ${family.epochs[1]}`);
  }

  if (batch !== 'auto') {
    if (family.batch === 'none') {
      if (batch !== 1) refusals.refuse(path('batch_size'), batch, 'use 1');
    } else if (family.batch === 'any') {
      if (batch !== 1) out.batchSize = String(batch);
    } else if (within(batch, family.batch)) {
      out.batchSize = String(batch);
    } else {
      const [min, max] = family.batch;
      refusals.refuse(path('batch_size'), batch, min === max ? `use ${min}` : `use ${min} to ${max}`);
    }
  }

  if (multiplier !== 'auto') {
    const name = path('learning_rate_multiplier');
    const { rate } = family;
    if (rate.kind === 'multiplier') {
      if (within(multiplier, rate.range)) out.learningRateMultiplier = String(multiplier);
      else refusals.refuse(name, multiplier, `use ${rate.range[0]} to ${rate.range[1]}`);
    } else if (multiplier !== 1) {
      if (rate.kind === 'unknown') refusals.refuse(name, multiplier, 'use 1');
      else {
        const value = clean(rate.standard * multiplier);
        if (within(value, rate.range)) out.learningRate = String(value);
        else {
          const [min, max] = rate.range.map((limit) => clean(limit / rate.standard));
          refusals.refuse(name, multiplier, `use ${min} to ${max}, 1 being this model's default rate`);
        }
      }
    }
  }
  return out;
}

const numberIn = (value: JsonValue | undefined): number | null => {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : Number.NaN;
  return Number.isFinite(number) ? number : null;
};

/** The caller's names for a job's `hyperParameters`; what the provider does not say stays out. */
export function hyperparametersFrom(map: JsonValue | undefined, model: string): FineTuningJob['hyperparameters'] {
  const given = isObject(map) ? map : {};
  const epochs = numberIn(given.epochCount);
  const batch = numberIn(given.batchSize);
  const multiplier = numberIn(given.learningRateMultiplier);
  const rate = numberIn(given.learningRate);
  const { rate: known } = familyOf(model);
  const found = multiplier ?? (rate !== null && known.kind === 'rate' ? clean(rate / known.standard) : null);
  return {
    n_epochs: epochs === null ? 'auto' : epochs,
    ...(batch === null ? null : { batch_size: batch }),
    ...(found === null ? null : { learning_rate_multiplier: found }),
  };
}
