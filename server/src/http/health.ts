import type { FastifyInstance } from 'fastify';
import type { Clock } from '../kernel/clock.ts';

/** Something a node works with. */
export interface Dependency {
  /** `store`, `redis`: as probes name it. */
  readonly name: string;
  /** Without it the node must get no traffic; false: it goes on, with less. */
  readonly needed: boolean;
  /** Rejects, or answers false, while it is away. */
  readonly check: () => Promise<unknown> | boolean;
}

export interface Readiness {
  readonly ready: boolean;
  /** State of each by its name. */
  readonly dependencies: Readonly<Record<string, 'ok' | 'away'>>;
}

/** One that does not answer by then is away, milliseconds. */
const CHECK_MS = 2_000;

/** Asks all of them at once, whatever each of them does. */
export async function readinessOf(list: readonly Dependency[], clock: Clock): Promise<Readiness> {
  const states = await Promise.all(list.map((one) => stateOf(one, clock)));
  return {
    ready: list.every(({ needed }, i) => !needed || states[i] === 'ok'),
    dependencies: Object.fromEntries(list.map(({ name }, i) => [name, states[i] ?? 'away'])),
  };
}

async function stateOf({ check }: Dependency, clock: Clock): Promise<'ok' | 'away'> {
  let stop = () => {};
  const late = new Promise<boolean>((resolve) => {
    stop = clock.after(CHECK_MS, () => resolve(false));
  });
  try {
    return (await Promise.race([Promise.resolve(check()), late])) === false ? 'away' : 'ok';
  } catch {
    return 'away';
  } finally {
    stop();
  }
}

/**
 * Probes: `/healthz` says the process lives, `/readyz` that it can serve, and which of the things it works with is away;
 * `/v1/health` is the contract's form.
 */
export function registerHealth(
  app: FastifyInstance,
  options: {
    readonly readiness: () => Promise<Readiness>;
    /** It stops: whatever else is well, it takes no new requests. */
    readonly draining: () => boolean;
    readonly version: string;
  },
): void {
  const { version, readiness, draining } = options;
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async (_request, reply) => {
    const { ready, dependencies } = await readiness();
    const serves = ready && !draining();
    const status = serves ? 'ready' : 'not_ready';
    return reply.code(serves ? 200 : 503).send({ status, draining: draining(), dependencies });
  });
  for (const prefix of ['/v1', '/v2']) {
    app.get(`${prefix}/health`, async () => {
      const { ready } = await readiness();
      return { status: ready && !draining() ? 'success' : 'degraded', version };
    });
  }
}
