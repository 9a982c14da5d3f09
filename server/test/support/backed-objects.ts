/** Files and jobs at an account that workspaces share, by adapters that note what they are asked. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll } from 'vitest';
import type { Principal } from '../../src/auth/principal.ts';
import type { FetchRequest } from '../../src/http/background-fetcher.ts';
import { createEgressGuard, parseTrustedHosts } from '../../src/http/egress-guard.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import type { OperationId } from '../../src/operations/operation.ts';
import type { FileObject, FineTuningJob } from '../../src/operations/training.ts';
import { account as accountOf } from '../../src/providers/account.ts';
import type { Provider } from '../../src/providers/provider.ts';
import { createTokenCache } from '../../src/providers/token-cache.ts';
import type { AdapterContext, FilesAdapter, JobsAdapter } from '../../src/providers/training.ts';
import type { Account, ObjectCall, ObjectHandler } from '../../src/runtime/object-call.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import { organisationRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import { openDiskScratch } from '../../src/store/disk/scratch.ts';
import type { Tables } from '../../src/store/ports.ts';
import { createTraining } from '../../src/training/handler.ts';
import type { TrainingServices } from '../../src/training/services.ts';
import { temporaryTables } from './tables.ts';

const HYPERPARAMETERS = { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 };
const JOB = {
  model: 'base',
  training_file: 's3://bucket/rows.jsonl',
  suffix: 'v1',
  method: { type: 'supervised', supervised: { hyperparameters: HYPERPARAMETERS } },
};

export const asked: string[] = [];
export const sent: FetchRequest[] = [];
export let seen: AdapterContext | null = null;
/** What the next cancel does. */
export const on = { cancel: (): FineTuningJob => job('cancelled'), upload: async (): Promise<void> => {} };

export function job(status: FineTuningJob['status'], more: Partial<FineTuningJob> = {}): FineTuningJob {
  return {
    id: 'job-1',
    object: 'fine_tuning.job',
    created_at: 1,
    error: null,
    fine_tuned_model: null,
    finished_at: null,
    hyperparameters: { n_epochs: 1 },
    model: 'base',
    organization_id: 'o',
    result_files: [],
    status,
    trained_tokens: null,
    training_file: 'f',
    validation_file: null,
    seed: 1,
    ...more,
  };
}

export const object = (id: string): FileObject => ({
  id,
  object: 'file',
  bytes: 3,
  created_at: 1,
  filename: 'f',
  purpose: 'fine-tune',
  status: 'processed',
});

/** What an upload does before its end. */

async function drained(stream: Readable): Promise<void> {
  for await (const _ of stream);
}

/** Files are objects in a bucket, named as the caller likes. */
export const files: FilesAdapter = {
  purposes: new Set(['fine-tune']),
  objectUris: true,
  plannedId: (filename) => `s3://bucket/${filename}`,
  async upload(file, context) {
    asked.push('upload');
    seen = context;
    if (file.filename !== 'unread.jsonl') await drained(file.stream);
    await on.upload();
    return object(`s3://bucket/${file.filename}`);
  },
  list: async () => [],
  async retrieve(id) {
    asked.push(`retrieve ${id}`);
    return object(id);
  },
  async remove() {},
  content: async () => ({
    contentType: 'text/plain',
    bytes: 3,
    stream: Readable.from([Buffer.from('abc')], { objectMode: false }),
  }),
};

export const jobs: JobsAdapter = {
  minimumRows: 1,
  rowFormat: () => 'openai',
  prepare(request, context) {
    seen = context;
    if (request.seed !== null) {
      throw new SluiceError('unsupported_parameter', 'no seed', { param: 'seed' });
    }
    return {
      method: 'POST',
      url: 'https://host/jobs?sig=top-secret-key',
      headers: ['x-api-key', 'top-secret-key', 'Accept', 'application/json', 'x-handle', 'of-the-account'],
      body: { model: request.upstreamModel },
    };
  },
  async create(_request, context) {
    asked.push('create');
    for (const url of ['https://host/jobs', 'https://elsewhere/jobs']) {
      const answer = await context.call({
        method: 'POST',
        url: new URL(url),
        headers: ['accept', 'x'],
        body: Buffer.from('{}'),
      });
      await answer.text();
    }
    return job('queued', { result_files: ['s3://bucket/out.csv'] });
  },
  list: async () => ({ data: [], has_more: false }),
  async retrieve() {
    asked.push('retrieve');
    return job('succeeded', { result_files: ['s3://bucket/out.csv'] });
  },
  async cancel() {
    asked.push('cancel');
    return on.cancel();
  },
  events: async () => ({ data: [], has_more: false }),
  checkpoints: async () => ({ data: [], has_more: false }),
};

export const provider: Provider = {
  id: 'bucket-cloud',
  title: 'Bucket cloud',
  account: accountOf({ cloud_secret: { secret: true } }),
  needsKey: true,
  baseUrl: () => 'https://host',
  authorize() {},
  bindings: {},
  passThrough: false,
  training: { files, jobs },
};

export const stored = {
  slug: 'cloud',
  entityId: 'e1',
  accountId: 'account-1',
  kind: 'provider',
  shared: true,
  passthrough: false,
  provider,
  models: new Map([['forbidden', { enabled: false, customHost: null, customHeaders: {}, pricing: null }]]),
  allowAllModels: true,
} as unknown as StoredProvider;

export const account: Account = {
  provider,
  credentials: { key: new Secret('top-secret-key'), settings: {} },
  base: 'https://host',
  customHost: false,
  customHeaders: ['x-team', 'search'],
  stored,
  path: 'config',
  secrets: ['top-secret-key'],
};

export const GUARD = createEgressGuard({
  trustedHosts: parseTrustedHosts('host'),
  ownListeners: () => [],
  clock: systemClock,
  log: silentLog,
  resolver: { resolve: () => Promise.resolve([]) },
});

let dir = '';
let tables: Tables;
export let training: ObjectHandler;

export function call(operation: OperationId, workspaceId: string, more: Partial<ObjectCall> = {}): ObjectCall {
  const principal = { kind: 'workspace-service', keyId: null, organisationId: 'o1', workspaceId, defaults: {} };
  return {
    id: 'r',
    operation,
    principal: principal as unknown as Principal,
    snapshot: { workspaceId, providers: new Map() } as unknown as WorkspaceSnapshot,
    params: {},
    query: new URLSearchParams(),
    header: () => undefined,
    copiedHeaders: null,
    account,
    unnamed: null,
    managed: false,
    accountOf: async () => account,
    dropParams: new Set(),
    shaped: (body) => body,
    dryRun: false,
    body: Buffer.alloc(0),
    upload: null,
    signal: new AbortController().signal,
    attempted() {},
    named() {},
    used() {},
    ...more,
  };
}

export async function answerOf(
  run: Promise<{ status: number; body: Buffer | Readable }>,
): Promise<Record<string, unknown>> {
  const { body } = await run;
  return JSON.parse(String(body)) as Record<string, unknown>;
}

export const upload = (workspace: string, name: string, more: Partial<ObjectCall> = {}) => {
  const body = `--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n\r\nabc\r\n--b--\r\n`;
  return training.handle(
    call('files_upload', workspace, {
      upload: Readable.from([Buffer.from(body)], { objectMode: false }),
      header: (header) => (header === 'content-type' ? 'multipart/form-data; boundary=b' : undefined),
      ...more,
    }),
  );
};
export const create = (workspace: string, more: object = {}, options: Partial<ObjectCall> = {}) =>
  training.handle(
    call('finetune_create', workspace, { body: Buffer.from(JSON.stringify({ ...JOB, ...more })), ...options }),
  );

/** Opens the store for the tests of a file. */
export function useBacked(): void {
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-backed-'));
    tables = await temporaryTables();
    await tables.systemWrite(async (tx) => {
      await tx.insert('organisations', organisationRow('o1'));
      for (const id of ['w1', 'w2']) await tx.insert('workspaces', workspaceRow('o1', id));
    });
    training = createTraining({
      tables,
      clock: systemClock,
      log: silentLog,
      scratch: await openDiskScratch({ dir, clock: systemClock }),
      egress: GUARD,
      tokens: createTokenCache(() => systemClock.now()),
      ambient: { variable: () => 'x', file: async () => 'x' },
      maxUploadBytes: 1000,
      maxBatchBytes: 1000,
      fetcher: {
        async send(request: FetchRequest) {
          sent.push(request);
          return { status: 200, headers: {}, stream: Readable.from([Buffer.from('{}')], { objectMode: false }) };
        },
        async close() {},
      },
    } as unknown as TrainingServices);
  });
  afterAll(async () => {
    await tables.close();
    rmSync(dir, { recursive: true, force: true });
  });
}
