/**
 * POST routes without parameters are found by their raw target before the router is asked (`http/app.ts`). A query takes
 * a request to the router: both ways must answer alike, and neither may know a spelling the other does not.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exchange } from '../../test/support/raw-exchange.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { OPERATIONS } from '../operations/operation.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

/** Status, headers and body of a POST with this raw target, without what differs between any two answers. */
async function post(target: string, body: string, key = server.first.workspace_api_key) {
  const port = Number(new URL(server.url).port);
  const bytes = Buffer.from(
    `POST ${target} HTTP/1.1\r\nhost: a\r\nx-gateway-api-key: ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  const { answer } = await exchange(port, bytes, { method: 'POST', half: false, timeoutMs: 10_000 });
  const headers = Object.keys(answer?.headers ?? {}).sort();
  return {
    status: answer?.status,
    headers,
    body: answer?.body.toString('utf8').replace(/[0-9a-f]{8}-[0-9a-f-]{27}|req_[0-9a-f]{32}/g, 'id'),
  };
}

const routes = Object.values(OPERATIONS)
  .filter(({ method, path }) => method === 'POST' && !/[:*]/.test(path))
  .map(({ path }) => `/v1${path}`);

describe('POST routes without parameters', () => {
  it('are many', () => expect(routes.length).toBeGreaterThan(10));

  it.each(routes)('%s answers the same with and without the router', async (route) => {
    for (const body of ['{}', '{', '{"model":"@nope/x"}', '{"model":"@sandbox/error?status=418"}']) {
      expect(await post(`${route}?x=1`, body)).toEqual(await post(route, body));
    }
    expect(await post(`${route}?x=1`, '{}', 'nonsense')).toEqual(await post(route, '{}', 'nonsense'));
  });

  it.each(['/v1/chat/completions/', '/V1/chat/completions', '/v1//chat/completions', '/v1/chat/./completions'])(
    '%s is no other spelling of a route',
    async (target) => {
      const { status } = await post(target, '{"model":"@sandbox/echo","messages":[{"role":"user","content":"hi"}]}');
      expect(status).toBeGreaterThanOrEqual(400);
    },
  );
});
