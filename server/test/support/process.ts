import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FirstRun } from '../../src/first-run.ts';
import { within } from './watchdog.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const BIN = join(ROOT, 'server/bin/sluice.mjs');
const START = join(ROOT, 'server/bin/start.mjs');

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

export interface ServerProcess {
  readonly child: ChildProcess;
  /** Where it listens, from its own banner. */
  readonly url: string;
  /** What it printed so far on standard output, and on standard error. */
  readonly out: string;
  readonly err: string;
  readonly ended: Promise<Ended>;
}

const running = new Set<ChildProcess>();
/** Until a server listens, on a machine that is busy with other things. */
const LISTEN_MS = 60_000;
const READY_MS = 30_000;
const STOP_MS = 60_000;

/** Ends what a failed test left behind. */
export function killAll(): void {
  for (const child of running) child.kill('SIGKILL');
}

function launch(args: readonly string[], env: Record<string, string>, cwd: string, program = process.execPath) {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(SLUICE_|BLOCK_|VITEST|NODE_|npm_lifecycle_)/.test(name),
  );
  const child = spawn(program, [...args], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...Object.fromEntries(inherited), NODE_NO_WARNINGS: '1', ...env },
  });
  running.add(child);
  const printed = { out: '', err: '' };
  child.stdout.on('data', (data: Buffer) => {
    printed.out += data.toString('utf8');
  });
  child.stderr.on('data', (data: Buffer) => {
    printed.err += data.toString('utf8');
  });
  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (code, signal) => {
      running.delete(child);
      resolve({ code, signal, ...printed });
    });
  });
  return { child, printed, ended };
}

/** Runs `sluice` to its end; `before` are arguments of Node.js itself. */
export function runCommand(
  args: readonly string[],
  env: Record<string, string>,
  cwd: string,
  before: readonly string[] = [],
): Promise<Ended> {
  return launch([...before, BIN, ...args], env, cwd).ended;
}

/** Starts a server of its own on a free port and waits for its banner. */
export async function startProcess(dataDir: string, env: Record<string, string> = {}): Promise<ServerProcess> {
  return listening(launch([BIN, 'serve'], settingsOf(dataDir, env), dataDir));
}

/** The same as `npm start` runs it: what was built from the sources, where it can be built. */
export async function startBuilt(dataDir: string, env: Record<string, string> = {}): Promise<ServerProcess> {
  return listening(launch([START], settingsOf(dataDir, env), dataDir));
}

/**
 * The same, and waits until it is ready. Rejects with what it printed when it ends before, or takes too long. `shown`
 * passes on what it prints, as it prints it.
 */
export async function startReady(
  dataDir: string,
  env: Record<string, string> = {},
  shown: readonly ('stdout' | 'stderr')[] = [],
): Promise<ServerProcess> {
  const launched = launch([BIN, 'serve'], settingsOf(dataDir, env), dataDir);
  for (const name of shown) launched.child[name].on('data', (data: Buffer) => process[name].write(data));
  const server = await listening(launched);
  const ready = async () => {
    let state = '';
    const late = AbortSignal.timeout(READY_MS);
    while (!late.aborted) {
      const { ok, text } = await fetch(`${server.url}/readyz`, { signal: late }).then(
        async (answer) => ({ ok: answer.ok, text: await answer.text() }),
        (error: Error) => ({ ok: false, text: error.message }),
      );
      if (ok) return;
      state = text;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    throw new Error(`not ready within ${READY_MS / 1000} s: ${state} ${server.err.slice(-2000)}`);
  };
  const early = server.ended.then((end) => {
    throw new Error(`ended before it was ready: ${JSON.stringify(end)}`);
  });
  early.catch(() => undefined);
  try {
    await Promise.race([ready(), early]);
  } catch (error) {
    server.child.kill('SIGKILL');
    throw error;
  }
  return server;
}

/** Ends a server and waits until it is gone. Rejects with what it printed when it does not go. */
export async function stopProcess(server: ServerProcess, signal: NodeJS.Signals): Promise<Ended> {
  server.child.kill(signal);
  try {
    return await within(STOP_MS, `the end of a server by ${signal}`, server.ended);
  } catch (error) {
    server.child.kill('SIGKILL');
    throw new Error(`${(error as Error).message}: ${server.err.slice(-2000)}`);
  }
}

/** The same by the command of the README, `npm start`. What `ended` says is how npm ended, once the server has too. */
export async function startByNpm(
  dataDir: string,
  env: Record<string, string> = {},
  flags: readonly string[] = [],
): Promise<ServerProcess> {
  const args = flags.length === 0 ? ['start'] : ['start', '--', ...flags];
  return listening(launch(args, settingsOf(dataDir, env), ROOT, 'npm'));
}

/** The same by a command line of a guide, from the directory of the installation. */
export async function startByCommand(
  command: string,
  dataDir: string,
  env: Record<string, string> = {},
): Promise<ServerProcess> {
  return listening(launch(['-c', `exec ${command}`], settingsOf(dataDir, env), ROOT, 'sh'));
}

const settingsOf = (dataDir: string, env: Record<string, string>) => ({
  SLUICE_DATA_DIR: dataDir,
  SLUICE_PORT: '0',
  SLUICE_LOG_LEVEL: 'error',
  ...env,
});

async function listening({ child, printed, ended }: ReturnType<typeof launch>): Promise<ServerProcess> {
  const found = new Promise<string>((resolve, reject) => {
    child.stdout.on('data', () => {
      // The banner ends with an empty line; a line of the log may follow it.
      const banner = /Sluice is listening on (http:\S+)\n[\s\S]*\n\n(?:$|\{|\d\d:)/.exec(printed.out)?.[1];
      if (banner !== undefined) resolve(banner);
    });
    void ended.then((end) => reject(new Error(`ended before it listened: ${JSON.stringify(end)}`)));
  });
  const url = await within(LISTEN_MS, 'the banner of a server', found).catch((error: Error) => {
    child.kill('SIGKILL');
    throw new Error(`${error.message} ${printed.out.slice(-2000)} ${printed.err.slice(-2000)}`);
  });
  return {
    child,
    url,
    ended,
    get out() {
      return printed.out;
    },
    get err() {
      return printed.err;
    },
  };
}

export async function readFirstRun(dataDir: string): Promise<FirstRun> {
  return JSON.parse(await readFile(join(dataDir, 'first-run.json'), 'utf8')) as FirstRun;
}
