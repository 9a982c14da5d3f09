/**
 * Runs gateway-managed fine-tuning jobs, one turn at a time: validate → upload → create → poll →
 * collect → clean. What a turn has done is in the row before the next begins, and each step can be begun again: a worker
 * that is killed is followed by one that looks first what is there already.
 */

import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { reserveDeferred } from '../../limits/ledger/job-usage.ts';
import { errorCode, errorStatus } from '../../operations/dialects/errors.ts';
import {
  FINAL_JOB,
  type FineTuningJob,
  type JobError,
  type JobEvent,
  type JobRequest,
} from '../../operations/training.ts';
import { withoutSecrets } from '../../providers/sent-secrets.ts';
import type { JobsAdapter } from '../../providers/training.ts';
import { cleaned, isMissing } from '../errors.ts';
import { ownershipOf } from '../object-ownership.ts';
import { readJob } from '../requests.ts';
import { aboutOf, endObject, limitSpecsOf, placeOf } from '../usage/rows.ts';
import { costOf, jobUse, NOTHING_USED, type ObjectUse, type Priced } from '../usage/use.ts';
import { checked, DatasetRefused, refusedRows } from './job-dataset.ts';
import { estimate, estimateText, USUAL_EPOCHS } from './job-estimate.ts';
import {
  advance,
  advanced,
  append,
  type Checked,
  digest,
  enteredAt,
  FIELD,
  inOrder,
  type JobRow,
  type JobStep,
  type NewEvent,
  noted,
  progressOf,
  publicJob,
  ROLES,
  type Role,
  requestOf,
  seconds,
  statusEvent,
  upstreamRequest,
} from './job-row.ts';
import {
  type Connection,
  connect,
  type JobClaim,
  type JobServices,
  type JobSettings,
  type Turn,
} from './job-services.ts';
import { copyResult, removeAll, uploadAll } from './job-uploads.ts';
import { mayStillBegin } from './rights.ts';

const NOW: Turn = { again: 0 };
const LEVELS: ReadonlySet<string> = new Set(['info', 'warn', 'error']);
/** Events of a provider copied at one look; more are left for the next. */
const EVENT_PAGES = 20;
const EVENT_PAGE = 100;
/** How far back a job whose creation was not answered is searched. */
const SEARCH_PAGES = 5;
const SEARCH_PAGE = 50;
const MICROS = 1_000_000;

/** Ends the job at once with this error. */
class GivenUp extends Error {
  readonly error: JobError;

  constructor(code: string, message: string) {
    super(message);
    this.name = 'GivenUp';
    this.error = { code, message, param: null };
  }
}

export interface JobRunnerParts {
  readonly services: JobServices;
  readonly settings: JobSettings;
  /** Told after each change of a job, for those who wait for it in this process. */
  readonly changed: (jobId: string) => void;
}

/** The create request of a job, as it was read when the job was made. */
function storedJob(row: JobRow): JobRequest {
  const { body, dropParams } = requestOf(row);
  const parsed = parseExact(body);
  if (!isObject(parsed)) throw new SluiceError('internal', 'A stored job request is no object.');
  return readJob(parsed, new Set(dropParams)).job;
}

export function jobRunner({ services, settings, changed }: JobRunnerParts): (claim: JobClaim) => Promise<Turn> {
  const { clock, log, pricer } = services;

  function jobsOf({ adapter }: Connection): JobsAdapter {
    if (adapter.jobs !== undefined) return adapter.jobs;
    throw new GivenUp('unsupported_operation', 'The provider runs no fine-tuning jobs any more.');
  }

  /** Brings the row where the provider's job is, with one event for each state it enters. */
  async function follow(
    claim: JobClaim,
    upstream: Partial<FineTuningJob> & Pick<FineTuningJob, 'status'>,
    more: { readonly columns?: Partial<JobRow>; readonly events?: readonly NewEvent[] } = {},
  ): Promise<void> {
    const priced = FINAL_JOB.has(upstream.status) ? await pricedOf(claim.row) : null;
    await claim.write(async (tx, row, now) => {
      const moved = advance(publicJob(row), upstream, now);
      const { entered } = moved;
      const use = FINAL_JOB.has(moved.job.status) ? usedBy(row, moved.job, priced) : null;
      const next = use === null ? moved : { ...moved, job: { ...moved.job, cost: costOf(use) } };
      const { job } = next;
      // The first end of the job books what it used; later ones find that done.
      if (use !== null) await endObject(tx, row.id, use, clock, now);
      const patch: Partial<JobRow> = {
        ...advanced(next, now),
        ...more.columns,
        ...(FINAL_JOB.has(job.status) ? { step: 'clean' satisfies JobStep } : null),
      };
      await tx.update('training_jobs', { id: row.id }, patch);
      const events = more.events ?? [];
      const at = enteredAt(entered, upstream, events, now);
      const transitions = entered.map((status, i) => statusEvent(row.id, job, status, at[i] ?? now));
      await append(tx, row, inOrder(events, transitions));
      return patch;
    });
    changed(claim.row.id);
  }

  /** Null when the account is not there any more. */
  async function pricedOf(row: JobRow): Promise<Priced | null> {
    const connection = await connect(services, row).catch(() => null);
    return connection === null ? null : { account: connection.account, pricer, at: clock.now() };
  }

  async function validate(claim: JobClaim): Promise<Turn> {
    const signal = AbortSignal.any([claim.signal, claim.cancelled]);
    const connection = await connect(services, claim.row, { signal });
    const jobs = jobsOf(connection);
    const job = storedJob(claim.row);
    const found: Partial<Record<Role, Checked>> = {};
    for (const role of ROLES) {
      const id = job[FIELD[role]];
      if (id === null) continue;
      found[role] = await checked(services, { tenant: connection.tenant, id, role, signal }, job, jobs);
    }
    const costs = estimate(
      found.training?.tokens ?? 0,
      job,
      { account: connection.account, jobs },
      pricer,
      clock.now(),
    );
    const rows = ROLES.flatMap((role) => {
      const one = found[role];
      return one === undefined ? [] : [`${FIELD[role]} has ${one.rows} rows and ${one.tokens} tokens`];
    });
    const booked = claim.write(async (tx, row, now) => {
      const counted = await tx.find('object_usage', { id: row.id });
      if (counted !== undefined) {
        const expected = {
          cost: Math.ceil((costs.cost?.usd ?? 0) * MICROS),
          tokens: costs.trained_tokens,
          requests: 0,
        };
        await reserveDeferred(
          tx,
          placeOf(counted),
          limitSpecsOf(counted),
          expected,
          aboutOf(counted).until,
          clock,
          now,
        );
      }
      const patch: Partial<JobRow> = { ...noted(row, { checked: found }), step: 'upload' satisfies JobStep };
      await tx.update('training_jobs', { id: row.id }, patch);
      await append(tx, row, [
        {
          id: `ftevent-${digest(row.id, 'estimate')}`,
          level: 'info',
          message: `Valid: ${rows.join(', ')}. ${estimateText(costs)}`,
          data: { type: 'estimate', files: found, estimate: costs },
          created_at: now,
        },
      ]);
      return patch;
    });
    try {
      await booked;
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'usage_limit_exceeded') throw error;
      throw new GivenUp('quota_exceeded', error.message);
    }
    return NOW;
  }

  async function upload(claim: JobClaim): Promise<Turn> {
    await mayStillBegin(services, claim.row, requestOf(claim.row));
    await uploadAll(services, claim, storedJob(claim.row));
    await claim.write(async () => ({ step: 'create' satisfies JobStep }));
    return NOW;
  }

  /** The provider's job that an unanswered create request may have made. */
  async function search(job: JobRequest, jobs: JobsAdapter, { context }: Connection): Promise<FineTuningJob | null> {
    const named = await jobs.findByName?.(job, context);
    if (named !== undefined && named !== null) return named;
    // The training file was uploaded for this one job, so it names the job as surely as an id. Some providers know their
    // jobs by name only, and this one may have none.
    let after: string | null = null;
    for (let i = 0; i < SEARCH_PAGES; i++) {
      const page: Awaited<ReturnType<JobsAdapter['list']>> = await jobs.list({ after, limit: SEARCH_PAGE }, context);
      const found = page.data.find((one) => one.training_file === job.training_file);
      if (found !== undefined) return found;
      after = page.data.at(-1)?.id ?? null;
      if (!page.has_more || after === null) return null;
    }
    return null;
  }

  function wanted(row: JobRow): JobRequest {
    const { uploads } = progressOf(row);
    return upstreamRequest(storedJob(row), {
      training: uploads?.training?.id ?? null,
      validation: uploads?.validation?.id ?? null,
    });
  }

  async function create(claim: JobClaim): Promise<Turn> {
    const job = wanted(claim.row);
    // A fresh context each: the ids it gives are then the same in every try.
    const open = () => connect(services, claim.row, { signal: claim.signal });
    let upstream: FineTuningJob | null = null;
    if (progressOf(claim.row).asked) {
      const connection = await open();
      upstream = await search(job, jobsOf(connection), connection);
    } else {
      await mayStillBegin(services, claim.row, requestOf(claim.row));
      await claim.write(async (_tx, row) => noted(row, { asked: true }));
    }
    const connection = await open();
    const jobs = jobsOf(connection);
    upstream ??= await jobs.create(job, connection.context);
    const { id } = upstream;
    await ownershipOf(services, connection.account, {
      tenant: connection.tenant,
      createdBy: claim.row.created_by,
    })?.claim('job', [id]);
    // Even a job that ended at once is first looked at: its events and results come with that.
    const status = FINAL_JOB.has(upstream.status) ? 'queued' : upstream.status;
    await follow(claim, { ...upstream, status }, { columns: { upstream_id: id, step: 'poll' satisfies JobStep } });
    return claim.cancelled.aborted ? NOW : { again: settings.pollMs[0] };
  }

  async function poll(claim: JobClaim): Promise<Turn> {
    const id = upstreamId(claim.row);
    const connection = await connect(services, claim.row, { signal: claim.signal });
    const jobs = jobsOf(connection);
    const upstream = await jobs.retrieve(id, connection.context);
    const events = await newEvents(claim, jobs, connection, id, FINAL_JOB.has(upstream.status));
    const before = publicJob(claim.row);
    if (upstream.status === 'succeeded') {
      const ended = { ...upstream };
      await follow(
        claim,
        { ...upstream, status: 'running', finished_at: null },
        {
          events,
          columns: {
            ...noted(claim.row, { ended }),
            step: 'collect' satisfies JobStep,
          },
        },
      );
      return NOW;
    }
    const quiet = upstream.status === before.status && events.length === 0 ? (progressOf(claim.row).quiet ?? 0) + 1 : 0;
    await follow(claim, upstream, { events, columns: noted(claim.row, { quiet }) });
    if (FINAL_JOB.has(publicJob(claim.row).status)) return NOW;
    const [first, most] = settings.pollMs;
    return { again: Math.min(most, first * 1.5 ** Math.min(quiet, 20)) };
  }

  /** What the provider has said since the last look, oldest first. */
  async function newEvents(
    claim: JobClaim,
    jobs: JobsAdapter,
    connection: Connection,
    upstreamId: string,
    last: boolean,
  ): Promise<NewEvent[]> {
    const { context } = connection;
    const { id: job_id, organisation_id } = claim.row;
    const fresh: NewEvent[] = [];
    let after: string | null = null;
    try {
      for (let i = 0; i < EVENT_PAGES; i++) {
        const page: Awaited<ReturnType<JobsAdapter['events']>> = await jobs.events(
          upstreamId,
          { after, limit: EVENT_PAGE },
          context,
        );
        const copies = page.data.map((event) => copyOf(job_id, event, connection.account.secrets, clock.now()));
        const ids = copies.map((event) => event.id);
        const known = new Set(
          (
            await services.tables.systemRead((tx) =>
              tx.list('training_events', { where: { organisation_id, job_id, id: { in: ids } } }),
            )
          ).map((event) => event.id),
        );
        fresh.push(...copies.filter((event) => !known.has(event.id)));
        after = page.data.at(-1)?.id ?? null;
        if (!page.has_more || after === null || known.size > 0) break;
      }
    } catch (error) {
      // While the job goes on the next look tries again; after its end there is none. Half of them would hide the rest.
      const verdict = verdictOf(error);
      if (claim.signal.aborted || (last && verdict !== 'rejected' && !spent(claim.row, verdict))) throw error;
      log.warn('events of a job could not be read', { job: job_id, error: String(error) });
      return [];
    }
    return fresh.reverse();
  }

  /** Copies result files, then lets the job succeed. */
  async function collect(claim: JobClaim): Promise<Turn> {
    const { ended } = progressOf(claim.row);
    if (ended === undefined) throw new SluiceError('internal', 'A job has no end to collect.');
    const connection = await connect(services, claim.row, { signal: claim.signal });
    const kept: string[] = [];
    const events: NewEvent[] = [];
    for (const source of ended.result_files) {
      const id = `gw_file_${digest(claim.row.id, 'result', source)}`;
      try {
        await copyResult(services, claim, connection, source, id);
        kept.push(id);
      } catch (error) {
        const verdict = verdictOf(error);
        if (claim.signal.aborted || !(verdict === 'rejected' || spent(claim.row, verdict))) throw error;
        events.push({
          id: `ftevent-${digest(claim.row.id, 'result lost', source)}`,
          level: 'warn',
          message: `The result file ${source} could not be copied from the provider: ${messageOf(error, connection)}`,
          data: { type: 'result_file', provider_file: source },
          created_at: clock.now(),
        });
      }
    }
    await follow(claim, { ...ended, result_files: kept }, { events });
    return NOW;
  }

  /** Somebody asked to cancel: the provider is asked first where it may have the job. */
  async function cancel(claim: JobClaim): Promise<Turn> {
    const { step } = claim.row;
    if (step === 'create' && progressOf(claim.row).asked) {
      const connection = await connect(services, claim.row, { signal: claim.signal });
      const found = await search(wanted(claim.row), jobsOf(connection), connection);
      if (found !== null) {
        await claim.write(async () => ({ upstream_id: found.id, step: 'poll' satisfies JobStep }));
        return NOW;
      }
    }
    if (claim.row.upstream_id === null) {
      await follow(claim, { status: 'cancelled' });
      return NOW;
    }
    const id = claim.row.upstream_id;
    const connection = await connect(services, claim.row, { signal: claim.signal });
    const jobs = jobsOf(connection);
    let after: FineTuningJob;
    try {
      after = await jobs.cancel(id, connection.context);
    } catch (error) {
      if (claim.signal.aborted || verdictOf(error) !== 'rejected') throw error;
      // Most refuse because the job has ended meanwhile.
      after = await jobs.retrieve(id, connection.context);
      if (!FINAL_JOB.has(after.status)) {
        const refusal = `The provider did not cancel the job: ${messageOf(error, connection)}`;
        await claim.write(async (_tx, row) => ({ cancel_requested: false, ...noted(row, { refusal }) }));
        changed(claim.row.id);
        return { again: settings.pollMs[0] };
      }
    }
    // A job that ended before the provider heard of it keeps its end, with results and all.
    if (after.status === 'succeeded' || after.status === 'failed') return poll(claim);
    const events = await newEvents(claim, jobs, connection, id, false);
    await follow(claim, { ...after, status: 'cancelled', finished_at: seconds(clock.now()) }, { events });
    return NOW;
  }

  /** The job has ended: what a failed or cancelled one uploaded serves nobody. */
  async function clean(claim: JobClaim): Promise<Turn> {
    const { row } = claim;
    if (row.status !== 'succeeded') {
      // A create request without an answer may have made a job that nobody would stop.
      if (row.upstream_id === null && progressOf(row).asked) await stopUnknown(claim);
      await removeAll(services, claim);
    }
    changed(claim.row.id);
    return 'done';
  }

  async function stopUnknown(claim: JobClaim): Promise<void> {
    const connection = await connect(services, claim.row, { signal: claim.signal });
    const jobs = jobsOf(connection);
    const found = await search(wanted(claim.row), jobs, connection);
    if (found !== null && !FINAL_JOB.has(found.status)) {
      await jobs.cancel(found.id, connection.context).catch((error: unknown) => {
        // It has ended meanwhile, which is as good.
        if (verdictOf(error) !== 'rejected') throw error;
      });
    }
    await claim.write(async (_tx, row) => noted(row, { asked: false }));
  }

  async function fail(claim: JobClaim, error: JobError, events: readonly NewEvent[] = []): Promise<Turn> {
    await follow(claim, { status: 'failed', error }, { events });
    return NOW;
  }

  const spent = (row: JobRow, verdict: Verdict): boolean =>
    verdict !== 'rejected' && row.failures + 1 >= settings.patience[verdict];

  async function failed(claim: JobClaim, error: unknown): Promise<Turn> {
    const { row } = claim;
    const step = row.step as JobStep;
    const verdict = verdictOf(error);
    const over = spent(row, verdict);
    if (step === 'clean') {
      if (!over && verdict !== 'rejected') throw error;
      log.warn('files of a job could not be removed at the provider', { job: row.id, error: String(error) });
      await claim.write(async (tx, latest, now) => {
        await append(tx, latest, [leftBehind(latest, now)]);
        return {};
      });
      return 'done';
    }
    if (error instanceof DatasetRefused) return fail(claim, error.error, error.events(row.id, clock.now()));
    if (error instanceof GivenUp) return fail(claim, error.error);
    if (refusedRows(error)) {
      return fail(claim, { code: `invalid_${error.param}`, message: error.message, param: error.param });
    }
    if (verdict === 'rejected') {
      // A job that runs is not given up for one odd answer.
      if (step === 'poll' && row.failures + 1 < settings.patience.refused) throw error;
      const gone = step === 'poll' && isMissing(error);
      const message = gone ? 'The provider does not know the job any more.' : messageOf(error, null);
      return fail(claim, { code: codeOf(error), message, param: null });
    }
    if (!over) throw error;
    const why = {
      unreachable: 'The provider could not be reached for too long',
      refused: 'The provider account of the job cannot be used',
      internal: 'The gateway could not continue the job',
    }[verdict];
    const detail = verdict === 'internal' ? '' : `: ${messageOf(error, null)}`;
    return fail(claim, { code: 'provider_error', message: `${why}${detail}`, param: null });
  }

  return async function run(claim) {
    const { row } = claim;
    try {
      if (row.step === 'clean') return await clean(claim);
      if (FINAL_JOB.has(row.status)) {
        await claim.write(async () => ({ step: 'clean' satisfies JobStep }));
        return NOW;
      }
      if (row.cancel_requested && row.step !== 'collect') return await cancel(claim);
      switch (row.step as JobStep) {
        case 'validate':
          return await validate(claim);
        case 'upload':
          return await upload(claim);
        case 'create':
          return await create(claim);
        case 'poll':
          return await poll(claim);
        case 'collect':
          return await collect(claim);
        default:
          return 'done';
      }
    } catch (error) {
      if (claim.signal.aborted || claim.cancelled.aborted) throw error;
      return failed(claim, cleaned(error, await secretsOfRow(row)));
    }
  };

  async function secretsOfRow(row: JobRow): Promise<readonly string[]> {
    const connection = await connect(services, row).catch(() => null);
    return connection?.account.secrets ?? [];
  }
}

/** What a job used that ends now as `job`; before it ran at the provider that is nothing. */
function usedBy(row: JobRow, job: FineTuningJob, priced: Priced | null): ObjectUse {
  const { asked, checked } = progressOf(row);
  if (row.upstream_id === null && asked !== true) return NOTHING_USED;
  const { upstreamModel, hyperparameters } = storedJob(row);
  const epochs = typeof hyperparameters.n_epochs === 'number' ? hyperparameters.n_epochs : USUAL_EPOCHS;
  const tokens = checked?.training?.tokens;
  // A provider takes nothing for a job that failed, unless it tells otherwise.
  const began = job.status !== 'failed' && row.status === 'running';
  return jobUse(job, upstreamModel, priced, { began, expected: tokens === undefined ? null : tokens * epochs });
}

/** What to do about an error: see `JobSettings.patience`; `rejected` is final at once. */
type Verdict = 'unreachable' | 'refused' | 'internal' | 'rejected';

const PASSING: ReadonlySet<number> = new Set([408, 409, 425, 429]);

export function verdictOf(error: unknown): Verdict {
  if (error instanceof GivenUp) return 'rejected';
  if (!(error instanceof SluiceError)) return 'internal';
  const status = errorStatus(error);
  switch (error.kind) {
    case 'unsupported_operation':
      return 'rejected';
    case 'out_of_service':
    case 'unauthenticated':
    case 'malformed_call':
      return 'refused';
    case 'internal':
      return 'internal';
    case 'provider_error':
      if (status === 401 || status === 402 || status === 403) return 'refused';
      return status >= 500 || PASSING.has(status) ? 'unreachable' : 'rejected';
    default:
      return status >= 500 || PASSING.has(status) || error.kind === 'client_closed' ? 'unreachable' : 'rejected';
  }
}

function messageOf(error: unknown, connection: Connection | null): string {
  const clean = connection === null ? error : cleaned(error, connection.account.secrets);
  return clean instanceof SluiceError ? clean.message : 'an unexpected error.';
}

/** Codes of failed jobs; a provider's own code says more than ours. */
function codeOf(error: unknown): string {
  return (error instanceof SluiceError ? errorCode(error) : null) ?? 'provider_error';
}

function upstreamId(row: JobRow): string {
  if (row.upstream_id !== null) return row.upstream_id;
  throw new SluiceError('internal', 'A job that is looked at has no id at the provider.');
}

/** An event of the provider, made fit for the store, which takes whole milliseconds and no U+0000. */
function copyOf(jobId: string, event: JobEvent, secrets: readonly string[], now: number): NewEvent {
  const { object: _object, id, created_at, level, message, ...data } = event;
  const at = Math.round(created_at * 1000);
  return {
    id: `ftevent-${digest(jobId, 'provider', id === '' ? `${created_at} ${message}` : id)}`,
    level: LEVELS.has(level) ? level : 'info',
    message: withoutSecrets(message, secrets).replaceAll('\0', '').toWellFormed(),
    data: { ...data, type: 'provider' },
    created_at: Number.isSafeInteger(at) ? at : now,
  };
}

function leftBehind(row: JobRow, now: number): NewEvent {
  const names = Object.values(progressOf(row).uploads ?? {}).map((one) => one.id ?? one.filename);
  return {
    id: `ftevent-${digest(row.id, 'left behind')}`,
    level: 'warn',
    message: `These files of the job could not be removed at the provider: ${names.join(', ')}`,
    data: { type: 'left_behind', provider_files: names },
    created_at: now,
  };
}
