import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { idleBufferBytes } from '../../src/http/buffer-pool.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { Relay } from '../../src/llm/relay/relay.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, startUpstream } from '../support/upstream.ts';

const MB = 1024 * 1024;
const LONG = 'é"\n'.repeat(MB);

let upstream: FakeUpstream;
let server: TestServer;
let answer: () => { type?: string; body: string };
const at = { 'x-gateway-provider': '@openai' };

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    const { type = 'application/json', body } = answer();
    response.writeHead(200, { 'content-type': type });
    response.end(body);
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  // Speaks chat and nothing else: messages and responses are converted.
  await server.provider({ id: 'cerebras', host: `http://127.0.0.1:${upstream.port}/v1`, slug: 'openai' });
}, 60_000);
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const chat = (content: string) => ({
  body: JSON.stringify({
    id: 'c',
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 12_345, completion_tokens: 6, total_tokens: 12_351 },
  }),
});
const CHUNKS = [
  { id: 'c', model: 'm', choices: [{ index: 0, delta: { content: 'Hi' } }] },
  { id: 'c', model: 'm', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
];
const stream = () => ({
  type: 'text/event-stream',
  body: `${CHUNKS.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`,
});

/** What the provider was sent last. */
const sent = (): JsonObject => JSON.parse(upstream.received.at(-1)?.body.toString() ?? '{}') as JsonObject;

describe('a request that is too large for the event loop', () => {
  const asking = (content: string) => ({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content }] });

  it('reaches a provider of another shape as a small one does', async () => {
    answer = () => chat('Hi');
    expect((await server.call('/messages', asking('TEXT'), at)).status).toBe(200);
    const small = JSON.stringify(sent());
    expect((await server.call('/messages', asking(LONG), at)).status).toBe(200);
    expect(JSON.stringify(sent()) === small.replace('"TEXT"', JSON.stringify(LONG))).toBe(true);
  });

  it('is searched by the thread alone, where its bytes are passed on', async () => {
    answer = () => chat('Hi');
    const searched: number[] = [];
    for (const name of ['includes', 'indexOf'] as const) {
      const search = Buffer.prototype[name] as (...parts: unknown[]) => never;
      vi.spyOn(Buffer.prototype, name).mockImplementation(function (this: Buffer, ...parts: unknown[]) {
        searched.push(this.length);
        return search.apply(this, parts);
      });
    }
    const given = await server.call('/chat/completions', asking(LONG), at);
    vi.restoreAllMocks();
    expect(given.status).toBe(200);
    expect(searched.length).toBeGreaterThan(0);
    expect(Math.max(...searched)).toBeLessThan(2 * MB);
  });

  it('is refused in the same words', async () => {
    const refused = async (content: string) => {
      const given = await server.call('/messages', { ...asking(content), mcp_servers: [{ type: 'url' }] }, at);
      return { status: given.status, body: await given.text() };
    };
    const small = await refused('TEXT');
    expect(small.status).toBe(400);
    expect(await refused(LONG)).toEqual(small);
  });

  it('is told the fault of its JSON', async () => {
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json', ...at },
      body: `{"model":"m","model":"n","x":"${LONG.replaceAll(/["\n]/g, 'a')}"}`,
    });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('The body names a key twice in one object');
  });

  it.each([false, true])('gets its instructions and tools repeated in Responses, stream %s', async (streams) => {
    answer = streams ? stream : () => chat('Hi');
    const tools = [{ type: 'function', name: 'f', description: 'd', parameters: { type: 'object', properties: {} } }];
    const body = { model: 'm', instructions: 'Be brief.', tools, input: LONG, metadata: { a: 'b' }, stream: streams };
    const given = await server.call('/responses', body, at);
    const text = await given.text();
    const last = streams ? (text.split('data: ').at(-1) ?? '') : text;
    const told = JSON.parse(last) as JsonObject;
    expect(streams ? told.response : told).toMatchObject({ instructions: 'Be brief.', tools, metadata: { a: 'b' } });
  });

  it('with more settings than a stream may repeat is refused as a stream, and answered in one piece', async () => {
    const body = { model: 'm', instructions: 'a'.repeat(2 * MB), input: 'Hi' };
    answer = stream;
    const refused = await server.call('/responses', { ...body, stream: true }, at);
    expect(refused.status).toBe(413);
    expect(await refused.text()).toContain('Instructions, tools, metadata');
    answer = () => chat('Hi');
    const given = await server.call('/responses', body, at);
    expect(((await given.json()) as JsonObject).instructions === body.instructions).toBe(true);
  });
});

describe('a stream of thousands of events', () => {
  it.each([
    ['converted', '/messages', 4],
    ['passed', '/chat/completions', 16],
  ])('that come at once is %s piece by piece, so that others have turns between them', async (_, path, most) => {
    const event = `data: ${JSON.stringify(CHUNKS[0])}\n\n`;
    answer = () => ({ type: 'text/event-stream', body: event.repeat(5_000) + stream().body });
    const pieces: number[] = [];
    const { onData } = Relay.prototype;
    vi.spyOn(Relay.prototype, 'onData').mockImplementation(function (this: Relay, chunk: Buffer) {
      pieces.push(chunk.length);
      onData.call(this, chunk);
    });
    const body = { model: 'm', max_tokens: 9, stream: true, messages: [{ role: 'user', content: 'Hi' }] };
    const given = await (await server.call(path, body, at)).text();
    vi.restoreAllMocks();
    expect(given.split('"Hi"').length).toBe(5_002);
    expect(Math.max(...pieces)).toBeLessThanOrEqual(most * 1024);
  });
});

describe('an answer that is too large for the event loop', () => {
  it('is converted, counted and recorded as a small one is', async () => {
    answer = () => chat(LONG);
    const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] };
    const given = (await (await server.call('/messages', body, at)).json()) as { content: { text: string }[] };
    expect(given.content[0]?.text === LONG).toBe(true);
    const [record] = await server.records();
    expect(record).toMatchObject({ status: 200, usage: { input: 12_345, output: 6 } });
  });

  it('comes in memory that the next one uses again', async () => {
    const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] };
    const before = idleBufferBytes();
    // Longer than any before it.
    answer = () => chat(LONG.repeat(2));
    const ask = async () => {
      const given = await server.call('/messages', body, at);
      expect(given.status).toBe(200);
      // The memory of an answer is kept until its caller has taken it, and comes back a moment later.
      await given.arrayBuffer();
    };
    /** Idle bytes, once they do not change any more. */
    const settled = async () => {
      let last = -1;
      await expect
        .poll(() => {
          const same = last === idleBufferBytes();
          last = idleBufferBytes();
          return same;
        })
        .toBe(true);
      return last;
    };
    await ask();
    const first = await settled();
    expect(first).toBeGreaterThan(before);
    for (let i = 0; i < 4; i++) {
      await ask();
      expect(await settled()).toBe(first);
    }
  });

  it('that is no JSON is told as one', async () => {
    answer = () => ({ body: `{"choices":${'a'.repeat(MB)}` });
    const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] };
    const given = await server.call('/messages', body, at);
    expect(given.status).toBe(502);
    expect(await given.text()).toContain('something that is not JSON');
  });
});
