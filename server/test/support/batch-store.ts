/** Managed batches without a server: both stores, a clock that is moved by hand, and a process that can be killed. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Principal } from '../../src/auth/principal.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import type { Guardrail } from '../../src/guardrails/guardrail.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Batch } from '../../src/operations/training.ts';
import { createPricer } from '../../src/pricing/pricer.ts';
import type { ResultLine } from '../../src/providers/batch-lines.ts';
import { sandbox } from '../../src/providers/sandbox/sandbox.ts';
import type { TrainingAdapter } from '../../src/providers/training.ts';
import type { InternalCall, InternalCallAnswer } from '../../src/runtime/internal-call.ts';
import type { ObjectAnswer, ObjectCall } from '../../src/runtime/object-call.ts';
import type { StoredConfig, StoredProvider, WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import type { Blobs, TenantContext } from '../../src/store/ports.ts';
import { accountOfStored } from '../../src/training/account.ts';
import type { BatchClaim, BatchRow, Turn } from '../../src/training/managed/batch-row.ts';
import { runBatchTurn } from '../../src/training/managed/batch-runner.ts';
import type { BatchSettings, TurnServices } from '../../src/training/managed/batch-services.ts';
import { ManagedBatches } from '../../src/training/managed/batches.ts';
import { sandboxTraining } from '../../src/training/sandbox/sandbox.ts';
import { type ENGINES, type JobStore, jobStore } from './job-store.ts';
import { alreadyOpen, fixedRuntime } from './runtime.ts';

/** What a killed process does next: nothing. */
export class Killed extends Error {}

export interface BatchWorld {
  readonly clock: TestClock;
  readonly store: JobStore;
  readonly blobs: Blobs;
  readonly batches: ManagedBatches;
  readonly services: TurnServices;
  /** Answers a line; replaced by tests. */
  answer: (line: InternalCall) => Promise<Partial<InternalCallAnswer>> | Partial<InternalCallAnswer>;
  /** Lines that were run, in order. */
  readonly lines: InternalCall[];
  /** Most lines that ran at the same time, and when each began. */
  readonly load: { most: number; now: number; readonly starts: number[] };
  /** Adapter of the provider `sb`; replaced by tests. */
  local: (tenant: TenantContext) => TrainingAdapter;
  /** Operations of the work (writes, lines, blobs) until the process is killed; null: never. */
  fuse: number | null;
  call(parts?: CallParts): ObjectCall;
  /** Puts a file with the purpose batch into Sluice's store. */
  input(text: string, workspace?: string): Promise<string>;
  create(body: Record<string, unknown>, parts?: CallParts): Promise<Batch>;
  get(id: string): Promise<Batch & Record<string, unknown>>;
  row(id: string): Promise<BatchRow>;
  /** One claim: turns until the row is let go of. Answers whether nothing is left to do. */
  turn(id: string, controls?: Partial<Pick<BatchClaim, 'signal' | 'cancelled'>>): Promise<Turn>;
  /** Claims and moves the clock until the batch has ended; a killed process is followed by another. */
  drive(id: string): Promise<Batch & Record<string, unknown>>;
  /** The lines of the output, read as a caller would. */
  /** Default guardrails of requests. */
  defaults: readonly Guardrail[];
  output(id: string): Promise<ResultLine[]>;
  file(id: string): Promise<string>;
  close(): Promise<void>;
}

export interface CallParts {
  readonly workspace?: string;
  readonly params?: Record<string, string>;
  readonly query?: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly dryRun?: boolean;
  readonly keyId?: string | null;
  readonly configs?: Record<string, StoredConfig['config']>;
  /** Of the API key. */
  readonly defaults?: Principal['defaults'];
}

export const chatLine = (id: string, content = id, more: object = {}): string =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { messages: [{ role: 'user', content }], ...more },
  });

export const contentOf = (line: InternalCall): string =>
  (line.body.messages as { content: string }[] | undefined)?.[0]?.content ?? '';

export const REQUEST = {
  endpoint: '/v1/chat/completions',
  completion_window: 'immediate',
  model: 'echo',
  gateway_options: { 'x-gateway-virtual-key': 'sb' },
};

const TAKEN = 30_000;

export async function batchWorld(
  engine: (typeof ENGINES)[number],
  settings: Partial<BatchSettings> = {},
): Promise<BatchWorld> {
  const clock = new TestClock();
  const store = await jobStore(engine, clock);
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batches-'));
  const disk = await openDiskBlobs({ dir: folder });
  let claims = 0;

  /** Ends the process when the fuse has burnt down; `before` or after what it stands beside, in turns. */
  async function guarded<T>(run: () => Promise<T>): Promise<T> {
    if (world.fuse !== null && world.fuse <= 0) throw new Killed();
    if (world.fuse !== null) world.fuse -= 1;
    const result = await run();
    if (world.fuse !== null && world.fuse <= 0) throw new Killed();
    return result;
  }

  const blobs: Blobs = {
    put: (tenant, key, body) =>
      guarded(() => disk.put(tenant, key, body)).catch((error: unknown) => {
        body.destroy();
        throw error;
      }),
    get: (...args) => disk.get(...args),
    stat: (...args) => disk.stat(...args),
    delete: (...args) => disk.delete(...args),
    all: (...args) => disk.all(...args),
    close: () => disk.close(),
  };

  const stored = (slug: string, more: Partial<StoredProvider> = {}): StoredProvider => ({
    slug,
    entityId: slug,
    accountId: slug,
    kind: 'provider',
    shared: true,
    passthrough: false,
    provider: sandbox,
    account: alreadyOpen({ key: null, settings: {}, customHost: null, customHeaders: {} }),
    models: new Map(),
    allowAllModels: true,
    pricingAdjustments: null,
    expiresAt: null,
    rateLimits: [],
    usageLimits: [],
    broken: null,
    ...more,
  });
  const off = { enabled: false, customHost: null, secrets: null, pricing: null };
  const snapshotOf = (workspaceId: string, configs: CallParts['configs'] = {}): WorkspaceSnapshot => ({
    organisationId: 'o1',
    workspaceId,
    workspaceSlug: workspaceId,
    generation: 1,
    blockInlineConfig: false,
    metadata: null,
    rateLimits: null,
    ratePolicies: { llm: null, mcpTools: null },
    usageLimits: [],
    usagePolicies: null,
    providers: new Map([
      ['sb', stored('sb')],
      ['few', stored('few', { models: new Map([['echo', off]]) })],
    ]),
    configs: new Map(
      Object.entries(configs).map(([slug, config]) => [slug, { slug, versionId: 'v', config, broken: null }]),
    ),
    guardrails: { byName: new Map(), input: world.defaults, output: [] },
    cacheMaxAge: null,
    bodies: { debugLog: 0, sample: 1, days: null },
    plans: new Map(),
  });

  const pricer = createPricer();
  const services: TurnServices = {
    tables: store.tables,
    blobs,
    clock,
    log: silentLog,
    runtime: fixedRuntime((_o, workspaceId) => snapshotOf(workspaceId)),
    egress: null as never,
    pricer,
    fetcher: { send: () => Promise.reject(new Error('nothing is called')), close: async () => {} },
    tokens: { get: () => Promise.reject(new Error('no token is needed')), drop: () => undefined },
    local: (tenant) => world.local(tenant),
    maxBatchBytes: 1_000_000,
    settings,
    async runLine(line) {
      world.lines.push(line);
      world.load.starts.push(clock.now());
      world.load.now += 1;
      world.load.most = Math.max(world.load.most, world.load.now);
      try {
        return await guarded(async () => {
          await new Promise((resolve) => setImmediate(resolve));
          return {
            status: 200,
            requestId: `req-${world.lines.length}`,
            body: { said: contentOf(line) },
            retryAfterMs: null,
            limited: false,
            keyRefused: null,
            ...(await world.answer(line)),
          };
        });
      } finally {
        world.load.now -= 1;
      }
    },
  };

  const world: BatchWorld = {
    clock,
    store,
    blobs: disk,
    batches: new ManagedBatches(services),
    services,
    answer: () => ({}),
    lines: [],
    load: { most: 0, now: 0, starts: [] },
    local: (tenant) => sandboxTraining({ tables: store.tables, blobs: disk, clock, log: silentLog }, tenant),
    fuse: null,
    defaults: [],

    call(parts = {}) {
      const workspace = parts.workspace ?? 'w1';
      const snapshot = snapshotOf(workspace, parts.configs);
      const principal: Principal = {
        kind: 'workspace-service',
        keyId: parts.keyId === undefined ? `key-${workspace}` : parts.keyId,
        keyName: 'key',
        organisationId: 'o1',
        workspaceId: workspace,
        userId: null,
        role: null,
        scopes: new Set(['completions.write']),
        defaults: parts.defaults ?? {},
        rateLimits: [],
        usageLimits: null,
        expiresAt: null,
      };
      return {
        id: 'request',
        operation: 'batch_create',
        principal,
        snapshot,
        params: parts.params ?? {},
        query: new URLSearchParams(parts.query ?? ''),
        header: (name) => parts.headers?.[name],
        copiedHeaders: null,
        account: null,
        unnamed: new SluiceError('malformed_call', 'No provider is named.'),
        managed: true,
        accountOf: (slug) => accountOfStored({ egress: null as never, clock }, snapshot, slug),
        dropParams: new Set(),
        shaped: (body) => body,
        dryRun: parts.dryRun ?? false,
        body: Buffer.from(JSON.stringify(parts.body ?? {})),
        upload: null,
        signal: new AbortController().signal,
        attempted() {},
        named() {},
        used() {},
      };
    },

    async input(text, workspace = 'w1') {
      const id = `gw_file_${uuidv7(clock)}`;
      const tenant = systemTenant('o1', workspace);
      const { bytes } = await disk.put(tenant, id, Readable.from([Buffer.from(text)]));
      await store.tables.write(tenant, (tx) =>
        tx.insert('files', {
          id,
          organisation_id: 'o1',
          workspace_id: workspace,
          filename: 'input.jsonl',
          purpose: 'batch',
          content_type: 'application/jsonl',
          bytes,
          status: 'processed',
          status_details: null,
          created_by: null,
          created_at: clock.now(),
        }),
      );
      return id;
    },

    async create(body, parts = {}) {
      return read(await world.batches.create(world.call({ ...parts, body: { ...REQUEST, ...body } })));
    },

    async get(id) {
      return read(await world.batches.retrieve(world.call({ params: { batch_id: id } })));
    },

    async row(id) {
      const found = await store.tables.systemRead((tx) => tx.find('batches', { id }));
      if (found === undefined) throw new Error('no such row');
      return found;
    },

    async turn(id, controls = {}) {
      const token = `claim-${++claims}`;
      await store.tables.systemWrite((tx) =>
        tx.update('batches', { id }, { holder: token, held_until: clock.now() + TAKEN }),
      );
      let row = await world.row(id);
      const claim: BatchClaim = {
        get row() {
          return row;
        },
        signal: controls.signal ?? new AbortController().signal,
        cancelled: controls.cancelled ?? new AbortController().signal,
        write: (change) =>
          guarded(async () => {
            row = await store.tables.systemWrite(async (tx) => {
              const now = await tx.find('batches', { id });
              if (now === undefined || now.holder !== token) throw new Error('the claim was lost');
              const patch = await change(tx, now, clock.now());
              if (Object.keys(patch).length > 0) await tx.update('batches', { id, holder: token }, patch);
              return { ...now, ...patch };
            });
            return row;
          }),
      };
      const turn = await runBatchTurn(claim, services);
      const due = turn === 'done' ? Number.MAX_SAFE_INTEGER : clock.now() + turn.again;
      await store.tables.systemWrite((tx) =>
        tx.update('batches', { id, holder: token }, { holder: null, held_until: 0, due_at: due, failures: 0 }),
      );
      return turn;
    },

    async drive(id) {
      for (let turns = 0; turns < 2000; turns++) {
        try {
          const turn = await world.turn(id);
          if (turn === 'done') return world.get(id);
          clock.jump(turn.again);
        } catch (error) {
          if (!(error instanceof Killed)) throw error;
          world.fuse = null;
          return world.drive(id);
        }
      }
      throw new Error('the batch does not end');
    },

    async output(id) {
      const answer = await world.batches.output(world.call({ params: { batch_id: id } }));
      const text = await bytesOf(answer);
      return text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as ResultLine);
    },

    async file(id) {
      const stream = await disk.get(systemTenant('o1', 'w1'), id);
      if (stream === null) throw new Error(`no file ${id}`);
      return bytesOf({ status: 200, headers: [], body: stream });
    },

    async close() {
      await store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return world;
}

async function bytesOf(answer: ObjectAnswer): Promise<string> {
  if (Buffer.isBuffer(answer.body)) return answer.body.toString('utf8');
  const parts: Buffer[] = [];
  for await (const part of answer.body as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts).toString('utf8');
}

export function read<T = Batch & Record<string, unknown>>(answer: ObjectAnswer): T {
  if (!Buffer.isBuffer(answer.body)) throw new Error('the answer is a stream');
  return JSON.parse(answer.body.toString('utf8')) as T;
}
