/** What guardrails of the input phase judge: the request as the provider would get it. */

import { isUtf8 } from 'node:buffer';
import type { Subject } from '../../guardrails/check.ts';
import type { Change } from '../../guardrails/run.ts';
import { isObject } from '../../kernel/json.ts';
import { JsonScanError, type ScanResult, scanJson } from '../../kernel/json-scan.ts';
import type { RequestBody } from '../state/body.ts';
import { contentType, WANTED } from '../steps/read-body.ts';
import type { InputView, JudgedRequest } from './judged-request.ts';
import {
  applyReplacements,
  FormBody,
  formFields,
  hasTwins,
  latestRequestText,
  ReplacementError,
  requestTexts,
  type SaidPart,
} from './texts.ts';

type Messages = 'all' | 'new' | 'last';

/** What is sent in place of what was judged. */
export interface ChangedBody {
  readonly bytes: Buffer;
  /** It was read and written as JSON; otherwise it is the form or the text that it was. */
  readonly json: boolean;
  /** Null where the body was not scanned before. */
  readonly scan: ScanResult | null;
}

/** A request that is judged, and may be changed. Its body is parsed at once: who judges beside it may outlive its bytes. */
export class GuardedRequest {
  readonly #request: JudgedRequest;
  readonly #base: unknown;
  readonly #reads: boolean;
  readonly #views = new Map<Messages, Subject>();
  #seen: Change | null = null;

  /** @param outlives whether somebody may still judge it when the request is over and its bytes are another's */
  constructor(request: JudgedRequest, view: InputView, outlives: boolean) {
    this.#request = request;
    this.#reads = view === 'texts';
    const base = bodyOf(request);
    if (!outlives) this.#base = base;
    else if (base instanceof FormBody) this.#base = new FormBody(Buffer.from(base.bytes), base.contentType);
    else this.#base = Buffer.isBuffer(base) ? Buffer.from(base) : base;
  }

  /** The subject as a guardrail with this choice of messages sees it after a change. */
  readonly view = (messages: Messages, change: Change | null): Subject => {
    if (change !== this.#seen) {
      this.#views.clear();
      this.#seen = change;
    }
    let subject = this.#views.get(messages);
    if (subject === undefined) {
      subject = this.#subject(messages, change);
      this.#views.set(messages, subject);
    }
    return subject;
  };

  #subject(messages: Messages, change: Change | null): Subject {
    const { operation, target, otherModels, streams, metadata, address, header } = this.#request;
    const body = this.#changed(change);
    const json = body instanceof FormBody || Buffer.isBuffer(body) ? undefined : body;
    let texts: readonly SaidPart[] | null = this.#reads ? null : [];
    const said = () => requestTexts(operation, body, messages);
    return {
      phase: 'input',
      window: null,
      // Checks of requests ask for none.
      get texts() {
        texts ??= messages === 'last' ? said() : [...said(), ...address()];
        return texts;
      },
      latest: () => (this.#reads ? latestRequestText(operation, body) : ''),
      request: () => json,
      ...(body instanceof FormBody ? { form: () => formFields(body) } : null),
      answer: () => undefined,
      callsTools: false,
      model: target.model === '' ? null : target.model,
      otherModels,
      provider: target.provider,
      requestType: operation.requestType,
      streams,
      transformed: change !== null,
      status: null,
      metadata,
      header,
    };
  }

  #changed(change: Change | null): unknown {
    if (change === null) return this.#base;
    const { replaced, replacements } = change;
    if (replaced !== undefined && (!isObject(this.#base) || this.#base instanceof FormBody)) {
      throw new ReplacementError('The body of this request is no JSON object, which another could replace.');
    }
    const base = replaced ?? this.#base;
    return replacements.length === 0 ? base : applyReplacements(this.#request.operation, base, replacements);
  }

  /**
   * The changed request. Where it goes, and whether it streams, was decided before. Throws `ReplacementError` where it cannot be
   * sent.
   */
  changed(change: Change): ChangedBody {
    const body = this.#changed(change);
    if (body instanceof FormBody) return { bytes: body.bytes, json: false, scan: null };
    if (Buffer.isBuffer(body)) return { bytes: body, json: false, scan: null };
    const text = JSON.stringify(isObject(body) && isObject(this.#base) ? pinned(body, this.#base) : body);
    const bytes = Buffer.from(text);
    return { bytes, json: true, scan: this.#request.body.scan === null ? null : scanned(bytes) };
  }
}

/** A webhook can make a body that no caller may send. */
function scanned(body: Buffer): ScanResult {
  try {
    return scanJson(body, WANTED);
  } catch (error) {
    if (error instanceof JsonScanError) throw new ReplacementError(`${error.message}.`);
    throw error;
  }
}

/** Members that the request was routed and limited by stay what they were. */
function pinned(body: Record<string, unknown>, base: Record<string, unknown>): Record<string, unknown> {
  const out = { ...body };
  for (const name of ['model', 'stream']) {
    if (Object.hasOwn(base, name)) out[name] = base[name];
    else delete out[name];
  }
  return out;
}

/** As it is sent: with what the config adds and takes away, which a caller's own config may. */
function bodyOf({ body, operation, header, shaping }: JudgedRequest): unknown {
  const { bytes, scan } = body;
  if (bytes.length === 0) return undefined;
  const type = contentType(header('content-type'));
  if (operation.body === 'multipart' || (type === 'multipart/form-data' && scan === null)) {
    return new FormBody(bytes, header('content-type') ?? '');
  }
  if (type !== 'application/json' && scan === null) return undefined;
  return scan === null ? looseJson(body) : body.under(shaping);
}

/** A body that passes through and is no JSON object, parsed; its bytes where readers may find different things in it. */
function looseJson(body: RequestBody): unknown {
  const { bytes } = body;
  try {
    return isUtf8(bytes) && !hasTwins(bytes.toString('utf8')) ? body.value() : bytes;
  } catch {
    return bytes;
  }
}
