/** Starts what is measured, each as a process of its own, and stops it again. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Contender {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly model: string;
  stop(): Promise<void>;
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PORTKEY_VERSION = '1.15.2';
/** With releases of its HTTP server from 1.19 on, every stream of the gateway fails ("immutable" headers). */
const PORTKEY_SERVER_VERSION = '1.13.8';

/** One core for the proxy, the other for load and upstream, where the machine lets us choose. */
export const canPin = has('taskset');

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
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.on('data', (part: Buffer) => {
      text += part.toString('utf8');
      const end = text.indexOf('\n');
      if (end !== -1) resolve(text.slice(0, end));
    });
    child.on('exit', (code) => reject(new Error(`ended with ${code} before it was ready`)));
  });
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

/** Sluice with everything a default start has on: authentication, records in journal and store, prices. */
export async function startSluice(upstream: number): Promise<Contender> {
  const data = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  const child = start(0, [process.execPath, '--max-semi-space-size=8', 'server/bin/sluice.mjs', 'serve'], {
    SLUICE_DATA_DIR: data,
    SLUICE_PORT: '0',
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream}`,
    SLUICE_LOG_LEVEL: 'warn',
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
    name: 'sluice',
    pid: child.pid ?? 0,
    port: Number(new URL(first.base_url).port),
    path: '/v1/chat/completions',
    headers: { 'x-gateway-api-key': first.workspace_api_key, 'x-gateway-provider': `@${provider.slug}` },
    model: 'gpt-4o-mini',
    async stop() {
      await stopChild(child);
      rmSync(data, { recursive: true, force: true });
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
