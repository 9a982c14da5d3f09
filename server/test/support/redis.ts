import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';

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

/** A Redis of this test's own on a free loopback port, nothing on disk; `cluster` owns every slot and checks them. */
export async function startRedis({ cluster = false } = {}): Promise<TestRedis> {
  const port = await freePort();
  const dir = await mkdtemp(join(tmpdir(), 'sluice-redis-'));
  const url = `redis://127.0.0.1:${port}`;
  let child: ChildProcess | null = null;
  const client = new Redis(url, { retryStrategy: () => 20 });
  client.on('error', () => undefined);

  async function start(): Promise<void> {
    const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', dir];
    if (cluster) options.push('--cluster-enabled', 'yes');
    const started = spawn('redis-server', options, { stdio: 'ignore' });
    child = started;
    // A test that fails before it has the server in hand must not leave it running.
    process.once('exit', () => started.kill('SIGKILL'));
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
    if (running.exitCode === null && running.signalCode === null) await once(running, 'exit');
    await lost;
  }

  await start();
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
