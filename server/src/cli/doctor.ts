import { existsSync } from 'node:fs';
import { access, constants, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isConsoleBuilt } from '../admin/console-dist.ts';
import { type Config, loadConfig, unknownVariables } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { isSealed } from '../resources/seal-stored.ts';
import { unusableDataDir } from '../store/disk/data-dir.ts';
import { openVault } from '../store/envelope.ts';
import type { Tables } from '../store/ports.ts';
import type { Output } from './output.ts';
import { openStoredTables, storedKeyring } from './stored-tables.ts';
import { wordsOf } from './words.ts';

/** Answers what it found; throws an error whose message says what is wrong and what to do. */
type Check = () => Promise<string>;

/** Runs a check and prints what it found; false when it failed. */
type Run = (name: string, check: Check) => Promise<boolean>;

/** A finding that stops nothing. */
class Warning extends Error {}

const LOW_BYTES = 1024 ** 3;
const SKEW_MS = 2_000;

/**
 * `doctor`: looks at an installation, beside a running server too, and changes nothing. One line for each check, and exit code
 * 1 when one of them failed.
 */
export async function doctor(args: readonly string[], output: Output): Promise<void> {
  const { settings } = wordsOf(args, []);
  let failed = 0;
  async function run(name: string, check: Check): Promise<boolean> {
    let verdict = 'ok';
    let said: string;
    try {
      said = await check();
    } catch (error) {
      verdict = error instanceof Warning ? 'warn' : 'FAIL';
      if (verdict === 'FAIL') failed += 1;
      said = (error as Error).message;
    }
    for (const line of said.split('\n')) output.out(`${verdict.padEnd(4)}  ${name.padEnd(14)}  ${line}\n`);
    return verdict !== 'FAIL';
  }

  output.out(`Sluice doctor, Node.js ${process.versions.node}\n`);
  let config: Config | null = null;
  await run('configuration', async () => {
    config = loadConfig(settings);
    const [first] = unknownVariables();
    if (first !== undefined) throw new Warning(first);
    return 'every setting is valid';
  });
  if (config !== null) await examine(config, run);
  if (failed > 0) process.exitCode = 1;
}

async function examine(config: Config, run: Run): Promise<void> {
  const { dataDir } = config;
  const usable = await run('data directory', async () => {
    const found = await stat(dataDir).catch(() => null);
    if (found === null) throw new Warning(`${dataDir} does not exist yet; the first start makes it`);
    if (!found.isDirectory()) throw unusableDataDir(dataDir, `${dataDir} is not a directory`);
    await access(dataDir, constants.R_OK | constants.W_OK).catch((error: Error) => {
      throw unusableDataDir(dataDir, error.message);
    });
    const open = found.mode & 0o077;
    if (open !== 0) throw new Warning(`${dataDir} can be read by other users; run: chmod 700 ${dataDir}`);
    return dataDir;
  });
  await run('disk', async () => {
    const { bavail, bsize } = await statfs(existsSync(dataDir) ? dataDir : '.');
    const free = bavail * bsize;
    const shown = `${(free / 1024 ** 3).toFixed(1)} GiB free`;
    if (free < LOW_BYTES) throw new Warning(`${shown}; requests are refused when records cannot be written`);
    return shown;
  });
  const embedded = config.databaseUrl === null;
  if (embedded && usable && !existsSync(join(dataDir, 'control.db')))
    await run('store', async () => {
      throw new Warning('there is none yet; the first start makes it');
    });
  else if (!embedded || usable) {
    let tables: Tables | null = null;
    await run('store', async () => {
      tables = await openStoredTables(config);
      const asked = systemClock.now();
      const skew = Math.abs((await tables.systemRead((tx) => tx.now())) - asked);
      if (skew > SKEW_MS)
        throw new Warning(`its clock and this machine's differ by ${Math.round(skew / 1000)} s; set up NTP on both`);
      return `${tables.engine}, reachable`;
    });
    if (tables !== null) await examineStore(config, tables, run);
  }
  const { redisUrl } = config;
  if (redisUrl !== null)
    await run('redis', async () => {
      const { openRedis } = await import('../store/redis/redis.ts');
      const redis = await openRedis({ url: redisUrl, log: silentLog, clock: systemClock });
      try {
        await redis.ping();
        return 'reachable';
      } finally {
        await redis.close();
      }
    });
  const { logs } = config;
  if (logs !== null)
    await run('logs', async () => {
      const { ClickHouse } = await import('../keeper/clickhouse/store.ts');
      const clickHouse = new ClickHouse({ ...logs, password: logs.password.reveal() }, silentLog);
      try {
        return `ClickHouse ${await clickHouse.look()}, reachable`;
      } finally {
        await clickHouse.close();
      }
    });
  await run('console', async () => {
    if (!isConsoleBuilt()) throw new Warning('it is not built, and not offered; npm ci && npm run console builds it');
    return 'built';
  });
}

async function examineStore(config: Config, tables: Tables, run: Run): Promise<void> {
  try {
    await run('master key', async () => {
      const keyring = await storedKeyring(config);
      await openVault({ keyring, tables, clock: systemClock }).verify({ note: false });
      return `opens what the store has sealed (key ${keyring.currentId})`;
    });
    await run('sealed values', async () => {
      if (await isSealed(tables)) return 'nothing that older versions stored in clear is left in the tables';
      throw new Warning('what older versions stored in clear is sealed, and its tables rewritten, by the next start');
    });
    await run('organisations', async () => String(await tables.systemRead((tx) => tx.count('organisations'))));
  } finally {
    await tables.close();
  }
}
