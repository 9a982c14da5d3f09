/** Files, batches and fine-tuning jobs: builds the call for `training/` and sends what it answers. */

import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { tenantOf } from '../../auth/tenant.ts';
import { copiedHeaders } from '../../gateway/metadata.ts';
import { hasUnreadBody } from '../../http/read-body.ts';
import { uploadBody } from '../../http/upload-body.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { hasControls } from '../../kernel/text.ts';
import type { UsageReservation } from '../../limits/ledger/ledger.ts';
import type { LimitSpec } from '../../limits/ledger/limit-spec.ts';
import { requestModel } from '../../limits/policies/conditions.ts';
import { unpricedRefused } from '../../limits/usage-limit-refused.ts';
import type { Account, Counted, ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import type { Exchange, Uses } from '../exchange.ts';
import { COST, gatewayHeaders } from '../gateway-headers.ts';
import { isManaged } from '../managed.ts';
import { freshTarget } from '../renew-credential.ts';
import { namedTarget, unnamedProvider } from '../resolve-target.ts';
import { shape } from '../shaping.ts';
import type { LlmRequest } from '../state/request.ts';
import type { Target } from '../target.ts';
import { factsOf } from './admit.ts';
import { forward } from './build-target-request.ts';
import { contentType } from './read-body.ts';
import { requestUsageLimits } from './reserve.ts';

const NOTHING: ReadonlySet<string> = new Set();

/** Hands the request to `training/` and streams the answer; its end waits for the record like every other. */
export async function answerObject(x: Exchange): Promise<void> {
  checkIds(x.request.params);
  const abort = new AbortController();
  x.cancel = (error) => abort.abort(error);
  if (x.clientGone) abort.abort(new SluiceError('client_closed', 'The client closed the connection.'));
  const { clock } = x.services;
  const timeoutMs = x.attempt.target?.timeoutMs ?? null;
  const cancelTimer =
    timeoutMs === null
      ? null
      : clock.after(timeoutMs, () =>
          abort.abort(new SluiceError('timeout', `There was no answer within the request timeout of ${timeoutMs} ms.`)),
        );
  let upload: Readable | null = null;
  const budgets = new ObjectBudgets(x);
  try {
    upload = openUpload(x);
    const call = callOf(x, upload, abort.signal, budgets);
    const answer = await x.services.objects.handle(call).catch(async (error: unknown) => {
      await budgets.settle(0);
      throw error;
    });
    await budgets.settle(1);
    cancelTimer?.();
    await send(x, answer, abort.signal);
  } catch (error) {
    throw abort.signal.aborted ? abort.signal.reason : error;
  } finally {
    cancelTimer?.();
    upload?.destroy();
    x.cancel = null;
  }
}

/** Ids are decoded once by the router; what a second decoding would make of them must be harmless too. */
function checkIds(params: Readonly<Record<string, string>>): void {
  for (const id of Object.values(params)) {
    let text = id;
    try {
      text = decodeURIComponent(id);
    } catch {
      // Not encoded twice: the id is what it is.
    }
    for (const form of [id, text]) {
      const dots = form.split('/').some((part) => part === '.' || part === '..');
      if (dots || form.includes('\\') || hasControls(form)) {
        throw new SluiceError(
          'malformed_call',
          'The id in the path must not contain dot segments or control characters.',
        );
      }
    }
  }
}

function openUpload(x: Uses<'outcome' | 'request', 'clock'>): Readable | null {
  if (x.request.operation.body !== 'stream') return null;
  if (contentType(x.request.header('content-type')) !== 'multipart/form-data') {
    throw new SluiceError('malformed_call', 'Send content-type: multipart/form-data with a boundary.');
  }
  return uploadBody(x.request.incoming, {
    clock: x.services.clock,
    onBytes: (bytes) => {
      x.outcome.bytesIn += bytes;
    },
  });
}

function callOf(
  x: Uses<'attempt' | 'guard' | 'outcome' | 'request', 'clock' | 'egress' | 'headersToMetadata' | 'paths' | 'timeouts'>,
  upload: Readable | null,
  signal: AbortSignal,
  budgets: ObjectBudgets,
): ObjectCall {
  const {
    request: { principal, snapshot },
    attempt: { target },
  } = x;
  if (principal === null || snapshot === null) throw new SluiceError('internal', 'The caller is not known yet.');
  const shaping = target?.shaping ?? null;
  return {
    id: x.request.id,
    operation: x.request.operation.id,
    principal,
    snapshot,
    params: x.request.params,
    query: new URLSearchParams((x.request.incoming.url ?? '').split('?')[1] ?? ''),
    header: (name) => x.request.header(name),
    copiedHeaders: copiedHeaders(x.request, x.services.headersToMetadata),
    account: target === null ? null : accountOf(x.request, target),
    unnamed: target === null ? unnamedProvider(x, null) : null,
    managed: isManaged(x.request),
    async accountOf(slug) {
      const named = await namedTarget(x, slug);
      x.attempt.target ??= named;
      return accountOf(x.request, named);
    },
    dropParams: shaping === null ? NOTHING : new Set(shaping.dropNames),
    // What drop_params lists is left out only where a provider cannot express it: the rules of a body come first.
    shaped: (body) => (shaping === null ? body : shape(body, { ...shaping, drops: null })) as JsonObject,
    dryRun: x.request.dryRun,
    body: x.attempt.body.bytes,
    upload,
    signal,
    // One operation may be several calls: they are no repetitions, which `tries` counts.
    attempted(attempt) {
      x.outcome.attempts.push(attempt);
    },
    moved(sent, received) {
      x.outcome.upstreamBytesOut += sent;
      x.outcome.upstreamBytesIn += received;
    },
    named(model) {
      x.outcome.modelNamed = model.slice(0, 2048);
    },
    used(usage) {
      x.outcome.answer.usage = usage;
    },
    unjudged: x.guard?.unjudged ?? null,
    limits: (account, metadata) => budgets.of(account, metadata),
    uncounted() {
      x.outcome.uncounted = true;
    },
  };
}

/**
 * Usage limits of the batch or job that a request begins. Its body may hold account, model and metadata, where
 * `reserve` has not looked: limits that only they lead to are asked here, before anything is begun.
 */
class ObjectBudgets {
  readonly #x: Exchange;
  readonly #reserved: readonly LimitSpec[];
  readonly #holds: UsageReservation[] = [];

  constructor(x: Exchange) {
    this.#x = x;
    this.#reserved = x.request.operation.beginsWork
      ? requestUsageLimits(x.request, x.attempt.target?.stored ?? null, () => factsOf(x))
      : [];
  }

  async of(account: Account | null, options: Readonly<Record<string, string>> | null): Promise<Counted> {
    const x = this.#x;
    const {
      request: { principal, snapshot },
    } = x;
    if (principal === null || snapshot === null) throw new SluiceError('internal', 'The caller is not known yet.');
    // As for a request with these headers (`metadata.ts`).
    const copied = copiedHeaders(x.request, x.services.headersToMetadata);
    const all = { ...x.request.metadata, ...options, ...copied, ...principal.defaults.metadata, ...snapshot.metadata };
    const metadata = Object.keys(all).length === 0 ? null : all;
    const stored = account?.stored ?? null;
    const model = x.outcome.asked(x.request);
    const specs = requestUsageLimits(x.request, stored, () => {
      const slug = stored?.slug ?? account?.provider.id ?? null;
      return {
        ...factsOf(x),
        virtual_key: stored?.slug ?? null,
        provider: account?.provider.id ?? null,
        model: slug === null || model === '' ? null : requestModel(slug, model),
        metadata,
      };
    });
    const fresh = specs.filter((one) => !this.#reserved.some((other) => isSame(one, other)));
    if (fresh.length > 0 && !x.request.dryRun) {
      const charges = fresh.map((one) => ({ spec: one, amount: one.type === 'requests' ? 1 : 0, bounded: true }));
      this.#holds.push(await x.services.ledger.reserve(tenantOf(principal), snapshot.workspaceId, charges));
    }
    return { specs: specs.map((one) => this.#ruled(one, account)), metadata };
  }

  /** With the rule for unknown prices that holds now; refuses what a limit does not serve without a price. */
  #ruled(spec: LimitSpec, account: Account | null): LimitSpec {
    const {
      services,
      outcome,
      request: { time },
    } = this.#x;
    const model = outcome.asked(this.#x.request);
    const unpriced = spec.unpriced ?? services.unpriced;
    if (spec.type === 'cost' && unpriced === 'deny' && account !== null && model !== '' && !this.#x.request.dryRun) {
      const { provider, stored } = account;
      const own = stored?.models.get(model.toLowerCase())?.pricing?.finetune_config;
      const price = services.pricer.price(provider.id, null, model, stored, time);
      if (price === null && !own) throw unpricedRefused(spec, `${provider.id}/${model}`);
    }
    return { ...spec, unpriced };
  }

  /** The request itself counts under the limits asked here, when it was accepted. */
  async settle(requests: 0 | 1): Promise<void> {
    const used = { cost: 0, carry: 0, tokens: 0, requests, unpriced: 0 };
    for (const hold of this.#holds.splice(0)) await new Promise<void>((resolve) => hold.settle(used, resolve));
  }
}

function isSame(a: LimitSpec, b: LimitSpec): boolean {
  return a.ownerKind === b.ownerKind && a.ownerId === b.ownerId && a.bucketKey === b.bucketKey;
}

function accountOf(request: LlmRequest, target: Target): Account {
  const customHeaders = [...target.customHeaders];
  forward(request, target, customHeaders);
  const { provider, credentials } = target;
  const base = provider.local === undefined ? target.origin + target.prefix : '';
  return {
    provider,
    credentials,
    base,
    customHost: base !== '' && base !== provider.baseUrl(credentials),
    customHeaders,
    stored: target.stored,
    path: target.path,
    secrets: target.sent,
    retry: target.retry,
    ...(target.stored?.account.renew === undefined
      ? null
      : {
          renewed: async () => {
            const fresh = await freshTarget(target);
            return fresh === null ? null : accountOf(request, fresh);
          },
        }),
  };
}

async function send(
  x: Uses<'attempt' | 'guard' | 'limits' | 'outcome' | 'request' | 'response' | 'execution', 'storeClock'>,
  given: ObjectAnswer,
  signal: AbortSignal,
): Promise<void> {
  // A guardrail has failed that does not deny.
  const answer = x.guard?.failed && given.status === 200 ? { ...given, status: 246 } : given;
  x.outcome.status = answer.status;
  // The second name is the one that OpenAI's clients show as their request id.
  const headers = [...answer.headers, 'x-request-id', x.request.id];
  gatewayHeaders(x, headers);
  // A body that was not read to its end would be taken for the next request on this connection.
  if (hasUnreadBody(x.request.incoming)) headers.push('connection', 'close');
  if (Buffer.isBuffer(answer.body)) {
    headers.push('content-length', String(answer.body.length));
    x.outcome.ending = { kind: 'whole', status: answer.status, headers, body: [answer.body] };
    return;
  }
  await stream(x, answer, answer.body, headers, signal);
}

/** Sends all but the last chunk; nothing is sent before there are two, so that an early failure is a proper error. */
async function stream(
  x: Uses<'outcome' | 'request' | 'response'>,
  answer: ObjectAnswer,
  body: Readable,
  headers: string[],
  signal: AbortSignal,
): Promise<void> {
  const stop = () => body.destroy(signal.reason instanceof Error ? signal.reason : undefined);
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  const length = answer.length ?? null;
  let held: Buffer | null = null;
  let size = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer | string>) {
      const part = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
      if (part.length === 0) continue;
      size += part.length;
      if (length !== null && size > length) throw cut(length, size);
      if (held !== null) {
        if (!x.outcome.headSent) {
          x.outcome.firstTokenMs = x.request.elapsed();
          if (length !== null) headers.push('content-length', String(length));
          // Reading what is stored costs nothing, which is known before it is settled.
          if (!x.outcome.uncounted) headers.push(COST, '0');
          x.response.writeHead(answer.status, headers);
          x.outcome.headSent = true;
        }
        x.outcome.bytesOut += held.length;
        if (!x.response.write(held)) await drained(x.response, signal);
      }
      held = part;
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : failure(error);
  } finally {
    signal.removeEventListener('abort', stop);
  }
  if (length !== null && size !== length) throw cut(length, size);
  const last = held === null ? [] : [held];
  if (x.outcome.headSent) {
    x.outcome.ending = { kind: 'tail', body: last };
    return;
  }
  headers.push('content-length', String(size));
  x.outcome.ending = {
    kind: 'whole',
    status: answer.status,
    headers,
    body: last.length === 0 ? [Buffer.alloc(0)] : last,
  };
}

function cut(length: number, size: number): SluiceError {
  return new SluiceError('upstream_cut', 'The content ended before it was complete.', {
    detail: `${size} of ${length} bytes`,
  });
}

function failure(error: unknown): SluiceError {
  return error instanceof SluiceError
    ? error
    : new SluiceError('upstream_cut', 'The provider ended the content before it was complete.', { cause: error });
}

/** Until the client has taken what was written, or is gone. */
function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done);
      response.off('close', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    response.on('drain', done);
    response.on('close', done);
    signal.addEventListener('abort', done, { once: true });
  });
}
