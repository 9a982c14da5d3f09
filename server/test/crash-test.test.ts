/**
 * What a provider can do wrong, in every shape of a caller, streamed and in one piece, alone and with another attempt in
 * reserve: rescued where something can take over, told clearly where nothing can, within the limits of the config; nobody
 * hangs, nobody gets a part for the whole, and the process is as it was before.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, type Caller, eventually, settledBooks } from './support/budgets.ts';
import { type FaultyUpstream, PIECES, type Shape, startFaulty } from './support/faults.ts';
import { eventsOf } from './support/local.ts';
import { startServer, type TestServer } from './support/server.ts';

let server: TestServer;
let upstream: FaultyUpstream;
let caller: Caller;

beforeAll(async () => {
  upstream = await startFaulty();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 100_000_000 } });
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const SHAPES: readonly Shape[] = ['chat', 'messages', 'responses'];
const PATHS = { chat: '/chat/completions', messages: '/messages', responses: '/responses' } as const;
/** Who answers in the caller's own shape, and who in another. */
const NATIVE = { chat: 'openai', messages: 'anthropic', responses: 'openai' } as const;
const OTHER = { chat: 'anthropic', messages: 'openai', responses: 'anthropic' } as const;
/** Who goes on with an answer whose beginning it is given. */
const PREFILL = {
  'own shape': { chat: 'groq', messages: 'anthropic', responses: 'anthropic' },
  converted: { chat: 'anthropic', messages: 'mistral-ai', responses: 'mistral-ai' },
} as const;
const TEXT = PIECES.join('');
/** Longest any call may take, milliseconds: three attempts within their limits, and waits of seconds between them. */
const BUDGET_MS = 20_000;

const LIMITS = { request_timeout: 4_000, timeouts: { connect: 3_000, first_token: 3_000, stream_idle: 2_500 } };
const ALL = [400, 408, 429, 500, 502, 503, 504, 529];

interface Told {
  readonly status: number;
  readonly text: string;
  /** The end marker came, or a whole answer. */
  readonly ended: boolean;
  /** Message of the error that was told in the caller's dialect. */
  readonly error: string | null;
  readonly finish: string | null;
  /** The connection was cut in place of an end. */
  readonly broken: boolean;
  readonly requestId: string;
  readonly raw: string;
  readonly ms: number;
}

const target = (provider: string, model: string, more: object = {}) => ({
  provider,
  api_key: 'sk-own',
  custom_host: `${upstream.url}/v1`,
  override_params: { model },
  ...more,
});

async function ask(shape: Shape, stream: boolean, config: object): Promise<Told> {
  const started = performance.now();
  const question =
    shape === 'responses' ? { input: 'Where to?' } : { messages: [{ role: 'user', content: 'Where to?' }] };
  const response = await fetch(`${server.url}/v1${PATHS[shape]}`, {
    method: 'POST',
    headers: {
      'x-gateway-api-key': caller.key,
      'content-type': 'application/json',
      'x-gateway-config': JSON.stringify(config),
    },
    body: JSON.stringify({
      model: 'any',
      ...question,
      ...(shape === 'messages' ? { max_tokens: 100 } : {}),
      ...(stream ? { stream: true } : {}),
    }),
    signal: AbortSignal.timeout(BUDGET_MS),
  });
  let raw = '';
  let broken = false;
  const decoder = new TextDecoder();
  try {
    for await (const part of response.body ?? []) raw += decoder.decode(part as Uint8Array, { stream: true });
  } catch (error) {
    if ((error as Error).name === 'TimeoutError') throw error;
    broken = true;
  }
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  return {
    status: response.status,
    broken,
    requestId: response.headers.get('x-gateway-trace-id') ?? '',
    raw,
    ms: performance.now() - started,
    ...(isStream ? readStream(shape, raw) : readWhole(shape, raw)),
  };
}

type Read = Pick<Told, 'text' | 'ended' | 'error' | 'finish'>;

function readWhole(shape: Shape, raw: string): Read {
  // biome-ignore lint/suspicious/noExplicitAny: answers are looked into by their shape
  let body: any;
  try {
    body = JSON.parse(raw);
  } catch {
    return { text: '', ended: false, error: null, finish: null };
  }
  const error = typeof body.error?.message === 'string' ? body.error.message : null;
  if (shape === 'messages' && error !== null) expect(body.type).toBe('error');
  if (error !== null) return { text: '', ended: false, error, finish: null };
  if (shape === 'chat') {
    const [choice] = body.choices;
    return { text: choice.message.content ?? '', ended: true, error, finish: choice.finish_reason };
  }
  if (shape === 'messages') {
    const text = body.content.map((block: { text?: string }) => block.text ?? '').join('');
    return { text, ended: true, error, finish: body.stop_reason };
  }
  const text = body.output.flatMap((item: { content?: { text?: string; refusal?: string }[] }) => item.content ?? []);
  return {
    text: text.map((part: { text?: string }) => part.text ?? '').join(''),
    ended: true,
    error,
    finish: body.incomplete_details?.reason ?? body.status,
  };
}

function readStream(shape: Shape, raw: string): Read {
  let text = '';
  let ended = false;
  let error: string | null = null;
  let finish: string | null = null;
  for (const { data, json } of eventsOf(raw)) {
    expect(ended && data !== '' ? `after the end: ${data}` : '').toBe('');
    if (data === '') continue;
    expect(error === null ? '' : `after the error: ${data}`).toBe('');
    if (data === '[DONE]') {
      ended = true;
      continue;
    }
    expect(json, data).toBeTypeOf('object');
    if (shape === 'chat') {
      if (json.error !== undefined) error = json.error.message;
      text += json.choices?.[0]?.delta?.content ?? '';
      finish = json.choices?.[0]?.finish_reason ?? finish;
    } else if (shape === 'messages') {
      if (json.type === 'error') error = json.error.message;
      if (json.type === 'content_block_delta') text += json.delta.text ?? '';
      if (json.type === 'message_delta') finish = json.delta.stop_reason ?? finish;
      if (json.type === 'message_stop') ended = true;
    } else {
      if (json.type === 'error') error = json.message;
      if (json.type === 'response.failed') error = json.response.error.message;
      if (json.type === 'response.output_text.delta') text += json.delta;
      if (json.type === 'response.completed' || json.type === 'response.incomplete') {
        ended = true;
        finish = json.response.incomplete_details?.reason ?? json.response.status;
      }
    }
  }
  return { text, ended, error, finish };
}

const FAULTS = [
  'rate-limited-hint',
  'rate-limited',
  'failed-once',
  'down',
  'reset',
  'silent',
  'slow-first-token',
  'cut',
  'stall',
  'malformed',
  'no-end',
  'too-long',
  'too-long-in-stream',
  'fails-in-stream',
  'filtered',
  'flapping',
  'empty',
] as const;
/** Of streams: content was shown before it happened. */
const MID_STREAM: ReadonlySet<string> = new Set(['cut', 'stall', 'malformed', 'no-end']);

/** With nothing in reserve, with another try, with another target; and what else may follow a stream that broke. */
const MODES = [
  'alone',
  'retry',
  'fallback',
  'restart',
  'fallback restart',
  'continue',
  'fallback continue',
  'refused prefill',
  'fallback refuses prefill',
] as const;
const WHO = ['own shape', 'converted'] as const;

interface Cell {
  readonly fault: (typeof FAULTS)[number];
  readonly shape: Shape;
  readonly stream: boolean;
  readonly mode: (typeof MODES)[number];
  readonly who: (typeof WHO)[number];
}

const cells: Cell[] = [];
for (const fault of FAULTS)
  for (const shape of SHAPES)
    for (const stream of [false, true])
      for (const mode of MODES)
        for (const who of WHO) {
          if (!['alone', 'retry', 'fallback'].includes(mode) && !(stream && MID_STREAM.has(fault))) continue;
          cells.push({ fault, shape, stream, mode, who });
        }

const nameOf = ({ fault, shape, stream, mode, who }: Cell) =>
  `${fault} × ${shape} × ${stream ? 'stream' : 'one piece'} × ${mode}, ${who}`;

function configOf(cell: Cell): object {
  const { fault, shape, mode, who, stream } = cell;
  const goesOn = mode.includes('continue') || mode.includes('prefill');
  const first = (who === 'own shape' ? NATIVE : OTHER)[shape];
  const second = goesOn ? PREFILL[who][shape] : (who === 'own shape' ? OTHER : NATIVE)[shape];
  const place = `${mode.includes('prefill') ? 'picky-' : ''}${shape}-${stream}-${mode}-${who === 'converted'}`;
  const rules = {
    ...LIMITS,
    ...(mode.includes('restart') ? { stream: { on_break: 'restart' } } : {}),
    ...(goesOn ? { stream: { on_break: 'continue' } } : {}),
  };
  if (mode === 'alone') return target(first, `${fault}.x1000.${place}`, rules);
  if (mode.startsWith('fallback')) {
    return {
      strategy: { mode: 'fallback' },
      targets: [target(first, `${fault}.x1000.${place}`), target(second, `good.${place}`)],
      ...rules,
    };
  }
  const retry = { attempts: 2, on_status_codes: ALL, use_retry_after_headers: true };
  return target(goesOn ? second : first, `${fault}.x1.${place}`, { ...rules, retry });
}

/** Whether the call answers as if nothing had happened. */
function isRescued({ fault, stream, mode }: Cell): boolean {
  if (mode === 'alone') return false;
  if (mode.includes('prefill')) return false;
  return mode.includes('restart') || mode.includes('continue') || !(stream && MID_STREAM.has(fault));
}

function judge(cell: Cell, told: Told): void {
  const about = `${nameOf(cell)}: ${told.status} ${told.raw.slice(0, 2000)}`;
  expect(told.ms, about).toBeLessThan(BUDGET_MS);
  if (isRescued(cell)) {
    expect(told, about).toMatchObject({ status: 200, text: TEXT, ended: true, error: null, broken: false });
    return;
  }
  if (cell.fault === 'filtered') {
    // Nothing is hidden: the answer is as the provider gave it, and says why it is empty.
    expect(told, about).toMatchObject({ status: 200, text: '', ended: true, error: null });
    expect(told.finish, about).toMatch(/content_filter|refusal/);
    return;
  }
  if (cell.mode.includes('prefill')) expect(told.error, about).not.toContain('invalid_request_error');
  expect(told.ended, about).toBe(false);
  expect(TEXT.startsWith(told.text) && told.broken === false, about).toBe(true);
  expect(told.error, about).toBeTypeOf('string');
  if (cell.stream && MID_STREAM.has(cell.fault)) expect(told.text, about).not.toBe('');
  else expect(told.text, about).toBe('');
  // A Responses object says itself that it failed.
  if (told.status === 200 && !told.raw.includes('"status":"failed"')) expect(cell.stream, about).toBe(true);
}

describe('a fault is rescued, or told clearly', () => {
  let flapped = 0;
  const results = new Map<Cell, Told | Error>();

  beforeAll(async () => {
    const waiting = [...cells];
    const work = async () => {
      for (let cell = waiting.shift(); cell !== undefined; cell = waiting.shift()) {
        const result = await ask(cell.shape, cell.stream, configOf(cell)).catch((error: Error) => error);
        results.set(cell, result);
      }
    };
    await Promise.all(Array.from({ length: 32 }, work));
  }, 120_000);

  it.each(cells.map((cell) => [nameOf(cell), cell] as const))('%s', (_name, cell) => {
    const told = results.get(cell);
    if (told === undefined || told instanceof Error) throw told ?? new Error('never asked');
    judge(cell, told);
  });

  it('a primary that comes and goes is never seen to: each answer is whole, by whoever gave it', async () => {
    // Three calls that fail, then those that work; every one of them may meet either.
    const config = {
      strategy: { mode: 'fallback' },
      targets: [target('openai', 'flapping.x3.primary'), target('anthropic', 'good.secondary')],
      ...LIMITS,
    };
    const before = upstream.callsOf('good.secondary');
    const told = await Promise.all(Array.from({ length: 12 }, (_, i) => ask('chat', i % 2 === 0, config)));
    for (const one of told) expect(one, one.raw).toMatchObject({ status: 200, text: TEXT, ended: true, error: null });
    expect(upstream.callsOf('good.secondary') - before).toBe(3);
    flapped = told.length;
  });

  it('afterwards the process is as before: no call is open, nothing reserved, every request has its record', async () => {
    const told = await ask('chat', false, target('openai', 'good.after'));
    expect(told).toMatchObject({ status: 200, text: TEXT });
    expect(
      await eventually(
        () => upstream.pending,
        (pending) => pending === 0,
      ),
    ).toBe(0);
    const records = await eventually(
      async () => (await server.records()).filter((record) => record.api_key_id === caller.id),
      (list) => list.length >= cells.length + flapped + 1,
    );
    expect(records.length).toBe(cells.length + flapped + 1);
    const byId = new Map(records.map((record) => [record.id, record]));
    for (const cell of cells) {
      const told = results.get(cell) as Told;
      const record = byId.get(told.requestId);
      const good = isRescued(cell) || cell.fault === 'filtered';
      expect(record?.outcome, nameOf(cell)).toBe(good ? 'ok' : 'failed');
      if (!good) expect(record?.error_code, nameOf(cell)).toBeTypeOf('string');
    }
    expect((await settledBooks(server, caller.id)).reserved).toBe(0);
  });
});
