import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import Anthropic from '@anthropic-ai/sdk';
import { createRemoteJWKSet, customFetch, exportJWK, generateKeyPair, jwtVerify, SignJWT } from 'jose';
import OpenAI from 'openai';
import { expect, it, onTestFinished } from 'vitest';
import { createFetcher } from '../http/background-fetcher.ts';
import { createEgressGuard, type DnsResolver, parseTrustedHosts } from '../http/egress-guard.ts';
import { type Clock, systemClock, TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { createGuardedFetch, type GuardedFetchOptions } from './guarded-fetch.ts';

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

async function serverOf(handle: Handler): Promise<string> {
  const server = createServer(async (request, response) => {
    const parts = await request.toArray();
    handle(request, response, Buffer.concat(parts).toString());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

interface Given extends Partial<GuardedFetchOptions> {
  readonly trusted?: string;
  readonly resolver?: DnsResolver;
  readonly clock?: Clock;
}

function partsOf({ trusted = '127.0.0.0/8', resolver, clock = systemClock }: Given) {
  const egress = createEgressGuard({
    trustedHosts: parseTrustedHosts(trusted),
    ownListeners: () => [],
    clock,
    log: silentLog,
    hostsFile: '/dev/null',
    resolver: resolver ?? { resolve: () => Promise.resolve([]) },
  });
  const fetcher = createFetcher({ egress, clock: systemClock });
  onTestFinished(() => fetcher.close());
  return { fetcher, egress, clock };
}

const make = (given: Given = {}) => createGuardedFetch(partsOf(given), 'o', { storedCredential: false, ...given });

/** The refusal behind a `TypeError`. */
async function causeOf(call: Promise<unknown>): Promise<{ kind: string; message: string }> {
  const error = await call.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(TypeError);
  const { kind, message } = (error as TypeError).cause as { kind: string; message: string };
  return { kind, message };
}

it('sends method, headers and body, and gives status, every header line and the body back', async () => {
  const base = await serverOf((request, response, body) => {
    response.writeHead(201, [
      'content-type',
      'application/json',
      'set-cookie',
      'a=1',
      'set-cookie',
      'b=2',
      'x-one',
      '1',
    ]);
    const { method, url, headers } = request;
    response.end(
      JSON.stringify({ method, url, type: headers['content-type'], length: headers['content-length'], body }),
    );
  });
  const call = make();
  const response = await call(`${base}/a?b=c#d`, { method: 'POST', body: new URLSearchParams({ x: 'y z' }) });
  expect(response).toBeInstanceOf(Response);
  expect([response.status, response.ok, response.url, response.redirected]).toEqual([
    201,
    true,
    `${base}/a?b=c`,
    false,
  ]);
  expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
  expect(await response.json()).toEqual({
    method: 'POST',
    url: '/a?b=c',
    type: 'application/x-www-form-urlencoded;charset=UTF-8',
    length: '5',
    body: 'x=y+z',
  });
  const again = await call(new Request(`${base}/r`, { method: 'PUT', body: 'whole' }));
  expect(await again.json()).toMatchObject({ method: 'PUT', body: 'whole' });
});

it('framing and the name of the host are not for callers to set', async () => {
  const base = await serverOf(({ headers }, response) => response.end(JSON.stringify(headers)));
  const headers = {
    host: 'internal.example',
    connection: 'upgrade',
    upgrade: 'websocket',
    expect: '100-continue',
    'x-a': 'b',
  };
  const seen = (await (await make()(base, { headers })).json()) as Record<string, string>;
  expect(seen).toMatchObject({ host: new URL(base).host, 'x-a': 'b', 'user-agent': 'sluice' });
  expect(Object.keys(seen)).not.toContain('upgrade');
  expect(Object.keys(seen)).not.toContain('expect');
});

it('streams both ways: the first piece arrives before the last one is there', async () => {
  const { promise: more, resolve: go } = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    response.writeHead(200);
    request.pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      controller.enqueue(Buffer.from('first'));
      await more;
      controller.enqueue(Buffer.from(' last'));
      controller.close();
    },
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const response = await make()(url, { method: 'POST', body, duplex: 'half' });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader?.read())?.value).toBe('first');
  go();
  expect((await reader?.read())?.value).toBe(' last');
  expect((await reader?.read())?.done).toBe(true);
});

it('a redirect of the same origin keeps what was sent; one to another origin gets no header that may be a credential', async () => {
  const seen: unknown[] = [];
  const note: Handler = ({ method, url, headers }, _response, body) => {
    const { authorization, cookie, accept } = headers;
    seen.push([method, url, authorization, cookie, headers['x-api-key'], accept, body]);
  };
  const other = await serverOf((request, response, body) => {
    note(request, response, body);
    response.end('there');
  });
  const base = await serverOf((request, response, body) => {
    note(request, response, body);
    const status = Number(request.headers['x-status']);
    if (request.url === '/same') response.writeHead(status, { location: '/next' }).end();
    else if (request.url === '/away') response.writeHead(status, { location: `${other}/there` }).end();
    else response.end('here');
  });
  const call = make();
  const secrets = { authorization: 'Bearer s', cookie: 'c=1', 'x-api-key': 'k', accept: 'text/plain' };
  const get = (path: string, status: string, init = {}) =>
    call(base + path, { headers: { ...secrets, 'x-status': status }, ...init });
  const post = { method: 'POST', body: 'form' };

  expect(await (await get('/same', '308', post)).text()).toBe('here');
  expect(seen.splice(0).at(-1)).toEqual(['POST', '/next', 'Bearer s', 'c=1', 'k', 'text/plain', 'form']);
  expect(await (await get('/same', '302', post)).text()).toBe('here');
  expect(seen.splice(0).at(-1)).toEqual(['GET', '/next', 'Bearer s', 'c=1', 'k', 'text/plain', '']);
  const away = await get('/away', '307');
  expect([await away.text(), away.redirected, away.url]).toEqual(['there', true, `${other}/there`]);
  expect(seen.splice(0).at(-1)).toEqual(['GET', '/there', undefined, undefined, undefined, 'text/plain', '']);

  // A form may be a client secret: it goes to nobody it was not meant for.
  expect((await causeOf(get('/away', '307', post))).message).toContain('another origin');
  expect(seen.map((one) => (one as string[])[1])).toEqual(['/away']);

  expect((await get('/away', '307', { redirect: 'manual' })).status).toBe(307);
  expect((await causeOf(get('/away', '307', { redirect: 'error' }))).message).toContain('does not allow');
});

it('each redirect is judged like a first call, and they come to an end', async () => {
  const base = await serverOf((request, response) => {
    const location = request.url === '/loop' ? '/loop' : request.url === '/in' ? 'http://169.254.169.254/latest' : '/';
    response.writeHead(302, { location }).end();
  });
  const call = make();
  expect((await causeOf(call(`${base}/in`))).message).toContain('metadata');
  expect((await causeOf(call(`${base}/loop`))).message).toContain('too many redirects');
});

it('private addresses are refused, also behind a name whose address has changed since it was looked at', async () => {
  let asked = 0;
  const base = await serverOf((_request, response) => void response.end('inside'));
  const { port } = new URL(base);
  const call = make({ trusted: '' });
  for (const url of [
    base,
    'http://10.0.0.1/',
    'http://[::1]/',
    'http://0x7f000001/',
    'http://localhost/',
    'http://169.254.1.1/',
  ])
    expect((await causeOf(call(url))).kind, url).toBe('malformed_call');
  const resolver: DnsResolver = {
    resolve: async (_name, family) =>
      family === 6 ? [] : [{ address: asked++ === 0 ? '93.184.216.34' : '127.0.0.1', ttl: 0 }],
  };
  const clock = new TestClock();
  const parts = partsOf({ trusted: '', resolver, clock });
  const rebound = `http://rebind.example:${port}/`;
  await parts.egress.verify(parts.egress.check(rebound, { storedCredential: false }), 'o');
  await clock.advance(60_000);
  const refusal = await causeOf(createGuardedFetch(parts, 'o', { storedCredential: false })(rebound));
  expect(refusal.kind).toBe('malformed_call');
  expect(refusal.message).toContain('not a public address');
  expect(asked).toBe(2);
  expect((await causeOf(make({ trusted: '', httpsOnly: true })('http://public.example/'))).message).toContain('https');
  expect((await causeOf(make({ trusted: '', storedCredential: true })('http://public.example/'))).message).toContain(
    'https',
  );
});

it('an abort rejects with its reason, before the head and within the body', async () => {
  const base = await serverOf((request, response) => {
    if (request.url === '/body') response.write('piece');
  });
  const call = make();
  const early = new AbortController();
  const waiting = call(`${base}/silent`, { signal: early.signal });
  early.abort();
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
  const late = new AbortController();
  const reader = (await call(`${base}/body`, { signal: late.signal })).body?.getReader();
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('piece');
  const next = reader?.read();
  late.abort(new Error('enough'));
  await expect(next).rejects.toThrow('enough');
  await expect(call(base, { signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' });
});

it('an answer that is too long, too late or cut ends in a TypeError that says which', async () => {
  const base = await serverOf((request, response) => {
    if (request.url === '/long') response.end('x'.repeat(2000));
    else if (request.url === '/bomb')
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('x'.repeat(2000)));
    else if (request.url === '/cut')
      response.writeHead(200, { 'content-length': '9' }).write('abc', () => request.socket.destroy());
    else if (request.url === '/gzip') response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('plain'));
  });
  const clock = new TestClock();
  const call = make({ maxBytes: 1000, totalMs: 5000, clock });
  const text = async (path: string) => (await call(base + path)).text();
  expect(await text('/gzip')).toBe('plain');
  expect((await causeOf(text('/long'))).message).toContain('longer than 1000 bytes');
  expect((await causeOf(text('/bomb'))).message).toContain('longer than 1000 bytes');
  expect((await causeOf(text('/cut'))).kind).toBe('upstream_cut');
  const late = causeOf(text('/silent'));
  await clock.advance(5000);
  expect(await late).toMatchObject({ kind: 'timeout', message: 'The call took longer than 5000 ms.' });
  expect((await causeOf(make()('http://127.0.0.1:1/'))).kind).toBe('upstream_unreachable');
  await expect(call('no url')).rejects.toThrow(TypeError);
});

it('a response whose body nobody reads gives its socket back once it is forgotten', async () => {
  let closed = 0;
  const base = await serverOf((request, response) => {
    request.socket.on('close', () => closed++);
    response.writeHead(200, { 'content-length': '99' }).write('x');
  });
  const call = make();
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  expect((await call(base)).status).toBe(200);
  await expect
    .poll(() => {
      gc();
      return closed;
    })
    .toBe(1);
});

it('serves as the fetch of jose: a key set is loaded through it, and one at a private address is refused', async () => {
  const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
  const jwk = { ...(await exportJWK(publicKey)), kid: 'k1', alg: 'ES256' };
  const base = await serverOf((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys: [jwk] }));
  });
  const token = await new SignJWT({ who: 'me' }).setProtectedHeader({ alg: 'ES256', kid: 'k1' }).sign(privateKey);
  const verify = async (given: Given) =>
    jwtVerify(token, createRemoteJWKSet(new URL(`${base}/jwks`), { [customFetch]: make(given) }));
  expect((await verify({ httpsOnly: true })).payload.who).toBe('me');
  await expect(verify({ trusted: '' })).rejects.toThrow('The call failed');
});

it('serves as the fetch of the OpenAI and Anthropic clients, streams included', async () => {
  const chunk = (content: string) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`;
  const base = await serverOf((request, response, body) => {
    if (request.url === '/v1/chat/completions') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const word of ['Hel', 'lo']) response.write(chunk(word));
      response.end('data: [DONE]\n\n');
    } else {
      const { model } = JSON.parse(body) as { model: string };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ type: 'message', model, content: [{ type: 'text', text: 'Hi' }] }));
    }
  });
  const call = make();
  const openai = new OpenAI({ apiKey: 'k', baseURL: `${base}/v1`, fetch: call, maxRetries: 0 });
  let said = '';
  const messages = [{ role: 'user', content: 'hi' } as const];
  for await (const part of await openai.chat.completions.create({ model: 'm', messages, stream: true }))
    said += part.choices[0]?.delta.content ?? '';
  expect(said).toBe('Hello');
  const anthropic = new Anthropic({ apiKey: 'k', baseURL: base, fetch: call, maxRetries: 0 });
  expect(await anthropic.messages.create({ model: 'm', max_tokens: 9, messages })).toMatchObject({ model: 'm' });
});
