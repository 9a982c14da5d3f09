import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

const MB = 1024 * 1024;
const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** About so many bytes of text of which no part is like another. */
const text = (seed: string, bytes: number): string => {
  let out = '';
  for (let i = 0; out.length < bytes; i++) out += `${seed} says ${i}. `;
  return out;
};
const chunk = (content: string): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [{ index: 0, delta: { content } }] })}\n\n`;
const DONE = 'data: [DONE]\n\n';

/** Answers by the name of the model. */
const ANSWERS: Readonly<Record<string, (seed: string) => string>> = {
  json: (seed) =>
    JSON.stringify({
      id: 'c',
      model: 'm',
      choices: [{ index: 0, message: { role: 'assistant', content: text(seed, 5 * MB) }, finish_reason: 'stop' }],
    }),
  'small events': (seed) => Array.from({ length: 12_000 }, (_, i) => chunk(`${seed} ${i}`)).join('') + DONE,
  'large events': (seed) =>
    Array.from({ length: 8 }, (_, i) => chunk(text(`${seed} ${i}`, 300 * 1024))).join('') + DONE,
  'the largest events': (seed) =>
    chunk('Hi') + Array.from({ length: 2 }, (_, i) => chunk(text(`${seed} ${i}`, 6 * MB))).join('') + DONE,
  'the largest events that are converted': (seed) =>
    chunk('Hi') + Array.from({ length: 6 }, (_, i) => chunk(text(`${seed} ${i}`, 1.4 * MB))).join('') + DONE,
};

/** Larger events are not converted. */
const CONVERTED = ['json', 'small events', 'large events', 'the largest events that are converted'];

/** Ends without its end. */
const CUT = chunk('Hi') + chunk(text('cut', 6 * MB));

let server: TestServer;
const upstream = createServer((incoming, response) => {
  const parts: Buffer[] = [];
  incoming.on('data', (part: Buffer) => parts.push(part));
  incoming.on('end', () => {
    const { model } = JSON.parse(Buffer.concat(parts).toString()) as { model: string };
    const [kind = '', seed = ''] = model.split(':');
    response.writeHead(200, { 'content-type': kind === 'json' ? 'application/json' : 'text/event-stream' });
    if (kind === 'cut') response.write(CUT, () => response.destroy());
    else response.end(ANSWERS[kind]?.(seed));
  });
});

beforeAll(async () => {
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  const { port } = upstream.address() as AddressInfo;
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${port}` });
  await server.provider({ id: 'openai', host: `http://127.0.0.1:${port}/v1`, slug: 'openai' });
}, 60_000);
afterAll(async () => {
  await server?.stop();
  upstream.closeAllConnections();
  upstream.close();
});

/** An answer of which nothing is read yet. */
function asked(kind: string, seed: string, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' };
    const call = request(`${server.url}/v1${path}`, { method: 'POST', headers, agent: false }, resolve);
    call.on('error', reject);
    const messages = [{ role: 'user', content: 'Hi' }];
    call.end(JSON.stringify({ model: `@openai/${kind}:${seed}`, stream: kind !== 'json', max_tokens: 9, messages }));
  });
}

async function read(answer: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** The content that a converted answer says. */
function said(kind: string, bytes: Buffer): string {
  if (kind === 'json') return (JSON.parse(bytes.toString()) as { content: { text: string }[] }).content[0]?.text ?? '';
  let out = '';
  for (const line of bytes.toString().split('\n')) {
    if (!line.startsWith('data: {"type":"content_block_delta"')) continue;
    out += (JSON.parse(line.slice(6)) as { delta: { text: string } }).delta.text;
  }
  return out;
}

const contentOf = (kind: string, answer: string): string =>
  kind === 'json'
    ? ((JSON.parse(answer) as { choices: { message: { content: string } }[] }).choices[0]?.message.content ?? '')
    : answer
        .split('\n\n')
        .filter((event) => event.startsWith('data: {'))
        .map(
          (event) =>
            (JSON.parse(event.slice(6)) as { choices: { delta: { content: string } }[] }).choices[0]?.delta.content,
        )
        .join('');

describe('a large answer to a client that reads late is whole, whatever others get meanwhile:', () => {
  it.each(Object.keys(ANSWERS))(
    '%s, passed',
    async (kind) => {
      const late = await asked(kind, 'late', '/chat/completions');
      for (const seed of ['other']) {
        const other = await read(await asked(kind, seed, '/chat/completions'));
        expect(digest(other)).toBe(digest(Buffer.from(ANSWERS[kind]?.(seed) ?? '')));
      }
      expect(digest(await read(late))).toBe(digest(Buffer.from(ANSWERS[kind]?.('late') ?? '')));
    },
    60_000,
  );

  it.each(CONVERTED)(
    '%s, converted',
    async (kind) => {
      const late = await asked(kind, 'late', '/messages');
      for (const seed of ['other']) {
        const other = said(kind, await read(await asked(kind, seed, '/messages')));
        expect(other === contentOf(kind, ANSWERS[kind]?.(seed) ?? '')).toBe(true);
      }
      expect(said(kind, await read(late)) === contentOf(kind, ANSWERS[kind]?.('late') ?? '')).toBe(true);
    },
    60_000,
  );
});

describe('a stream that breaks', () => {
  it('says so behind all that came before, however late the client reads', async () => {
    const late = await asked('cut', 'late', '/chat/completions');
    await read(await asked('small events', 'other', '/chat/completions'));
    const got = (await read(late)).toString();
    expect(got.startsWith(CUT)).toBe(true);
    expect(got.slice(CUT.length)).toMatch(/^data: \{"error":/);
  }, 60_000);
});
