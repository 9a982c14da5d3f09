/**
 * One PostgreSQL for a whole test run. The main process owns it and starts it when the first test file asks; test files,
 * which run in processes of their own, ask over a loopback socket: one line in, one database URL out.
 */
import { createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { TestProject } from 'vitest/node';
import { silentLog } from '../../src/kernel/log.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { type PostgresServer, startPostgres } from './postgres-server.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Port on 127.0.0.1 that hands out PostgreSQL databases. */
    postgresPort: number;
  }
}

/** What a new database holds: nothing, or the tables of now, which are copied: their migrations take most of a second. */
export type DatabaseKind = 'empty' | 'migrated';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  let starting: Promise<PostgresServer> | null = null;
  let template: Promise<string> | null = null;

  async function database(kind: string): Promise<string> {
    starting ??= startPostgres();
    const postgres = await starting;
    if (kind !== 'migrated') return postgres.database();
    template ??= migrated(postgres);
    return postgres.database(await template);
  }

  async function answer(socket: Socket): Promise<void> {
    try {
      const url = await database(await text(socket));
      socket.end(JSON.stringify({ url }));
    } catch (error) {
      socket.end(JSON.stringify({ error: (error as Error).message }));
    }
  }

  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined);
    void answer(socket);
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

/** Name of a database that others are copied from: nobody is connected to it any more. */
async function migrated(postgres: PostgresServer): Promise<string> {
  const url = await postgres.database();
  const tables = await openPostgresTables({ url, log: silentLog });
  await tables.migrate();
  await tables.close();
  return new URL(url).pathname.slice(1);
}
