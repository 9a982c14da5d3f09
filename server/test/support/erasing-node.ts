/** A node with stored requests and bodies in a directory of a test's: its journals, its keeper's process, its work on erasures. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemTenant } from '../../src/auth/tenant.ts';
import { openSegmentKey, segmentKey } from '../../src/compose/body-keys.ts';
import { BodyLog } from '../../src/gateway/body-log.ts';
import { takeLease } from '../../src/jobs/leader.ts';
import { type ErasureOptions, FeedbackForgetter, LogErasures } from '../../src/jobs/log-erasures.ts';
import { BodyGroups } from '../../src/keeper/body-groups.ts';
import type { LogStoreAddress } from '../../src/keeper/clickhouse/store.ts';
import { openEngine, rowsOf } from '../../src/keeper/engine.ts';
import { journalSegments } from '../../src/keeper/journal-segments.ts';
import { KeptJournal } from '../../src/keeper/journal-trimmer.ts';
import { LogKeeper } from '../../src/keeper/keeper-launcher.ts';
import { knownNode } from '../../src/keeper/known-node.ts';
import { sharedCatalog } from '../../src/keeper/shared-catalog.ts';
import { bodyStore } from '../../src/keeper/stored-bodies.ts';
import { storedCatalog } from '../../src/keeper/stored-catalog.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { BodyJournal } from '../../src/store/disk/body-journal.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import type { EnvelopeVault } from '../../src/store/envelope.ts';
import type { Blobs, Tables } from '../../src/store/ports.ts';
import { filesBelow } from './files-below.ts';
import { logRecord } from './log-record.ts';

/** Where an erasure changes something: a chunk without bodies, feedback, a file for all nodes, the list of files. */
export type Place = 'before chunk' | 'after chunk' | 'before feedback' | 'prepared' | 'files';

export interface ErasingWorld {
  readonly tables: Tables;
  readonly vault: EnvelopeVault;
  readonly blobs: Blobs;
  /** The time of all nodes. */
  readonly clock: Clock;
  readonly place: ErasureOptions['place'];
  /** Of `elsewhere`. */
  readonly store?: LogStoreAddress;
}

export interface Written {
  readonly id: string;
  readonly organisationId: string;
}

export interface ErasingNode {
  readonly name: string;
  readonly dir: string;
  readonly keeper: LogKeeper;
  /** A request with this text in its body. Resolves when it is in the journals. */
  write(text: string, more: Record<string, unknown>): Promise<Written>;
  /** Begins the work on erasures. */
  work(): LogErasures;
  wake(): void;
  /** The node dies with everything that it has on its disk. */
  kill(): Promise<void>;
  /** Kills the keeper's process at each of these places, when it comes there next. */
  killAt(...places: readonly Place[]): void;
  /** Places that it was not killed at yet. */
  readonly deaths: Place[];
  /** Adds each place on its disk with a text in it. */
  placesOf(text: string, found: string[]): Promise<void>;
  close(): Promise<void>;
}

/** @param given a directory of a node that was killed */
export async function openErasingNode(world: ErasingWorld, name: string, given?: string): Promise<ErasingNode> {
  const { tables, vault, blobs, clock, place } = world;
  const hasty: Clock = { ...clock, after: (ms, run) => systemClock.after(ms / 100, run) };
  const dir = given ?? (await mkdtemp(join(tmpdir(), `sluice-erasures-${name}-`)));
  const spool = join(dir, 'spool');
  const log = silentLog;
  const opened = (...of: readonly [string, string, string]) => openSegmentKey(vault, ...of);
  const bodies = { blobs, tables, keys: vault, clock: systemClock, tenantOf: systemTenant, segmentKey: opened };
  const journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log });
  const bodyJournal = new BodyJournal({
    dir: join(spool, 'bodies'),
    clock: hasty,
    log,
    keyOf: (of, segment) => segmentKey(vault, of, segment),
  });
  const bodyLog = new BodyLog({
    journal: bodyJournal,
    clock: systemClock,
    rule: 'allowed',
    maxBytes: 1 << 20,
    maskedHeaders: [],
  });
  const deaths: Place[] = [];
  const pass = (at: Place) => {
    const next = deaths.indexOf(at);
    if (next < 0 || keeper.pid === null) return;
    deaths.splice(next, 1);
    process.kill(keeper.pid, 'SIGKILL');
  };
  const shared =
    place === 'files'
      ? sharedCatalog({
          tables,
          blobs,
          node: name,
          clock,
          tenant: systemTenant('log-files'),
          hasSpace: async () => undefined,
          lead: () => takeLease(tables, 'log-files', name, 1_000),
        })
      : null;
  await (shared?.shared ?? (place === null ? null : knownNode(tables, name, clock)))?.announce(null);
  const catalog = shared ?? storedCatalog(tables, name, clock);
  const chunks = bodyStore(bodies);
  const feedback = new FeedbackForgetter(tables);
  const keeper: LogKeeper = new LogKeeper({
    dir: join(dir, 'logs'),
    spool,
    workers: 1,
    node: name,
    memoryMb: 256,
    threads: 1,
    tickMs: 50,
    ...(shared && {
      shared: {
        ...shared.shared,
        async prepare(...file) {
          await shared.shared.prepare(...file);
          pass('prepared');
        },
      },
      cacheBytes: 1 << 30,
      flushMs: 100,
    }),
    catalog: {
      load: () => catalog.load(),
      async commit(change) {
        if (change.remove.length > 0) pass('files');
        // What has reached the server is carried out.
        await catalog.commit(change);
      },
    },
    bodies: {
      ...chunks,
      async put(...chunk) {
        pass('before chunk');
        await chunks.put(...chunk);
        pass('after chunk');
      },
    },
    forgetFeedback: async (...of) => {
      pass('before feedback');
      return feedback.forget(...of);
    },
    store: world.store ?? null,
    clock: hasty,
    log,
  });
  const kept = new KeptJournal({
    journal,
    dir: join(spool, 'journal'),
    keptTo: (of) =>
      tables.systemRead(async (tx) => {
        const found = await tx.find('log_positions', { journal: of });
        return found === undefined ? null : { segment: found.segment, offset: found.position };
      }),
    wake: () => keeper.wake(),
    clock: hasty,
    log,
  });
  const works: LogErasures[] = [];
  let seq = 0;
  const run = uuidv7(systemClock);
  const end = async () => {
    const gone = Promise.all(works.map((work) => work.close()));
    await kept.close();
    await keeper.close();
    await gone;
    await journal.close();
    await bodyJournal.close();
  };
  return {
    name,
    dir,
    keeper,
    deaths,
    async write(text, more) {
      const id = uuidv7(systemClock);
      seq += 1;
      const record = logRecord(seq, {
        id,
        node: `${name}-${run}`,
        trace_id: id,
        time: systemClock.now(),
        dry_run: false,
        metadata: null,
        ...bodyLog.place(String(more.workspace_id), text.length),
        ...more,
      });
      const { body_chunk: _, body_slot: __, chunk, slot, ...rest } = record;
      const at = { chunk: String(chunk), slot: Number(slot) };
      bodyLog.piece(id, 'request', 1, Buffer.from(text));
      bodyLog.end(id, {
        organisation_id: String(record.organisation_id),
        workspace_id: String(record.workspace_id),
        time: record.time,
        flags: 0,
        parts: { request: { bytes: text.length, headers: { 'x-text': text } } },
        ...at,
      });
      await bodyJournal.flush();
      const line = JSON.stringify({ ...rest, body_chunk: at.chunk, body_slot: at.slot });
      await new Promise<void>((resolve) => journal.append(line, resolve));
      return { id, organisationId: String(record.organisation_id) };
    },
    work() {
      const work = new LogErasures({
        tables,
        vault,
        eraser: keeper,
        feedback,
        node: name,
        clock: hasty,
        log,
        segments: () => journalSegments(spool),
        giveUp: async () => undefined,
        settleMs: 0,
        place,
        leaseMs: 1_000,
        pauseMs: 50,
      });
      works.push(work);
      return work;
    },
    wake() {
      for (const work of works) work.wake();
    },
    kill: end,
    killAt(...places) {
      deaths.push(...places);
    },
    async placesOf(text, found) {
      const has = (where: string, bytes: Buffer | string) => {
        if (bytes.includes(text)) found.push(where);
      };
      const engineOfFiles = await openEngine({ memory: '256MB', threads: 1, temporary: join(dir, 'spill') });
      const connection = await engineOfFiles.connect();
      for (const { path, bytes } of await filesBelow(dir)) {
        has(path, bytes);
        if (!path.endsWith('.parquet')) continue;
        const rows = await rowsOf(connection, { sql: `SELECT * FROM read_parquet('${path}')`, values: [] });
        has(`rows of ${path}`, JSON.stringify(rows));
      }
      connection.closeSync();
      engineOfFiles.closeSync();
      const groups = await BodyGroups.open(join(spool, 'bodies'), async (...of) => opened(...of));
      for (let group = await groups?.next(); group != null; group = await groups?.next()) {
        has(`segment ${group.segment}`, group.bytes);
      }
    },
    async close() {
      await end();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
