/** Pictures and files by address, for providers that read none themselves: fetched under the rules of every outbound call. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { whole } from '../../test/support/faults.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import type { StrictUpstream } from '../../test/support/strict-upstream.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../test/support/upstream.ts';
import { AWS_KEYS, BEDROCK_REGION } from '../../test/support/upstreams/bedrock.ts';
import {
  type BedrockRuntime,
  converseAnswer,
  startBedrockRuntime,
} from '../../test/support/upstreams/bedrock-runtime.ts';
import { GEMINI_KEY, PIXEL, startGemini } from '../../test/support/upstreams/gemini.ts';

const NOVA = 'eu.amazon.nova-pro-v1:0';
const CLAUDE = 'eu.anthropic.claude-opus-4-1-20250805-v1:0';
const BYTES = Buffer.from(PIXEL, 'base64');

let server: TestServer;
let gemini: StrictUpstream;
let bedrock: BedrockRuntime;
/** Where the pictures are. */
let web: FakeUpstream;
/** Trusted as well, so that only the rule under test keeps calls away from it. */
let other: FakeUpstream;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  [gemini, bedrock, web, other] = await Promise.all([
    startGemini(),
    startBedrockRuntime(),
    startUpstream(() => undefined),
    startUpstream((_request, response) => sendJson(response, 200, whole('chat', 'm', 'ok'))),
  ]);
  const trusted = [gemini, bedrock, web, other].map(({ port }) => `127.0.0.1:${port}`).join(',');
  server = await startServer({ SLUICE_TRUSTED_HOSTS: trusted });
  await server.provider({ id: 'google', host: `${gemini.url}/v1beta`, key: GEMINI_KEY, slug: 'gem' });
  await server.provider({ id: 'openai', host: `${other.url}/v1`, slug: 'other' });
  await server.provider({
    id: 'bedrock',
    host: bedrock.url,
    key: null,
    slug: 'aws',
    configurations: {
      aws_auth_type: 'accessKey',
      aws_region: BEDROCK_REGION,
      aws_access_key_id: AWS_KEYS.accessKeyId,
      aws_secret_access_key: AWS_KEYS.secretAccessKey,
    },
  });
  const apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([gemini?.stop(), bedrock?.stop(), web?.stop(), other?.stop()]);
});
beforeEach(() => {
  for (const one of [gemini, bedrock, web, other]) one.received.length = 0;
  bedrock.calls.length = 0;
  bedrock.failure = null;
  bedrock.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
  web.answer = (_request, response) => {
    response.writeHead(200, { 'content-type': 'image/png; charset=binary' });
    response.end(BYTES);
  };
});
afterEach(() => expect([...gemini.faults.splice(0), ...bedrock.faults.splice(0)]).toEqual([]));

const picture = (name = 'a') => `${web.url}/${name}?signature=secret-of-link`;
const chatWith = (...urls: string[]): OpenAI.ChatCompletionMessageParam[] => [
  { role: 'user', content: urls.map((url) => ({ type: 'image_url' as const, image_url: { url } })) },
];
/** Each caller's own way of naming a picture by its address. */
const CALLERS = {
  chat: (model: string, url: string) =>
    openai.chat.completions.create({ model, max_tokens: 9, messages: chatWith(url) }),
  messages: (model: string, url: string) =>
    anthropic.messages.create({
      model,
      max_tokens: 9,
      messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url } }] }],
    }),
  responses: (model: string, url: string) =>
    openai.responses.create({
      model,
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: url, detail: 'auto' }] }],
    }),
} as const;

describe.each(Object.entries(CALLERS))('a picture named by its address, of a caller of %s', (_name, ask) => {
  it('goes to Gemini with the call', async () => {
    await ask('@gem/gemini-2.5-flash', picture());
    expect(gemini.last).toMatchObject({
      contents: [{ role: 'user', parts: [{ inlineData: { mimeType: 'image/png', data: PIXEL } }] }],
    });
    expect(web.received).toHaveLength(1);
  });

  it('goes to Bedrock with the call', async () => {
    await ask(`@aws/${NOVA}`, picture());
    expect(bedrock.calls[0]?.body).toMatchObject({
      messages: [{ role: 'user', content: [{ image: { format: 'png', source: { bytes: PIXEL } } }] }],
    });
  });

  it('is fetched without anything that belongs to the caller, the gateway or the provider', async () => {
    await ask('@gem/gemini-2.5-flash', picture());
    const [{ method, path, headers }] = web.received as [(typeof web.received)[number]];
    expect([method, path]).toEqual(['GET', '/a?signature=secret-of-link']);
    expect(Object.keys(headers).sort()).toEqual(['accept', 'accept-encoding', 'connection', 'host']);
  });
});

describe('what is fetched', () => {
  it('is also what stands in the results of tools, for Claude models in its own words', async () => {
    bedrock.reply = () => ({
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude',
      content: [{ type: 'text', text: 'ok' }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 1, output_tokens: 1 },
    });
    const image = { type: 'image' as const, source: { type: 'url' as const, url: picture() } };
    const input = { type: 'image_url', image_url: { url: picture('argument') } };
    await anthropic.messages.create({
      model: `@aws/${CLAUDE}`,
      max_tokens: 9,
      tools: [{ name: 'look', input_schema: { type: 'object' } }],
      messages: [
        { role: 'user', content: 'Look' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'look', input }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: [image] }] },
      ],
    });
    const source = { type: 'base64', media_type: 'image/png', data: PIXEL };
    expect(bedrock.calls[0]?.body).toMatchObject({
      messages: [
        {},
        // Arguments are the model's own: what looks like a picture in them is none.
        { content: [{ input }] },
        { content: [{ content: [{ type: 'image', source }] }] },
      ],
    });
    expect(web.received.map(({ path }) => path.split('?')[0])).toEqual(['/a']);
  });

  it('is not what Gemini reads itself', async () => {
    const file = 'https://generativelanguage.googleapis.com/v1beta/files/abc-1';
    const video = 'https://www.youtube.com/watch?v=9hE5-98ZeCg';
    await openai.chat.completions.create({ model: '@gem/gemini-2.5-flash', messages: chatWith(file, video) });
    expect(gemini.last).toMatchObject({
      contents: [{ parts: [{ fileData: { fileUri: file } }, { fileData: { fileUri: video } }] }],
    });
  });

  it('is fetched once, whatever is tried with it', async () => {
    let calls = 0;
    bedrock.failure = () => {
      calls += 1;
      return calls < 3 ? { status: 503, name: 'ServiceUnavailableException', message: 'Later' } : null;
    };
    const config = {
      strategy: { mode: 'fallback' },
      retry: { attempts: 1 },
      targets: [{ provider: '@aws' }, { provider: '@aws' }],
    };
    const body = { model: NOVA, messages: chatWith(picture(), picture()) };
    const answer = await server.call('/chat/completions', body, { 'x-gateway-config': JSON.stringify(config) });
    expect(answer.status).toBe(200);
    expect(calls).toBe(3);
    expect(web.received).toHaveLength(1);
  });

  it('is nothing where the provider reads addresses itself, and nothing in a dry run', async () => {
    await openai.chat.completions.create({ model: '@other/gpt-4o', messages: chatWith(picture()) });
    expect(JSON.parse(String(other.received[0]?.body)).messages).toEqual(chatWith(picture()));
    const dry = { 'x-gateway-provider': '@aws', 'x-gateway-dry-run': 'true' };
    const planned = await server.call('/chat/completions', { model: NOVA, messages: chatWith(picture()) }, dry);
    expect(planned.status).toBe(200);
    expect([...web.received, ...bedrock.received]).toEqual([]);
  });
});

describe('what cannot be fetched is refused, and no provider is called', () => {
  const ask = (...urls: string[]) =>
    server.call('/chat/completions', { model: NOVA, messages: chatWith(...urls) }, { 'x-gateway-provider': '@aws' });
  const refusal = async (answer: Response) => {
    const text = await answer.text();
    expect(text).not.toContain('secret-of-link');
    expect(answer.status).toBe(400);
    expect([...bedrock.received, ...other.received]).toEqual([]);
    return (JSON.parse(text) as { error: { message: string; param: string } }).error;
  };

  it.each<[string, string, (response: Parameters<FakeUpstream['answer']>[1]) => void]>([
    ['is not there', 'status 404', (response) => void response.writeHead(404).end()],
    [
      'redirects',
      'redirects are not followed',
      (response) => void response.writeHead(302, { location: `${other.url}/elsewhere` }).end(),
    ],
    [
      'is a page',
      'content-type',
      (response) => void response.writeHead(200, { 'content-type': 'application/json' }).end('{"secret":1}'),
    ],
    [
      'is compressed',
      'compressed',
      (response) =>
        void response.writeHead(200, { 'content-type': 'image/png', 'content-encoding': 'gzip' }).end(BYTES),
    ],
    [
      'is cut',
      'cut',
      (response) => {
        response.writeHead(200, { 'content-type': 'image/png', 'content-length': BYTES.length + 9 });
        response.write(BYTES);
        setTimeout(() => response.destroy(), 20);
      },
    ],
    [
      'has no end',
      'larger than 20 MB',
      (response) => {
        response.writeHead(200, { 'content-type': 'image/png' });
        const piece = Buffer.alloc(1024 * 1024);
        const more = (): void => {
          while (!response.destroyed && response.write(piece));
        };
        response.on('drain', more);
        more();
      },
    ],
  ])('as it %s', async (_what, said, respond) => {
    web.answer = (_request, response) => respond(response);
    const error = await refusal(await ask(picture()));
    expect(error.message).toContain(said);
    expect(error).toMatchObject({ param: 'messages' });
  });

  it.each([
    'http://169.254.169.254/latest/meta-data/',
    'http://10.0.0.1/a.png',
    'http://127.0.0.1:1/a.png',
    'http://[::1]/a.png',
    'http://metadata.google.internal/a.png',
    'http://user@example.com/a.png',
    'http://0x7f000001/a.png',
  ])('as no call may go there: %s', async (url) => {
    await refusal(await ask(url));
  });

  it('as they are too many', async () => {
    const error = await refusal(await ask(...Array.from({ length: 21 }, (_, i) => picture(`p${i}`))));
    expect(error.message).toContain('more than 20');
    expect(web.received).toEqual([]);
  });

  it('unless another target needs none of it', async () => {
    web.answer = (_request, response) => void response.writeHead(404).end();
    const config = { strategy: { mode: 'fallback' }, targets: [{ provider: '@aws' }, { provider: '@other' }] };
    const body = { model: NOVA, messages: chatWith(picture()) };
    const answer = await server.call('/chat/completions', body, { 'x-gateway-config': JSON.stringify(config) });
    expect(answer.status).toBe(200);
    expect(bedrock.received).toEqual([]);
    expect((await server.records())[0]).toMatchObject({
      attempts: [{ provider: 'bedrock' }, { provider: 'openai', status: 200 }],
    });
  });

  it('as it is of a host that the installation trusts, where callers may name saved hosts only', async () => {
    const settings = (block_inline_config: boolean) =>
      server.admin('PUT', '/admin/organisation/settings', { data_plane_security_settings: { block_inline_config } });
    expect((await settings(true)).status).toBe(200);
    try {
      await expect(CALLERS.chat(`@aws/${NOVA}`, picture())).rejects.toThrow(/400 .*saved hosts only/);
      expect([...web.received, ...bedrock.received]).toEqual([]);
    } finally {
      expect((await settings(false)).status).toBe(200);
    }
    await CALLERS.chat(`@aws/${NOVA}`, picture());
    expect([web.received.length, bedrock.received.length]).toEqual([1, 1]);
  });

  it('as the caller has left, which ends the call at once', async () => {
    const asked = new Promise<void>((resolve, reject) => {
      web.answer = (_request, response) => {
        leaving.abort();
        response.on('close', resolve);
        setTimeout(() => reject(new Error('still asked')), 8000).unref();
      };
    });
    const leaving = new AbortController();
    const call = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'x-gateway-provider': '@aws',
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: NOVA, messages: chatWith(picture()) }),
      signal: leaving.signal,
    });
    await expect(call).rejects.toThrow();
    await asked;
    expect(bedrock.received).toEqual([]);
  });
});
