/** Starts what is measured, each as a process of its own, and stops it again. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { within } from '../server/test/support/watchdog.ts';

export interface Contender {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly model: string;
  /** Measured with small requests only. */
  readonly small?: boolean;
  /** Each of its requests differs from all others. */
  readonly distinct?: boolean;
  stop(): Promise<void>;
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PORTKEY_VERSION = '1.15.2';
/** With releases of its HTTP server from 1.19 on, every stream of the gateway fails ("immutable" headers). */
const PORTKEY_SERVER_VERSION = '1.13.8';

/** One core for the proxy, the other for load and upstream, where the machine has both and lets us choose. */
export const canPin = has('taskset') && [0, 1].every((core) => pins(core));

function pins(core: number): boolean {
  try {
    execFileSync('taskset', ['-c', String(core), 'true'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

export function has(command: string): boolean {
  try {
    execFileSync('which', [command], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

export function start(
  core: number,
  args: readonly string[],
  env: Record<string, string> = {},
  errors: 'inherit' | 'ignore' = 'inherit',
): ChildProcess {
  const [command, rest] = canPin ? ['taskset', ['-c', String(core), ...args]] : [args[0] ?? '', args.slice(1)];
  return spawn(command, rest, {
    stdio: ['ignore', 'pipe', errors, 'ipc'],
    cwd: ROOT,
    env: { ...process.env, ...env },
  });
}

export function firstLine(child: ChildProcess): Promise<string> {
  const line = new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout?.on('data', (part: Buffer) => {
      text += part.toString('utf8');
      const end = text.indexOf('\n');
      if (end !== -1) resolve(text.slice(0, end));
    });
    child.on('exit', (code) => reject(new Error(`ended with ${code} before it was ready`)));
  });
  return within(60_000, `the first line of ${child.spawnargs.join(' ')}`, line);
}

export async function portOf(child: ChildProcess): Promise<number> {
  return (JSON.parse(await firstLine(child)) as { port: number }).port;
}

export function stopChild(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', () => resolve());
    child.kill(signal);
    setTimeout(() => child.kill('SIGKILL'), 10_000).unref();
  });
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

async function until(check: () => Promise<boolean>, what: string): Promise<void> {
  for (let i = 0; i < 300; i++) {
    if (await check().catch(() => false)) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${what} did not become ready`);
}

export async function startBase(upstream: number): Promise<Contender> {
  const child = start(0, [process.execPath, 'bench/base.ts', String(upstream)]);
  const port = await portOf(child);
  return {
    name: 'base',
    pid: child.pid ?? 0,
    port,
    path: '/v1/chat/completions',
    headers: { 'x-gateway-api-key': 'bench-key' },
    model: 'gpt-4o-mini',
    stop: () => stopChild(child),
  };
}

/**
 * Sluice with everything a default start has on: authentication, records in journal and store, prices. `logs` also keeps the bodies
 * of its requests, as the organisation of the first run does.
 */
export async function startSluice(upstream: number, from: Checkout, name: 'sluice' | 'logs'): Promise<Contender> {
  const { contender, provider } = await startNode(upstream, from, name === 'logs');
  return {
    ...contender,
    name: `${name}${from.suffix}`,
    headers: { ...contender.headers, 'x-gateway-provider': `@${provider}` },
  };
}

/** Where a Sluice is started from, and what that adds to the names of its rows. */
export interface Checkout {
  readonly root: string;
  readonly suffix: string;
}

export const HERE: Checkout = { root: ROOT, suffix: '' };

/** A row of the table for what a saved config asks for. */
interface ConfigRow {
  readonly name: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly config: (provider: string) => object;
}

const METADATA = { 'x-gateway-metadata': '{"plan":"paid","region":"eu","team":"search"}' };

/** Only the last one holds. */
const CONDITIONS = [
  [{ 'metadata.plan': { $eq: 'free' } }, 'free'],
  [{ 'metadata.region': { $in: ['us', 'ap'] } }, 'near'],
  [{ 'metadata.team': { $regex: '^sea' } }, 'search'],
] as const;

/** Nothing but a provider: every other row is this one and what it is named after. */
const ROUTING_ROWS: readonly ConfigRow[] = [
  { name: 'config', config: (provider) => ({ provider }) },
  {
    name: 'semantic-off',
    headers: { 'x-gateway-debug': 'false' },
    config: (provider) => ({ provider, cache: { mode: 'semantic' } }),
  },
  {
    name: 'fallback',
    config: (provider) => ({ strategy: { mode: 'fallback' }, targets: [{ provider }, { provider }] }),
  },
  {
    name: 'conditional',
    headers: METADATA,
    config: (provider) => ({
      strategy: {
        mode: 'conditional',
        conditions: CONDITIONS.map(([query, name]) => ({
          query,
          // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
          then: name,
        })),
        default: 'free',
      },
      targets: [
        { name: 'free', provider },
        { name: 'near', provider },
        { name: 'search', provider },
      ],
    }),
  },
  {
    name: 'loadbalance',
    config: (provider) => ({
      strategy: { mode: 'loadbalance' },
      targets: [
        { provider, weight: 0.5 },
        { provider, weight: 0.3 },
        { provider, weight: 0.2 },
      ],
    }),
  },
];

const CACHE_ROWS: readonly ConfigRow[] = ['cache-hit', 'cache-miss'].map((name) => ({
  name,
  config: (provider) => ({ provider, cache: { mode: 'simple' } }),
}));

/** A process each: the memory that answers are kept in costs the other rows nothing. */
const CONFIG_NODES = [ROUTING_ROWS, CACHE_ROWS];

/** Names of the rows of `startConfigs`. */
export const CONFIG_NAMES: readonly string[] = CONFIG_NODES.flat().map(({ name }) => name);

/** Sluice asked under saved configs: rows of one process, which differ by nothing but the config. */
export async function startConfigs(
  upstream: number,
  wanted: (name: string) => boolean,
  from: Checkout,
): Promise<Contender[]> {
  const contenders: Contender[] = [];
  for (const rows of CONFIG_NODES) {
    const chosen = rows.filter(({ name }) => wanted(name));
    if (chosen.length === 0) continue;
    const { contender, provider, save } = await startNode(upstream, from);
    for (const { name, headers, config } of chosen) {
      contenders.push({
        ...contender,
        name: `${name}${from.suffix}`,
        headers: { ...contender.headers, 'x-gateway-config': await save(name, config(`@${provider}`)), ...headers },
        small: true,
        distinct: name === 'cache-miss',
      });
    }
  }
  return contenders;
}

interface Node {
  /** Names no provider yet. */
  readonly contender: Contender;
  /** Slug of one that calls the upstream. */
  readonly provider: string;
  /** Saves a config; its slug. */
  save(name: string, config: object): Promise<string>;
}

async function startNode(upstream: number, { root }: Checkout, bodies = false): Promise<Node> {
  const data = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  const entry = join(root, 'server/bin/sluice.mjs');
  const child = start(0, [process.execPath, '--max-semi-space-size=8', entry, 'serve'], {
    SLUICE_DATA_DIR: data,
    SLUICE_PORT: '0',
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream}`,
    SLUICE_LOG_LEVEL: 'warn',
    // The first organisation keeps bodies, others do not: the rows are of those.
    ...(bodies ? {} : { SLUICE_LOG_BODIES: 'never' }),
    SLUICE_DRAIN_SECONDS: '1',
    SLUICE_ADMIN_REQUESTS_PER_MINUTE: '10000',
  });
  child.stdout?.resume();
  const file = join(data, 'first-run.json');
  await until(async () => existsSync(file), 'Sluice');
  const first = JSON.parse(readFileSync(file, 'utf8')) as {
    base_url: string;
    admin_api_key: string;
    workspace_api_key: string;
    workspace_id: string;
  };
  const admin = async (path: string, body: unknown) => {
    const answer = await fetch(`${first.base_url}${path}`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as { slug: string };
  };
  const integration = await admin('/integrations', {
    name: 'bench',
    ai_provider_id: 'openai',
    key: 'sk-bench',
    workspace_id: first.workspace_id,
    create_default_provider: false,
    configurations: { custom_host: `http://127.0.0.1:${upstream}/v1` },
  });
  const provider = await admin('/providers', {
    name: 'bench',
    slug: 'bench',
    integration_id: integration.slug,
    workspace_id: first.workspace_id,
  });
  return {
    contender: {
      name: 'sluice',
      pid: child.pid ?? 0,
      port: Number(new URL(first.base_url).port),
      path: '/v1/chat/completions',
      headers: { 'x-gateway-api-key': first.workspace_api_key },
      model: 'gpt-4o-mini',
      async stop() {
        await stopChild(child);
        rmSync(data, { recursive: true, force: true });
      },
    },
    provider: provider.slug,
    async save(name, config) {
      return (await admin('/configs', { name, config, workspace_id: first.workspace_id })).slug;
    },
  };
}

/** Installed on demand into a cache of its own; never a dependency of the project. */
export async function startPortkey(upstream: number): Promise<Contender | null> {
  const cache = join(ROOT, '.cache', `portkey-${PORTKEY_VERSION}-${PORTKEY_SERVER_VERSION}`);
  const entry = join(cache, 'node_modules/@portkey-ai/gateway/build/start-server.js');
  if (!existsSync(entry)) {
    mkdirSync(cache, { recursive: true });
    const manifest = {
      private: true,
      dependencies: { '@portkey-ai/gateway': PORTKEY_VERSION },
      overrides: { '@hono/node-server': PORTKEY_SERVER_VERSION },
    };
    writeFileSync(join(cache, 'package.json'), JSON.stringify(manifest));
    try {
      execFileSync('npm', ['install', '--prefix', cache, '--ignore-scripts'], { cwd: cache, stdio: 'ignore' });
    } catch {
      return null;
    }
  }
  const port = await freePort();
  // Its errors are one stack trace each; the failures are counted by the load.
  const env = { NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1,localhost' };
  const child = start(0, [process.execPath, entry, `--port=${port}`, '--headless'], env, 'ignore');
  child.stdout?.resume();
  await until(async () => (await fetch(`http://127.0.0.1:${port}/`)).ok, 'the Portkey gateway');
  return {
    name: `portkey ${PORTKEY_VERSION}`,
    pid: child.pid ?? 0,
    port,
    path: '/v1/chat/completions',
    headers: {
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `http://127.0.0.1:${upstream}/v1`,
      authorization: 'Bearer sk-bench',
    },
    model: 'gpt-4o-mini',
    stop: () => stopChild(child, 'SIGKILL'),
  };
}

export async function startNginx(upstream: number): Promise<Contender | null> {
  if (!has('nginx')) return null;
  const dir = mkdtempSync(join(tmpdir(), 'sluice-nginx-'));
  const port = await freePort();
  writeFileSync(
    join(dir, 'nginx.conf'),
    `daemon off; master_process off; worker_processes 1; pid ${dir}/pid; error_log ${dir}/error.log;
events { worker_connections 2048; }
http { access_log off; client_body_buffer_size 256k; client_body_temp_path ${dir}/body; proxy_temp_path ${dir}/proxy; fastcgi_temp_path ${dir}/f; uwsgi_temp_path ${dir}/u; scgi_temp_path ${dir}/s;
  upstream up { server 127.0.0.1:${upstream}; keepalive 256; }
  server { listen 127.0.0.1:${port}; keepalive_requests 1000000; location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header connection ""; proxy_buffering off; } } }
`,
  );
  const child = start(0, ['nginx', '-c', join(dir, 'nginx.conf')]);
  await until(
    async () => (await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, { method: 'POST', body: '{}' })).ok,
    'nginx',
  );
  return {
    name: 'nginx',
    pid: child.pid ?? 0,
    port,
    path: '/v1/chat/completions',
    headers: {},
    model: 'gpt-4o-mini',
    async stop() {
      await stopChild(child, 'SIGKILL');
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
