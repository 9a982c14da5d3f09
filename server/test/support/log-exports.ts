/** Exports of logs through the administration API, with a real keeper, a scheduler and blobs on disk. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { registerExportFiles } from '../../src/admin/export-files.ts';
import { type ExportOptions, exportWork } from '../../src/jobs/log-exports.ts';
import { createScheduler, type Scheduler } from '../../src/jobs/scheduler.ts';
import { KeeperExporter } from '../../src/keeper/exporter.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { pendingErasures } from '../../src/resources/logs/erasures/pending.ts';
import { EXPORTS } from '../../src/resources/logs/exports/index.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import type { Blobs, StoredLog, Tables } from '../../src/store/ports.ts';
import { plainVault } from './admin.ts';
import { recordOfNow, startKeeper } from './log-keeper.ts';
import { type Caller, type Organisation, startOrganisation } from './organisation.ts';

export const ORIGIN = 'https://sluice.example';
export const MAX_ROWS = 40;
const PART_ROWS = 5;

export interface ExportsUnderTest {
  readonly on: Organisation;
  readonly exporter: KeeperExporter;
  readonly blobs: Blobs;
  /** Names of all blobs. */
  kept(): Promise<string[]>;
  /** Moves the clock of the routes on. */
  later(ms: number): void;
  /** Options of a worker; a test puts its own parts in. */
  worker(more?: Partial<ExportOptions>): ExportOptions;
  /** Starts a scheduler, which takes up what an earlier one left; it is closed with the test's world. */
  work(more?: Partial<ExportOptions>): Scheduler;
  /** Records of a workspace of organisation A, or of what `more` says. */
  write(count: number, more?: (n: number) => Record<string, unknown>): Promise<StoredLog[]>;
  close(): Promise<void>;
}

export async function startExports(engine: 'sqlite' | 'postgres'): Promise<ExportsUnderTest> {
  const keeper = await startKeeper();
  const dir = await mkdtemp(join(tmpdir(), 'sluice-blobs-'));
  const blobs = await openDiskBlobs({ dir });
  const exporter = new KeeperExporter(keeper.keeper, join(keeper.dir, 'logs'), systemClock);
  let ahead = 0;
  const clock: Clock = { ...systemClock, now: () => systemClock.now() + ahead };
  const schedulers: Scheduler[] = [];
  const wake = () => {
    for (const one of schedulers) one.wake();
  };
  const services = new Services()
    .provide(KEPT_LOGS, { store: keeper.keeper, days: 0, erased: (tx) => pendingErasures(tx, plainVault) })
    .provide(EXPORTS, { maxRows: MAX_ROWS, wake });
  const on = await startOrganisation(engine, {
    clock,
    admin: { services },
    headerAliases: ['x-portkey-'],
    register: (app, deps) => registerExportFiles(app, { ...deps, blobs }),
  });
  const { tables } = on.admin;
  const worker = (more: Partial<ExportOptions> = {}): ExportOptions => ({
    tables,
    blobs,
    exporter,
    store: keeper.keeper,
    services,
    clock: systemClock,
    log: silentLog,
    origin: () => ORIGIN,
    maxRows: MAX_ROWS,
    partRows: PART_ROWS,
    waitMs: 20,
    ...more,
  });
  let seq = 0;
  return {
    on,
    exporter,
    blobs,
    worker,
    async kept() {
      const names: string[] = [];
      for await (const { key } of blobs.all()) names.push(key);
      return names.sort();
    },
    later(ms) {
      ahead += ms;
    },
    work(more = {}) {
      const options = worker(more);
      const scheduler = createScheduler({
        tables: options.tables,
        clock: systemClock,
        log: silentLog,
        node: 'node',
        pollMs: 20,
        closeMs: 100,
      });
      scheduler.add(exportWork(options));
      scheduler.start();
      schedulers.push(scheduler);
      return scheduler;
    },
    async write(count, more = () => ({})) {
      const { organisation_id, workspace_id } = on.admin.a;
      const begin = systemClock.now() - 60_000;
      const made = Array.from({ length: count }, (_, n) => {
        seq += 1;
        return recordOfNow(seq, {
          organisation_id,
          workspace_id,
          time: begin + seq,
          path: '/v1/x',
          dry_run: false,
          ...more(n),
        });
      });
      await keeper.write(...made);
      return made;
    },
    async close() {
      await Promise.all(schedulers.map((one) => one.close()));
      await on.admin.close();
      await keeper.close();
      await rm(dir, { recursive: true });
    },
  };
}

/** What callers say, shortened for tests. */
export function exportsOf(call: Caller, workspaceId: string) {
  const at = (id: string, what = '') => `/v1/logs/exports/${id}${what}?workspace_id=${workspaceId}`;
  const ok = async (method: string, path: string, body?: unknown) => {
    const answer = await call(method, path, body);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  };
  const self = {
    at,
    create: (body: object = {}) =>
      call('POST', `/v1/logs/exports?workspace_id=${workspaceId}`, { filters: {}, requested_data: ['id'], ...body }),
    async made(body: object = {}): Promise<string> {
      const answer = await self.create(body);
      expect(answer.status, answer.text).toBe(200);
      return answer.body.id;
    },
    read: (id: string) => ok('GET', at(id)),
    start: (id: string) => ok('POST', at(id, '/start')),
    link: async (id: string): Promise<string> => (await ok('GET', at(id, '/download'))).signed_url,
    async ended(id: string) {
      return vi.waitFor(
        async () => {
          const read = await self.read(id);
          expect(read.status).not.toBe('in_progress');
          return read;
        },
        { timeout: 20_000, interval: 20 },
      );
    },
    /** A started export, at its end. */
    async run(body: object = {}) {
      const id = await self.made(body);
      await self.start(id);
      return self.ended(id);
    },
  };
  return self;
}

/** The file of a link, fetched from this server. */
export async function fileOf(under: ExportsUnderTest, link: string, method = 'GET'): Promise<Response> {
  return fetch(link.replace(ORIGIN, under.on.admin.url), { method });
}

/** Tables of a process that dies: from then on nothing of it reaches the store. */
export function mortal(tables: Tables): { readonly tables: Tables; die(): void } {
  let dead = false;
  return {
    die: () => {
      dead = true;
    },
    tables: new Proxy(tables, {
      get(target, name) {
        const value = Reflect.get(target, name, target) as unknown;
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) =>
          dead
            ? Promise.reject(new Error('the process is dead'))
            : (value as (...args: unknown[]) => unknown).apply(target, args);
      },
    }),
  };
}
