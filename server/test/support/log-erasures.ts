/** Stored requests with bodies in a data directory of a test's, the routes that read and erase them, and the work on erasures. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { openSegmentKey, segmentKey } from '../../src/compose/body-keys.ts';
import { BodyLog } from '../../src/gateway/body-log.ts';
import { FeedbackForgetter, LogErasures } from '../../src/jobs/log-erasures.ts';
import { BodyGroups } from '../../src/keeper/body-groups.ts';
import { openEngine, rowsOf } from '../../src/keeper/engine.ts';
import { journalSegments } from '../../src/keeper/journal-segments.ts';
import { KeptJournal } from '../../src/keeper/kept-journal.ts';
import { LogKeeper } from '../../src/keeper/log-keeper.ts';
import { bodyStore, StoredBodies } from '../../src/keeper/stored-bodies.ts';
import { storedCatalog } from '../../src/keeper/stored-catalog.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { KEPT_BODIES } from '../../src/resources/logs/bodies.ts';
import { fedDestinations } from '../../src/resources/logs/erasures/destinations.ts';
import { ERASURES } from '../../src/resources/logs/erasures/index.ts';
import { pendingErasures } from '../../src/resources/logs/erasures/pending.ts';
import { RECORDS } from '../../src/resources/logs/index.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import { BodyJournal } from '../../src/store/disk/body-journal.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import { openVault } from '../../src/store/envelope.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { chunkBlob, chunkKeyId, openChunk } from '../../src/telemetry/bodies/chunk.ts';
import { storedRecords } from '../../src/telemetry/stored-records.ts';
import { type AdminHarness, emptyTables, startAdmin } from './admin.ts';
import { logRecord } from './log-record.ts';

/** Waits pass a hundred times faster. */
const hasty: Clock = { ...systemClock, after: (ms, run) => systemClock.after(ms / 100, run) };

/** Where an erasure changes something: a chunk without bodies, feedback, the list of files. */
export type Place = 'before chunk' | 'after chunk' | 'before feedback' | 'files';

export interface Written {
  readonly id: string;
  readonly organisationId: string;
}

export interface ErasuresUnderTest {
  readonly dir: string;
  readonly admin: AdminHarness;
  readonly tables: Tables;
  readonly keeper: LogKeeper;
  /** A request of organisation A with this text in its body, unless `more` says another. Resolves when it is in the journals. */
  write(text: string, more?: Record<string, unknown>): Promise<Written>;
  /** Begins the work on erasures. */
  work(): LogErasures;
  /** Kills the keeper's process at each of these places, when it comes there next. */
  killAt(...places: readonly Place[]): void;
  /** Places that it was not killed at yet. */
  readonly deaths: readonly Place[];
  /** Waits until an erasure is done, and answers it. */
  // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
  done(id: string): Promise<any>;
  /** Every place in the data directory with a text in it, compressed and sealed ones too. */
  placesOf(text: string): Promise<string[]>;
  close(): Promise<void>;
}

export async function startErasures(engine: 'sqlite' | 'postgres'): Promise<ErasuresUnderTest> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-erasures-'));
  const spool = join(dir, 'spool');
  const log = silentLog;
  const tables =
    engine === 'sqlite' ? await openSqliteTables({ file: join(dir, 'control.db'), log }) : await emptyTables(engine);
  await tables.migrate();
  const keyring = await loadKeyring({ masterKeyFile: join(dir, 'master.key'), create: true });
  const vault = openVault({ keyring, tables, clock: systemClock });
  const blobs = await openDiskBlobs({ dir });
  const opened = (...place: readonly [string, string, string]) => openSegmentKey(vault, ...place);
  const bodies = { blobs, tables, keys: vault, clock: systemClock, tenantOf: systemTenant, segmentKey: opened };
  const journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log });
  const bodyJournal = new BodyJournal({
    dir: join(spool, 'bodies'),
    clock: hasty,
    log,
    keyOf: (name, segment) => segmentKey(vault, name, segment),
  });
  const bodyLog = new BodyLog({
    journal: bodyJournal,
    clock: systemClock,
    rule: 'allowed',
    maxBytes: 1 << 20,
    maskedHeaders: [],
  });
  const deaths: Place[] = [];
  const pass = (place: Place) => {
    const at = deaths.indexOf(place);
    if (at < 0 || keeper.pid === null) return;
    deaths.splice(at, 1);
    process.kill(keeper.pid, 'SIGKILL');
  };
  const catalog = storedCatalog(tables, 'node', systemClock);
  const chunks = bodyStore(bodies);
  const feedback = new FeedbackForgetter(tables);
  const keeper: LogKeeper = new LogKeeper({
    dir: join(dir, 'logs'),
    spool,
    workers: 1,
    node: 'node',
    memoryMb: 256,
    threads: 2,
    tickMs: 50,
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
    clock: hasty,
    log,
  });
  const kept = new KeptJournal({
    journal,
    dir: join(spool, 'journal'),
    keptTo: (name) =>
      tables.systemRead(async (tx) => {
        const found = await tx.find('log_positions', { journal: name });
        return found === undefined ? null : { segment: found.segment, offset: found.position };
      }),
    wake: () => keeper.wake(),
    clock: hasty,
    log,
  });
  const stored = new StoredBodies(bodies, keeper);
  const works: LogErasures[] = [];
  const erased = (organisationId: string) =>
    tables.read(systemTenant(organisationId), (tx) => pendingErasures(tx, vault));
  const services = new Services()
    .provide(RECORDS, storedRecords(keeper, 0, systemClock.now, erased))
    .provide(KEPT_LOGS, { store: keeper, days: 0, erased: (tx) => pendingErasures(tx, vault) })
    .provide(KEPT_BODIES, {
      find: (place) => stored.find(place),
      search: (...asked) => stored.search(...asked),
      days: 14,
    })
    .provide(ERASURES, {
      destinations: (organisationId, workspaceId) =>
        tables.read(systemTenant(organisationId), (tx) => fedDestinations(tx, workspaceId)),
      wake: () => {
        for (const work of works) work.wake();
      },
    });
  const admin = await startAdmin(tables, { admin: { services, vault } });
  let seq = 0;
  return {
    dir,
    admin,
    tables,
    keeper,
    async write(text, more = {}) {
      const { organisation_id, workspace_id } = admin.a;
      const id = uuidv7(systemClock);
      seq += 1;
      const record = logRecord(seq, {
        id,
        trace_id: id,
        organisation_id,
        workspace_id,
        time: systemClock.now(),
        dry_run: false,
        metadata: null,
        ...bodyLog.place(String(more.workspace_id ?? workspace_id), text.length),
        ...more,
      });
      const { body_chunk: _, body_slot: __, chunk, slot, ...rest } = record;
      const place = { chunk: String(chunk), slot: Number(slot) };
      bodyLog.piece(id, 'request', 1, Buffer.from(text));
      bodyLog.end(id, {
        organisation_id: String(record.organisation_id),
        workspace_id: String(record.workspace_id),
        time: record.time,
        flags: 0,
        parts: { request: { bytes: text.length, headers: { 'x-text': text } } },
        ...place,
      });
      await bodyJournal.flush();
      const line = JSON.stringify({ ...rest, body_chunk: place.chunk, body_slot: place.slot });
      await new Promise<void>((resolve) => journal.append(line, resolve));
      return { id, organisationId: String(record.organisation_id) };
    },
    work() {
      const work = new LogErasures({
        tables,
        vault,
        eraser: keeper,
        feedback,
        node: 'node',
        clock: hasty,
        log,
        segments: () => journalSegments(spool),
        giveUp: async () => undefined,
        settleMs: 0,
      });
      works.push(work);
      return work;
    },
    killAt(...places) {
      deaths.push(...places);
    },
    deaths,
    async done(id) {
      return vi.waitFor(
        async () => {
          const answer = await admin.call('GET', `/v1/logs/erasures/${id}`);
          expect(answer.body.status, answer.text).toBe('done');
          return answer.body;
        },
        { timeout: 30_000, interval: 50 },
      );
    },
    async placesOf(text) {
      const found: string[] = [];
      const has = (where: string, bytes: Buffer | string) => {
        if (bytes.includes(text)) found.push(where);
      };
      const engineOfFiles = await openEngine({ memory: '256MB', threads: 1, temporary: join(dir, 'spill') });
      const connection = await engineOfFiles.connect();
      for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const path = join(entry.parentPath, entry.name);
        has(path, await readFile(path).catch(() => ''));
        if (!entry.name.endsWith('.parquet')) continue;
        const rows = await rowsOf(connection, { sql: `SELECT * FROM read_parquet('${path}')`, values: [] });
        has(`rows of ${path}`, JSON.stringify(rows));
      }
      connection.closeSync();
      engineOfFiles.closeSync();
      for (const { id, organisation_id } of await tables.systemRead((tx) => tx.list('body_chunks', {}))) {
        const blob = await readFile(join(dir, 'blobs', organisation_id, chunkBlob(id)));
        const { key } = await vault.subkey(organisation_id, 'bodies of requests', chunkKeyId(blob));
        for (const request of (await openChunk(organisation_id, id, blob, key)).values()) {
          has(`chunk ${id}`, JSON.stringify(request.end));
          for (const bytes of Object.values(request.bodies)) has(`chunk ${id}`, bytes);
        }
      }
      const groups = await BodyGroups.open(join(spool, 'bodies'), async (...place) => opened(...place));
      for (let group = await groups?.next(); group != null; group = await groups?.next()) {
        has(`segment ${group.segment}`, group.bytes);
      }
      return found;
    },
    async close() {
      await Promise.all(works.map((work) => work.close()));
      await kept.close();
      await admin.close();
      await keeper.close();
      await journal.close();
      await bodyJournal.close();
      await vault.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
