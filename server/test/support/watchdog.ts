/**
 * For suites that run for minutes outside the test runner: they say where they are, and end when they get stuck. A suite
 * that hangs in silence tells nothing about what it waited for.
 */

export interface Watchdog {
  /** Begins a part of the run. It fails after `limitMs` without progress. */
  phase(name: string, limitMs?: number): void;
  /** Something happened that cannot happen for ever. */
  progress(): void;
}

const LIMIT_MS = 90_000;
const LOOK_MS = 1_000;

/**
 * Watches this process until it ends. Each phase is a line on standard output. A phase without progress, a signal and an
 * error nobody caught print the phase and what `state` answers; the first two end the process with status 1.
 */
export function watchdog(suite: string, state: () => string = () => ''): Watchdog {
  const began = performance.now();
  let [name, limit, begun, moved] = ['start', LIMIT_MS, began, began];
  const seconds = (since: number) => `${Math.round((performance.now() - since) / 1000)} s`;
  const tell = (why: string) => {
    let found = '';
    try {
      found = state();
    } catch (error) {
      // Before what it tells about was made.
      found = String(error);
    }
    process.stdout.write(`${suite}: ${why} in phase "${name}", which began ${seconds(begun)} ago\n${found}\n`);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    // Comes twice, from npm and from whoever ends the whole process group.
    process.on(signal, () => {
      tell(`ended by ${signal}`);
      process.exit(1);
    });
  }
  process.on('uncaughtExceptionMonitor', () => tell('failed'));
  setInterval(() => {
    if (performance.now() - moved < limit) return;
    tell(`no progress for ${seconds(moved)}`);
    process.exit(1);
  }, LOOK_MS).unref();
  return {
    phase(next, limitMs = LIMIT_MS) {
      [name, limit, begun, moved] = [next, limitMs, performance.now(), performance.now()];
      process.stdout.write(`${suite}: ${seconds(began)}: ${name}\n`);
    },
    progress() {
      moved = performance.now();
    },
  };
}

/** What `promise` answers; rejects with a sentence that names `what` when it does not answer in time. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing within ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks again until `check` holds; rejects with a sentence that names `what` when it does not hold in time. */
export async function until(
  ms: number,
  what: string,
  check: () => boolean | Promise<boolean>,
  everyMs = 50,
): Promise<void> {
  const end = performance.now() + ms;
  while (!(await check())) {
    if (performance.now() > end) throw new Error(`${what}: not within ${ms / 1000} s`);
    await new Promise<void>((resolve) => setTimeout(resolve, everyMs));
  }
}
