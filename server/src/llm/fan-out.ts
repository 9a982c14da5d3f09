/** Calls of a request whose provider takes one thing at a time: made side by side, answered as one. */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import type { Binding } from '../providers/provider.ts';
import { headerOf } from './relay/response-inspection.ts';

/** Under way at once. */
const AT_ONCE = 8;
/** All answers together. */
const MAX_BYTES = 64 * 1024 * 1024;
const JSON_TYPE: readonly string[] = ['content-type', 'application/json'];

/** What belongs to one of the calls. */
export interface FanOutCall {
  readonly path: string;
  readonly body: Buffer | null;
}

export interface FanOutOptions {
  readonly request: WireRequest;
  readonly calls: readonly FanOutCall[];
  readonly binding: Binding;
  /** Completes the headers of one call; null where they are complete. */
  readonly sign: ((request: WireRequest) => Promise<void>) | null;
  readonly dispatch: (request: WireRequest, handler: WireHandler) => WireControl;
  /** The whole has failed: told before the failure is, with the answers that had come. */
  readonly lost: (answers: readonly JsonObject[]) => void;
}

/**
 * Makes the calls and gives `handler` one answer: that of all of them joined, or the first that failed, which breaks off the
 * others.
 */
export function dispatchFanOut(options: FanOutOptions, handler: WireHandler): WireControl {
  const { calls, binding } = options;
  const answers = new Array<JsonObject>(calls.length);
  const running = new Set<WireControl>();
  let next = 0;
  let left = calls.length;
  let bytes = 0;
  let over = false;

  const abort = (): void => {
    if (over) return;
    over = true;
    for (const control of running) control.abort();
    running.clear();
    const came = answers.filter((answer) => answer !== undefined);
    if (came.length > 0) options.lost(came);
  };
  // What arrives is small and kept whole: there is nothing to pause.
  const own: WireControl = { pause: () => undefined, resume: () => undefined, abort };

  function fail(error: unknown): void {
    if (over) return;
    abort();
    handler.onError(
      error instanceof SluiceError
        ? error
        : new SluiceError('upstream_unreachable', 'The provider could not be called.', { cause: error }),
    );
  }

  function refuse(status: number, headers: readonly string[], body: Buffer): void {
    abort();
    handler.onHead(status, headers, own);
    handler.onData(body);
    handler.onEnd();
  }

  function finish(): void {
    const joined = binding.fanOut?.join(answers);
    over = true;
    handler.onHead(200, JSON_TYPE, own);
    handler.onData(Buffer.from(JSON.stringify(joined)));
    handler.onEnd();
  }

  function collector(at: number): WireHandler & { control: WireControl | null } {
    const parts: Buffer[] = [];
    let status = 0;
    let head: readonly string[] = [];
    const one: WireHandler & { control: WireControl | null } = {
      control: null,
      onHead(code, headers) {
        status = code;
        head = headers;
      },
      onData(chunk) {
        bytes += chunk.length;
        parts.push(chunk);
        if (bytes > MAX_BYTES)
          fail(new SluiceError('upstream_invalid', 'The provider sent answers too large to join.'));
      },
      onEnd() {
        if (over) return;
        if (one.control !== null) running.delete(one.control);
        const body = Buffer.concat(parts);
        const without = at > 0 && binding.fanOut?.without?.(status) === true;
        if (!without && (status < 200 || status >= 300)) {
          refuse(status, head, body);
          return;
        }
        try {
          const answer = without ? {} : objectIn(body);
          answers[at] = binding.received?.(answer, (name) => headerOf(head, name)) ?? answer;
          left -= 1;
          if (left === 0) finish();
          else begin();
        } catch (error) {
          fail(error);
        }
      },
      onError: fail,
    };
    return one;
  }

  function begin(): void {
    const at = next++;
    const own = calls[at];
    if (over || own === undefined) return;
    const { path, body } = own;
    const headers = [...options.request.headers];
    const request = { ...options.request, path, headers, body: body === null ? null : [body] };
    const one = collector(at);
    const call = (): void => {
      if (over) return;
      try {
        one.control = options.dispatch(request, one);
        // The call may have failed at once, and everything with it.
        if (over) one.control.abort();
        else running.add(one.control);
      } catch (error) {
        fail(error);
      }
    };
    if (options.sign === null) call();
    else options.sign(request).then(call, fail);
  }

  for (let i = 0; i < AT_ONCE; i++) begin();
  return own;
}

function objectIn(body: Buffer): JsonObject {
  let answer: unknown = null;
  try {
    answer = parseExact(body.toString('utf8'));
  } catch {
    // Told below, together with JSON that is no object.
  }
  if (!isObject(answer))
    throw new SluiceError('upstream_invalid', 'The provider answered with something that is no JSON object.');
  return answer;
}
