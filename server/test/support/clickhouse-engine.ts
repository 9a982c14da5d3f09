/** The engine of ClickHouse (chDB) as a server on this machine: `test/slow/clickhouse/README.md` says how to install it. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { LogStoreAddress } from '../../src/keeper/clickhouse/store.ts';

const PROGRAM = fileURLToPath(new URL('../slow/clickhouse/engine.py', import.meta.url));

export interface EngineServer {
  readonly address: LogStoreAddress;
  stop(): Promise<void>;
}

/** Whether this Python has the engine. */
export function hasEngine(python: string): boolean {
  return spawnSync(python, ['-c', 'import chdb'], { stdio: 'ignore' }).status === 0;
}

/** The data of a directory stay there, for the next server of it. */
export async function startEngine(python: string, options: { directory?: string; port?: number } = {}) {
  const { directory, port = 0 } = options;
  const more = directory === undefined ? [] : ['--directory', directory];
  const child = spawn(python, [PROGRAM, '--port', String(port), ...more], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const { port: found } = JSON.parse(line) as { port: number };
  const address = { secure: false, host: `127.0.0.1:${found}`, user: 'sluice', password: 'secret', database: 'sluice' };
  const stop = async () => {
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };
  return { address, stop } satisfies EngineServer;
}
