/** Stored requests with bodies of one node or of several, the routes that read and erase them, and the work on erasures. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, vi } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { openSegmentKey } from '../../src/compose/body-keys.ts';
import type { LogErasures } from '../../src/jobs/log-erasures.ts';
import type { LogStoreAddress } from '../../src/keeper/clickhouse/store.ts';
import { openEngine, rowsOf } from '../../src/keeper/engine.ts';
import type { LogKeeper } from '../../src/keeper/keeper-launcher.ts';
import { removeReplaced } from '../../src/keeper/shared-catalog.ts';
import { StoredBodies } from '../../src/keeper/stored-bodies.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { KEPT_BODIES } from '../../src/resources/logs/bodies.ts';
import { fedDestinations } from '../../src/resources/logs/erasures/destinations.ts';
import { ERASURES } from '../../src/resources/logs/erasures/index.ts';
import { pendingErasures } from '../../src/resources/logs/erasures/pending.ts';
import { RECORDS } from '../../src/resources/logs/index.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import { openDiskBlobs } from '../../src/store/disk/blobs.ts';
import { openVault } from '../../src/store/envelope.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Blobs, Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { chunkBlob, chunkKeyId, openChunk } from '../../src/telemetry/bodies/chunk.ts';
import { storedRecords } from '../../src/telemetry/stored-records.ts';
import { type AdminHarness, emptyTables, startAdmin } from './admin.ts';
import { type ErasingNode, type ErasingWorld, openErasingNode, type Place, type Written } from './erasing-node.ts';
import { startBucket } from './log-fleet.ts';
import type { S3Server } from './s3-server.ts';

export type { Place, Written } from './erasing-node.ts';

export interface ErasuresUnderTest {
  readonly admin: AdminHarness;
  readonly tables: Tables;
  readonly keeper: LogKeeper;
  readonly nodes: ErasingNode[];
  /** Null: bodies are on the disk. */
  readonly s3: S3Server | null;
  /** A request of organisation A with this text in its body, unless `more` says another. Resolves when it is in the journals. */
  write(text: string, more?: Record<string, unknown>, node?: ErasingNode): Promise<Written>;
  /** Begins the work on erasures, on all nodes. */
  work(): LogErasures;
  /** Kills the process of the first node's keeper at each of these places, when it comes there next. */
  killAt(...places: readonly Place[]): void;
  /** Places that it was not killed at yet. */
  readonly deaths: readonly Place[];
  /** A node that was killed begins again on its disk. */
  restart(node: ErasingNode): Promise<ErasingNode>;
  /** The time of all nodes goes on, and a leader removes what was replaced. */
  pass(ms: number): Promise<void>;
  /** Waits until an erasure is done, and answers it. */
  // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
  done(id: string): Promise<any>;
  /** Every place on the disks and in the blob store with a text in it, compressed and sealed ones too. */
  placesOf(text: string): Promise<string[]>;
  close(): Promise<void>;
}

export interface ErasureSettings {
  /** Of the nodes: several share their files, or send them to a store elsewhere. */
  readonly names?: readonly string[];
  readonly place?: ErasingWorld['place'];
  readonly store?: LogStoreAddress;
  /** Bodies are in a bucket; so are files that nodes share. */
  readonly bucket?: boolean;
}

export async function startErasures(
  engine: 'sqlite' | 'postgres',
  { names = ['node'], place = null, store, bucket = place === 'files' }: ErasureSettings = {},
): Promise<ErasuresUnderTest> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-erasures-'));
  const tables =
    engine === 'sqlite'
      ? await openSqliteTables({ file: join(dir, 'control.db'), log: silentLog })
      : await emptyTables(engine);
  await tables.migrate();
  const keyring = await loadKeyring({ masterKeyFile: join(dir, 'master.key'), create: true });
  const vault = openVault({ keyring, tables, clock: systemClock });
  const found = bucket ? await startBucket() : null;
  const blobs: Blobs = found?.blobs ?? (await openDiskBlobs({ dir }));
  let ahead = 0;
  const clock: Clock = { ...systemClock, now: () => systemClock.now() + ahead };
  const world: ErasingWorld = { tables, vault, blobs, clock, place, ...(store === undefined ? {} : { store }) };
  const nodes = await Promise.all(names.map((name) => openErasingNode(world, name)));
  const [first] = nodes;
  if (first === undefined) throw new Error('there is one');
  const opened = (...of: readonly [string, string, string]) => openSegmentKey(vault, ...of);
  const bodies = { blobs, tables, keys: vault, clock: systemClock, tenantOf: systemTenant, segmentKey: opened };
  const stored = new StoredBodies(bodies, first.keeper);
  const erased = (organisationId: string) =>
    tables.read(systemTenant(organisationId), (tx) => pendingErasures(tx, vault));
  const services = new Services()
    .provide(RECORDS, storedRecords(first.keeper, 0, systemClock.now, erased))
    .provide(KEPT_LOGS, { store: first.keeper, days: 0, erased: (tx) => pendingErasures(tx, vault) })
    .provide(KEPT_BODIES, {
      find: (at) => stored.find(at),
      search: (...asked) => stored.search(...asked),
      days: 14,
    })
    .provide(ERASURES, {
      destinations: (organisationId, workspaceId) =>
        tables.read(systemTenant(organisationId), (tx) => fedDestinations(tx, workspaceId)),
      wake: () => {
        for (const node of nodes) node.wake();
      },
    });
  const admin = await startAdmin(tables, { admin: { services, vault } });
  const rowsIn = async (path: string) => {
    const engineOfFiles = await openEngine({ memory: '256MB', threads: 1, temporary: join(dir, 'spill') });
    const connection = await engineOfFiles.connect();
    const rows = await rowsOf(connection, { sql: `SELECT * FROM read_parquet('${path}')`, values: [] });
    connection.closeSync();
    engineOfFiles.closeSync();
    return JSON.stringify(rows);
  };
  return {
    admin,
    tables,
    keeper: first.keeper,
    nodes,
    s3: found?.s3 ?? null,
    write(text, more = {}, node = first) {
      const { organisation_id, workspace_id } = admin.a;
      return node.write(text, { organisation_id, workspace_id, ...more });
    },
    work() {
      const [work] = nodes.map((node) => node.work());
      if (work === undefined) throw new Error('there is one');
      return work;
    },
    killAt: (...places) => first.killAt(...places),
    deaths: first.deaths,
    async restart(node) {
      const again = await openErasingNode(world, node.name, node.dir);
      nodes.splice(nodes.indexOf(node), 1, again);
      return again;
    },
    async pass(ms) {
      ahead += ms;
      const tenant = systemTenant('log-files');
      await removeReplaced({ tables, blobs, clock, tenant }, new AbortController().signal);
    },
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
      const places: string[] = [];
      for (const node of nodes) await node.placesOf(text, places);
      const has = (where: string, bytes: Buffer | string) => {
        if (bytes.includes(text)) places.push(where);
      };
      for (const key of found?.s3.keys('blobs').filter((each) => each.endsWith('.parquet')) ?? []) {
        const body = await blobs.get(systemTenant('log-files'), key.slice('log-files/'.length));
        if (body === null) continue;
        await writeFile(join(dir, 'object.parquet'), await buffer(body));
        has(key, await rowsIn(join(dir, 'object.parquet')));
      }
      for (const { id, organisation_id } of await tables.systemRead((tx) => tx.list('body_chunks', {}))) {
        const body = await blobs.get(systemTenant(organisation_id), chunkBlob(id));
        if (body === null) throw new Error(`chunk ${id} is listed and not there`);
        const blob = await buffer(body);
        const { key } = await vault.subkey(organisation_id, 'bodies of requests', chunkKeyId(blob));
        for (const request of (await openChunk(organisation_id, id, blob, key)).values()) {
          has(`chunk ${id}`, JSON.stringify(request.end));
          for (const bytes of Object.values(request.bodies)) has(`chunk ${id}`, bytes);
        }
      }
      if (engine === 'sqlite') {
        for (const name of ['control.db', 'control.db-wal']) {
          has(name, await readFile(join(dir, name)).catch(() => ''));
        }
      }
      return places;
    },
    async close() {
      await admin.close();
      for (const node of nodes) await node.close();
      await vault.close();
      await found?.blobs.close();
      await found?.s3.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
