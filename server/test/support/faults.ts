/**
 * A provider that misbehaves as its model's name says, in the three shapes that answer with text: `<fault>` or
 * `<fault>.x<times>` for the first calls of that name only; any other name answers well, and goes on with the beginning of an
 * answer unless it contains `picky`, which refuses one.
 */
import type { ServerResponse } from 'node:http';
import { chatStream, messageStream, responseStream } from './streams.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from './upstream.ts';

export type Shape = 'chat' | 'messages' | 'responses';

export const PIECES = ['Water ', 'finds ', 'its ', 'way.'];

export interface Call {
  readonly shape: Shape;
  readonly stream: boolean;
  readonly model: string;
  readonly body: Record<string, unknown>;
}

const SHAPES: readonly (readonly [string, Shape])[] = [
  ['/chat/completions', 'chat'],
  ['/messages', 'messages'],
  ['/responses', 'responses'],
];

/** The answer in one piece. */
export function whole(
  shape: Shape,
  model: string,
  text: string,
  finish: string | null = null,
): Record<string, unknown> {
  if (shape === 'chat') {
    return {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model,
      choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: finish ?? 'stop' }],
      usage: { prompt_tokens: 9, completion_tokens: 5, total_tokens: 14 },
    };
  }
  if (shape === 'messages') {
    return {
      id: 'm',
      type: 'message',
      role: 'assistant',
      model,
      content: text === '' ? [] : [{ type: 'text', text }],
      stop_reason: finish === null ? 'end_turn' : 'refusal',
      stop_sequence: null,
      usage: { input_tokens: 9, output_tokens: 5 },
    };
  }
  const part = { type: 'output_text', text, annotations: [] };
  return {
    id: 'r',
    object: 'response',
    created_at: 1,
    model,
    status: finish === null ? 'completed' : 'incomplete',
    incomplete_details: finish === null ? null : { reason: finish },
    output: [{ id: 'i', type: 'message', role: 'assistant', status: 'completed', content: text === '' ? [] : [part] }],
    usage: { input_tokens: 9, output_tokens: 5, total_tokens: 14 },
  };
}

/** The same as a stream: what comes before the first content, the content, and the end. */
export function streamed(
  shape: Shape,
  model: string,
  pieces: readonly string[],
): Record<'start' | 'content' | 'end', string[]> {
  const renamed = (events: string[]) =>
    events.map((event) => event.replace(/"model":"[^"]*"/, `"model":${JSON.stringify(model)}`));
  if (shape === 'chat') {
    const events = renamed(chatStream(...pieces));
    return {
      start: events.slice(0, 1),
      content: events.slice(1, 1 + pieces.length),
      end: events.slice(1 + pieces.length),
    };
  }
  const events = renamed(shape === 'messages' ? messageStream(...pieces) : responseStream(...pieces));
  const from = shape === 'messages' ? 2 : 3;
  return {
    start: events.slice(0, from),
    content: events.slice(from, from + pieces.length),
    end: events.slice(from + pieces.length),
  };
}

export function errorOf(shape: Shape, status: number, code: string, message: string): unknown {
  const type = status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'api_error';
  if (shape === 'messages') return { type: 'error', error: { type, message } };
  return { error: { message, type, param: null, code } };
}

const MALFORMED = 'data: {"id":"x","choices":[{"index":0,"delta":{"cont\n\n';

type Fault = (call: Call, response: ServerResponse) => void;

const refuse =
  (status: number, code: string, headers: Record<string, string> = {}): Fault =>
  ({ shape }, response) => {
    const bytes = JSON.stringify(errorOf(shape, status, code, `This call fails with ${code}.`));
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(bytes),
      ...headers,
    });
    response.end(bytes);
  };

const begin = (response: ServerResponse, events: readonly string[]) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(events.join(''));
};

/** Half of an answer in one piece, of which all was promised. */
const half = ({ shape, model }: Call, response: ServerResponse) => {
  const bytes = Buffer.from(JSON.stringify(whole(shape, model, PIECES.join(''))));
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes.length });
  response.write(bytes.subarray(0, bytes.length >> 1));
};

const filteredEnd = (shape: Shape, model: string): string[] => {
  if (shape === 'chat') {
    const chunk = { id: 'c', object: 'chat.completion.chunk', created: 1, model };
    return [
      `data: ${JSON.stringify({ ...chunk, choices: [{ index: 0, delta: {}, finish_reason: 'content_filter' }] })}\n\n`,
      'data: [DONE]\n\n',
    ];
  }
  if (shape === 'messages') {
    return [
      { type: 'message_delta', delta: { stop_reason: 'refusal', stop_sequence: null }, usage: { output_tokens: 0 } },
      { type: 'message_stop' },
    ].map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  }
  const response = whole('responses', model, '', 'content_filter');
  return [
    `event: response.incomplete\ndata: ${JSON.stringify({ type: 'response.incomplete', response, sequence_number: 3 })}\n\n`,
  ];
};

const FAULTS: Readonly<Record<string, Fault>> = {
  'rate-limited-hint': refuse(429, 'rate_limit_exceeded', { 'retry-after': '0', 'retry-after-ms': '1' }),
  'rate-limited': refuse(429, 'rate_limit_exceeded'),
  'failed-once': refuse(500, 'server_error'),
  down: refuse(503, 'server_error'),
  flapping: refuse(500, 'server_error'),
  reset: (_call, response) => response.destroy(),
  silent: () => {},
  'slow-first-token': ({ shape, model, stream }, response) => {
    if (stream) begin(response, streamed(shape, model, PIECES).start);
  },
  cut: (call, response) => {
    if (call.stream) {
      const { start, content } = streamed(call.shape, call.model, PIECES);
      begin(response, [...start, ...content.slice(0, 2)]);
    } else half(call, response);
    setTimeout(() => response.destroy(), 20);
  },
  stall: (call, response) => {
    if (!call.stream) return half(call, response);
    const { start, content } = streamed(call.shape, call.model, PIECES);
    begin(response, [...start, ...content.slice(0, 2)]);
  },
  malformed: ({ shape, model, stream }, response) => {
    if (!stream) return sendJson(response, 200, JSON.stringify(whole(shape, model, PIECES.join(''))).slice(0, -40));
    const { start, content, end } = streamed(shape, model, PIECES);
    begin(response, [...start, ...content.slice(0, 2)]);
    // On its own, so that what came before has been shown.
    setTimeout(() => response.end([MALFORMED, ...content.slice(2), ...end].join('')), 50);
  },
  'no-end': ({ shape, model, stream }, response) => {
    if (!stream) {
      // Ended as if it were whole, by a server that does not tell lengths.
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(whole(shape, model, PIECES.join(''))).slice(0, 60));
      return;
    }
    const { start, content } = streamed(shape, model, PIECES);
    begin(response, [...start, ...content]);
    response.end();
  },
  'too-long': refuse(400, 'context_length_exceeded'),
  'too-long-in-stream': (call, response) => {
    const { shape, model, stream } = call;
    if (!stream) return refuse(400, 'context_length_exceeded')(call, response);
    const error = errorOf(shape, 400, 'context_length_exceeded', 'This conversation is too long.') as object;
    const event =
      shape === 'responses'
        ? {
            type: 'error',
            code: 'context_length_exceeded',
            message: 'This conversation is too long.',
            sequence_number: 3,
          }
        : error;
    begin(response, [
      ...streamed(shape, model, PIECES).start,
      `${shape === 'chat' ? '' : 'event: error\n'}data: ${JSON.stringify(event)}\n\n`,
    ]);
    response.end();
  },
  /** The failure is the end of the stream itself, and nothing else tells it. */
  'fails-in-stream': (call, response) => {
    const { shape, model, stream } = call;
    const message = 'The model broke down.';
    const failed = { ...whole('responses', model, ''), status: 'failed', error: { code: 'server_error', message } };
    if (!stream)
      return shape === 'responses' ? sendJson(response, 200, failed) : refuse(500, 'server_error')(call, response);
    const event =
      shape === 'responses'
        ? { type: 'response.failed', response: { ...failed, usage: null }, sequence_number: 3 }
        : errorOf(shape, 500, 'server_error', message);
    const name = shape === 'chat' ? '' : `event: ${shape === 'messages' ? 'error' : 'response.failed'}\n`;
    begin(response, [...streamed(shape, model, PIECES).start, `${name}data: ${JSON.stringify(event)}\n\n`]);
    response.end();
  },
  filtered: ({ shape, model, stream }, response) => {
    if (!stream) return sendJson(response, 200, whole(shape, model, '', 'content_filter'));
    begin(response, [...streamed(shape, model, PIECES).start, ...filteredEnd(shape, model)]);
    response.end();
  },
  /** Nothing at all between the start and the end. */
  empty: ({ shape, stream }, response) => {
    if (!stream) return sendJson(response, 200, '');
    begin(response, shape === 'chat' ? ['data: [DONE]\n\n'] : []);
    response.end();
  },
};

/** Whether the last message is the assistant's own: the caller asks to go on from there. */
export function prefillOf({ body }: Call): string | null {
  const list = (body.messages ?? body.input) as { role?: string; content?: unknown }[] | undefined;
  const last = Array.isArray(list) ? list.at(-1) : undefined;
  if (last?.role !== 'assistant') return null;
  if (typeof last.content === 'string') return last.content;
  return Array.isArray(last.content) ? last.content.map((part: { text?: string }) => part.text ?? '').join('') : '';
}

export interface FaultyUpstream extends FakeUpstream {
  /** Calls of a model's name so far. */
  callsOf(model: string): number;
  /** Every call, in order. */
  readonly calls: Call[];
  /** Calls whose answers have neither ended nor been given up. */
  readonly pending: number;
}

/** `answer` handles models of other names. */
export async function startFaulty(
  answer?: (call: Call, response: ServerResponse, request: Received) => void,
): Promise<FaultyUpstream> {
  const counts = new Map<string, number>();
  let pending = 0;
  const calls: Call[] = [];
  const upstream = await startUpstream((request, response) => {
    pending += 1;
    response.on('close', () => {
      pending -= 1;
    });
    const shape = SHAPES.find(([path]) => request.path.endsWith(path))?.[1];
    if (shape === undefined) return sendJson(response, 404, { error: { message: 'no such path', type: 'x' } });
    const body = JSON.parse(request.body.toString('utf8')) as Record<string, unknown>;
    const model = String(body.model);
    const call: Call = { shape, stream: body.stream === true, model, body };
    calls.push(call);
    const n = (counts.get(model) ?? 0) + 1;
    counts.set(model, n);
    const [name = '', rest] = model.split('.');
    const fault = FAULTS[name];
    if (fault !== undefined && !(rest?.startsWith('x') && n > Number(rest.slice(1)))) return fault(call, response);
    if (answer !== undefined && fault === undefined && name !== 'good') return answer(call, response, request);
    const prefill = prefillOf(call);
    if (prefill !== null && model.includes('picky')) return refuse(400, 'invalid_request_error')(call, response);
    const text = PIECES.join('');
    const pieces =
      prefill === null || !text.startsWith(prefill) ? PIECES : (text.slice(prefill.length).match(/\s*\S+/g) ?? []);
    if (!call.stream) return sendJson(response, 200, whole(shape, model, pieces.join('')));
    const { start, content, end } = streamed(shape, model, pieces);
    begin(response, [...start, ...content, ...end]);
    response.end();
  });
  Object.defineProperty(upstream, 'pending', { get: () => pending });
  return Object.assign(upstream as FaultyUpstream, { callsOf: (model: string) => counts.get(model) ?? 0, calls });
}
