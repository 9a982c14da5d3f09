/**
 * What a provider can do wrong, in every shape of a caller, streamed and in one piece, alone and with another attempt in
 * reserve: rescued where something can take over, told clearly where nothing can, within the limits of the config; nobody
 * hangs, nobody gets a part for the whole, and the process is as it was before.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, type Caller, eventually, settledBooks } from '../../../test/support/budgets.ts';
import { type FaultyUpstream, PIECES, type Shape, startFaulty } from '../../../test/support/faults.ts';
import { eventsOf } from '../../../test/support/local.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';

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

const LIMITS = { request_timeout: 5_000, timeouts: { connect: 4_000, first_token: 3_000, stream_idle: 3_500 } };
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
  /** What the answer says it used, once for each time that it says so. */
  readonly used: readonly { readonly input: number; readonly output: number }[];
  /** The model that the answer names, at its end where it is a stream. */
  readonly model: string | null;
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
      ...(stream && shape === 'chat' ? { stream_options: { include_usage: true } } : {}),
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
    ...usedIn(shape, raw, isStream),
  };
}

type Read = Pick<Told, 'text' | 'ended' | 'error' | 'finish'>;

/** Usage and model of an answer, or of every event of one. */
function usedIn(shape: Shape, raw: string, isStream: boolean): Pick<Told, 'used' | 'model'> {
  // biome-ignore lint/suspicious/noExplicitAny: answers are looked into by their shape
  const bodies: any[] = [];
  if (isStream) for (const { json } of eventsOf(raw)) bodies.push(json?.response ?? json?.message ?? json);
  else if (raw.startsWith('{') && raw.endsWith('}')) bodies.push(JSON.parse(raw));
  // The start of a message tells the input, and its end what has changed since.
  const isStart = (body: { type?: string }) => shape === 'messages' && isStream && body?.type === 'message';
  const start = bodies.find(isStart)?.usage;
  const used = bodies
    .filter((body) => body?.usage != null && !isStart(body))
    .map(({ usage }) => ({
      input: usage.prompt_tokens ?? usage.input_tokens ?? start?.input_tokens,
      output: usage.completion_tokens ?? usage.output_tokens,
    }));
  return { used, model: bodies.findLast((body) => typeof body?.model === 'string')?.model ?? null };
}

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
    ...(mode.includes('restart') ? { stream: { on_break: 'restart', restart_within: { ms: 10_000 } } } : {}),
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
  // A connection that was kept open and is reset before the head is made anew within the attempt, once.
  const times = fault === 'reset' ? 2 : 1;
  return target(goesOn ? second : first, `${fault}.x${times}.${place}`, { ...rules, retry });
}

/** What a call with nothing in reserve is told, in one piece and as a stream; two where the provider's shape decides. */
const ALONE: Readonly<Record<Cell['fault'], readonly [whole: readonly number[], stream: readonly number[]]>> = {
  'rate-limited-hint': [[429], [429]],
  'rate-limited': [[429], [429]],
  'failed-once': [[500], [500]],
  down: [[503], [503]],
  reset: [[502], [502]],
  silent: [[408], [408]],
  'slow-first-token': [[408], [200]],
  cut: [[502], [200]],
  stall: [[408], [200]],
  malformed: [[502], [200]],
  'no-end': [[502], [200]],
  'too-long': [[400], [400]],
  'too-long-in-stream': [[400], [200]],
  'fails-in-stream': [[200, 500], [200]],
  filtered: [[200], [200]],
  flapping: [[500], [500]],
  empty: [[502], [200, 502]],
};

/** Faults of a call that has generated nothing. */
const COSTS_NOTHING: ReadonlySet<string> = new Set([
  'rate-limited-hint',
  'rate-limited',
  'failed-once',
  'down',
  'reset',
  'silent',
  'too-long',
  'flapping',
]);

/** What an attempt is recorded with that met a limit on time, in one piece and as a stream. */
const LATE: Readonly<Record<string, readonly [string, string]>> = {
  silent: ['timeout', 'first_token_timeout'],
  'slow-first-token': ['timeout', 'first_token_timeout'],
  stall: ['timeout', 'upstream_idle_timeout'],
};

interface Kept {
  readonly outcome: string;
  readonly error_code: string | null;
  readonly status: number;
  readonly model_answered: string | null;
  readonly usage: { readonly input: number; readonly output: number } | null;
  readonly attempts: readonly {
    readonly target: string;
    readonly status: number | null;
    readonly error: string | null;
  }[];
}

/** The record of a call tells every attempt and what all of them used; the answer tells its caller what it used, once. */
function judgeRecord(cell: Cell, told: Told, { attempts, usage, model_answered, status }: Kept): void {
  const { fault, stream, mode } = cell;
  const about = `${nameOf(cell)}: ${JSON.stringify({ attempts, usage, model_answered, used: told.used, model: told.model })}`;
  expect(status, about).toBe(told.status);
  const late = LATE[fault]?.[stream ? 1 : 0];
  if (late !== undefined) expect(attempts[0]?.error, about).toBe(late);
  if (!isRescued(cell)) {
    if (mode === 'alone') expect(attempts, about).toHaveLength(1);
    if (COSTS_NOTHING.has(fault)) expect(usage, about).toBeNull();
    return;
  }
  expect(attempts.length, about).toBeGreaterThan(1);
  const last = attempts.at(-1);
  expect(last, about).toMatchObject({ status: 200, error: null });
  expect(last?.target, about).toBe(mode.startsWith('fallback') ? 'config.targets[1]' : 'config');
  for (const before of attempts.slice(0, -1)) expect(before.status !== 200 || before.error !== null, about).toBe(true);
  expect(told.used, about).toHaveLength(1);
  const goesOn = mode.includes('continue');
  // What goes on with an answer is a part of it; what took its place is all there is to see.
  if (goesOn) expect(told.used[0], about).toMatchObject({ input: usage?.input, output: usage?.output });
  else expect(told.used[0], about).toEqual({ input: 9, output: 5 });
  const spent = { input: (usage?.input ?? 0) - 9, output: (usage?.output ?? 0) - 5 };
  if (COSTS_NOTHING.has(fault)) expect(spent, about).toEqual({ input: 0, output: 0 });
  else if (MID_STREAM.has(fault)) expect(Math.min(spent.input, goesOn ? 1 : spent.output), about).toBeGreaterThan(0);
  else expect(Math.min(spent.input, spent.output), about).toBeGreaterThanOrEqual(0);
  if (mode.startsWith('fallback')) expect(model_answered, about).toMatch(/^good\./);
  // A message keeps the name it began with.
  if (!(goesOn && cell.shape === 'messages')) expect(told.model, about).toBe(model_answered);
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
  if (cell.mode === 'alone') expect(ALONE[cell.fault][cell.stream ? 1 : 0], about).toContain(told.status);
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

  it.each(SHAPES.flatMap((shape) => [false, true].map((stream) => [shape, stream] as const)))(
    'a primary that comes and goes is never seen to: each %s is whole, by whoever gave it (stream: %s)',
    async (shape, stream) => {
      // Three calls that fail, then those that work; every one of them may meet either.
      const secondary = `good.secondary-${shape}-${stream}`;
      const config = {
        strategy: { mode: 'fallback' },
        targets: [target(NATIVE[shape], `flapping.x3.${shape}-${stream}`), target(OTHER[shape], secondary)],
        ...LIMITS,
      };
      const told = await Promise.all(Array.from({ length: 8 }, () => ask(shape, stream, config)));
      flapped += told.length;
      for (const one of told)
        expect(one, one.raw).toMatchObject({ status: 200, text: TEXT, ended: true, error: null, broken: false });
      expect(upstream.callsOf(secondary)).toBe(3);
    },
  );

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
      judgeRecord(cell, told, record as unknown as Kept);
    }
    // What the limit of the key has booked is what the records say, to the token.
    const sum = (records as unknown as Kept[]).reduce(
      (tokens, { usage }) => tokens + (usage === null ? 0 : usage.input + usage.output),
      0,
    );
    expect(await settledBooks(server, caller.id)).toMatchObject({ reserved: 0, used: sum });
  });
});
