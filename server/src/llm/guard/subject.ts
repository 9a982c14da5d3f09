/** What guardrails of the input phase judge: the request as the provider would get it. */

import { isUtf8 } from 'node:buffer';
import type { Subject } from '../../guardrails/check.ts';
import type { Change } from '../../guardrails/run.ts';
import { isObject } from '../../kernel/json.ts';
import { JsonScanError, type ScanResult, scanJson } from '../../kernel/json-scan.ts';
import { estimateUse, expectUse } from '../estimate.ts';
import type { Exchange, Uses } from '../exchange.ts';
import { modelUnder } from '../shaping.ts';
import { RequestBody } from '../state/body.ts';
import { contentType, WANTED } from '../steps/read-body.ts';
import { addressModel, addressTexts } from './address.ts';
import type { InputView } from './enforceability.ts';
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

/** A request that is judged, and may be changed. Its body is parsed at once: who judges beside it may outlive its bytes. */
export class GuardedRequest {
  readonly #x: Exchange;
  readonly #base: unknown;
  readonly #reads: boolean;
  readonly #views = new Map<Messages, Subject>();
  #seen: Change | null = null;

  /** @param outlives whether somebody may still judge it when the request is over and its bytes are another's */
  constructor(x: Exchange, view: InputView, outlives: boolean) {
    this.#x = x;
    this.#reads = view === 'texts';
    const base = bodyOf(x);
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
    const x = this.#x;
    const body = this.#changed(change);
    const json = body instanceof FormBody || Buffer.isBuffer(body) ? undefined : body;
    let texts: readonly SaidPart[] | null = this.#reads ? null : [];
    const said = () => requestTexts(x.request.operation, body, messages);
    return {
      phase: 'input',
      window: null,
      // Checks of requests ask for none.
      get texts() {
        texts ??= messages === 'last' ? said() : [...said(), ...addressTexts(x.request)];
        return texts;
      },
      latest: () => (this.#reads ? latestRequestText(x.request.operation, body) : ''),
      request: () => json,
      ...(body instanceof FormBody ? { form: () => formFields(body) } : null),
      answer: () => undefined,
      callsTools: false,
      model: modelOf(x),
      otherModels: otherModels(x),
      provider: x.attempt.target?.provider.id ?? null,
      requestType: x.request.operation.requestType,
      streams: x.attempt.stream,
      transformed: change !== null,
      status: null,
      metadata: x.request.metadata ?? {},
      header: (name) => x.request.header(name),
    };
  }

  #changed(change: Change | null): unknown {
    if (change === null) return this.#base;
    const { replaced, replacements } = change;
    if (replaced !== undefined && (!isObject(this.#base) || this.#base instanceof FormBody)) {
      throw new ReplacementError('The body of this request is no JSON object, which another could replace.');
    }
    const base = replaced ?? this.#base;
    return replacements.length === 0 ? base : applyReplacements(this.#x.request.operation, base, replacements);
  }

  /**
   * Makes the changed request the one that is sent and counted. Where it goes, and whether it streams, was decided before.
   * Throws `ReplacementError` where it cannot be sent.
   */
  apply(change: Change): void {
    const x = this.#x;
    const body = this.#changed(change);
    if (body instanceof FormBody) x.attempt.body = new RequestBody(body.bytes, null);
    else if (Buffer.isBuffer(body)) x.attempt.body = new RequestBody(body, x.attempt.body.scan);
    else {
      const bytes = Buffer.from(
        JSON.stringify(isObject(body) && isObject(this.#base) ? pinned(body, this.#base) : body),
      );
      x.attempt.body = new RequestBody(bytes, x.attempt.body.scan === null ? null : scanned(bytes));
      x.attempt.shaped = true;
    }
    if (x.limits.reserved === null) return;
    const estimate = estimateUse(x);
    x.limits.reserved = { ...x.limits.reserved, estimate };
    expectUse(x, estimate);
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
function bodyOf(x: Uses<'attempt' | 'request'>): unknown {
  const { body } = x.attempt;
  if (body.bytes.length === 0) return undefined;
  const type = contentType(x.request.header('content-type'));
  if (x.request.operation.body === 'multipart' || (type === 'multipart/form-data' && body.scan === null)) {
    return new FormBody(body.bytes, x.request.header('content-type') ?? '');
  }
  if (type !== 'application/json' && body.scan === null) return undefined;
  return body.scan === null ? looseJson(body) : x.attempt.value();
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

/** Beside that: what the address names, and a deployment of the caller's choice. */
function otherModels(x: Uses<'attempt' | 'request'>): readonly string[] {
  const {
    attempt: { target },
  } = x;
  const named = [addressModel(x.request), target?.chosen ?? null];
  return named.filter((name) => name !== null);
}

/** The model that will be asked: a config may name another than the request. */
function modelOf(x: Uses<'attempt' | 'request'>): string | null {
  const model = modelUnder(x.attempt.target?.shaping ?? null, x.request.model);
  return model === '' ? null : model;
}
