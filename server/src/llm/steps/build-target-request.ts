/** Builds the request that one target is sent. */

import { isForwardable } from '../../http/headers.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { ScanResult } from '../../kernel/json-scan.ts';
import { multipartParts, replaceFormField } from '../../kernel/multipart-scan.ts';
import { type Bound, prefillOf } from '../../providers/binding.ts';
import type { Binding, CallContext, FormValue, Prefill } from '../../providers/provider.ts';
import { signerOf } from '../../providers/sign-in.ts';
import { contextOf } from '../call-context.ts';
import type { Uses } from '../exchange.ts';
import type { FanOutCall } from '../fan-out.ts';
import { isLargeBody, makeBodyOnThread } from '../large/calls.ts';
import { pinOf, pinRefused } from '../provider-headers.ts';
import { resumablePrefix } from '../relay/retry-eligibility.ts';
import { prefixOf } from '../relay/stream-resume.ts';
import { type BodyOrder, editedBody, isEditedQuickly, type MadeBody, makeBody, partsOf } from '../request-body.ts';
import type { Prepared } from '../state/prepared.ts';
import type { LlmRequest } from '../state/request.ts';
import type { Target } from '../target.ts';

/** What is prepared for one target before its body is made. */
interface Beginning {
  readonly bound: Bound;
  readonly context: CallContext;
  readonly prefill: Prefill | null;
  /** See `Prepared.seen`; grows while transforms run. */
  readonly seen: string[];
}

/**
 * Makes what the target is sent: address, headers, and the body as its config and its shape make it. A promise where a
 * thread makes the body. Made anew where a stream that broke is continued, which then is part of what is asked.
 */
export function buildTargetRequest(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'outcome' | 'request', 'clock' | 'egress' | 'large'>,
): void | Promise<void> {
  const target = x.attempt.requireTarget();
  const begun = begin(x, target);
  const body = buildBody(x, target, begun);
  if (body instanceof Promise)
    return body.then((built) => {
      x.attempt.prepared = complete(x, target, begun, built);
    });
  x.attempt.prepared = complete(x, target, begun, body);
}

function begin(x: Uses<'attempt' | 'outcome' | 'request', 'clock'>, target: Target): Beginning {
  const seen: string[] = [];
  const context = contextOf(x, target, seen);
  const { model } = context;
  const bound = target.bind(x.request.operation.id, model);
  const prefill = resumablePrefix(x.outcome) === null ? null : prefillOf(bound.binding, model, target.credentials);
  return { bound, context, prefill, seen };
}

function complete(
  x: Uses<'attempt' | 'request', 'egress'>,
  target: Target,
  begun: Beginning,
  body: BuiltBody,
): Prepared {
  const { bound, context, prefill, seen } = begun;
  const signer = signerOf(target.provider, context);
  const headers: string[] = [];
  const contentType = body.converted ? 'application/json' : asRead(x.request.header('content-type'));
  if (body.parts !== null && contentType !== undefined) headers.push('content-type', contentType);
  headers.push(
    'accept',
    x.attempt.stream ? streamType(bound.binding) : (x.request.header('accept') ?? 'application/json'),
  );
  if (body.headers !== undefined) headers.push(...body.headers);
  target.provider.authorize(headers, context);
  pushCustom(headers, target.customHeaders);
  forward(x.request, target, headers);
  // One that the caller or the account names is sent as it is.
  const traceAt = target.propagates && !headers.includes('traceparent') ? headers.push('traceparent', '') - 1 : null;
  const path =
    x.request.operation.family === 'proxy'
      ? proxyPath(x.request, bound.binding, context)
      : withQuery(x.request, bound.binding, context);
  const storedCredential = target.stored !== null && (target.credentials.key !== null || signer !== null);
  const place = bound.binding.base === undefined ? target : placeOf(x, target, bound.binding, storedCredential);
  const prefix = prefill?.prefix?.(place.prefix) ?? place.prefix;
  return {
    request: {
      method: x.request.incoming.method ?? 'POST',
      origin: place.origin,
      path: prefix + path,
      headers,
      body: body.parts,
      organisationId: x.request.principal?.organisationId ?? '',
      storedCredential,
    },
    bound,
    context,
    stripUsage: body.stripUsage,
    traceAt,
    signer,
    seen: seen.length === 0 ? null : seen,
    fanOut:
      body.fanOut === true
        ? (body.parts ?? []).map((one) => ({ path: prefix + path, body: one }))
        : callsOf(bound, context, prefix, path),
    order: body.order ?? null,
    edited: body.edited === true,
    written: target.cache === null ? null : (body.written ?? null),
  };
}

/** A body of JSON was read as UTF-8, which is all it can be: the next reader must not read another. */
const asRead = (type: string | undefined): string | undefined =>
  type !== undefined && JSON_IN_A_CODING.test(type) ? 'application/json' : type;

const JSON_IN_A_CODING = /^\s*application\/json\s*;(?!\s*charset\s*=\s*"?utf-?8"?\s*$)/i;

const streamType = ({ framing }: Binding): string =>
  framing === 'aws-event-stream' ? 'application/vnd.amazon.eventstream' : 'text/event-stream';

/** Where an operation lies that has its own base URL; a custom host of the account stands for all of them. */
function placeOf(
  x: Uses<never, 'egress'>,
  target: Target,
  binding: Binding,
  storedCredential: boolean,
): Pick<Target, 'origin' | 'prefix'> {
  const base = binding.base?.(target.credentials) ?? null;
  if (base === null || target.elsewhere) return target;
  const { url } = x.services.egress.check(base, { storedCredential });
  return { origin: url.origin, prefix: url.pathname.replace(/\/+$/, '') };
}

/** The calls of a list that lies in several places. */
function callsOf({ binding, convert }: Bound, context: CallContext, prefix: string, path: string): FanOutCall[] | null {
  const more = convert === null ? binding.fanOut?.places?.(context) : undefined;
  return more === undefined ? null : [path, ...more].map((one) => ({ path: prefix + one, body: null }));
}

interface BuiltBody {
  readonly parts: Buffer[] | null;
  readonly converted: boolean;
  readonly stripUsage: boolean;
  readonly headers?: readonly string[] | undefined;
  /** Each part is the body of a separate call. */
  readonly fanOut?: boolean;
  /** See `Prepared`. */
  readonly order?: BodyOrder | null;
  readonly edited?: boolean;
  readonly written?: JsonObject | null;
}

function buildBody(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'outcome' | 'request', 'large'>,
  target: Target,
  begun: Beginning,
): BuiltBody | Promise<BuiltBody> {
  const { bound, context } = begun;
  const { binding } = bound;
  const { body } = x.attempt;
  if (body.bytes.length === 0) return { parts: null, converted: false, stripUsage: false };
  if (body.scan === null) {
    if (binding.form !== undefined && x.request.operation.body === 'multipart') {
      const made = binding.form(formOf(x), context);
      return { parts: [Buffer.from(JSON.stringify(made))], converted: true, stripUsage: false };
    }
    const parts =
      x.request.operation.body === 'multipart'
        ? replaceFormField(body.bytes, x.request.header('content-type') ?? '', 'model', context.model)
        : [body.bytes];
    return { parts, converted: false, stripUsage: false };
  }
  const order = orderOf(x, target, body.scan, begun);
  if (!isLargeBody(order)) return asBuilt(x, makeBody(order, bound, context));
  const edited = isEditedQuickly(order, bound) ? editedBody(order, bound, context) : null;
  if (edited !== null) return asBuilt(x, edited);
  return makeBodyOnThread(x, target, context, order, begun.seen).then(({ made, known }) => ({
    ...asBuilt(x, made),
    // A conversion asks for settings only; a provider's own transform may ask for documents.
    order: known && bound.convert !== null ? null : order,
  }));
}

function orderOf(
  x: Uses<'attempt' | 'outcome' | 'request'>,
  target: Target,
  scan: ScanResult,
  { prefill }: Beginning,
): BodyOrder {
  const shown = resumablePrefix(x.outcome);
  const explained = isExplained(x.request);
  return {
    operation: x.request.operation.id,
    body: x.attempt.body,
    scan,
    asked: x.request.model,
    deployment: x.request.params.deployment !== undefined,
    stream: x.attempt.stream,
    shaped: x.attempt.shaped,
    shaping: x.attempt.shaped ? null : target.shaping,
    media: x.attempt.media,
    shown: shown === null ? null : prefixOf(shown),
    prefill,
    explained,
    came: explained && x.attempt.shaped ? x.request.body : null,
  };
}

function asBuilt(x: Uses<'attempt' | 'outcome'>, made: MadeBody): BuiltBody {
  if (made.changes !== null) x.outcome.fieldChanges = made.changes;
  const { edits, stripUsage, headers, fanOut, written } = made;
  const parts = partsOf(made, x.attempt.body.bytes);
  return { parts, converted: edits === null, stripUsage, headers, fanOut, edited: edits !== null, written };
}

function formOf(x: Uses<'attempt' | 'request'>): FormValue[] {
  const parts = [...multipartParts(x.attempt.body.bytes, x.request.header('content-type') ?? '')];
  return parts.map(({ name, filename, contentType, start, end }) => ({
    name,
    filename,
    contentType,
    bytes: x.attempt.body.bytes.subarray(start, end),
  }));
}

/** The record of a request under a config tells what became of its body. */
export function isExplained({ plan, incoming: request }: LlmRequest): boolean {
  return plan?.config != null || request.headers['x-gateway-config'] !== undefined;
}

/** A gateway key in whatever header: it never leaves. */
const GATEWAY_KEY = /slc_(?:org|wks|usr|opr|dep)_/;

/** Headers the request or the config names to pass on; never over a credential, a hop-by-hop or a gateway header. */
export function forward(request: LlmRequest, target: Target, headers: string[]): void {
  const fromRequest = request.header('x-gateway-forward-headers');
  if (fromRequest === undefined && target.forwardHeaders.length === 0) return;
  const taken = new Set<string>();
  for (let i = 0; i < headers.length; i += 2) taken.add(headers[i] ?? '');
  for (const name of [...target.forwardHeaders, ...(fromRequest === undefined ? [] : parseNames(fromRequest))]) {
    const lower = name.trim().toLowerCase();
    const verdict = isForwardable(lower);
    if (verdict === 'refused')
      throw new SluiceError(
        'malformed_call',
        `The header ${lower} must not be forwarded; remove it from x-gateway-forward-headers.`,
      );
    const value = request.header(lower);
    // A stored credential is never replaced; with the caller's own, the header would only repeat what is sent anyway.
    if (verdict === 'never' || lower === request.credentialHeader || taken.has(lower) || value === undefined) continue;
    if (GATEWAY_KEY.test(value)) continue;
    const pin = target.stored === null ? undefined : pinOf(lower);
    const held = pin === undefined ? undefined : target.credentials.settings[pin];
    if (pin !== undefined && held !== undefined && held !== value) throw pinRefused(target.stored?.slug ?? '', pin);
    taken.add(lower);
    headers.push(lower, value);
  }
}

/** Headers of the account. One that also is a setting was pushed with the setting's value already, and is sent once. */
function pushCustom(headers: string[], custom: readonly string[]): void {
  for (let i = 0; i + 1 < custom.length; i += 2) {
    const name = custom[i] ?? '';
    if (pinOf(name) === undefined || !headers.includes(name)) headers.push(name, custom[i + 1] ?? '');
  }
}

function parseNames(text: string): string[] {
  if (!text.trimStart().startsWith('[')) return text.split(',').filter((name) => name.trim() !== '');
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return value;
  } catch {
    // Told below.
  }
  throw new SluiceError(
    'malformed_call',
    'x-gateway-forward-headers must be a comma-separated list or a JSON array of header names.',
  );
}

/**
 * Path and query after `/v1`, unchanged save for parameters that the binding decides on; `/v1/proxy` forces pass-through of
 * what follows it.
 */
function proxyPath(request: LlmRequest, binding: Binding, context: CallContext): string {
  const given = (request.incoming.url ?? '').slice('/v1'.length);
  const url = given.startsWith('/proxy/') ? given.slice('/proxy'.length) : given;
  if (binding.ownParameters === undefined) return url;
  const [path = '', query = ''] = url.split('?', 2);
  const [, own = ''] = binding.path(context).split('?', 2);
  const all = [own, withoutParameters(query, binding.ownParameters)].filter((part) => part !== '').join('&');
  return all === '' ? path : `${path}?${all}`;
}

/** The path of a binding with the caller's query behind it, or behind the one that the path has. */
function withQuery(request: LlmRequest, binding: Binding, context: CallContext): string {
  const path = binding.path(context);
  const url = request.incoming.url ?? '';
  const at = url.indexOf('?');
  if (at === -1 || binding.ownQuery === true) return path;
  // A version that clients of Azure OpenAI send means nothing to other providers.
  const own = binding.ownParameters ?? (request.params.deployment === undefined ? undefined : API_VERSION);
  const query = withoutParameters(url.slice(at + 1), own);
  return query === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${query}`;
}

const API_VERSION: ReadonlySet<string> = new Set(['api-version']);

function withoutParameters(query: string, names: ReadonlySet<string> | undefined): string {
  if (names === undefined) return query;
  return query
    .split('&')
    .filter((part) => !names.has(part.split('=', 1)[0] ?? ''))
    .join('&');
}
