/**
 * Attacks a server from a process of its own, as fast as loopback allows: it sends requests and answers them as their provider, so
 * that neither work slows the callers of `loop-attack.long.test.ts` beyond what the server makes them wait.
 */
import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';

const MB = 1024 * 1024;
const CONNECTIONS = 4;
const fill = (unit: string, bytes: number): string =>
  Array(Math.floor(bytes / (unit.length + 1)))
    .fill(unit)
    .join(',');
const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"${i.toString(36)}":1`).join(',');
const list = (unit: string) => `"x":[${fill(unit, 30 * MB)}]`;
const SMALL = '"model":"@openai/m","messages":[{"role":"user","content":"Hi"}],"max_tokens":9';

const LONG = () => 'The weather in the north is fine. '.repeat((30 * MB) / 35);
const asking = (slug: string, content: string) =>
  `{"model":"@${slug}/m","messages":[{"role":"user","content":${content}}],"max_tokens":9}`;
const PICTURES = () => {
  const url = `data:image/png;base64,${'iVBORw0KGgo'.repeat((5 * MB) / 12)}`;
  return `[${Array(6).fill(`{"type":"image_url","image_url":{"url":"${url}"}}`).join(',')}]`;
};

interface Attack {
  /** Members of the request beside the model. */
  readonly body?: () => string;
  /** All of the request. */
  readonly whole?: () => string;
  readonly path?: string;
  /** Sent without its length. */
  readonly chunked?: boolean;
  readonly type?: string;
  readonly answer?: () => string;
}

const ATTACKS: Readonly<Record<string, Attack>> = {
  'empty arrays': { body: () => list('[]') },
  'long integers': { body: () => list('12345678901234567890123') },
  'empty texts': { body: () => list('""') },
  'texts with escapes': { body: () => list(`"${'\\n\\u00e9'.repeat(200)}"`) },
  'one text': { body: () => `"x":"${'a'.repeat(30 * MB)}"` },
  'one text, passed': { body: () => `"x":"${'a'.repeat(30 * MB)}"`, path: '/chat/completions' },
  'one text of escapes': { body: () => `"x":"${'\\n'.repeat(15 * MB)}"` },
  'an answer of 4.9 million keys': { answer: () => `{${keys(4_900_000)}}` },
  'an answer of 1.5 million keys': { answer: () => `{${keys(1_500_000)}}` },
  'an answer of 15 MB of text': {
    answer: () => `{"choices":[{"index":0,"message":{"content":"${'a'.repeat(15 * MB)}"},"finish_reason":"stop"}]}`,
  },
  'chat of one text, passed': { whole: () => asking('openai', JSON.stringify(LONG())), path: '/chat/completions' },
  'chat of one text, passed, chunked': {
    whole: () => asking('openai', JSON.stringify(LONG())),
    path: '/chat/completions',
    chunked: true,
  },
  'chat of one text, converted': { whole: () => asking('openai', JSON.stringify(LONG())) },
  'chat of many items, converted': {
    whole: () =>
      asking('openai', `[${fill('{"type":"text","text":"How is the weather in the north today?"}', 3 * MB)}]`),
  },
  'pictures for Anthropic': { whole: () => asking('anthropic', PICTURES()), path: '/chat/completions' },
  'pictures for Google': { whole: () => asking('google', PICTURES()), path: '/chat/completions' },
  'an answer of 30 MB, passed': {
    path: '/chat/completions',
    answer: () => `{"choices":[{"index":0,"message":{"content":"${LONG()}"},"finish_reason":"stop"}]}`,
  },
  'events of 64 bytes, passed': {
    type: 'text/event-stream',
    path: '/chat/completions',
    body: () => '"stream":true',
    answer: () => `data: {"choices":[{"index":0,"delta":{"content":"Hello there"}}]}\n\n`.repeat(MB / 8),
  },
  'events of 64 bytes, converted': {
    type: 'text/event-stream',
    body: () => '"stream":true',
    answer: () => `data: {"choices":[{"index":0,"delta":{"content":"Hello there"}}]}\n\n`.repeat(MB / 8),
  },
  'events of 7 MB, passed': {
    type: 'text/event-stream',
    path: '/chat/completions',
    body: () => '"stream":true',
    answer: () => `data: {"choices":[{"index":0,"delta":{"content":"${'a'.repeat(7 * MB)}"}}]}\n\n`.repeat(4),
  },
  'events of 7 MB, converted': {
    type: 'text/event-stream',
    body: () => '"stream":true',
    answer: () => `data: {"choices":[{"index":0,"delta":{"content":"${'a'.repeat(7 * MB)}"}}]}\n\n`.repeat(4),
  },
  'pictures of 7 MB in events, converted': {
    type: 'text/event-stream',
    path: '/responses',
    whole: () => '{"model":"@together-ai/m","input":"Hi","stream":true}',
    answer: () =>
      `data: {"choices":[{"index":0,"delta":{"images":[{"image_url":{"url":"data:image/png;base64,${'iVBORw0KGgo'.repeat((7 * MB) / 11)}"}}]}}]}\n\n`.repeat(
        2,
      ),
  },
  'events of 800,000 keys': {
    type: 'text/event-stream',
    body: () => '"stream":true',
    answer: () => `data: {${keys(800_000)}}\n\n`.repeat(4),
  },
};

let answer = Buffer.from('{}');
let type = 'application/json';
const upstream = createServer((incoming, response) => {
  incoming.resume();
  incoming.on('error', () => {});
  response.on('error', () => {});
  response.writeHead(200, { 'content-type': type });
  response.end(answer);
}).listen(0, '127.0.0.1');
await once(upstream, 'listening');

let running = false;
let sending: Promise<void>[] = [];
const seen: Record<string, number> = {};

function send(
  agent: Agent,
  to: { url: string; key: string },
  { path = '/messages', chunked = false }: Attack,
  body: Buffer,
): Promise<void> {
  return new Promise((resolve) => {
    const headers = {
      'x-gateway-api-key': to.key,
      'content-type': 'application/json',
      ...(chunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': body.length }),
    };
    const call = request(`${to.url}/v1${path}`, { method: 'POST', agent, headers }, (response) => {
      seen[String(response.statusCode)] = (seen[String(response.statusCode)] ?? 0) + 1;
      response.resume();
      response.on('error', () => {});
      response.on('close', () => resolve());
    });
    call.on('error', (error) => {
      seen[error.message] = (seen[error.message] ?? 0) + 1;
      resolve();
    });
    call.on('close', () => resolve());
    call.end(body);
  });
}

type Order =
  | { readonly start: string; readonly url: string; readonly key: string }
  | { readonly stop: boolean }
  | 'exit';

process.on('message', (order: Order) => {
  if (order === 'exit') process.exit(0);
  else if ('start' in order) {
    const attack = ATTACKS[order.start] ?? {};
    const body = Buffer.from(attack.whole?.() ?? `{${SMALL}${attack.body === undefined ? '' : `,${attack.body()}`}}`);
    answer = Buffer.from(attack.answer?.() ?? '{}');
    type = attack.type ?? 'application/json';
    for (const name of Object.keys(seen)) delete seen[name];
    running = true;
    const agent = new Agent({ keepAlive: true });
    sending = Array.from({ length: CONNECTIONS }, async () => {
      while (running) await send(agent, order, attack, body);
    });
    process.send?.({ started: true });
  } else {
    running = false;
    void Promise.all(sending).then(() => process.send?.({ seen }));
  }
});
process.send?.({ port: (upstream.address() as AddressInfo).port, attacks: Object.keys(ATTACKS) });
