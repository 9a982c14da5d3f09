/** A provider that trains, in memory, and what else a gateway-managed job needs beside the store. */

import { Readable } from 'node:stream';
import type { Principal } from '../../src/auth/principal.ts';
import { createScheduler, type Scheduler } from '../../src/jobs/scheduler.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { IN_ITS_STEAD } from '../../src/operations/dialects/provider-error.ts';
import type { OperationId } from '../../src/operations/operation.ts';
import {
  FINAL_JOB,
  type FileObject,
  type FineTuningJob,
  type JobCheckpoint,
  type JobEvent,
  type JobRequest,
  type JobStatus,
  type Page,
  type PageRequest,
} from '../../src/operations/training.ts';
import { createPricer } from '../../src/pricing/pricer.ts';
import { NO_SETTINGS } from '../../src/providers/account.ts';
import type { Provider } from '../../src/providers/provider.ts';
import { createTokenCache } from '../../src/providers/token-cache.ts';
import type { TrainingAdapter } from '../../src/providers/training.ts';
import type { ObjectCall } from '../../src/runtime/object-call.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import type { Blobs, Tables } from '../../src/store/ports.ts';
import { accountOfStored } from '../../src/training/account.ts';
import type { JobServices, JobSettings } from '../../src/training/managed/job-services.ts';
import { createManagedJobs, type ManagedJobs } from '../../src/training/managed/jobs.ts';
import { alreadyOpen } from './runtime.ts';

async function bytesOf(stream: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream as AsyncIterable<Buffer>) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

export const missing = (): SluiceError =>
  new SluiceError('provider_error', 'no such object', { provider: IN_ITS_STEAD.missing });
export const down = (): SluiceError => new SluiceError('upstream_unreachable', 'The provider could not be reached.');

interface UpstreamJob {
  job: FineTuningJob;
  readonly request: JobRequest;
  readonly events: JobEvent[];
  readonly checkpoints: JobCheckpoint[];
}

/**
 * The provider's side: what it holds outlives every gateway. An upload or job exists from the moment its call was made,
 * whether or not the answer arrived.
 */
export class Trainer {
  readonly files = new Map<string, { readonly file: FileObject; readonly text: string }>();
  /** Uploads that began and did not end. */
  readonly open = new Set<string>();
  readonly jobs = new Map<string, UpstreamJob>();
  readonly results = new Map<string, string>();
  /** Calls by name, in order. */
  readonly calls: string[] = [];
  /** States a job takes with each look, the last one stays. */
  script: readonly JobStatus[] = ['queued', 'running', 'succeeded'];
  #count = 0;
  #looks = new Map<string, number>();

  file(id: string, filename: string, text: string): FileObject {
    const file: FileObject = {
      id,
      object: 'file',
      bytes: Buffer.byteLength(text),
      created_at: 1_700_000_000,
      filename,
      purpose: 'fine-tune',
      status: 'processed',
    };
    this.files.set(id, { file, text });
    return file;
  }

  create(request: JobRequest): FineTuningJob {
    for (const id of [request.training_file, request.validation_file]) {
      if (id !== null && !this.files.has(id)) throw new Error(`a job names the unknown file ${id}`);
    }
    const id = `ftjob-${++this.#count}`;
    const job: FineTuningJob = {
      id,
      object: 'fine_tuning.job',
      created_at: 1_700_000_000,
      error: null,
      fine_tuned_model: null,
      finished_at: null,
      hyperparameters: { ...request.hyperparameters },
      model: request.upstreamModel,
      organization_id: 'upstream',
      result_files: [],
      status: 'validating_files',
      trained_tokens: null,
      training_file: request.training_file,
      validation_file: request.validation_file,
      seed: 7,
    };
    this.jobs.set(id, { job, request, events: [], checkpoints: [] });
    this.say(id, 'Created');
    return job;
  }

  say(id: string, message: string): void {
    const { events } = this.get(id);
    events.push({
      object: 'fine_tuning.job.event',
      id: `${id}-e${events.length}`,
      created_at: 1_700_000_000 + events.length,
      level: 'info',
      message,
    });
  }

  get(id: string): UpstreamJob {
    const found = this.jobs.get(id);
    if (found === undefined) throw missing();
    return found;
  }

  /** Each look moves the job one state on. */
  look(id: string): FineTuningJob {
    const held = this.get(id);
    if (FINAL_JOB.has(held.job.status)) return held.job;
    const at = this.#looks.get(id) ?? 0;
    this.#looks.set(id, at + 1);
    this.become(id, this.script[Math.min(at, this.script.length - 1)] ?? 'running');
    return held.job;
  }

  become(id: string, status: JobStatus): void {
    const held = this.get(id);
    if (held.job.status !== status) this.say(id, `Now ${status}`);
    const final = FINAL_JOB.has(status);
    if (status === 'succeeded') this.results.set(`result-${id}`, 'step,loss\n1,0.5\n');
    held.job = {
      ...held.job,
      status,
      finished_at: final ? 1_700_000_900 : null,
      fine_tuned_model: status === 'succeeded' ? `ft:${held.request.upstreamModel}:${id}` : null,
      trained_tokens: status === 'succeeded' ? 1234 : null,
      result_files: status === 'succeeded' ? [`result-${id}`] : [],
      error: status === 'failed' ? { code: 'server_error', message: 'the trainer broke', param: null } : null,
      estimated_finish: status === 'running' ? 1_700_000_800 : null,
    };
  }

  cancel(id: string): FineTuningJob {
    const { job } = this.get(id);
    if (FINAL_JOB.has(job.status)) {
      throw new SluiceError('provider_error', `the job is ${job.status}`, {
        provider: { status: 400, type: 'invalid_request_error', code: null },
      });
    }
    this.become(id, 'cancelled');
    return this.get(id).job;
  }
}

function page<T extends { readonly id: string }>(all: readonly T[], { after, limit }: PageRequest): Page<T> {
  const from = after === null ? 0 : all.findIndex((one) => one.id === after) + 1;
  return { data: all.slice(from, from + limit), has_more: all.length > from + limit };
}

/** Called around each call of a node to the provider; what it throws is what the call throws. */
export type Around = (name: string, when: 'before' | 'after') => void | Promise<void>;

/** The provider as one node calls it. `multipart`: an upload that is cut leaves a trace, as in an object store. */
export function adapterOf(trainer: Trainer, around: Around): TrainingAdapter {
  const call = async <T>(name: string, act: () => T | Promise<T>): Promise<T> => {
    await around(name, 'before');
    trainer.calls.push(name);
    const result = await act();
    await around(name, 'after');
    return result;
  };
  return {
    files: {
      purposes: new Set(['fine-tune']),
      objectUris: false,
      upload: (file) =>
        call('upload', async () => {
          trainer.open.add(file.filename);
          await around('upload part', 'before');
          let text: string;
          try {
            text = (await bytesOf(file.stream)).toString('utf8');
          } catch (error) {
            trainer.open.delete(file.filename);
            throw error;
          }
          if (file.bytes !== Buffer.byteLength(text)) throw new Error('an upload has another size than was said');
          await around('upload part', 'after');
          trainer.open.delete(file.filename);
          return trainer.file(`file-${trainer.calls.length}`, file.filename, text);
        }),
      abandon: (filename) => call('abandon', () => void trainer.open.delete(filename)),
      list: () => call('list files', () => [...trainer.files.values()].map(({ file }) => file)),
      retrieve: (id) =>
        call('retrieve file', () => {
          const result = trainer.results.get(id);
          if (result === undefined) throw missing();
          return { ...trainer.file(`look-${id}`, 'metrics.csv', result), id };
        }).finally(() => trainer.files.delete(`look-${id}`)),
      remove: (id) =>
        call('remove file', () => {
          if (!trainer.files.delete(id)) throw missing();
        }),
      content: (id) =>
        call('content', () => {
          const result = trainer.results.get(id);
          if (result === undefined) throw missing();
          return {
            contentType: 'text/csv',
            bytes: Buffer.byteLength(result),
            stream: Readable.from([Buffer.from(result)]),
          };
        }),
    },
    jobs: {
      minimumRows: 2,
      rowFormat: () => 'openai',
      prepare(job, context) {
        if (job.role_arn !== null && !context.dropParams.has('role_arn')) {
          throw new SluiceError('unsupported_parameter', 'Trainer cannot express role_arn', { param: 'role_arn' });
        }
        return {
          method: 'POST',
          url: `${context.base}/jobs`,
          headers: ['authorization', `Bearer ${context.credentials.key?.reveal()}`, 'content-type', 'application/json'],
          body: { model: job.upstreamModel, training_file: job.training_file, suffix: job.suffix },
        };
      },
      create: (job) => call('create', () => trainer.create(job)),
      list: (query) => call('list jobs', () => page([...trainer.jobs.values()].map((one) => one.job).reverse(), query)),
      retrieve: (id) => call('retrieve', () => trainer.look(id)),
      cancel: (id) => call('cancel', () => trainer.cancel(id)),
      events: (id, query) => call('events', () => page([...trainer.get(id).events].reverse(), query)),
      checkpoints: (id, query) => call('checkpoints', () => page([...trainer.get(id).checkpoints].reverse(), query)),
    },
  };
}

/** Blobs in memory, shared by all nodes. */
export function memoryBlobs(): Blobs & { readonly held: Map<string, Buffer> } {
  const held = new Map<string, Buffer>();
  return {
    held,
    async put(_tenant, key, body) {
      const bytes = await bytesOf(body);
      held.set(key, bytes);
      return { bytes: bytes.length, createdAt: 0 };
    },
    async get(_tenant, key) {
      const bytes = held.get(key);
      return bytes === undefined ? null : Readable.from([bytes]);
    },
    async stat(_tenant, key) {
      const bytes = held.get(key);
      return bytes === undefined ? null : { bytes: bytes.length, createdAt: 0 };
    },
    async delete(_tenant, key) {
      return held.delete(key);
    },
    async *all() {
      for (const key of held.keys()) yield { organisationId: 'o1', key, createdAt: 0 };
    },
    async close() {},
  };
}

export const PROVIDER_KEY = 'sk-trainer-0123456789abcdef';

/** A gateway process: its own scheduler over the shared store and the shared provider. */
export interface TrainerNode {
  readonly jobs: ManagedJobs;
  readonly scheduler: Scheduler;
  readonly services: JobServices;
  /** Removes the stored provider, as an operator does. */
  revoke(): void;
}

export interface NodeOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly blobs: Blobs;
  readonly trainer: Trainer;
  readonly name?: string;
  readonly around?: Around;
  readonly settings?: Partial<JobSettings>;
  readonly prices?: Readonly<Record<string, unknown>>;
}

export function startNode(options: NodeOptions): TrainerNode {
  const { tables, clock, blobs, trainer } = options;
  const provider = {
    id: 'trainer',
    title: 'Trainer',
    account: NO_SETTINGS,
    needsKey: true,
    baseUrl: () => 'https://trainer.example/v1',
    training: adapterOf(trainer, options.around ?? (() => {})),
  } as unknown as Provider;
  const stored: StoredProvider = {
    slug: 'trainer-prod',
    entityId: 'p1',
    accountId: 'acc-1',
    kind: 'provider',
    shared: true,
    passthrough: false,
    provider,
    account: alreadyOpen({ key: new Secret(PROVIDER_KEY), settings: {}, customHost: null, customHeaders: {} }),
    models: new Map(
      options.prices === undefined
        ? []
        : [['base', { enabled: true, customHost: null, secrets: null, pricing: options.prices }]],
    ),
    allowAllModels: true,
    pricingAdjustments: null,
    expiresAt: null,
    rateLimits: [],
    usageLimits: [],
    broken: null,
  };
  const providers = new Map([[stored.slug, stored]]);
  const snapshots = (workspaceId: string) =>
    ({
      organisationId: 'o1',
      workspaceId,
      workspaceSlug: workspaceId,
      providers,
      guardrails: { byName: new Map(), input: [], output: [] },
    }) as unknown as WorkspaceSnapshot;
  const services = {
    tables,
    blobs,
    scratch: {
      async hold(body: Readable) {
        const bytes = await bytesOf(body);
        return { bytes: bytes.length, read: () => Readable.from([bytes]), close: async () => {} };
      },
    },
    clock,
    log: silentLog,
    runtime: { workspace: (_organisation: string, workspace: string) => snapshots(workspace) },
    egress: { check: (url: string) => ({ url: new URL(url) }) },
    fetcher: { send: () => Promise.reject(new Error('no call leaves the test')) },
    tokens: createTokenCache(() => clock.now()),
    local: () => ({}),
    pricer: createPricer(),
  } as unknown as JobServices;
  const scheduler = createScheduler({
    tables,
    clock,
    log: silentLog,
    node: options.name ?? 'n1',
    random: () => 0.5,
  });
  const jobs = createManagedJobs(services, {
    wake: (id) => scheduler.wake(id),
    ...(options.settings === undefined ? null : { settings: options.settings }),
  });
  scheduler.add({ table: 'training_jobs', concurrency: 8, run: jobs.run });
  scheduler.start();
  return { jobs, scheduler, services, revoke: () => providers.clear() };
}

/** A call as the data plane hands it over. */
export function objectCall(
  node: TrainerNode,
  operation: OperationId,
  given: {
    readonly id?: string;
    readonly query?: Record<string, string>;
    readonly body?: unknown;
    readonly workspace?: string;
    readonly dryRun?: boolean;
    readonly dropParams?: readonly string[];
    readonly headers?: Readonly<Record<string, string>>;
    readonly signal?: AbortSignal;
  } = {},
): ObjectCall {
  const workspaceId = given.workspace ?? 'w1';
  const principal = {
    kind: 'workspace-service',
    keyId: `key-${workspaceId}`,
    organisationId: 'o1',
    workspaceId,
    defaults: {},
  } as unknown as Principal;
  const snapshot = node.services.runtime.workspace('o1', workspaceId) as WorkspaceSnapshot;
  return {
    id: 'r1',
    operation,
    principal,
    snapshot,
    params: given.id === undefined ? {} : { fine_tuning_job_id: given.id },
    query: new URLSearchParams(given.query ?? {}),
    header: (name) => given.headers?.[name],
    copiedHeaders: null,
    account: null,
    unnamed: new SluiceError('malformed_call', 'No provider is named.'),
    managed: true,
    accountOf: (slug) => accountOfStored(node.services, snapshot, slug),
    dropParams: new Set(given.dropParams ?? []),
    shaped: (body) => body,
    dryRun: given.dryRun ?? false,
    body: Buffer.from(given.body === undefined ? '' : JSON.stringify(given.body)),
    upload: null,
    signal: given.signal ?? new AbortController().signal,
    attempted: () => {},
    named: () => {},
    used: () => {},
  };
}
