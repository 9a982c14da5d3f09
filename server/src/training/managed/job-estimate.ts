import type { JobRequest } from '../../operations/training.ts';
import type { Pricer } from '../../pricing/price.ts';
import type { JobsAdapter } from '../../providers/training.ts';
import type { Account } from '../../runtime/object-call.ts';
import { type TrainingRate, trainingRate } from '../usage/use.ts';

/** What a job will take, before it is started. Everything but the counted tokens is a guess. */
export interface JobEstimate {
  /** Tokens of the training file, counted with one tokeniser for all providers. */
  readonly tokens: number;
  readonly epochs: number;
  /** True when the provider will choose the epochs; `epochs` is then what is usual. */
  readonly epochs_assumed: boolean;
  readonly trained_tokens: number;
  /** Null when no price is known. */
  readonly cost: JobCost | null;
  readonly seconds: number;
}

export interface JobCost extends TrainingRate {
  readonly usd: number;
}

/** Where the provider chooses them. */
export const USUAL_EPOCHS = 3;
/** Waiting, starting and storing the model, and tokens trained in a second, as providers' own examples suggest. */
const START_SECONDS = 600;
const TOKENS_PER_SECOND = 2_000;

export function estimate(
  tokens: number,
  job: JobRequest,
  { account, jobs }: { readonly account: Account; readonly jobs: Pick<JobsAdapter, 'seconds'> },
  pricer: Pricer,
  now: number,
): JobEstimate {
  const { n_epochs } = job.hyperparameters;
  const assumed = n_epochs === 'auto';
  const epochs = assumed ? USUAL_EPOCHS : n_epochs;
  const trained_tokens = tokens * epochs;
  const rate = trainingRate(job.upstreamModel, { account, pricer, at: now });
  const cost =
    rate === null ? null : { usd: rounded((trained_tokens * rate.usd_per_million_tokens) / 1_000_000), ...rate };
  return {
    tokens,
    epochs,
    epochs_assumed: assumed,
    trained_tokens,
    cost,
    seconds: jobs.seconds?.(job) ?? START_SECONDS + Math.ceil(trained_tokens / TOKENS_PER_SECOND),
  };
}

/** Without the digits that floating point adds. */
const rounded = (usd: number): number => Number(usd.toPrecision(12));

/** One line for the events of a job. */
export function estimateText(given: JobEstimate): string {
  const { trained_tokens, epochs, epochs_assumed, cost, seconds } = given;
  const passes = `${epochs} epoch${epochs === 1 ? '' : 's'}${epochs_assumed ? ' (assumed)' : ''}`;
  const price =
    cost === null ? 'no price is known' : `about $${cost.usd} by the price of ${cost.basis.replace('_', ' ')}`;
  const time = seconds <= 90 ? `${seconds} seconds` : `${Math.ceil(seconds / 60)} minutes`;
  return `Estimate: ${trained_tokens} tokens in ${passes}, ${price}, about ${time}`;
}
