import type { Readable } from 'node:stream';
import { createFetcher } from '../../src/http/background-fetcher.ts';
import { createEgressGuard, type DnsResolver, parseTrustedHosts } from '../../src/http/egress-guard.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonValue } from '../../src/kernel/json.ts';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { createTokenCache } from '../../src/providers/token-cache.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest, Call } from '../../src/providers/training.ts';

export interface AdapterContextOptions {
  /** Base URL of the account, no trailing slash. */
  readonly base: string;
  /** Default true: hosts derived from a region or resource name are then not used. */
  readonly customHost?: boolean;
  /** Default true: the operator trusts every host. */
  readonly trustedHost?: boolean;
  /** Null: no key. Default `test-key`. */
  readonly key?: string | null;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly dropParams?: readonly string[];
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  readonly uuid?: () => string;
  /**
   * Host names that lead to a loopback server: `login.microsoftonline.com` → `http://127.0.0.1:4711`. The name, path and
   * headers of the call stay as they are except for `host`.
   */
  readonly redirect?: Readonly<Record<string, string>>;
  /** Hosts the guard trusts; default all of loopback. */
  readonly trusted?: string;
  readonly clock?: Clock;
  readonly resolver?: DnsResolver;
}

export interface TestContext extends AdapterContext {
  /** Every call made, as the adapter asked for it. */
  readonly calls: AdapterRequest[];
  close(): Promise<void>;
}

/** What an adapter is given, with calls over real sockets through the egress guard. Close it after the test. */
export function adapterContext(options: AdapterContextOptions): TestContext {
  const clock = options.clock ?? systemClock;
  const egress = createEgressGuard({
    trustedHosts: parseTrustedHosts(options.trusted ?? '127.0.0.0/8'),
    ownListeners: () => [],
    clock,
    log: silentLog,
    resolver: options.resolver ?? { resolve: () => Promise.resolve([]) },
  });
  const fetcher = createFetcher({ egress, clock });
  const calls: AdapterRequest[] = [];
  const call: Call = async (request) => {
    calls.push(request);
    const other = options.redirect?.[request.url.host];
    const url = other === undefined ? request.url : new URL(request.url.pathname + request.url.search, other);
    const headers = [...request.headers];
    if (request.length !== undefined) headers.push('content-length', String(request.length));
    const answer = await fetcher.send({
      method: request.method,
      url,
      headers,
      body: request.body,
      organisationId: 'org-test',
      storedCredential: true,
      headersTimeoutMs: request.timeoutMs ?? 60_000,
      idleMs: 60_000,
    });
    return readable(answer.status, answer.headers, answer.stream);
  };
  let ids = 0;
  const now = options.now ?? (() => 1_767_225_600_000);
  return {
    credentials: {
      key: options.key === null ? null : new Secret(options.key ?? 'test-key'),
      settings: options.settings ?? {},
    },
    base: options.base,
    customHost: options.customHost ?? true,
    trusts: () => options.trustedHost ?? true,
    call,
    header: (name) => options.headers?.[name],
    dropParams: new Set(options.dropParams),
    now,
    uuid: options.uuid ?? (() => `00000000-0000-7000-8000-${(ids++).toString(16).padStart(12, '0')}`),
    tokens: createTokenCache(now),
    calls,
    close: () => fetcher.close(),
  };
}

function readable(status: number, headers: Readonly<Record<string, string>>, stream: Readable): AdapterAnswer {
  const text = async (limit = 16 * 1024 * 1024): Promise<string> => {
    const parts: Buffer[] = [];
    let size = 0;
    for await (const part of stream as AsyncIterable<Buffer>) {
      size += part.length;
      if (size > limit) throw new SluiceError('upstream_invalid', 'The answer of the provider is too long.');
      parts.push(part);
    }
    return Buffer.concat(parts).toString('utf8');
  };
  const json = async (): Promise<JsonValue> => {
    const body = await text();
    try {
      return parseExact(body);
    } catch {
      throw new SluiceError('upstream_invalid', 'The answer of the provider is not JSON.');
    }
  };
  return { status, headers, text, json, stream };
}
