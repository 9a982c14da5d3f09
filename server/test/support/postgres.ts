import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { inject } from 'vitest';
// Types of what the run provides.
import './postgres-setup.ts';

/**
 * URL of an empty PostgreSQL database of this test file's own, on the one real server that the whole run shares. The
 * first call of a run starts the server; nothing needs to be installed.
 */
export async function postgresDatabase(): Promise<string> {
  const socket = connect(inject('postgresPort'), '127.0.0.1');
  const { url, error } = JSON.parse(await text(socket)) as { url?: string; error?: string };
  if (url === undefined) throw new Error(`no PostgreSQL for tests: ${error}`);
  return url;
}
