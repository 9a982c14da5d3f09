/** One upstream call: build the request, send it, bound its time, and hand the answer to a relay. */
import { isForwardable } from '../http/headers.ts';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { type Splice, spliceParts } from '../kernel/json-scan.ts';
import { multipartParts, replaceFormField } from '../kernel/multipart-scan.ts';
import { holdsQuoted } from '../kernel/quoted-texts.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import { withoutCallExtras } from '../operations/convert/chat-calls.ts';
import { type Bound, prefillOf } from '../providers/binding.ts';
import type { Binding, CallContext, FormValue, Prefill, Signer } from '../providers/provider.ts';
import { signerOf } from '../providers/sign-in.ts';
import type { FieldChanges } from '../telemetry/decision-facts.ts';
import { type Access, accessOf } from './access.ts';
import { type ApartCall, dispatchApart } from './apart.ts';
import { usageOfParts } from './apart-usage.ts';
import { causeOf, rounded } from './attempt-cause.ts';
import type { Exchange } from './exchange.ts';
import { changesBetween } from './field-changes.ts';
import { HedgedCall } from './hedge.ts';
import { callLocal } from './local-call.ts';
import { withMedia } from './media.ts';
import { pinOf, pinRefused } from './provider-headers.ts';
import type { AttemptResult } from './relay/answered.ts';
import { goingOn, withPrefill } from './relay/join.ts';
import { Relay } from './relay/relay.ts';
import { goesOnFrom } from './relay/rescue.ts';
import { modelUnder, shape } from './shaping.ts';
import { shapingEdits } from './splice-shaping.ts';
import type { Target } from './target.ts';

/** The request as it would go upstream, also for a dry run. */
export interface Prepared {
  readonly request: WireRequest;
  readonly bound: Bound;
  readonly context: CallContext;
  readonly stripUsage: boolean;
  /** Signs each attempt; null for accounts whose headers are complete. */
  readonly signer: Signer | null;
  /** Headers of the caller that were looked at for it, `name, value`; null when there were none. */
  readonly seen: readonly string[] | null;
  /** The calls that the request is made in; null: one. */
  readonly apart: readonly ApartCall[] | null;
}

// Ends the name `extra_content`. Begun with a letter or a quote, the search would stop at each one: 240 µs in 100 KB, not 1.
const EXTRA = Buffer.from('_content"');
const INCLUDE_USAGE = Buffer.from('"stream_options":{"include_usage":true}');

export function prepare(x: Exchange, target: Target): Prepared {
  const model = target.sends(x.model);
  const bound = target.bind(x.operation.id, model);
  let seen: string[] | null = null;
  const context: CallContext = {
    operation: x.operation.id,
    model,
    stream: x.stream,
    credentials: target.credentials,
    pathParams: x.params,
    header(name) {
      const value = x.header(name) ?? x.header(`x-gateway-${name}`);
      if (value !== undefined) {
        seen ??= [];
        seen.push(name, value);
      }
      return value;
    },
    strict: target.strict,
    elsewhere: target.elsewhere,
    now: () => x.services.clock.now(),
    requestId: x.id,
  };
  const prefill = goesOnFrom(x) === null ? null : prefillOf(bound.binding, model, target.credentials);
  const body = buildBody(x, target, bound, context, prefill);
  const signer = signerOf(target.provider, context);
  const headers: string[] = [];
  const contentType = body.converted ? 'application/json' : asRead(x.header('content-type'));
  if (body.parts !== null && contentType !== undefined) headers.push('content-type', contentType);
  headers.push('accept', x.stream ? streamType(bound.binding) : (x.header('accept') ?? 'application/json'));
  if (body.headers !== undefined) headers.push(...body.headers);
  target.provider.authorize(headers, context);
  pushCustom(headers, target.customHeaders);
  forward(x, target, headers);
  const path = x.operation.id === 'proxy' ? proxyPath(x, bound.binding, context) : withQuery(x, bound.binding, context);
  const storedCredential = target.stored !== null && (target.credentials.key !== null || signer !== null);
  const place = bound.binding.base === undefined ? target : placeOf(x, target, bound.binding, storedCredential);
  const prefix = prefill?.prefix?.(place.prefix) ?? place.prefix;
  return {
    request: {
      method: x.request.method ?? 'POST',
      origin: place.origin,
      path: prefix + path,
      headers,
      body: body.parts,
      organisationId: x.principal?.organisationId ?? '',
      storedCredential,
    },
    bound,
    context,
    stripUsage: body.stripUsage,
    signer,
    seen,
    apart:
      body.apart === true
        ? (body.parts ?? []).map((one) => ({ path: prefix + path, body: one }))
        : callsOf(bound, context, prefix, path),
  };
}

/** A body of JSON was read as UTF-8, which is all it can be: whoever reads it next must not read another. */
const asRead = (type: string | undefined): string | undefined =>
  type !== undefined && JSON_IN_A_CODING.test(type) ? 'application/json' : type;

const JSON_IN_A_CODING = /^\s*application\/json\s*;(?!\s*charset\s*=\s*"?utf-?8"?\s*$)/i;

const streamType = ({ framing }: Binding): string =>
  framing === 'aws-event-stream' ? 'application/vnd.amazon.eventstream' : 'text/event-stream';

/** Where an operation lies that has a base URL of its own; a custom host of the account stands for all of them. */
function placeOf(
  x: Exchange,
  target: Target,
  binding: Binding,
  storedCredential: boolean,
): Pick<Target, 'origin' | 'prefix'> {
  const base = binding.base?.(target.credentials) ?? null;
  if (base === null || target.elsewhere) return target;
  const { url } = x.services.guard.check(base, { storedCredential });
  return { origin: url.origin, prefix: url.pathname.replace(/\/+$/, '') };
}

/** The calls of a list that lies in several places. */
function callsOf({ binding, convert }: Bound, context: CallContext, prefix: string, path: string): ApartCall[] | null {
  const more = convert === null ? binding.apart?.places?.(context) : undefined;
  return more === undefined ? null : [path, ...more].map((one) => ({ path: prefix + one, body: null }));
}

interface BuiltBody {
  readonly parts: Buffer[] | null;
  readonly converted: boolean;
  readonly stripUsage: boolean;
  readonly headers?: readonly string[] | undefined;
  /** Each part is the body of a call of its own. */
  readonly apart?: boolean;
}

function buildBody(
  x: Exchange,
  target: Target,
  bound: Bound,
  context: CallContext,
  prefill: Prefill | null,
): BuiltBody {
  const { binding, convert } = bound;
  if (x.body.length === 0) return { parts: null, converted: false, stripUsage: false };
  if (x.scan === null) {
    if (binding.form !== undefined && x.operation.body === 'multipart') {
      const body = binding.form(formOf(x), context);
      return { parts: [Buffer.from(JSON.stringify(body))], converted: true, stripUsage: false };
    }
    const parts =
      x.operation.body === 'multipart'
        ? replaceFormField(x.body, x.header('content-type') ?? '', 'model', context.model)
        : [x.body];
    return { parts, converted: false, stripUsage: false };
  }
  const addUsage = x.stream && knowsUsageOption(binding, context) && wantsNoUsage(x);
  const shaping = x.shaped ? null : target.shaping;
  const shown = goesOnFrom(x);
  const foreign = holdsForeignExtras(x, target, bound);
  const untouched = shown === null && !foreign && (bound.request === undefined || isUntouched(x, bound));
  const shaped = untouched ? shapingEdits(x, shaping, bound.request && binding.requestTouches) : null;
  if (shaped !== null) {
    if (isExplained(x)) x.changed = splicedChanges(x, context.model, addUsage, shaped.changes);
    return { parts: splice(x, context.model, addUsage, shaped.edits), converted: false, stripUsage: addUsage };
  }
  const parsed = parseExact(x.body.toString('utf8'));
  if (!isObject(parsed)) throw new SluiceError('bad_call', 'The body must be a JSON object.');
  let body: JsonObject = shaping === null ? parsed : shape(parsed, shaping);
  if (foreign) body = withoutCallExtras(body);
  if (binding.inlines !== undefined) body = withMedia(x, body, binding.inlines);
  if (typeof body.model === 'string' || context.model !== '') body = { ...body, model: context.model };
  if (shown !== null) body = goingOn(x.operation.shape, body, shown);
  if (convert === null && addUsage)
    body = {
      ...body,
      stream_options: { ...(isObject(body.stream_options) ? body.stream_options : {}), include_usage: true },
    };
  // What a conversion makes of it is another body altogether: told is what the config does.
  const own = body;
  const headers = convert === null ? binding.headers?.(body, context) : undefined;
  const things = convert === null ? (binding.apart?.split?.(body, context) ?? null) : null;
  if (things !== null) {
    const parts = things.map((one) => Buffer.from(JSON.stringify(bound.request?.(one, context) ?? one)));
    return { parts, converted: true, stripUsage: false, headers, apart: true };
  }
  if (bound.request !== undefined) body = bound.request(body, context);
  if (prefill !== null) body = withPrefill(body, prefill);
  const stripUsage = addUsage && convert === null;
  if (isExplained(x)) x.changed = changesBetween(bodyAsItCame(x) ?? parsed, convert === null ? body : own);
  return { parts: [Buffer.from(JSON.stringify(body))], converted: true, stripUsage, headers };
}

function formOf(x: Exchange): FormValue[] {
  const parts = [...multipartParts(x.body, x.header('content-type') ?? '')];
  return parts.map(({ name, filename, contentType, start, end }) => ({
    name,
    filename,
    contentType,
    bytes: x.body.subarray(start, end),
  }));
}

/** The record of a request under a config tells what became of its body. */
export function isExplained({ plan, request }: Exchange): boolean {
  return plan?.config != null || request.headers['x-gateway-config'] !== undefined;
}

/** The caller's own body, where guardrails have put another one in its place; null: it still stands. */
function bodyAsItCame({ shaped, walk, came }: Exchange): JsonObject | null {
  const bytes = shaped ? (walk?.body ?? came) : null;
  const parsed = bytes === null ? null : parseExact(bytes.toString('utf8'));
  return isObject(parsed) ? parsed : null;
}

/** What `splice` changes, beside what guardrails and `shaped` have. */
function splicedChanges(x: Exchange, model: string, addUsage: boolean, shaped: FieldChanges): FieldChanges {
  const before = bodyAsItCame(x);
  const now = before === null ? null : parseExact(x.body.toString('utf8'));
  const { added, dropped, overridden } =
    before !== null && isObject(now) ? changesBetween(before, { ...now, model }) : shaped;
  const replaced = before === null && x.scan?.get('model') !== undefined && model !== x.model;
  const named = before === null && x.scan?.get('model') === undefined && model !== '';
  if (!replaced && !named && !addUsage) return { added, dropped, overridden };
  const options = addUsage && x.scan?.get('stream_options') === undefined;
  return {
    added: [...added, ...(named ? ['model'] : []), ...(options ? ['stream_options'] : [])],
    dropped,
    overridden: [...overridden, ...(replaced ? ['model'] : []), ...(addUsage && !options ? ['stream_options'] : [])],
  };
}

/**
 * Whether calls in the history carry what only the provider that made them wants back: others refuse fields they do not
 * know. A chat provider at a host of the caller's choice may be the one that made them.
 */
function holdsForeignExtras(x: Exchange, target: Target, { binding, convert }: Bound): boolean {
  if (convert !== null || x.operation.family !== 'C' || x.body.indexOf(EXTRA) === -1) return false;
  if (binding.target?.extensions?.has('extra_content') === true) return false;
  return binding.shape !== 'chat' || !target.elsewhere;
}

/** Whether the provider's own transform would leave this body as it is. */
function isUntouched(x: Exchange, { binding, convert }: Bound): boolean {
  return convert === null && binding.requestTouches !== undefined && !holdsQuoted(x.body, binding.requestTouches);
}

function knowsUsageOption({ streamUsageOption: known }: Binding, context: CallContext): boolean {
  return typeof known === 'function' ? known(context) : known === true;
}

/** The caller did not ask for usage in the stream: no `stream_options`, or one without `include_usage: true`. */
function wantsNoUsage(x: Exchange): boolean {
  const range = x.scan?.get('stream_options');
  if (range === undefined || range.kind === 'null') return true;
  if (range.kind !== 'object') return false;
  const value: unknown = JSON.parse(x.body.toString('utf8', range.start, range.end));
  return !isObject(value) || value.include_usage !== true;
}

/** The caller's bytes with only `model`, `stream_options` and what the config says touched, and those only where they must be. */
function splice(x: Exchange, model: string, addUsage: boolean, shaped: readonly Splice[]): Buffer[] {
  const { scan } = x;
  const edits = [...shaped];
  const range = scan?.get('model');
  if (range?.kind === 'string') {
    // What differs from what the provider knows: `@slug/model`, the name of a deployment, a model named in the path. A
    // body that was shaped for another target may name that one's model.
    if (x.body[range.start + 1] === 64 || x.shaped || model !== x.model || x.params.deployment !== undefined)
      edits.push({ start: range.start, end: range.end, bytes: Buffer.from(JSON.stringify(model)) });
  } else if (range === undefined && model !== '' && scan !== null) {
    const bytes = `"model":${JSON.stringify(model)}${scan.empty ? '' : ','}`;
    edits.push({ start: scan.insertAt, end: scan.insertAt, bytes: Buffer.from(bytes) });
  }
  if (addUsage && scan !== null) {
    const options = scan.get('stream_options');
    if (options === undefined) {
      const bytes = scan.empty ? INCLUDE_USAGE : Buffer.concat([INCLUDE_USAGE, Buffer.from(',')]);
      edits.push({ start: scan.insertAt, end: scan.insertAt, bytes });
    } else {
      const value: unknown = JSON.parse(x.body.toString('utf8', options.start, options.end));
      edits.push({
        start: options.start,
        end: options.end,
        bytes: Buffer.from(JSON.stringify({ ...(isObject(value) ? value : {}), include_usage: true })),
      });
    }
  }
  return edits.length === 0 ? [x.body] : spliceParts(x.body, edits);
}

/** A gateway key in whatever header: it never leaves. */
const GATEWAY_KEY = /slc_(?:org|wks|usr|opr)_/;

/** Headers the request or the config names to pass on; never over a credential, a hop-by-hop or a gateway header. */
export function forward(x: Exchange, target: Target, headers: string[]): void {
  const fromRequest = x.header('x-gateway-forward-headers');
  if (fromRequest === undefined && target.forwardHeaders.length === 0) return;
  const taken = new Set<string>();
  for (let i = 0; i < headers.length; i += 2) taken.add(headers[i] ?? '');
  for (const name of [...target.forwardHeaders, ...(fromRequest === undefined ? [] : parseNames(fromRequest))]) {
    const lower = name.trim().toLowerCase();
    const verdict = isForwardable(lower);
    if (verdict === 'refused')
      throw new SluiceError(
        'bad_call',
        `The header ${lower} must not be forwarded; remove it from x-gateway-forward-headers.`,
      );
    const value = x.header(lower);
    // A stored credential is never replaced; with the caller's own, the header would only repeat what is sent anyway.
    if (verdict === 'never' || lower === x.credentialHeader || taken.has(lower) || value === undefined) continue;
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
    'bad_call',
    'x-gateway-forward-headers must be a comma-separated list or a JSON array of header names.',
  );
}

/**
 * Path and query after `/v1`, unchanged save for parameters that the binding decides on; `/v1/proxy` forces pass-through of
 * what follows it.
 */
function proxyPath(x: Exchange, binding: Binding, context: CallContext): string {
  const given = (x.request.url ?? '').slice('/v1'.length);
  const url = given.startsWith('/proxy/') ? given.slice('/proxy'.length) : given;
  if (binding.ownParameters === undefined) return url;
  const [path = '', query = ''] = url.split('?', 2);
  const [, own = ''] = binding.path(context).split('?', 2);
  const all = [own, withoutParameters(query, binding.ownParameters)].filter((part) => part !== '').join('&');
  return all === '' ? path : `${path}?${all}`;
}

/** The path of a binding with the caller's query behind it, or behind the one that the path has. */
function withQuery(x: Exchange, binding: Binding, context: CallContext): string {
  const path = binding.path(context);
  const url = x.request.url ?? '';
  const at = url.indexOf('?');
  if (at === -1 || binding.ownQuery === true) return path;
  // A version that clients of Azure OpenAI send means nothing to other providers.
  const own = binding.ownParameters ?? (x.params.deployment === undefined ? undefined : API_VERSION);
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

/** What an attempt failed with, unless its status says all there is to say. */
function errorOf(result: AttemptResult, status: number | null): string | null {
  if (result.kind === 'done') return null;
  if (result.kind === 'failed') return result.error.code ?? result.error.kind;
  const hidden = status !== null && status < 300;
  return hidden ? (result.error.code ?? result.error.type).slice(0, 100) : null;
}

/** What the attempt before used stays on the account of the target that it was sent to. */
export function setAside(x: Exchange): void {
  const { usage, target } = x;
  x.usage = null;
  if (usage === null || target === null) return;
  const spent = { usage, target, model: modelUnder(target.shaping, x.model), answered: x.modelAnswered };
  x.spent = [...(x.spent ?? []), spent];
}

/**
 * Sends a prepared request and resolves when its answer is complete, refused or lost. Never rejects. An account that
 * signs in does so first, within the same time; a token that the provider refuses is replaced once.
 */
export function attempt(x: Exchange, target: Target, prepared: Prepared): Promise<AttemptResult> {
  x.tries += 1;
  return prepared.signer === null
    ? send(x, target, prepared, null, target.timeoutMs)
    : signedAttempt(x, target, prepared, prepared.signer);
}

async function signedAttempt(x: Exchange, target: Target, prepared: Prepared, signer: Signer): Promise<AttemptResult> {
  const { clock } = x.services;
  const started = clock.monotonic();
  const access = accessOf(x, target);
  const first = await send(x, target, prepared, { signer, access }, target.timeoutMs);
  // AWS answers 403 where a session is over.
  const refused = first.kind === 'answered' && (first.status === 401 || first.error.type === 'authentication_error');
  if (!refused || x.headSent || x.clientGone || !access.drop()) return first;
  const left = target.timeoutMs === null ? null : target.timeoutMs - (clock.monotonic() - started);
  if (left !== null && left < 1) return first;
  return send(x, target, prepared, { signer, access: accessOf(x, target) }, left);
}

interface SignIn {
  readonly signer: Signer;
  readonly access: Access;
}

/** One call. `timeoutMs` is the time for all of it, signing in included. */
function send(
  x: Exchange,
  given: Target,
  prepared: Prepared,
  signIn: SignIn | null,
  timeoutMs: number | null,
): Promise<AttemptResult> {
  const { services } = x;
  const started = services.clock.monotonic();
  // An attempt that was broken off has used what it has used, whatever the next one answers.
  setAside(x);
  x.modelAnswered = null;
  if (!x.headSent) x.ttft = null;
  // What guardrails said of an answer that nobody gets is not told with the next one.
  if (x.guard !== null) x.guard.after = [];
  return new Promise((resolve) => {
    let cancelTimer: (() => void) | null = null;
    let control: WireControl | null = null;
    let settled = false;
    let hedged: HedgedCall | null = null;
    const sent: string[] = signIn === null ? [] : [...given.sent];
    const target = signIn === null ? given : given.sending(sent);
    const relay = new Relay({
      x,
      target,
      bound: prepared.bound,
      context: prepared.context,
      stripUsage: prepared.stripUsage,
      firstData: () => cancelTimer?.(),
      settle: (result) => {
        settled = true;
        cancelTimer?.();
        x.cancel = null;
        hedged?.settle();
        x.attempts.push({
          target: target.path,
          provider: target.provider.id,
          status: relay.status,
          error: errorOf(result, relay.status),
          cause: causeOf(x, result, relay.status),
          began_ms: rounded(started - x.started),
          ...relay.times.since(started),
          duration_ms: rounded(services.clock.monotonic() - started),
        });
        resolve(result);
      },
    });
    const cancel = (error: SluiceError) => {
      control?.abort();
      relay.cancel(error);
    };
    const fail = (error: unknown) =>
      relay.cancel(
        error instanceof SluiceError
          ? error
          : new SluiceError('upstream_unreachable', 'The provider could not be called.', { cause: error }),
      );
    x.cancel = cancel;
    if (timeoutMs !== null) {
      cancelTimer = services.clock.after(timeoutMs, () =>
        cancel(
          new SluiceError(
            'timeout',
            `The provider did not answer within the request timeout of ${given.timeoutMs} ms.`,
          ),
        ),
      );
    }
    const start = (request: WireRequest) => {
      const call = (handler: WireHandler): WireControl => {
        if (request.body !== null) for (const part of request.body) x.upstreamBytesOut += part.length;
        const limits = x.stream ? target.limits.stream : target.limits.whole;
        const { local } = target.provider;
        return local === undefined
          ? services.upstream.dispatch(request, handler, limits)
          : callLocal(local, request, handler, { clock: services.clock, headersMs: limits.headersMs });
      };
      try {
        if (target.hedge !== null) hedged = new HedgedCall(x, target, target.hedge, relay, call);
        control = hedged === null ? call(relay) : hedged.race;
        x.control = control;
      } catch (error) {
        fail(error);
      }
      if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
    };
    if (signIn === null && prepared.apart === null) {
      start(prepared.request);
      return;
    }
    const sign = async (request: WireRequest): Promise<void> => {
      if (signIn !== null) sent.unshift(...(await signIn.signer(request, signIn.access.context)));
    };
    if (prepared.apart !== null) {
      for (const { body } of prepared.apart) x.upstreamBytesOut += body?.length ?? 0;
      const limits = target.limits.whole;
      const dispatch = (request: WireRequest, handler: WireHandler) =>
        services.upstream.dispatch(request, handler, limits);
      control = dispatchApart(
        {
          request: prepared.request,
          calls: prepared.apart,
          binding: prepared.bound.binding,
          sign: signIn === null ? null : sign,
          dispatch,
          lost: (answers) => {
            x.usage = usageOfParts(x, prepared.bound, prepared.context, answers);
          },
        },
        relay,
      );
      x.control = control;
      if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
      return;
    }
    // Each attempt signs the request as it was prepared: signatures hold for a moment only.
    const request = { ...prepared.request, headers: [...prepared.request.headers] };
    sign(request).then(() => {
      if (!settled) start(request);
    }, fail);
    if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
  });
}
