import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FIRST_MODEL, SANDBOX_MODELS } from '../../../console/src/pages/models.ts';
import { snippets } from '../../../console/src/pages/snippets.ts';
import { parseModelName } from '../../src/providers/sandbox/model.ts';

const PROMPT = `It's "quoted" \\ $HOME \`id\` 100% 漢字`;
const MODEL = '@sandbox/slow?ttft_ms=800&tokens_per_s=20';
const hasCurl = spawnSync('sh', ['-c', 'curl --version']).status === 0;

let server: Server;
let baseUrl: string;
// Inside the repository, so that the SDKs are found from here.
const folder = mkdtempSync(path.join(import.meta.dirname, '.samples-'));
let received: { url: string; headers: IncomingHttpHeaders; body: Record<string, unknown> } | undefined;

const CHAT = ['Hel', 'lo'].map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
const MESSAGES = [
  { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: {} } },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } },
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
  { type: 'message_stop' },
].map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);

beforeAll(async () => {
  server = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request as AsyncIterable<Buffer>) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts).toString());
    received = { url: request.url ?? '', headers: request.headers, body };
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(request.url === '/v1/messages' ? MESSAGES.join('') : `${CHAT.join('')}data: [DONE]\n\n`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await new Promise((resolve) => server.close(resolve));
});

function run(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, SLUICE_API_KEY: 'the-key' };
    const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => {
      out += data;
    });
    child.stderr.on('data', (data) => {
      err += data;
    });
    child.on('error', reject);
    child.on('exit', (code) => (code === 0 ? resolve(out) : reject(new Error(err))));
  });
}

const sample = (id: string) => {
  received = undefined;
  const found = snippets({ baseUrl, model: MODEL, prompt: PROMPT }).find((snippet) => snippet.id === id);
  return found?.code ?? '';
};

function expectRequest(url: string) {
  expect(received?.url).toBe(url);
  expect(received?.headers.authorization).toBe('Bearer the-key');
  expect(received?.headers['x-api-key']).toBeUndefined();
  expect(received?.body).toMatchObject({
    model: MODEL,
    stream: true,
    messages: [{ role: 'user', content: PROMPT }],
  });
}

test.skipIf(!hasCurl)(
  `the curl sample sends prompt and key exactly, pasted into a shell${hasCurl ? '' : ' (skipped: no curl or no POSIX shell here)'}`,
  async () => {
    const out = await run('sh', ['-c', sample('curl').replace('curl -N', 'curl -sN')]);
    expect(out).toContain('data: [DONE]');
    expectRequest('/v1/chat/completions');
  },
);

test.each([
  ['typescript', '/v1/chat/completions'],
  ['anthropic', '/v1/messages'],
])('the %s sample runs as it stands and prints the streamed answer', async (id, url) => {
  const file = path.join(folder, `${id}.mts`);
  writeFileSync(file, sample(id));
  expect(await run(process.execPath, [file])).toBe('Hello');
  expectRequest(url);
});

test('every sandbox model that the console offers is one, with parameters the sandbox accepts', () => {
  expect(SANDBOX_MODELS.map((model) => model.id)).toContain(FIRST_MODEL);
  for (const { id, fault } of SANDBOX_MODELS) {
    const { behaviour } = parseModelName(id.replace('@sandbox/', ''));
    expect(behaviour).not.toBeNull();
    expect(['error', 'cut', 'malformed', 'stall', 'flap'].includes(behaviour ?? '')).toBe(fault);
  }
});
