import { openTables } from '../cli/stored-tables.ts';
import { sealStored } from '../resources/seal-stored.ts';
import { type StoreClock, startStoreClock } from '../runtime/store-clock.ts';
import { openDataDir } from '../store/disk/data-dir.ts';
import { type EnvelopeVault, hasMasterKey, openVault } from '../store/envelope.ts';
import { loadKeyring } from '../store/keyring.ts';
import type { Blobs, Tables } from '../store/ports.ts';
import { nodeRunId } from '../telemetry/recorder.ts';
import { openBlobs } from './blobs.ts';
import type { Common } from './common.ts';

/** The stores of this node, migrated, and the keys to what is sealed in them. */
export interface Stores {
  readonly tables: Tables;
  /** The store's time, on every node the same. */
  readonly storeClock: StoreClock;
  readonly blobs: Blobs;
  readonly vault: EnvelopeVault;
  /** Name of this machine's node, the same after a restart. */
  readonly nodeId: string;
  /** Name of this process in leases, the same after a restart. */
  readonly node: string;
  /** Name of this run of this process. */
  readonly runId: string;
}

/** Opens and migrates them, and seals what an older version stored in clear. */
export async function openStores({ config, clock, log, lifecycle, worker }: Common): Promise<Stores> {
  const dataDir = lifecycle.own('data directory', await openDataDir(config.dataDir, { lock: worker.shared === null }));
  const tables = lifecycle.own('control store', await openTables(config, log));
  await tables.migrate();
  const storeClock = lifecycle.own('store clock', await startStoreClock({ tables, clock, log }));
  const blobs = lifecycle.own('blobs', await openBlobs(config, clock, log));
  const keyring = await loadKeyring({
    ...(config.masterKey === null ? {} : { masterKey: config.masterKey }),
    masterKeyFile: config.masterKeyFile,
    create: !(await hasMasterKey(tables)),
  });
  const vault = lifecycle.own('vault', openVault({ keyring, tables, clock }));
  await vault.verify();
  await sealStored(tables, vault, log);
  const { nodeId } = dataDir;
  const runId = nodeRunId(nodeId, clock, worker.index);
  return { tables, storeClock, blobs, vault, nodeId, node: `${nodeId}-${worker.index}`, runId };
}
