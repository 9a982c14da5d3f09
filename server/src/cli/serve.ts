import type { Running } from '../compose.ts';
import { type Config, ConfigError, unknownVariables, workerIndex } from '../config.ts';
import { calmLog } from '../kernel/calm-log.ts';
import { systemClock } from '../kernel/clock.ts';
import { workerShared } from '../store/ipc/ipc.ts';
import { createLogger } from '../telemetry/logger.ts';
import { bannerText } from './banner.ts';
import { LINKS_GO_NOWHERE, linksGoNowhere } from './links.ts';
import { loadInParts } from './load-in-parts.ts';
import type { Output } from './output.ts';
import { releaseMemory } from './release-memory.ts';
import { noteAddress } from './server-address.ts';
import { isWorker, primaryChannel, runPrimary } from './workers.ts';

/** After a second SIGTERM, how long what is left may take. */
const HURRIED_MS = 5_000;
/** After SIGTERM, how long new requests are still taken while load balancers notice that the node is not ready. */
const NOTICE_MS = 5_000;

/** Starts the server and runs until a signal. */
export async function serve(config: Config, output: Output): Promise<void> {
  const all = createLogger({ level: config.logLevel, format: config.logFormat, write: (line) => output.out(line) });
  const log = calmLog(all, systemClock);
  if (!isWorker()) for (const line of unknownVariables()) log.warn(line);
  if (config.workers > 1 && !isWorker()) return runPrimary(config, log);
  // Not above: the primary process serves nothing, and holds no code of what does.
  await loadInParts();
  const { compose } = await import('../compose.ts');
  const index = workerIndex();
  const primary = isWorker() ? primaryChannel() : null;
  const shared = primary === null ? null : workerShared(primary, systemClock.after);
  const writeAccess = (lines: string) => output.out(lines);
  const given = { writeAccess, beforeListening: releaseMemory };
  const running = await compose(config, log, { index, shared, primary }, given).catch((error: unknown) => {
    throw listenProblem(error, config) ?? error;
  });
  // Before the banner: its reader may send a signal at once.
  handleSignals(running, config, (message, fields) => log.info(message, fields));
  if (index === 1) noteAddress(config.dataDir, running.url);
  if (index === 1) output.out(bannerText(running, config, process.stdout.isTTY === true));
  if (index === 1 && linksGoNowhere(config)) {
    log.warn(LINKS_GO_NOWHERE, { links_begin_with: running.url });
  }
  if (running.metricsUrl !== null) log.info('metrics are served', { url: running.metricsUrl, worker: index });
  log.info('Sluice is listening', { url: running.url, pid: process.pid, worker: index });
  process.on('unhandledRejection', (reason) => {
    log.error('a promise was rejected and nobody handled it', { error: (reason as Error)?.stack ?? String(reason) });
  });
}

const LISTEN_PROBLEMS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there. Stop it, or choose another $PORT; 0 picks a free one',
  EACCES: 'this user may not use that port. Choose a $PORT above 1023; 0 picks a free one',
  EADDRNOTAVAIL: 'SLUICE_HOST is not an address of this machine. Use 127.0.0.1, 0.0.0.0, or an address of this machine',
  ENOTFOUND: 'SLUICE_HOST has no address. Use 127.0.0.1, 0.0.0.0, or one of this machine',
};

/** What the operator can mend when the address cannot be listened on; null for any other error. */
function listenProblem(error: unknown, config: Config): ConfigError | null {
  const failed = error as { code?: string; syscall?: string; address?: string; port?: number };
  const { code = '', syscall, address, port: tried } = failed;
  const advice = LISTEN_PROBLEMS[code];
  if (advice === undefined || (syscall !== 'listen' && syscall !== 'bind' && syscall !== 'getaddrinfo')) return null;
  const metrics = tried === config.metricsPort && tried !== config.port;
  const { host, port, setting } = metrics
    ? { host: address, port: tried, setting: 'SLUICE_METRICS_PORT' }
    : { ...config, setting: 'SLUICE_PORT' };
  return new ConfigError(`Cannot listen on ${host}:${port}: ${advice.replace('$PORT', setting)}.`);
}

/**
 * SIGTERM drains: not ready, new requests for a few seconds more, then the listener closes and what runs may finish
 * until the deadline; a second one cuts that to five seconds. SIGINT drains without the notice, a second one ends at once.
 */
function handleSignals(
  running: Running,
  config: Config,
  info: (message: string, fields?: Record<string, unknown>) => void,
): void {
  let interrupts = 0;
  let terms = 0;
  const exit = (code: number) => process.exit(code);
  const stop = (noticeMs: number, drainMs: number) => {
    running.stop({ noticeMs, drainMs }).then(
      () => exit(0),
      (error: unknown) => {
        info('the shutdown was not clean', { error: String(error) });
        exit(1);
      },
    );
  };
  process.on('SIGTERM', () => {
    terms += 1;
    if (terms === 1) {
      info('draining', { seconds: config.drainSeconds });
      stop(Math.min(NOTICE_MS, config.drainSeconds * 1000), config.drainSeconds * 1000);
    } else running.hurry(HURRIED_MS);
  });
  process.on('SIGINT', () => {
    interrupts += 1;
    if (interrupts > 1) exit(130);
    info('stopping; press Ctrl-C again to end at once');
    stop(0, config.drainSeconds * 1000);
  });
}
