/** Exports of logs through the administration API, with a real keeper, a scheduler and blobs on disk. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { registerExportFiles } from '../../src/admin/export-files.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import { openSegmentKey, segmentKey } from '../../src/compose/body-keys.ts';
import { EXPORT_TURNS } from '../../src/compose/log-exports.ts';
import { BodyLog } from '../../src/gateway/body-log.ts';
import { type ExportOptions, exportTurn } from '../../src/jobs/log-exports.ts';
import { createScheduler, type Scheduler } from '../../src/jobs/scheduler.ts';
import type { BodyStore } from '../../src/keeper/body-keeper.ts';
import { KeeperExporter } from '../../src/keeper/exporter.ts';
import { bodyStore, StoredBodies } from '../../src/keeper/stored-bodies.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { KEPT_BODIES } from '../../src/resources/logs/bodies.ts';
import { pendingErasures } from '../../src/resources/logs/erasures/pending.ts';
import { EXPORTS } from '../../src/resources/logs/exports/index.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import { BodyJournal } from '../../src/store/disk/body-journal.ts';
import { openVault } from '../../src/store/envelope.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Blobs, StoredLog, Tables } from '../../src/store/ports.ts';
import { BODY_FLAGS, type BodyPart, type PartFacts } from '../../src/telemetry/bodies/frame.ts';
import { plainVault } from './admin.ts';
import { type KeeperUnderTest, NO_BODIES, recordOfNow, startKeeper } from './log-keeper.ts';
import { type Caller, type Organisation, startOrganisation } from './organisation.ts';

export const ORIGIN = 'https://sluice.example';
export const MAX_ROWS = 40;
const PART_ROWS = 5;

/** What is kept of a request; `said` of a record that is written. */
export interface Said {
  readonly request: string;
  readonly answer?: string;
  /** `content-type` of the answer. */
  readonly type?: string;
  readonly flags?: number;
}

export interface ExportsUnderTest {
  readonly keeper: KeeperUnderTest;
  readonly on: Organisation;
  readonly exporter: KeeperExporter;
  readonly blobs: Blobs;
  readonly bodies: StoredBodies;
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
  let chunks: BodyStore = NO_BODIES;
  const later = <K extends keyof BodyStore>(name: K) =>
    ((...args: never[]) => (chunks[name] as (...args: never[]) => unknown)(...args)) as BodyStore[K];
  const keeper = await startKeeper({
    bodies: {
      segmentKey: later('segmentKey'),
      chunkKey: later('chunkKey'),
      readKey: later('readKey'),
      put: later('put'),
      get: later('get'),
    },
  });
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
    .provide(KEPT_BODIES, {
      find: (place) => bodies.find(place),
      search: (...asked) => bodies.search(...asked),
      days: 14,
    })
    .provide(EXPORTS, { maxRows: MAX_ROWS, wake });
  const on = await startOrganisation(engine, {
    clock,
    admin: { services },
    headerAliases: ['x-portkey-'],
    register: (app, deps) => registerExportFiles(app, { ...deps, blobs }),
  });
  const { tables } = on.admin;
  const keyring = await loadKeyring({ masterKeyFile: join(keeper.dir, 'master.key'), create: true });
  const keys = openVault({ keyring, tables, clock: systemClock });
  const segment = (...place: readonly [string, string, string]) => openSegmentKey(keys, ...place);
  const opened = { blobs, tables, keys, clock: systemClock, tenantOf: systemTenant, segmentKey: segment };
  chunks = bodyStore(opened);
  const bodies = new StoredBodies(opened, keeper.keeper);
  const bodyJournal = new BodyJournal({
    dir: join(keeper.dir, 'spool', 'bodies'),
    clock: systemClock,
    log: silentLog,
    keyOf: (name, of) => segmentKey(keys, name, of),
  });
  const bodyLog = new BodyLog({
    journal: bodyJournal,
    clock: systemClock,
    rule: 'allowed',
    maxBytes: 1 << 20,
    maskedHeaders: [],
  });
  /** Frames of the bodies of a record; answers its columns. */
  const keep = ({ id, organisation_id, workspace_id }: StoredLog, { request, answer, type, flags = 0 }: Said) => {
    const place = bodyLog.place(String(workspace_id), request.length);
    const parts: Partial<Record<BodyPart, PartFacts>> = {};
    for (const [part, text] of Object.entries({ request, answer }) as ['request' | 'answer', string | undefined][]) {
      if (text === undefined || (part === 'request' && (flags & BODY_FLAGS.answerOnly) !== 0)) continue;
      bodyLog.piece(String(id), part, 1, Buffer.from(text));
      const headers = part === 'answer' && type !== undefined ? { headers: { 'content-type': type } } : {};
      parts[part] = { bytes: text.length, ...headers };
    }
    const whose = { organisation_id: String(organisation_id), workspace_id: String(workspace_id) };
    bodyLog.end(String(id), { ...whose, ...place, time: systemClock.now(), flags, parts });
    return { body_chunk: place.chunk, body_slot: place.slot, body_flags: flags };
  };
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
    bodiesDays: 14,
    partRows: PART_ROWS,
    waitMs: 20,
    ...more,
  });
  let seq = 0;
  return {
    keeper,
    on,
    exporter,
    blobs,
    bodies,
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
      scheduler.add({ ...EXPORT_TURNS, run: (claim) => exportTurn(options, claim) });
      scheduler.start();
      schedulers.push(scheduler);
      return scheduler;
    },
    async write(count, more = () => ({})) {
      const { organisation_id, workspace_id } = on.admin.a;
      const begin = systemClock.now() - 60_000;
      const made = Array.from({ length: count }, (_, n) => {
        seq += 1;
        const { said, ...rest } = more(n);
        const record = recordOfNow(seq, {
          organisation_id,
          workspace_id,
          time: begin + seq,
          path: '/v1/x',
          dry_run: false,
          ...rest,
        });
        return said === undefined ? record : { ...record, ...keep(record, said as Said) };
      });
      await bodyJournal.flush();
      await keeper.write(...made);
      return made;
    },
    async close() {
      await Promise.all(schedulers.map((one) => one.close()));
      await bodyJournal.close();
      await keys.close();
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
