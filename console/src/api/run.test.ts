import fc from 'fast-check';
import { expect, test } from 'vitest';
import { follow, type Run, readChunk } from './run.ts';

const encoder = new TextEncoder();
const delta = (content: string) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
const USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n';

function streamed(pieces: readonly (string | Uint8Array)[], headers: Record<string, string> = {}): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(typeof piece === 'string' ? encoder.encode(piece) : piece);
      controller.close();
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8', ...headers } });
}

async function run(response: Response | Error): Promise<{ end: Run; seen: Run[] }> {
  const seen: Run[] = [];
  let time = 0;
  const send = async () => {
    if (response instanceof Error) throw response;
    return response;
  };
  const end = await follow(
    send,
    (step) => seen.push(step),
    () => time++,
  );
  return { end, seen };
}

test('a stream is shown token by token and ends with its usage, times and ids', async () => {
  const { end, seen } = await run(
    streamed([delta('Hel'), delta('lo'), USAGE, 'data: [DONE]\n\n'], { 'x-gateway-trace-id': 'trace-1' }),
  );
  const texts = seen.map((step) => step.text);
  expect(texts).toContain('Hel');
  expect(texts.at(-1)).toBe('Hello');
  expect(seen[0]?.phase).toBe('sending');
  expect(end).toMatchObject({ phase: 'done', status: 200, traceId: 'trace-1', error: null });
  expect(end.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 2 });
  expect(end.firstTokenMs).toBeGreaterThan(0);
  expect(end.totalMs).toBeGreaterThan(end.firstTokenMs ?? 0);
  expect(end.raw).toContain('[DONE]');
});

test('characters of several bytes survive being cut in the middle', async () => {
  const bytes = encoder.encode(`${delta('naïve 👩🏽‍🚀 漢')}data: [DONE]\n\n`);
  const { end } = await run(streamed([...bytes].map((byte) => Uint8Array.of(byte))));
  expect(end).toMatchObject({ phase: 'done', text: 'naïve 👩🏽‍🚀 漢' });
});

test('a stream that stops without its end mark is a failure, never a complete answer', async () => {
  const { end } = await run(streamed([delta('half')]));
  expect(end).toMatchObject({ phase: 'failed', text: 'half', error: { code: 'stream_cut' } });
});

test('an error event in mid-stream keeps the partial answer and shows its message', async () => {
  const { end } = await run(
    streamed([delta('half'), 'data: {"error":{"message":"cut","type":"api_error","code":"upstream_stream_cut"}}\n\n']),
  );
  expect(end).toMatchObject({ phase: 'failed', text: 'half', error: { message: 'cut', code: 'upstream_stream_cut' } });
});

test('every error body of the gateway gives its message, status and Retry-After', async () => {
  for (const body of [
    { error: { message: 'slow down', type: 'rate_limit_exceeded', param: null, code: '429' } },
    { status: 'failure', message: 'slow down' },
    { type: 'error', error: { type: 'rate_limit_error', message: 'slow down' } },
  ]) {
    const response = new Response(JSON.stringify(body), { status: 429, headers: { 'retry-after': '2' } });
    const { end } = await run(response);
    expect(end).toMatchObject({ phase: 'failed', error: { status: 429, message: 'slow down', retryAfter: '2' } });
  }
  const { end } = await run(new Response('<html>', { status: 502 }));
  expect(end.error).toMatchObject({ status: 502, message: 'The gateway answered 502.' });
});

test('an answer that is not a stream is shown whole', async () => {
  const body = { choices: [{ message: { content: 'all at once' } }], usage: { prompt_tokens: 1 } };
  const { end } = await run(Response.json(body));
  expect(end).toMatchObject({ phase: 'done', text: 'all at once', usage: { prompt_tokens: 1 } });
});

test('stopping ends the run as stopped, losing the server as failed', async () => {
  expect((await run(new DOMException('aborted', 'AbortError'))).end.phase).toBe('stopped');
  expect((await run(new Error('Sluice does not answer.'))).end).toMatchObject({
    phase: 'failed',
    error: { status: 0, message: 'Sluice does not answer.' },
  });
});

test('no event of whatever JSON shape breaks the reader', () => {
  fc.assert(
    fc.property(fc.json(), (json) => {
      expect(typeof readChunk(json).text).toBe('string');
    }),
  );
  expect(readChunk('{"choices":[null]}').text).toBe('');
  expect(readChunk('not json').error?.code).toBe('invalid_event');
});
