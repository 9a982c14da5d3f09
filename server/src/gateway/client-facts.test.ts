/** The program that sent a request, as its record tells it. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';

const BODY = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }] };

let server: TestServer;
beforeAll(async () => {
  server = await startServer({ SLUICE_TRUSTED_PROXIES: '127.0.0.1' });
});
afterAll(() => server?.stop());

async function recordOf(headers: Record<string, string>) {
  const answer = await server.call('/chat/completions', BODY, headers);
  expect(answer.status, await answer.text()).toBe(200);
  const [record] = await server.records();
  return { client: record?.client };
}

describe('the program that sent it', () => {
  it.each<[string, Record<string, string>, object]>([
    [
      'the official client for Python',
      {
        'user-agent': 'AsyncOpenAI/Python 2.8.1',
        'x-stainless-lang': 'python',
        'x-stainless-package-version': '2.8.1',
        'x-stainless-runtime': 'CPython',
        'x-stainless-runtime-version': '3.13.2',
      },
      { sdk: 'openai-python', sdk_version: '2.8.1', runtime: 'CPython', runtime_version: '3.13.2' },
    ],
    [
      'the official client for Node.js',
      {
        'user-agent': 'Anthropic/JS 0.70.0',
        'x-stainless-lang': 'js',
        'x-stainless-package-version': '0.70.0',
        'x-stainless-runtime': 'node',
        'x-stainless-runtime-version': 'v24.1.0',
      },
      { sdk: 'anthropic-js', sdk_version: '0.70.0', runtime: 'node', runtime_version: 'v24.1.0' },
    ],
    ['curl', { 'user-agent': 'curl/8.5.0' }, { sdk: 'curl', sdk_version: '8.5.0' }],
    ['requests', { 'user-agent': 'python-requests/2.32.3' }, { sdk: 'python-requests', sdk_version: '2.32.3' }],
    ['a browser', { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64)' }, { sdk: 'browser' }],
  ])('%s', async (_title, headers, client) => {
    expect((await recordOf(headers)).client).toEqual({ ...client, address: 'loopback' });
  });

  it.each([
    ['a text that is no name', { 'user-agent': '=HYPERLINK("https://evil.example")' }],
    ['a name without end', { 'user-agent': 'a'.repeat(2_000) }],
    [
      'versions that are none',
      { 'user-agent': '(none)', 'x-stainless-runtime': '<b>', 'x-stainless-runtime-version': 'x y' },
    ],
  ])('%s is left out', async (_title, headers) => {
    expect((await recordOf(headers)).client).toEqual({ address: 'loopback' });
  });

  it.each([
    ['10.1.2.3', 'private'],
    ['100.64.0.1', 'private'],
    ['fd00::1', 'private'],
    ['8.8.8.8', 'public'],
    ['2606:4700:4700::1111', 'public'],
    ['127.0.0.1', 'loopback'],
  ])('an address as %s, behind a trusted proxy, is %s, and is not recorded itself', async (address, kind) => {
    const { client } = await recordOf({ 'x-forwarded-for': address, 'user-agent': 'curl/8.5.0' });
    expect(client).toEqual({ sdk: 'curl', sdk_version: '8.5.0', address: kind });
  });

  it('requests of one connection are told apart by what they say', async () => {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
    const text = JSON.stringify(BODY);
    let received = '';
    socket.on('data', (part: Buffer) => {
      received += part.toString('latin1');
    });
    for (const [i, agent] of ['one/1.0', 'two/2.0', 'one/1.0'].entries()) {
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\nuser-agent: ${agent}\r\nx-gateway-api-key: ${server.first.workspace_api_key}\r\n\r\n${text}`,
      );
      await eventually(
        async () => received.split('HTTP/1.1 200').length - 1,
        (count) => count > i,
      );
    }
    socket.destroy();
    const names = (await server.records()).slice(0, 3).map(({ client }) => (client as { sdk: string }).sdk);
    expect(names).toEqual(['one', 'two', 'one']);
  });
});
