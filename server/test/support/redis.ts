import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { within } from './watchdog.ts';

export interface TestRedis {
  readonly url: string;
  /** A plain client to look and meddle with. */
  readonly client: Redis;
  /** Freezes the server: it keeps its connections and answers nothing. */
  pause(): void;
  resume(): void;
  /** Kills the server at once. */
  kill(): Promise<void>;
  /** Starts it again, empty, on the same port. */
  start(): Promise<void>;
  close(): Promise<void>;
}

const given = process.env.SLUICE_TEST_REDIS_URL;
const installed = spawnSync('redis-server', ['--version']).status === 0;

/** Null when Redis suites can run; otherwise why not, for the title of the skipped suite. */
export const redisMissing: string | null =
  given || installed ? null : 'skipped: no redis-server on the PATH and SLUICE_TEST_REDIS_URL is not set';

/** The same for suites that stop and freeze the server, which a shared one is not for. */
export const ownRedisMissing: string | null = installed
  ? null
  : 'skipped: no redis-server on the PATH, and these tests must be able to kill it';

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

const START_MS = 30_000;
/** Another process may have taken the port that was free a moment ago. */
const PORTS = 5;

/** A Redis of this test's own on a free loopback port, nothing on disk; `cluster` owns every slot and checks them. */
export async function startRedis({ cluster = false } = {}): Promise<TestRedis> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOn(await freePort(), cluster);
    } catch (error) {
      if (attempt === PORTS) throw error;
    }
  }
}

async function startOn(port: number, cluster: boolean): Promise<TestRedis> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-redis-'));
  const url = `redis://127.0.0.1:${port}`;
  let child: ChildProcess | null = null;
  const client = new Redis(url, { retryStrategy: () => 20 });
  client.on('error', () => undefined);

  async function launch(): Promise<void> {
    const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', dir];
    if (cluster) options.push('--cluster-enabled', 'yes');
    const started = spawn('redis-server', options, { stdio: ['ignore', 'pipe', 'ignore'] });
    child = started;
    let printed = '';
    started.stdout.on('data', (text) => {
      printed = `${printed}${text}`.slice(-2000);
    });
    // A test that fails before it has the server in hand must not leave it running.
    const kill = () => started.kill('SIGKILL');
    process.once('exit', kill);
    const ended = new Promise<never>((_, reject) => {
      started.once('close', (code, signal) => {
        process.off('exit', kill);
        reject(new Error(`Redis on port ${port} ended with ${code ?? signal}: ${printed}`));
      });
    });
    ended.catch(() => undefined);
    try {
      await within(START_MS, `Redis on port ${port}`, Promise.race([connected(), ended]));
    } catch (error) {
      kill();
      throw error;
    }
  }

  /** A connection that was made meanwhile may have this very port as its end. */
  async function start(): Promise<void> {
    const end = performance.now() + START_MS;
    for (;;) {
      try {
        return await launch();
      } catch (error) {
        if (!/already in use/i.test((error as Error).message) || performance.now() > end) throw error;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  async function connected(): Promise<void> {
    if (client.status !== 'ready') await new Promise((resolve) => client.once('ready', resolve));
    if (!cluster) return;
    await client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383').catch(() => undefined);
    while (!String(await client.call('CLUSTER', 'INFO')).includes('cluster_state:ok')) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async function kill(): Promise<void> {
    const running = child;
    child = null;
    if (!running || running.exitCode !== null) return;
    const lost = client.status === 'ready' ? new Promise((resolve) => client.once('close', resolve)) : null;
    running.kill('SIGKILL');
    const gone = running.exitCode === null && running.signalCode === null ? once(running, 'exit') : null;
    await within(START_MS, `the end of Redis on port ${port}`, Promise.all([gone, lost]));
  }

  try {
    await launch();
  } catch (error) {
    client.disconnect();
    await rm(dir, { recursive: true, force: true });
    throw error;
  }
  return {
    url,
    client,
    pause: () => void child?.kill('SIGSTOP'),
    resume: () => void child?.kill('SIGCONT'),
    kill,
    start,
    async close() {
      client.disconnect();
      await kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** `SLUICE_TEST_REDIS_URL` when given (its data is not flushed), otherwise a server of the test's own. */
export async function anyRedis(): Promise<Pick<TestRedis, 'url' | 'close'>> {
  if (given) return { url: given, close: async () => undefined };
  return await startRedis();
}
