/** What the row of a gateway-managed fine-tuning job holds, and how the job it shows may change. */
import { createHash } from 'node:crypto';
import type { HeldCaller } from '../../auth/held-caller.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobError,
  type JobRequest,
  type JobStatus,
} from '../../operations/training.ts';
import type { SystemTx, TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';

export type JobRow = Row<'training_jobs'>;

/** What to do next; each step may be begun again after a worker was lost. */
export type JobStep = 'validate' | 'upload' | 'create' | 'poll' | 'collect' | 'clean' | 'done';

export type Role = 'training' | 'validation';
export const ROLES: readonly Role[] = ['training', 'validation'];
/** The field of the job that names the file. */
export const FIELD = { training: 'training_file', validation: 'validation_file' } as const;

/** `training_jobs.request`: what was asked, to be read again by every step. */
export interface StoredRequest extends HeldCaller {
  /** JSON text of the create request, big numbers kept. */
  readonly body: string;
  /** Gateway headers of the calls to the provider, lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly dropParams: readonly string[];
}

export interface Checked {
  readonly rows: number;
  /** Estimate. */
  readonly tokens: number;
}

/**
 * An upload, noted before it begins: a worker that is killed leaves at most what can be found again by this name. `id`
 * once the provider has the file.
 */
export interface Uploaded {
  readonly filename: string;
  readonly id: string | null;
}

/** `training_jobs.progress`: what earlier steps left behind for later ones. */
export interface Progress {
  readonly checked?: Readonly<Partial<Record<Role, Checked>>>;
  readonly uploads?: Readonly<Partial<Record<Role, Uploaded>>>;
  /** The create request may have reached the provider. */
  readonly asked?: boolean;
  /** Looks at the provider without a change. */
  readonly quiet?: number;
  /** How the provider's job ended, while its result files are being copied. */
  readonly ended?: FineTuningJob;
  /** Why the provider did not cancel. */
  readonly refusal?: string;
}

export const requestOf = (row: JobRow): StoredRequest => row.request as unknown as StoredRequest;
export const progressOf = (row: JobRow): Progress => row.progress as Progress;
export const publicJob = (row: JobRow): FineTuningJob => row.job as unknown as FineTuningJob;

/** The job as it is answered: with the account it runs at, the workspace it is of, and what it has cost once it ended. */
export const shownJob = (row: JobRow): FineTuningJob => ({
  cost: null,
  ...publicJob(row),
  provider_slug: row.provider_slug,
  workspace_id: row.workspace_id,
});
export const stored = (value: object): Record<string, unknown> => value as Record<string, unknown>;
export const seconds = (ms: number): number => Math.floor(ms / 1000);

/** Columns that set `more` beside what is noted already. */
export function noted(row: JobRow, more: Progress): Pick<JobRow, 'progress'> {
  return { progress: stored({ ...progressOf(row), ...more }) };
}

/** 32 hexadecimal digits that the same parts always give: ids of what must exist once however often a step runs. */
export function digest(...parts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

/** The part of a job's id that names what it leaves at the provider. */
export const tagOf = (jobId: string): string => jobId.slice(jobId.lastIndexOf('_') + 1);

/** Lower-case letters, digits and hyphens, because some providers make it an id. */
export const filenameOf = (jobId: string, role: Role): string => `sluice-${tagOf(jobId)}-${role}.jsonl`;

/** A request for the provider: its own files, without what is only ours. */
export function upstreamRequest(job: JobRequest, files: Readonly<Record<Role, string | null>>): JobRequest {
  const body = { ...job.body };
  delete body.gateway_options;
  delete body.provider_options;
  const training_file = files.training ?? job.training_file;
  body.training_file = training_file;
  if (files.validation !== null) body.validation_file = files.validation;
  return { ...job, training_file, validation_file: files.validation, body };
}

const ORDER: readonly JobStatus[] = ['validating_files', 'queued', 'running'];

/**
 * The states a job passes on its way to `to`, in order; none when it would go back or leave a final state.
 * Providers skip states, and a look may come late: what lies between was passed all the same.
 */
function pathTo(from: JobStatus, to: JobStatus): readonly JobStatus[] {
  if (FINAL_JOB.has(from) || from === to) return [];
  if (to === 'failed' || to === 'cancelled') return [to];
  if (to === 'succeeded') return [...ORDER.slice(ORDER.indexOf(from) + 1), to];
  return ORDER.slice(ORDER.indexOf(from) + 1, ORDER.indexOf(to) + 1);
}

const PARAMS: ReadonlySet<string | null> = new Set(['training_file', 'validation_file']);

function errorOf(given: JobError | null): JobError {
  const param = given?.param ?? null;
  return {
    code: given?.code || 'provider_error',
    message: given?.message || 'The provider reports that the job failed, without a reason.',
    param: PARAMS.has(param) ? param : null,
  };
}

export interface Advance {
  readonly job: FineTuningJob;
  /** States entered, in order. */
  readonly entered: readonly JobStatus[];
}

/** What a job may take over from the one at the provider, which may be behind it. `now`: milliseconds. */
export function advance(
  job: FineTuningJob,
  upstream: Partial<FineTuningJob> & Pick<FineTuningJob, 'status'>,
  now: number,
): Advance {
  const entered = pathTo(job.status, upstream.status);
  if (FINAL_JOB.has(job.status)) return { job, entered };
  const status = entered.at(-1) ?? job.status;
  const final = FINAL_JOB.has(status);
  const won = status === 'succeeded';
  return {
    entered,
    job: {
      ...job,
      status,
      hyperparameters: known(job.hyperparameters, upstream.hyperparameters),
      seed: upstream.seed ?? job.seed,
      error: status === 'failed' ? errorOf(upstream.error ?? null) : null,
      fine_tuned_model: won ? (upstream.fine_tuned_model ?? null) : null,
      finished_at: final ? Math.max(upstream.finished_at ?? seconds(now), job.created_at) : null,
      trained_tokens: final ? (upstream.trained_tokens ?? null) : null,
      result_files: won ? (upstream.result_files ?? []) : [],
      estimated_finish: status === 'running' ? (upstream.estimated_finish ?? job.estimated_finish ?? null) : null,
    },
  };
}

type Settings = FineTuningJob['hyperparameters'];

/** With the settings the provider chose; its `auto` says nothing that the request did not say. */
function known(asked: Settings, given: Settings | undefined): Settings {
  const chosen = Object.entries(given ?? {}).filter(([, value]) => value !== null && value !== 'auto');
  return { ...asked, ...(Object.fromEntries(chosen) as Partial<Settings>) } as Settings;
}

export type NewEvent = Pick<Row<'training_events'>, 'id' | 'level' | 'message' | 'data' | 'created_at'>;

const STARTED = /\b(?:started|running|in progress)\b/i;

/**
 * When a job entered these states, in milliseconds and in order: as the provider says it by the job's own times and by its
 * `events` (oldest first), else when it was seen. `now`: of the look.
 */
export function enteredAt(
  entered: readonly JobStatus[],
  upstream: Partial<FineTuningJob>,
  events: readonly NewEvent[],
  now: number,
): number[] {
  const ms = (unix: number | null | undefined) => (typeof unix === 'number' ? unix * 1000 : now);
  let bound = now;
  return entered
    .toReversed()
    .map((status) => {
      const last = events.at(-1)?.created_at ?? 0;
      if (status === 'queued') bound = Math.min(bound, ms(upstream.created_at));
      else if (status === 'running')
        bound = Math.min(bound, events.find((event) => STARTED.test(event.message))?.created_at ?? now);
      else if (FINAL_JOB.has(status)) bound = Math.min(bound, Math.max(last, ms(upstream.finished_at)));
      return bound;
    })
    .reverse();
}

/** Events of the provider and transitions in one order of time; of the same time, what a job enters comes before what it does there. */
export function inOrder(events: readonly NewEvent[], transitions: readonly NewEvent[]): NewEvent[] {
  const final = (event: NewEvent) => FINAL_JOB.has((event.data as { status?: JobStatus }).status ?? 'queued');
  const rank = (event: NewEvent) => (transitions.includes(event) ? (final(event) ? 2 : 0) : 1);
  return [...events, ...transitions].sort((a, b) => a.created_at - b.created_at || rank(a) - rank(b));
}

/** The one event of a transition: its id follows from job and state, so that a second one cannot be stored. */
export function statusEvent(jobId: string, job: FineTuningJob, status: JobStatus, now: number): NewEvent {
  const id = `ftevent-${digest(jobId, 'status', status)}`;
  const data = { type: 'status', status };
  const at = { id, data, created_at: now };
  switch (status) {
    case 'validating_files':
      return { ...at, level: 'info', message: `Created; validating ${filesOf(job)}` };
    case 'queued':
      return { ...at, level: 'info', message: 'Files are valid; the job is queued at the provider' };
    case 'running':
      return { ...at, level: 'info', message: 'The provider has started the job' };
    case 'succeeded':
      return {
        ...at,
        level: 'info',
        message: `The job succeeded; the model is ${job.fine_tuned_model ?? 'not named'}${costText(job)}`,
        data: { ...data, cost: job.cost ?? null },
      };
    case 'failed':
      return { ...at, level: 'error', message: `The job failed: ${job.error?.message ?? 'no reason is known'}` };
    case 'cancelled':
      return { ...at, level: 'info', message: 'The job was cancelled' };
  }
}

function costText({ trained_tokens, cost }: FineTuningJob): string {
  const usd = (cost as { usd?: number } | null | undefined)?.usd;
  if (usd === undefined) return '. Its cost is not known: no price or no count of tokens is';
  return trained_tokens === null ? `. It cost about $${usd}` : `. It trained ${trained_tokens} tokens for $${usd}`;
}

const filesOf = ({ training_file, validation_file }: FineTuningJob): string =>
  validation_file === null ? training_file : `${training_file} and ${validation_file}`;

/** Columns of an advanced job. */
export function advanced({ job }: Advance, now: number): Partial<JobRow> {
  return { status: job.status, job: stored(job), last_updated_at: now };
}

/**
 * Writes the row, then its events behind those there are, never with a time before theirs; an event whose id is stored
 * already is left out. The row comes first: two writers then meet there and not at the numbers.
 */
export async function append(tx: SystemTx | TenantTx, row: JobRow, events: readonly NewEvent[]): Promise<void> {
  if (events.length === 0) return;
  const { id: job_id, organisation_id, workspace_id } = row;
  const tables = tx as SystemTx;
  const ids = events.map((event) => event.id);
  const there = await tables.list('training_events', { where: { organisation_id, job_id, id: { in: ids } } });
  const known = new Set(there.map((event) => event.id));
  const [last] = await tables.list('training_events', {
    where: { organisation_id, job_id },
    orderBy: [['seq', 'desc']],
    limit: 1,
  });
  let seq = last?.seq ?? 0;
  let time = last?.created_at ?? 0;
  for (const event of events) {
    if (known.has(event.id)) continue;
    known.add(event.id);
    seq += 1;
    time = Math.max(time, event.created_at);
    const created_at = time;
    await tables.insert('training_events', { ...event, created_at, organisation_id, workspace_id, job_id, seq });
  }
}
