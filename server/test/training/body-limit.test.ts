/** Bodies that create or end batches and jobs are settings: what is larger than 128 KB is refused before it is read. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { startServer, type TestServer } from '../support/server.ts';

const LIMIT = 128 * 1024;

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
}, 60_000);
afterAll(() => server?.stop());

const taking = Object.values(OPERATIONS).filter(
  ({ family, body }) => family === 'job' && (body === 'json' || body === 'optional'),
);

it.each(taking.map(({ id, path }) => [id, path.replace(/:[^/]+/g, 'none')] as const))(
  '%s takes a body of 128 KB, and refuses a larger one with 413 that names the limit',
  async (_id, path) => {
    for (const provider of ['gateway', '@sandbox']) {
      const send = (bytes: number) =>
        fetch(`${server.url}/v1${path.replace(/^\/v1/, '')}`, {
          method: 'POST',
          headers: {
            'x-gateway-api-key': server.first.workspace_api_key,
            'x-gateway-provider': provider,
            'content-type': 'application/json',
          },
          body: `{"x":"${'a'.repeat(bytes - 8)}"}`,
        });
      const taken = await send(LIMIT);
      // It was read: the file or the job that it is about is not there, or nobody can pause one.
      expect([400, 404, 501], await taken.text()).toContain(taken.status);
      const refused = await send(LIMIT + 1);
      expect([refused.status, await refused.text()]).toEqual([413, expect.stringContaining(`limit of ${LIMIT} bytes`)]);
    }
  },
);
