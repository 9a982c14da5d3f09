/**
 * The life of a sandbox fine-tuning job: everything about it follows from what was asked and from the time, so nothing
 * runs in the background, nothing is lost by a restart, and every node tells the same.
 */
import { createHash } from 'node:crypto';
import {
  FINAL_JOB,
  type FineTuningJob,
  type Hyperparameters,
  type JobCheckpoint,
  type JobError,
  type JobEvent,
  type JobIntegration,
  type JobStatus,
} from '../../operations/training.ts';
import { MARK, type Stored, seconds } from './objects.ts';

export interface JobData {
  /** As the caller named it. */
  readonly model: string;
  /** Without provider, `sandbox/` and `train_ms`. */
  readonly base: string;
  readonly training_file: string;
  readonly validation_file: string | null;
  readonly suffix: string;
  readonly method: 'supervised' | 'dpo';
  readonly hyperparameters: Hyperparameters;
  readonly seed: number;
  readonly integrations: readonly JobIntegration[] | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Names and places of a job in a cloud, which mean nothing here and are answered as they came. Absent in older rows. */
  readonly cloud?: Readonly<Record<'job_name' | 'role_arn' | 'output_file', string | null>>;
  /** Milliseconds from `created_at` to the end. */
  readonly trainMs: number;
  /** What is wrong with the files, found when the job was created and told when it would have been found. */
  readonly verdict: JobError | null;
  readonly rows: number;
  /** Tokens of one pass over the training file. */
  readonly tokens: number;
  /** Hash of what was asked and of the training file, hexadecimal: the loss comes from it. */
  readonly hash: string;
  readonly cancelledAt: number | null;
  /** The result file was deleted. */
  readonly resultRemoved: boolean;
}

export type Job = Stored<JobData>;

/** Shares of the whole time: files are checked until the first, the job waits until the second. */
const VALIDATED = 0.1;
const STARTED = 0.2;
const AUTO_EPOCHS = 3;
const AUTO_BATCH = 4;
/** Rows of the metrics file. */
const METRICS = 100;

interface Times {
  readonly validated: number;
  readonly started: number;
  readonly ended: number;
}

function times(job: Job): Times {
  const { createdAt, data } = job;
  const at = (share: number) => createdAt + Math.round(data.trainMs * share);
  return { validated: at(VALIDATED), started: at(STARTED), ended: at(1) };
}

/** When the job ends or was ended. */
function endOf(job: Job): number {
  const { validated, ended } = times(job);
  const natural = job.data.verdict === null ? ended : validated;
  return Math.min(natural, job.data.cancelledAt ?? natural);
}

export function statusAt(job: Job, now: number): JobStatus {
  const { validated, started, ended } = times(job);
  const { verdict, cancelledAt } = job.data;
  if (cancelledAt !== null && cancelledAt <= now) return 'cancelled';
  if (now < validated) return 'validating_files';
  if (verdict !== null) return 'failed';
  if (now < started) return 'queued';
  return now < ended ? 'running' : 'succeeded';
}

export function isFinal(job: Job, now: number): boolean {
  return FINAL_JOB.has(statusAt(job, now));
}

const epochsOf = (data: JobData) =>
  typeof data.hyperparameters.n_epochs === 'number' ? data.hyperparameters.n_epochs : AUTO_EPOCHS;

const stepsPerEpoch = (data: JobData) => {
  const { batch_size: batch } = data.hyperparameters;
  return Math.max(1, Math.ceil(data.rows / (typeof batch === 'number' ? batch : AUTO_BATCH)));
};

const shortOf = (job: Job) => job.id.slice(-8);

export function tunedModel(job: Job): string {
  return `ft:${job.data.base}:${job.data.suffix}:${shortOf(job)}`;
}

export const resultFileId = (job: Job): string => `file-result-${job.id.slice('ftjob-'.length)}`;

/** Id of the job a result file belongs to, or null when it is no such id. */
export function jobOfResult(fileId: string): string | null {
  return fileId.startsWith('file-result-') ? `ftjob-${fileId.slice('file-result-'.length)}` : null;
}

/** Share of the training that is done, 0 to 1. */
function progressAt(job: Job, now: number): number {
  const { started, ended } = times(job);
  if (job.data.verdict !== null) return 0;
  const at = Math.min(now, endOf(job));
  return ended === started ? (at >= ended ? 1 : 0) : Math.max(0, Math.min(1, (at - started) / (ended - started)));
}

export function jobAt(job: Job, now: number): FineTuningJob {
  const { data } = job;
  const status = statusAt(job, now);
  const final = FINAL_JOB.has(status);
  const waiting = status === 'validating_files';
  const hyper = data.hyperparameters;
  const resolved = (value: number | 'auto', auto: number) => (value === 'auto' && !waiting ? auto : value);
  const hyperparameters = {
    n_epochs: resolved(hyper.n_epochs, AUTO_EPOCHS),
    batch_size: resolved(hyper.batch_size, AUTO_BATCH),
    learning_rate_multiplier: resolved(hyper.learning_rate_multiplier, 1),
    ...(hyper.beta === undefined ? {} : { beta: resolved(hyper.beta, 0.1) }),
  };
  return {
    id: job.id,
    object: 'fine_tuning.job',
    created_at: seconds(job.createdAt),
    error: status === 'failed' ? data.verdict : null,
    fine_tuned_model: status === 'succeeded' ? tunedModel(job) : null,
    finished_at: final ? seconds(endOf(job)) : null,
    hyperparameters,
    method: { type: data.method, [data.method]: { hyperparameters } },
    model: data.model,
    organization_id: job.organisationId,
    result_files: status === 'succeeded' && !data.resultRemoved ? [resultFileId(job)] : [],
    status,
    trained_tokens: final ? Math.floor(data.tokens * epochsOf(data) * progressAt(job, now)) : null,
    training_file: data.training_file,
    validation_file: data.validation_file,
    integrations: data.integrations,
    seed: data.seed,
    estimated_finish: status === 'running' ? seconds(times(job).ended) : null,
    ...Object.fromEntries(Object.entries(data.cloud ?? {}).filter(([, value]) => value !== null)),
    ...(data.metadata === null ? {} : { metadata: data.metadata }),
    ...MARK,
  };
}

const round = (value: number) => Math.round(value * 1e6) / 1e6;

interface Metrics {
  readonly step: number;
  readonly train_loss: number;
  readonly train_mean_token_accuracy: number;
  readonly valid_loss?: number;
  readonly valid_mean_token_accuracy?: number;
  readonly full_valid_loss?: number;
  readonly full_valid_mean_token_accuracy?: number;
}

/** Falls from step to step towards a floor; both ends come from the hash, and no chance plays a part. */
function metricsAt(data: JobData, step: number): Metrics {
  const bytes = createHash('sha256').update(data.hash).digest();
  const top = 1.6 + (bytes.readUInt8(0) / 255) * 1.2;
  const floor = 0.15 + (bytes.readUInt8(1) / 255) * 0.25;
  const share = step / (stepsPerEpoch(data) * epochsOf(data));
  const train = floor + (top - floor) * Math.exp(-4 * share);
  const accuracy = (loss: number) => round(Math.max(0, 1 - loss / 3));
  // A part of the validation rows at each step, all of them at a checkpoint.
  const valid = train * 1.08 + 0.02;
  const full = train * 1.06 + 0.02;
  return {
    step,
    train_loss: round(train),
    train_mean_token_accuracy: accuracy(train),
    ...(data.validation_file === null
      ? {}
      : {
          valid_loss: round(valid),
          valid_mean_token_accuracy: accuracy(valid),
          full_valid_loss: round(full),
          full_valid_mean_token_accuracy: accuracy(full),
        }),
  };
}

interface Epoch {
  readonly number: number;
  readonly step: number;
  readonly at: number;
}

/** Epochs that have ended by `now`. */
function epochsAt(job: Job, now: number): Epoch[] {
  const { started, ended } = times(job);
  const count = epochsOf(job.data);
  const out: Epoch[] = [];
  if (job.data.verdict !== null) return out;
  for (let number = 1; number <= count; number++) {
    const at = started + Math.round(((ended - started) * number) / count);
    if (at > now || (job.data.cancelledAt !== null && at > job.data.cancelledAt)) break;
    out.push({ number, step: number * stepsPerEpoch(job.data), at });
  }
  return out;
}

/** One for each epoch that has ended, newest first. The last one is the tuned model itself. */
export function checkpointsAt(job: Job, now: number): JobCheckpoint[] {
  const last = epochsOf(job.data);
  return epochsAt(job, now)
    .map(
      (epoch): JobCheckpoint => ({
        id: `ftckpt-${job.id.slice('ftjob-'.length)}-${epoch.number}`,
        object: 'fine_tuning.job.checkpoint',
        created_at: seconds(epoch.at),
        fine_tuned_model_checkpoint:
          epoch.number === last ? tunedModel(job) : `${tunedModel(job)}:ckpt-step-${epoch.step}`,
        step_number: epoch.step,
        metrics: { ...metricsAt(job.data, epoch.step) },
        fine_tuning_job_id: job.id,
        ...MARK,
      }),
    )
    .reverse();
}

/** Newest first. */
export function eventsAt(job: Job, now: number): JobEvent[] {
  const { data } = job;
  const { validated, started, ended } = times(job);
  const cancelled = data.cancelledAt;
  const steps = stepsPerEpoch(data) * epochsOf(data);
  const all: { at: number; level: JobEvent['level']; message: string; data?: object }[] = [];
  const add = (at: number, level: JobEvent['level'], message: string, more?: object) =>
    all.push({ at, level, message, ...(more === undefined ? {} : { data: more }) });
  add(job.createdAt, 'info', `Created fine-tuning job: ${job.id}`);
  add(job.createdAt, 'info', `Validating training file: ${data.training_file}`);
  if (data.verdict !== null) {
    add(validated, 'error', `The job failed: ${data.verdict.message}`);
  } else {
    add(validated, 'info', 'Files validated, moving job to queued state');
    add(started, 'info', 'Fine-tuning job started');
    for (const epoch of epochsAt(job, Number.POSITIVE_INFINITY)) {
      const metrics = metricsAt(data, epoch.step);
      add(epoch.at, 'info', `Step ${epoch.step}/${steps}: training loss=${metrics.train_loss.toFixed(2)}`, metrics);
    }
    add(ended, 'info', `New fine-tuned model created: ${tunedModel(job)}`);
    add(ended, 'info', 'The job has successfully completed');
  }
  const happened = all.filter((event) => event.at <= now && (cancelled === null || event.at <= cancelled));
  if (cancelled !== null && cancelled <= now) {
    happened.push({ at: cancelled, level: 'info', message: 'The job was cancelled' });
  }
  return happened
    .map(
      (event, index): JobEvent => ({
        object: 'fine_tuning.job.event',
        id: `ftevent-${job.id.slice('ftjob-'.length)}-${index + 1}`,
        created_at: seconds(event.at),
        level: event.level,
        message: event.message,
        type: event.data === undefined ? 'message' : 'metrics',
        data: event.data ?? {},
        ...MARK,
      }),
    )
    .reverse();
}

/** The result file of a succeeded job: at most 100 steps, evenly spaced, the last one among them. */
export function metricsCsv(job: Job): string {
  const steps = stepsPerEpoch(job.data) * epochsOf(job.data);
  const count = Math.min(METRICS, steps);
  const rows: string[] = [];
  for (let i = 1; i <= count; i++) {
    const metrics = metricsAt(job.data, Math.round((steps * i) / count));
    if (i === 1) rows.push(Object.keys(metrics).join(','));
    rows.push(Object.values(metrics).join(','));
  }
  return `${rows.join('\n')}\n`;
}
