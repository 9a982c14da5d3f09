import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { inject } from 'vitest';
// Types of what the run provides.
import type { DatabaseKind } from './postgres-setup.ts';

/**
 * URL of an empty PostgreSQL database of this test file's own, on the one real server that the whole run shares. The
 * first call of a run starts the server; nothing needs to be installed.
 */
export function postgresDatabase(): Promise<string> {
  return database('empty');
}

/** The same with the tables of now. Whoever opens it migrates all the same, as a second node does: that finds little to do. */
export function migratedDatabase(): Promise<string> {
  return database('migrated');
}

async function database(kind: DatabaseKind): Promise<string> {
  const socket = connect(inject('postgresPort'), '127.0.0.1');
  socket.end(kind);
  const { url, error } = JSON.parse(await text(socket)) as { url?: string; error?: string };
  if (url === undefined) throw new Error(`no PostgreSQL for tests: ${error}`);
  return url;
}
