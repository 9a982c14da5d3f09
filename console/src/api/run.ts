import { describeError } from './client.ts';
import { sseReader } from './sse.ts';

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  total_tokens?: number;
}

export interface RunError {
  /** HTTP status, or 0 when the failure came without one. */
  status: number;
  message: string;
  type?: string;
  code?: string;
  retryAfter?: string;
}

/** Everything known about one request so far. Durations in milliseconds, measured in this browser. */
export interface Run {
  phase: 'sending' | 'streaming' | 'done' | 'stopped' | 'failed';
  text: string;
  status: number | null;
  headers: [string, string][];
  traceId: string | null;
  requestId: string | null;
  firstTokenMs: number | null;
  totalMs: number | null;
  usage: Usage | null;
  error: RunError | null;
  /** The answer as it came, at most `RAW_LIMIT` characters. */
  raw: string;
}

const RAW_LIMIT = 200_000;

export const newRun = (): Run => ({
  phase: 'sending',
  text: '',
  status: null,
  headers: [],
  traceId: null,
  requestId: null,
  firstTokenMs: null,
  totalMs: null,
  usage: null,
  error: null,
  raw: '',
});

/**
 * Sends a request and follows its answer, streamed or not. Calls `onUpdate` with a new `Run` whenever something was
 * learnt, and ends in `done`, `stopped` (aborted by the reader) or `failed`; it does not throw.
 */
export async function follow(
  send: () => Promise<Response>,
  onUpdate: (run: Run) => void,
  now: () => number = () => performance.now(),
): Promise<Run> {
  const started = now();
  let run = newRun();
  const update = (patch: Partial<Run>) => {
    run = { ...run, ...patch };
    onUpdate(run);
  };
  const end = (patch: Partial<Run>) => {
    update({ ...patch, totalMs: now() - started });
    return run;
  };
  update({});
  try {
    const response = await send();
    const headers = [...response.headers];
    update({
      status: response.status,
      headers,
      traceId: response.headers.get('x-gateway-trace-id'),
      requestId: response.headers.get('x-gateway-request-id'),
    });
    if (!response.ok) {
      const raw = await response.text();
      const { message = `The gateway answered ${response.status}.`, type, code } = describeError(raw);
      const retryAfter = response.headers.get('retry-after') ?? undefined;
      return end({ phase: 'failed', raw, error: { status: response.status, message, type, code, retryAfter } });
    }
    if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
      const raw = await response.text();
      const answer = readChunk(raw);
      return end({ phase: 'done', raw, text: answer.text, usage: answer.usage, error: null });
    }

    let text = '';
    let usage = run.usage;
    let error: RunError | null = null;
    let complete = false;
    let firstTokenMs: number | null = null;
    const read = sseReader((data) => {
      if (data === '[DONE]') {
        complete = true;
        return;
      }
      const chunk = readChunk(data);
      if (chunk.text !== '') firstTokenMs ??= now() - started;
      text += chunk.text;
      usage = chunk.usage ?? usage;
      error = chunk.error ?? error;
    });
    update({ phase: 'streaming' });
    const decoder = new TextDecoder();
    let raw = '';
    // A reader and not `for await`: Safari learnt to iterate streams late.
    const reader = response.body?.getReader();
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) break;
      const piece = decoder.decode(part.value, { stream: true });
      if (raw.length < RAW_LIMIT) raw = (raw + piece).slice(0, RAW_LIMIT);
      read(piece);
      update({ text, usage, firstTokenMs, raw });
    }
    if (!error && !complete) {
      error = { status: 0, message: 'The stream ended before the answer was complete.', code: 'stream_cut' };
    }
    return end({ phase: error ? 'failed' : 'done', text, usage, error, firstTokenMs, raw });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === 'AbortError') return end({ phase: 'stopped' });
    const message =
      run.status === null && cause instanceof Error ? cause.message : 'The connection to Sluice was lost.';
    return end({ phase: 'failed', error: { status: 0, message } });
  }
}

/** What one chunk, or one whole answer, of a chat completion carries. Unknown shapes carry nothing. */
export function readChunk(json: string): { text: string; usage: Usage | null; error: RunError | null } {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    const message = 'The provider sent an event that is not JSON.';
    return { text: '', usage: null, error: { status: 0, message, code: 'invalid_event' } };
  }
  const body = (typeof value === 'object' && value !== null ? value : {}) as {
    error?: unknown;
    usage?: Usage | null;
    choices?: { delta?: { content?: unknown }; message?: { content?: unknown } }[];
  };
  if (body.error) {
    const { message = 'The provider failed while it answered.', type, code } = describeError(json);
    return { text: '', usage: null, error: { status: 0, message, type, code } };
  }
  const choice = Array.isArray(body.choices) ? body.choices[0] : undefined;
  const content = choice?.delta?.content ?? choice?.message?.content;
  return { text: typeof content === 'string' ? content : '', usage: body.usage ?? null, error: null };
}
