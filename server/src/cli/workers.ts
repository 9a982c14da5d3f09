/** `SLUICE_WORKERS`: several processes that share the port. The primary serves nothing; it holds what they share. */
import cluster, { type Worker } from 'node:cluster';
import { fileURLToPath } from 'node:url';
import type { Config } from '../config.ts';
import { KeeperRelay } from '../keeper/keeper-relay.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { openDataDir } from '../store/disk/data-dir.ts';
import { type Channel, serveWorker } from '../store/ipc/ipc.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import { WorkerSums } from '../telemetry/metrics/workers.ts';

/** A worker that ends sooner than this after its start is not started again at once. */
const EARLY_MS = 5_000;
const RESTART_MS = 1_000;
/** What a worker runs, whatever started the primary: `bin/start.mjs` has other work that is done once. */
const BIN = fileURLToPath(new URL('../../bin/sluice.mjs', import.meta.url));

export function isWorker(): boolean {
  return cluster.isWorker;
}

/** The channel to the primary process. */
export function primaryChannel(): Channel {
  return {
    send: (message) => void process.send?.(message),
    onMessage: (receive) => void process.on('message', receive),
  };
}

/** Starts the workers, restarts one that dies, passes signals on, and ends when all have ended. */
export async function runPrimary(config: Config, log: Log): Promise<void> {
  const dataDir = await openDataDir(config.dataDir);
  const counters = memoryCounters({ clock: systemClock });
  const channels = new Map<number, Channel>();
  const metrics = new WorkerSums(systemClock);
  const keeper = new KeeperRelay();
  let stopping = false;
  let exitCode = 0;
  cluster.setupPrimary({ exec: BIN });

  const start = (index: number): void => {
    const startedAt = systemClock.monotonic();
    const worker: Worker = cluster.fork({ SLUICE_WORKER_INDEX: String(index) });
    const channel: Channel = {
      send: (message) => {
        if (worker.isConnected()) worker.send(message as object);
      },
      onMessage: (receive) => void worker.on('message', receive),
    };
    channels.set(index, channel);
    serveWorker(channel, counters, () => channels.values());
    metrics.joined(index, channel);
    keeper.joined(index, channel);
    worker.on('exit', (code, signal) => {
      channels.delete(index);
      metrics.left(index);
      keeper.left(index);
      if (stopping) {
        if (code !== 0) exitCode = code ?? 1;
        if (channels.size === 0) finish();
        return;
      }
      log.error('a worker ended', { worker: index, code, signal });
      const early = systemClock.monotonic() - startedAt < EARLY_MS;
      // What stops a worker at its start (a wrong setting, a newer schema) would stop every later one too.
      if (early && code === 2) {
        stopping = true;
        exitCode = 2;
        for (const other of Object.values(cluster.workers ?? {})) other?.kill('SIGTERM');
        if (channels.size === 0) finish();
        return;
      }
      setTimeout(() => start(index), early ? RESTART_MS : 0);
    });
  };
  const finish = (): void => {
    void dataDir.close().then(() => process.exit(exitCode));
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      stopping = true;
      // A terminal sends Ctrl-C to the whole group; the workers got it themselves.
      if (signal === 'SIGTERM' || !process.stdin.isTTY) {
        for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill(signal);
      }
    });
  }
  for (let index = 1; index <= config.workers; index++) start(index);
}
