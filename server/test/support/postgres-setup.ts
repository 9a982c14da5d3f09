/**
 * One PostgreSQL for a whole test run. The main process owns it and starts it when the first test file asks; test files,
 * which run in processes of their own, ask over a loopback socket: one line in, one database URL out.
 */
import { createServer } from 'node:net';
import type { TestProject } from 'vitest/node';
import { type PostgresServer, startPostgres } from './postgres-server.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Port on 127.0.0.1 that hands out PostgreSQL databases. */
    postgresPort: number;
  }
}

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  let starting: Promise<PostgresServer> | null = null;
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    starting ??= startPostgres();
    starting
      .then((postgres) => postgres.database())
      .then((url) => socket.end(JSON.stringify({ url })))
      .catch((error: Error) => socket.end(JSON.stringify({ error: error.message })));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  server.unref();
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  project.provide('postgresPort', address.port);
  return async () => {
    server.close();
    await (await starting?.catch(() => undefined))?.stop();
  };
}
