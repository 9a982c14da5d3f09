/** What a client of the data plane sees on its connection: refusals that keep it, and ids that are safe to show. */
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

/** All that the server answers to these bytes, until it closes or `enough`. */
function answers(bytes: string, enough: (text: string) => boolean): Promise<string> {
  const { hostname, port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.setEncoding('latin1');
    socket.on('data', (data: string) => {
      text += data;
      if (!enough(text)) return;
      socket.destroy();
      resolve(text);
    });
    socket.on('close', () => resolve(text));
    socket.on('error', reject);
  });
}

const count = (text: string) => text.split('HTTP/1.1 401').length - 1;

it('60 pipelined requests without a body and without a key get 60 answers on one connection', async () => {
  const request = 'GET /v1/models HTTP/1.1\r\nHost: a.example\r\n\r\n';
  const text = await answers(request.repeat(60), (so) => count(so) === 60 && so.endsWith('}'));
  expect(count(text)).toBe(60);
  expect(text.toLowerCase()).not.toContain('connection: close');
});

it('a refusal before the body was read still closes the connection', async () => {
  const request = 'POST /v1/chat/completions HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\n';
  const text = await answers(request, () => false);
  expect(count(text)).toBe(1);
  expect(text.toLowerCase()).toContain('connection: close');
});

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] };

it.each(['<script>x</script>', 'a b', "'; drop table", 'a,b', '=1+1', 'x'.repeat(129), '%0d%0a'])(
  'the trace id %j is left out: the answer and the record have the id of the request',
  async (given) => {
    const response = await server.call('/chat/completions', CHAT, {
      'x-gateway-trace-id': given,
      'x-gateway-span-id': given,
      'x-gateway-parent-span-id': given,
    });
    expect(response.status).toBe(200);
    await response.text();
    const id = response.headers.get('x-gateway-trace-id');
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    const [record] = await server.records();
    expect(record).toMatchObject({ id, trace_id: id });
    expect(JSON.stringify(record)).not.toContain(JSON.stringify(given).slice(1, -1));
  },
);

it.each(['trace-42', 'a.b:c_d', 'x'.repeat(128)])('the trace id %j is kept', async (given) => {
  const response = await server.call('/chat/completions', CHAT, { 'x-gateway-trace-id': given });
  await response.text();
  expect(response.headers.get('x-gateway-trace-id')).toBe(given);
});
