import type { FastifyInstance } from 'fastify';

/** Probes: `/healthz` says the process lives, `/readyz` that it can serve; `/v1/health` is the contract's form. */
export function registerHealth(
  app: FastifyInstance,
  options: { readonly ready: () => Promise<boolean>; readonly version: string },
): void {
  const { version } = options;
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async (_request, reply) => {
    const ready = await options.ready().catch(() => false);
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not_ready' });
  });
  for (const prefix of ['/v1', '/v2']) {
    app.get(`${prefix}/health`, async () => {
      const ready = await options.ready().catch(() => false);
      return { status: ready ? 'success' : 'degraded', version };
    });
  }
}
