/** What the dispatcher promises for any provider, with adapters of its own over calls that never leave the process. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Principal } from '../../src/auth/principal.ts';
import { adapterContext } from '../../src/gateway/account-access.ts';
import { createEgressGuard, parseTrustedHosts } from '../../src/http/egress-guard.ts';
import type { FetchRequest } from '../../src/http/fetcher.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { IN_ITS_STEAD } from '../../src/operations/dialects/provider-error.ts';
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
import { temporaryTables } from '../support/tables.ts';
import { refusal } from './support.ts';

const HYPERPARAMETERS = { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 };
const JOB = {
  model: 'base',
  training_file: 's3://bucket/rows.jsonl',
  suffix: 'v1',
  method: { type: 'supervised', supervised: { hyperparameters: HYPERPARAMETERS } },
};

const asked: string[] = [];
const sent: FetchRequest[] = [];
let seen: AdapterContext | null = null;
/** What the next cancel does. */
let onCancel: () => FineTuningJob = () => job('cancelled');

function job(status: FineTuningJob['status'], more: Partial<FineTuningJob> = {}): FineTuningJob {
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

const object = (id: string): FileObject => ({
  id,
  object: 'file',
  bytes: 3,
  created_at: 1,
  filename: 'f',
  purpose: 'fine-tune',
  status: 'processed',
});

/** What an upload does before its end. */
let onUpload = async (): Promise<void> => {};

async function drained(stream: Readable): Promise<void> {
  for await (const _ of stream);
}

/** Files are objects in a bucket, named as the caller likes. */
const files: FilesAdapter = {
  purposes: new Set(['fine-tune']),
  objectUris: true,
  plannedId: (filename) => `s3://bucket/${filename}`,
  async upload(file, context) {
    asked.push('upload');
    seen = context;
    if (file.filename !== 'unread.jsonl') await drained(file.stream);
    await onUpload();
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

const jobs: JobsAdapter = {
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
    return onCancel();
  },
  events: async () => ({ data: [], has_more: false }),
  checkpoints: async () => ({ data: [], has_more: false }),
};

const provider: Provider = {
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

/** The same bucket; uploads lie in a folder. */
const inFolder: Provider = {
  ...provider,
  training: {
    jobs,
    files: {
      ...files,
      plannedId: (filename) => `s3://bucket/deep/${filename}`,
      upload: async (file, context) => {
        await files.upload(file, context);
        return object(encodeURIComponent(`s3://bucket/deep/${file.filename}`));
      },
    },
  },
};

const stored = {
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

const account: Account = {
  provider,
  credentials: { key: new Secret('top-secret-key'), settings: {} },
  base: 'https://host',
  customHost: false,
  customHeaders: ['x-team', 'search'],
  stored,
  path: 'config',
  secrets: ['top-secret-key'],
};

const GUARD = createEgressGuard({
  trustedHosts: parseTrustedHosts('host'),
  ownListeners: () => [],
  clock: systemClock,
  log: silentLog,
  resolver: { resolve: () => Promise.resolve([]) },
});

let dir = '';
let tables: Tables;
let training: ObjectHandler;

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

function call(operation: OperationId, workspaceId: string, more: Partial<ObjectCall> = {}): ObjectCall {
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

async function answerOf(run: Promise<{ status: number; body: Buffer | Readable }>): Promise<Record<string, unknown>> {
  const { body } = await run;
  return JSON.parse(String(body)) as Record<string, unknown>;
}

const upload = (workspace: string, name: string, more: Partial<ObjectCall> = {}) => {
  const body = `--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n\r\nabc\r\n--b--\r\n`;
  return training.handle(
    call('files_upload', workspace, {
      upload: Readable.from([Buffer.from(body)], { objectMode: false }),
      header: (header) => (header === 'content-type' ? 'multipart/form-data; boundary=b' : undefined),
      ...more,
    }),
  );
};
const create = (workspace: string, more: object = {}, options: Partial<ObjectCall> = {}) =>
  training.handle(
    call('finetune_create', workspace, { body: Buffer.from(JSON.stringify({ ...JOB, ...more })), ...options }),
  );

describe('objects in a bucket that workspaces share', () => {
  it('may be named by who owns them and by anybody while nobody does', async () => {
    expect(await answerOf(create('w1', { training_file: 's3://bucket/nobodys.jsonl' }))).toMatchObject({ id: 'job-1' });
    await upload('w2', 'theirs.jsonl');
    for (const id of ['s3://bucket/theirs.jsonl', 's3%3A%2F%2Fbucket%2Ftheirs.jsonl']) {
      expect(await refusal(() => create('w1', { training_file: id }))).toMatchObject({
        status: 404,
        param: 'training_file',
      });
    }
    asked.length = 0;
    expect(await refusal(() => create('w2', { training_file: 's3%3A%2F%2Fbucket%2Ftheirs.jsonl' }))).toMatchObject({
      status: 409,
    });
    expect(asked).toEqual(['create']);
    expect(await refusal(() => create('w1', { training_file: 'bucket/theirs.jsonl' }))).toMatchObject({ status: 404 });
  });

  it('of others are not reached by another spelling, a folder or a pattern', async () => {
    await upload('w2', 'hidden.jsonl');
    asked.length = 0;
    for (const training_file of [
      's3%3a%2f%2fbucket%2fhidden.jsonl',
      's3:%2f%2fbucket/hidden.jsonl',
      '%733://bucket/hidden.jsonl',
      's3://bucket/hid*',
      's3://bucket/h?dden.jsonl',
      's3%3A%2F%2Fbucket%2F%2A',
    ]) {
      expect(await refusal(() => create('w1', { training_file }))).toMatchObject({
        status: 404,
        param: 'training_file',
      });
    }
    await upload('w2', 'hidden.jsonl', { account: { ...account, provider: inFolder } });
    for (const training_file of ['s3://bucket/deep/', 's3://bucket/deep', 's3%3a%2f%2fbucket%2fdeep%2f']) {
      expect(await refusal(() => create('w1', { training_file }))).toMatchObject({ status: 404 });
    }
    expect(asked).toEqual(['upload']);
    expect(await answerOf(create('w1', { training_file: 's3://bucket/deeper/' }))).toMatchObject({ id: 'job-1' });
  });

  it('that are uploaded under one name at the same time have one owner, whose bytes stay', async () => {
    let release = () => {};
    const started = new Promise<void>((resolve) => {
      onUpload = () => {
        onUpload = async () => {};
        resolve();
        return new Promise<void>((go) => {
          release = go;
        });
      };
    });
    const first = upload('w1', 'raced.jsonl');
    await started;
    expect(await refusal(() => upload('w2', 'raced.jsonl'))).toMatchObject({ status: 409 });
    release();
    expect(await answerOf(first)).toMatchObject({ id: 's3://bucket/raced.jsonl' });
    expect(await refusal(() => upload('w2', 'raced.jsonl'))).toMatchObject({ status: 409 });
  });

  it('are free for others again after an upload that failed', async () => {
    onUpload = async () => {
      onUpload = async () => {};
      throw new SluiceError('upstream_unreachable', 'gone');
    };
    expect(await refusal(() => upload('w1', 'failed.jsonl'))).toMatchObject({ status: 502 });
    expect(
      await refusal(() => training.handle(call('file', 'w1', { params: { file_id: 's3://bucket/failed.jsonl' } }))),
    ).toMatchObject({ status: 404 });
    expect(await answerOf(upload('w2', 'failed.jsonl'))).toMatchObject({ id: 's3://bucket/failed.jsonl' });
  });

  it('are given out as what nobody shows or runs as a page', async () => {
    await upload('w1', 'page.html');
    const { headers } = await training.handle(
      call('file_content', 'w1', { params: { file_id: 's3://bucket/page.html' } }),
    );
    expect(headers).toEqual(['content-type', 'text/plain', 'x-content-type-options', 'nosniff']);
  });

  it('are not taken from a provider that answers before it has read the file', async () => {
    await expect(upload('w1', 'unread.jsonl')).rejects.toMatchObject({ kind: 'upstream_invalid' });
    expect(
      await refusal(() => training.handle(call('file', 'w1', { params: { file_id: 's3://bucket/unread.jsonl' } }))),
    ).toMatchObject({ status: 404 });
  });

  it('are never written over by another workspace, and again by their own', async () => {
    await upload('w1', 'mine.jsonl');
    asked.length = 0;
    expect(await refusal(() => upload('w2', 'mine.jsonl'))).toMatchObject({ status: 409 });
    expect(asked).toEqual([]);
    expect(await answerOf(upload('w1', 'mine.jsonl'))).toMatchObject({ id: 's3://bucket/mine.jsonl' });
  });

  it('are told to nobody else when a provider answers a creation with what another workspace made', async () => {
    await create('w1');
    expect(await refusal(() => create('w2'))).toMatchObject({
      status: 409,
      message: expect.not.stringContaining('job-1'),
    });
  });

  it('belong to the workspace whose job wrote them, written plainly or encoded', async () => {
    expect(
      await refusal(() => training.handle(call('file', 'w2', { params: { file_id: 's3://bucket/out.csv' } }))),
    ).toMatchObject({ status: 404 });
    await create('w1');
    for (const id of ['s3://bucket/out.csv', encodeURIComponent('s3://bucket/out.csv')]) {
      asked.length = 0;
      await training.handle(call('file', 'w1', { params: { file_id: id } }));
      expect(asked).toEqual(['retrieve s3://bucket/out.csv']);
    }
    expect(
      await refusal(() => training.handle(call('file', 'w2', { params: { file_id: 's3://bucket/out.csv' } }))),
    ).toMatchObject({ status: 404 });
  });
});

describe('calls of an account', () => {
  it('carry the operator’s headers to its own host only', async () => {
    sent.length = 0;
    await create('w1');
    expect(sent.map(({ url, headers }) => [url.host, [...headers]])).toEqual([
      ['host', ['accept', 'x', 'x-team', 'search']],
      ['elsewhere', ['accept', 'x']],
    ]);
    expect(sent.every((one) => one.storedCredential && one.organisationId === 'o1')).toBe(true);
  });

  it('are answered without the credentials they carried, also those made for one call', async () => {
    const echo = (text: string) => ({
      status: 400,
      headers: { 'content-type': 'text/top-secret-key', etag: '1' },
      lines: [],
      stream: Readable.from([Buffer.from(text)], { objectMode: false }),
    });
    const context = adapterContext(
      {
        clock: systemClock,
        egress: GUARD,
        tokens: createTokenCache(() => systemClock.now()),
        fetcher: {
          send: async ({ headers, url }) => echo(JSON.stringify({ headers, url: url.href })),
          async close() {},
        },
      },
      account,
      { organisationId: 'o1' },
    );
    const answer = await context.call({
      method: 'GET',
      url: new URL('https://host/o?X-Amz-Signature=signed-address-0&X-Goog-Credential=a%2Fb%2Fcdefgh&part=1'),
      headers: [
        ...['authorization', 'Bearer ya29.minted-token', 'x-amz-security-token', 'session-token-1', 'x-plain', 'stays'],
        ...['Authorization', 'AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=0123456789abcdef'],
        ...['x-api-key', 'top-secret-key'],
      ],
      body: null,
    });
    expect(answer.headers).toEqual({ 'content-type': 'application/octet-stream', etag: '1' });
    const text = await answer.text();
    for (const secret of ['minted', 'session-token', 'top-secret', '0123456789', 'signed-address', 'cdefgh']) {
      expect(text).not.toContain(secret);
    }
    expect(text).toContain('stays');
    expect(text).toContain('part=1');
  });

  it('may use the server’s identity only when the account is stored', async () => {
    await create('w1');
    expect(seen?.ambient).toBeDefined();
    await create('w1', {}, { account: { ...account, stored: null } });
    expect(seen?.ambient).toBeUndefined();
  });

  it('read gateway headers of gateway_options before those of the request, and none of the body goes on', async () => {
    const header = (name: string) =>
      name === 'x-gateway-object-store-bucket' ? 'of-request' : name === 'x-gateway-a' ? 'a' : undefined;
    await create(
      'w1',
      { gateway_options: { 'x-gateway-virtual-key': 'cloud', 'x-gateway-object-store-bucket': 'of-options' } },
      { header },
    );
    expect([seen?.header('x-gateway-object-store-bucket'), seen?.header('x-gateway-a')]).toEqual(['of-options', 'a']);
  });
});

describe('a create request', () => {
  it('is checked by the adapter before anything is looked up or sent', async () => {
    asked.length = 0;
    await expect(create('w1', { training_file: 'unknown', seed: 1 })).rejects.toMatchObject({
      kind: 'unsupported_parameter',
      param: 'seed',
    });
    expect(asked).toEqual([]);
  });

  it('may not name a model in provider_options that the account does not allow', async () => {
    expect(await refusal(() => create('w1', { provider_options: { model: 'forbidden' } }))).toMatchObject({
      status: 400,
    });
  });

  it('may not name such a model for a batch either', async () => {
    const batch = {
      input_file_id: 'f',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model: 'forbidden',
    };
    expect(
      await refusal(() => training.handle(call('batch_create', 'w1', { body: Buffer.from(JSON.stringify(batch)) }))),
    ).toMatchObject({ status: 400, message: expect.stringContaining('not enabled') });
  });

  it('may not leave the account that the key’s own config pins', async () => {
    const principal = {
      ...call('finetune_create', 'w1').principal,
      defaults: { config_id: 'pc-x', allow_config_override: false },
    };
    expect(
      await refusal(() =>
        create('w1', { gateway_options: { 'x-gateway-virtual-key': 'other' } }, { principal: principal as Principal }),
      ),
    ).toMatchObject({ status: 400, param: 'gateway_options' });
    expect(
      await answerOf(
        create('w1', { gateway_options: { 'x-gateway-virtual-key': 'cloud' } }, { principal: principal as Principal }),
      ),
    ).toBeTruthy();
  });

  it('shows a dry run with every secret masked, in headers and address alike', async () => {
    asked.length = 0;
    const shown = await answerOf(create('w1', {}, { dryRun: true }));
    expect(shown).toMatchObject({ request: { url: 'https://host/jobs?sig=***' } });
    // Whatever is not known to be harmless is masked, whether it is known to be a secret or not.
    expect((shown.request as { headers: unknown }).headers).toEqual({
      'x-api-key': '***',
      accept: 'application/json',
      'x-handle': '***',
    });
    expect(asked).toEqual([]);
  });
});

describe('cancelling', () => {
  const cancel = () => training.handle(call('finetune_cancel', 'w1', { params: { fine_tuning_job_id: 'job-1' } }));

  it('of what has ended is 400, however the provider takes it', async () => {
    await create('w1');
    const refusals: (() => FineTuningJob)[] = [
      // It accepts and does nothing.
      () => job('succeeded'),
      () => {
        throw new SluiceError('provider_error', 'conflict', {
          provider: { status: 409, type: 'api_error', code: null },
        });
      },
    ];
    for (const refused of refusals) {
      onCancel = refused;
      expect(await refusal(() => cancel())).toMatchObject({ status: 400, code: 'AB01' });
    }
  });

  it('passes on every other refusal, without the credential', async () => {
    onCancel = () => {
      throw new SluiceError('provider_error', 'top-secret-key may not', { provider: IN_ITS_STEAD.forbidden });
    };
    expect(await refusal(() => cancel())).toMatchObject({
      status: 403,
      type: 'permission_error',
      message: '*** may not',
    });
    onCancel = () => job('cancelled');
    expect(await answerOf(cancel())).toMatchObject({ status: 'cancelled' });
  });
});

describe('repeating what a config says', () => {
  const retry = { attempts: 2, statusCodes: new Set([429, 502]), useRetryAfter: true };

  async function contextOf(statuses: number[], account_: Account = { ...account, retry }) {
    const clock = new TestClock();
    const made: string[] = [];
    const attempts: (number | null)[] = [];
    const context = adapterContext(
      {
        clock,
        egress: GUARD,
        tokens: createTokenCache(() => clock.now()),
        fetcher: {
          async send(request) {
            made.push(request.method);
            const status = statuses.shift() ?? 200;
            if (status === 0) throw new SluiceError('upstream_unreachable', 'gone');
            return { status, headers: { 'retry-after': '3' }, lines: [], stream: Readable.from([Buffer.from('{}')]) };
          },
          async close() {},
        },
      },
      account_,
      { organisationId: 'o1', attempted: ({ status }) => attempts.push(status) },
    );
    const call_ = async (method: 'GET' | 'POST') => {
      const answer = context.call({
        method,
        url: new URL('https://host/x'),
        headers: [],
        body: method === 'GET' ? null : Buffer.from('{}'),
      });
      const ended = answer.then(
        ({ status }) => status,
        (error: unknown) => (error instanceof SluiceError ? error.kind : String(error)),
      );
      for (let second = 0; second < 12; second++) {
        await new Promise((resolve) => setImmediate(resolve));
        await clock.advance(1000);
      }
      return ended;
    };
    return { call: call_, made, attempts };
  }

  it('repeats reads, after the time the provider asks for, each an attempt of the record', async () => {
    const world = await contextOf([429, 0, 200]);
    expect(await world.call('GET')).toBe(200);
    expect(world.attempts).toEqual([429, null, 200]);
  });

  it('gives the last answer when every repetition failed', async () => {
    expect(await (await contextOf([429, 429, 429, 200])).call('GET')).toBe(429);
    expect(await (await contextOf([0, 0, 0, 200])).call('GET')).toBe('upstream_unreachable');
  });

  it('never repeats what creates or changes, nor without such a config', async () => {
    const creating = await contextOf([502, 200]);
    expect([await creating.call('POST'), creating.made]).toEqual([502, ['POST']]);
    const plain = await contextOf([502, 200], account);
    expect([await plain.call('GET'), plain.made]).toEqual([502, ['GET']]);
  });
});
