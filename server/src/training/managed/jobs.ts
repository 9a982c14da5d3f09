/**
 * Fine-tuning jobs that Sluice runs itself (shape C, or `x-gateway-provider: gateway`): the data set lies in
 * Sluice's own file store, a provider of the workspace trains. The answers here come from the row; `job-runner.ts` moves
 * it on.
 */
import { heldCaller } from '../../auth/held-caller.ts';
import { tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { FINAL_JOB, type FineTuningJob, type JobRequest } from '../../operations/training.ts';
import type { JobsAdapter } from '../../providers/training.ts';
import { type Account, type ObjectAnswer, type ObjectCall, UNLIMITED } from '../../runtime/object-call.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { checkModel } from '../account.ts';
import { json } from '../answer.ts';
import { type DatasetReport, isValid } from '../datasets/index.ts';
import { shownCall } from '../dry-run.ts';
import { cleaned } from '../errors.ts';
import { invalid } from '../fields.ts';
import { notFound } from '../object-ownership.ts';
import { accountFor, type GatewayOptions, metadataOf, unnamedAccount } from '../options.ts';
import { listAnswer, queryOf, readPage, unknownAfter } from '../paging.ts';
import { bodyOf, readJob } from '../requests.ts';
import { endObject, usageRow } from '../usage/rows.ts';
import { costOf, NOTHING_USED } from '../usage/use.ts';
import { datasetFile, inspect } from './job-dataset.ts';
import { estimate } from './job-estimate.ts';
import {
  advance,
  advanced,
  append,
  FIELD,
  filenameOf,
  type JobRow,
  type JobStep,
  progressOf,
  publicJob,
  ROLES,
  type Role,
  type StoredRequest,
  seconds,
  shownJob,
  statusEvent,
  stored,
  upstreamRequest,
} from './job-row.ts';
import { jobRunner } from './job-runner.ts';
import {
  type Connection,
  connect,
  connectCall,
  JOB_DEFAULTS,
  type JobClaim,
  type JobServices,
  type JobSettings,
  NAMES,
  type Turn,
} from './job-services.ts';
import { filesOf } from './job-uploads.ts';
import type { ManagedJobsPort } from './ports.ts';

/** Headers of a create request that say where its files go; `gateway_options` may name them, too. */
const PLACES = [
  'x-gateway-object-store-bucket',
  'x-gateway-cloud-storage-bucket-name',
  'x-gateway-amz-server-side-encryption',
  'x-gateway-amz-server-side-encryption-aws-kms-key-id',
] as const;

/** The file of a create request that is only shown: the provider would give it its own id. */
const UNKNOWN_ID = 'file-of-this-job';
/** While a cancel call waits, how often it looks at the row: another node may work on it. */
const LOOK_MS = 500;
/** Longer than any job takes: what it used is then looked for in another way. */
const FOLLOWED_MS = 30 * 24 * 60 * 60_000;

/** Steps before the provider can have heard of the job. */
const EARLY: ReadonlySet<string> = new Set<JobStep>(['validate', 'upload']);

export interface ManagedJobs extends ManagedJobsPort {
  /** One turn at a claimed row: work for the scheduler on the table `training_jobs`. */
  run(claim: JobClaim): Promise<Turn>;
}

export function createManagedJobs(
  services: JobServices,
  options: {
    /** Tells the scheduler that a row was added or changed. */
    readonly wake: (jobId: string) => void;
    readonly settings?: Partial<JobSettings>;
  },
): ManagedJobs {
  const { tables, clock, pricer } = services;
  const settings: JobSettings = { ...JOB_DEFAULTS, ...options.settings };
  const waiting = new Map<string, Set<() => void>>();

  const changed = (id: string) => {
    for (const tell of waiting.get(id) ?? []) tell();
  };

  async function create(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const body = bodyOf(call);
    const { job, options: given } = readJob(body, call.dropParams);
    if (given === null && call.account === null) throw unnamedAccount();
    const account = await accountFor(call, given);
    const tenant = workspaceOf(call);
    const slug = account.stored?.slug;
    if (slug === undefined) {
      throw invalid(
        'gateway_options',
        'Sluice runs jobs with stored credentials only: name a provider in gateway_options.x-gateway-virtual-key.',
      );
    }
    checkModel(account, job.upstreamModel);
    call.named(job.model);
    const now = clock.now();
    const id = `gw_ftjob_${uuidv7(clock).replaceAll('-', '')}`;
    const headers = headersOf(call, given);
    try {
      const planned = prepare(call, account, job, { id, headers });
      for (const role of ROLES) {
        const file = job[FIELD[role]];
        if (file !== null) await datasetFile(services, tenant, file, role);
      }
      if (call.dryRun) return await dryRun(call, account, job, planned, tenant);
    } catch (error) {
      throw cleaned(underOptions(error), account.secrets);
    }
    const counted = (await call.limits?.(account, metadataOf(headers))) ?? UNLIMITED;
    const shown = firstJob(id, job, tenant, now);
    const request: StoredRequest = {
      body: JSON.stringify(body),
      headers,
      dropParams: [...call.dropParams],
      ...heldCaller(call.principal),
    };
    const due = await tables.now();
    const row: JobRow = {
      id,
      organisation_id: tenant.organisationId,
      workspace_id: tenant.workspaceId,
      provider_slug: slug,
      request: stored(request),
      status: 'validating_files',
      job: stored(shown),
      step: 'validate' satisfies JobStep,
      progress: {},
      upstream_id: null,
      cancel_requested: false,
      failures: 0,
      due_at: due,
      holder: null,
      held_until: 0,
      created_by: call.principal.keyId,
      created_at: now,
      last_updated_at: now,
    };
    const usage = usageRow(
      call,
      {
        id,
        kind: 'job',
        step: 'wait',
        slug,
        account: account.stored?.accountId ?? '',
        provider: account.provider.id,
        model: job.upstreamModel,
        endpoint: null,
        specs: counted.specs,
        metadata: { ...counted.metadata, _job_id: id },
        dueAt: due + FOLLOWED_MS,
      },
      clock,
      due,
    );
    await tables.write(tenant, async (tx) => {
      await tx.insert('training_jobs', row);
      await tx.insert('object_usage', usage);
      await append(tx, row, [statusEvent(id, shown, 'validating_files', now)]);
    });
    options.wake(id);
    return json(shownJob(row));
  }

  interface Planned extends Connection {
    readonly jobs: JobsAdapter;
    readonly prepared: ReturnType<JobsAdapter['prepare']>;
  }

  /** Everything the provider refuses without being asked, before anything is stored or sent. */
  function prepare(
    call: ObjectCall,
    account: Account,
    job: JobRequest,
    given: { readonly id: string; readonly headers: Readonly<Record<string, string>> },
  ): Planned {
    const connection = connectCall(services, call, account, { jobId: given.id, headers: given.headers });
    const { adapter, context } = connection;
    const { jobs } = adapter;
    if (jobs === undefined) {
      throw new SluiceError('unsupported_operation', `${account.provider.title} runs no fine-tuning jobs.`);
    }
    const files = filesOf(adapter);
    const planned = (role: Role): string | null => {
      if (job[FIELD[role]] === null) return null;
      const filename = filenameOf(given.id, role);
      const named = connectCall(services, call, account, { jobId: given.id, headers: given.headers, filename });
      return files.plannedId?.(filename, named.context) ?? UNKNOWN_ID;
    };
    const request = upstreamRequest(job, { training: planned('training'), validation: planned('validation') });
    return { ...connection, jobs, prepared: jobs.prepare(request, context) };
  }

  async function dryRun(
    call: ObjectCall,
    account: Account,
    job: JobRequest,
    { jobs, prepared }: Planned,
    tenant: TenantContext,
  ): Promise<ObjectAnswer> {
    const reports: Partial<Record<Role, DatasetReport>> = {};
    for (const role of ROLES) {
      const id = job[FIELD[role]];
      if (id !== null) reports[role] = await inspect(services, { tenant, id, role, signal: call.signal }, job, jobs);
    }
    const found = Object.values(reports);
    return json({
      object: 'dry_run',
      operation: call.operation,
      target: {
        path: account.path,
        provider: account.provider.id,
        slug: account.stored?.slug ?? null,
        model: job.upstreamModel,
      },
      valid: found.every(isValid),
      files: { training_file: reports.training ?? null, validation_file: reports.validation ?? null },
      estimate: estimate(reports.training?.tokens ?? 0, job, { account, jobs }, pricer, clock.now()),
      request: shownCall(prepared, account),
    });
  }

  async function find(call: ObjectCall): Promise<JobRow> {
    const tenant = workspaceOf(call);
    const id = call.params.fine_tuning_job_id ?? '';
    const row = await tables.read(tenant, (tx) => tx.find('training_jobs', { id, workspace_id: tenant.workspaceId }));
    if (row === undefined) throw notFound('job');
    return row;
  }

  async function list(call: ObjectCall): Promise<ObjectAnswer> {
    const tenant = workspaceOf(call);
    const { after, limit } = readPage(call.query, 20);
    const workspace_id = tenant.workspaceId;
    const rows = await tables.read(tenant, async (tx) => {
      const last = after === null ? null : await tx.find('training_jobs', { id: after, workspace_id });
      if (last === undefined) throw unknownAfter();
      return tx.list('training_jobs', {
        where: { workspace_id },
        ...(last === null
          ? null
          : { anyOf: [{ created_at: { lt: last.created_at } }, { created_at: last.created_at, id: { lt: last.id } }] }),
        orderBy: [
          ['created_at', 'desc'],
          ['id', 'desc'],
        ],
        limit: limit + 1,
      });
    });
    return listAnswer({ data: rows.slice(0, limit).map(shownJob), has_more: rows.length > limit }, false);
  }

  async function retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    return json(shownJob(await find(call)));
  }

  /**
   * A job the provider has not heard of is cancelled here and now. Else the worker tells the provider, and this call
   * waits for what comes of it.
   */
  async function cancel(call: ObjectCall): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    const tenant = workspaceOf(call);
    const { id } = await find(call);
    const due = await tables.now();
    const row = await tables.write(tenant, async (tx) => {
      const latest = await tx.find('training_jobs', { id });
      if (latest === undefined) throw notFound('job');
      if (FINAL_JOB.has(latest.status)) throw finalState(latest);
      const now = clock.now();
      const asked: Partial<JobRow> = { cancel_requested: true, due_at: due, last_updated_at: now };
      if (!EARLY.has(latest.step)) {
        const { refusal: _old, ...progress } = progressOf(latest);
        await tx.update('training_jobs', { id }, { ...asked, progress: stored(progress) });
        return { ...latest, ...asked };
      }
      const moved = advance(publicJob(latest), { status: 'cancelled' }, now);
      const next = { ...moved, job: { ...moved.job, cost: costOf(NOTHING_USED) } };
      const patch = { ...asked, ...advanced(next, now), step: 'clean' satisfies JobStep };
      await tx.update('training_jobs', { id }, patch);
      await endObject(tx, id, NOTHING_USED, clock, due);
      await append(tx, latest, [statusEvent(id, next.job, 'cancelled', now)]);
      return { ...latest, ...patch };
    });
    options.wake(id);
    const ended = FINAL_JOB.has(row.status) ? row : await outcome(call, id);
    if (ended.status === 'cancelled') return json(shownJob(ended));
    if (FINAL_JOB.has(ended.status)) throw finalState(ended);
    throw new SluiceError(
      'invalid_request',
      progressOf(ended).refusal ?? 'The provider did not cancel the job; send the call again later.',
    );
  }

  /** Waits until the worker has cancelled the job, found it ended, or was refused. */
  async function outcome(call: ObjectCall, id: string): Promise<JobRow> {
    const until = clock.monotonic() + settings.cancelMs;
    let tell: () => void = () => {};
    const told = () => tell();
    const those = waiting.get(id) ?? new Set();
    waiting.set(id, those.add(told));
    call.signal.addEventListener('abort', told);
    try {
      for (;;) {
        const next = new Promise<void>((resolve) => {
          tell = resolve;
        });
        const row = await find(call);
        if (FINAL_JOB.has(row.status) || !row.cancel_requested) return row;
        if (call.signal.aborted) throw call.signal.reason;
        const left = until - clock.monotonic();
        if (left <= 0) {
          throw new SluiceError(
            'timeout',
            'The provider has not confirmed the cancellation yet. The cancellation stays requested: retrieve the job to see its outcome.',
          );
        }
        const off = clock.after(Math.min(LOOK_MS, left), told);
        await next;
        off();
      }
    } finally {
      call.signal.removeEventListener('abort', told);
      those.delete(told);
      if (those.size === 0) waiting.delete(id);
    }
  }

  async function events(call: ObjectCall): Promise<ObjectAnswer> {
    const tenant = workspaceOf(call);
    const { after, limit } = readPage(call.query, 20, 1000);
    const { id: job_id } = await find(call);
    const rows = await tables.read(tenant, async (tx) => {
      const last = after === null ? null : await tx.find('training_events', { id: after, job_id });
      if (last === undefined) throw unknownAfter();
      return tx.list('training_events', {
        where: last === null ? { job_id } : { job_id, seq: { lt: last.seq } },
        orderBy: [['seq', 'desc']],
        limit: limit + 1,
      });
    });
    return listAnswer({ data: rows.slice(0, limit).map(shownEvent), has_more: rows.length > limit }, false);
  }

  async function checkpoints(call: ObjectCall): Promise<ObjectAnswer> {
    const page = readPage(call.query, 10);
    const row = await find(call);
    if (row.upstream_id === null) {
      if (page.after !== null) throw unknownAfter();
      return listAnswer({ data: [], has_more: false }, true);
    }
    const connection = await connect(services, row, { signal: call.signal });
    const { adapter, context, account } = connection;
    if (adapter.jobs === undefined)
      throw new SluiceError('unsupported_operation', 'The provider runs no jobs any more.');
    try {
      const { data, has_more } = await adapter.jobs.checkpoints(row.upstream_id, page, context);
      return listAnswer({ data: data.map((one) => ({ ...one, fine_tuning_job_id: row.id })), has_more }, true);
    } catch (error) {
      throw cleaned(error, account.secrets);
    }
  }

  return {
    create,
    list,
    retrieve,
    cancel,
    events,
    checkpoints,
    run: jobRunner({ services, settings, changed }),
  };
}

function workspaceOf(call: ObjectCall): TenantContext & { readonly workspaceId: string } {
  return tenantOf(call.principal, call.snapshot.workspaceId) as TenantContext & { readonly workspaceId: string };
}

/** The job before anything has happened to it. */
function firstJob(id: string, job: JobRequest, tenant: TenantContext, now: number): FineTuningJob {
  const { model, training_file, validation_file, hyperparameters, suffix, method, integrations, metadata, seed } = job;
  return {
    id,
    object: 'fine_tuning.job',
    created_at: seconds(now),
    error: null,
    fine_tuned_model: null,
    finished_at: null,
    hyperparameters,
    model,
    organization_id: tenant.organisationId,
    result_files: [],
    status: 'validating_files',
    trained_tokens: null,
    training_file,
    validation_file,
    integrations,
    // The provider's own choice follows with its first answer.
    seed: seed ?? 0,
    estimated_finish: null,
    suffix,
    method: { type: method, [method]: { hyperparameters } },
    metadata,
  };
}

const CREDENTIAL = /(?:^|-)(?:key|secret|token|password|credentials?|authorization)(?:-|$)/;

/**
 * What the calls to the provider carry, kept with the job: the request's words on places, then `gateway_options`. A
 * credential among them would lie there in the open and is refused, as is a name for the objects: two files would get it.
 */
function headersOf(call: ObjectCall, given: GatewayOptions | null): Record<string, string> {
  const out: Record<string, string> = {};
  for (const name of PLACES) {
    const value = call.header(name);
    if (value !== undefined) out[name] = value;
  }
  for (const [name, value] of Object.entries(given ?? {})) {
    const param = `gateway_options.${name}`;
    if (name === 'x-gateway-virtual-key' || name === 'x-gateway-provider') continue;
    if (NAMES.has(name)) throw invalid(param, `${param} cannot be used: Sluice names the files of its jobs itself.`);
    if (CREDENTIAL.test(name) && !PLACES.some((place) => place === name)) {
      throw invalid(param, `${param} cannot be used: the stored provider brings the credentials.`);
    }
    out[name] = value;
  }
  return out;
}

/** A header the caller could only send inside `gateway_options` is named by that. */
function underOptions(error: unknown): unknown {
  if (!(error instanceof SluiceError) || !error.param?.startsWith('x-gateway-')) return error;
  return error.reworded(error.message, { param: 'gateway_options', cause: error.cause });
}

/** 400 `AB01`. */
function finalState(row: JobRow): SluiceError {
  return new SluiceError(
    'validation',
    `The job has already ${row.status === 'cancelled' ? 'been cancelled' : row.status}.`,
  );
}

function shownEvent({ id, created_at, level, message, data }: Row<'training_events'>) {
  return {
    ...data,
    object: 'fine_tuning.job.event' as const,
    id,
    created_at: seconds(created_at),
    level,
    message,
  };
}
