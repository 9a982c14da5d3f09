/** What signing in to an account takes on the data plane: calls to token endpoints, and tokens that are kept. */
import { readText } from '../http/fetcher.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { secretsOfCall, withoutSecrets } from '../providers/sent-secrets.ts';
import type { AccessContext, AdapterAnswer, AdapterRequest } from '../providers/training.ts';
import type { Exchange } from './exchange.ts';
import type { Target } from './target.ts';

/** A token endpoint that takes longer is down: a caller waits for it before the first byte is sent to the provider. */
const TOKEN_MS = 10_000;
const MAX_TEXT = 1024 * 1024;

/** The context of one attempt, and the tokens it took. */
export interface Access {
  readonly context: AccessContext;
  /** Forgets the tokens that this attempt was refused with; false when it took none. */
  drop(): boolean;
}

/**
 * Calls go through the egress guard on sockets of the caller's organisation. The server's own identity is there for
 * stored accounts only: what a caller brings along must never borrow it.
 */
export function accessOf(x: Exchange, target: Target): Access {
  const { fetcher, tokens, clock, ambient, guard } = x.services;
  const { stored, credentials, provider } = target;
  const base = target.origin + target.prefix;
  const taken: { readonly key: string; readonly value: unknown }[] = [];

  async function call(request: AdapterRequest): Promise<AdapterAnswer> {
    const headers = [...request.headers];
    const answer = await fetcher.send({
      method: request.method,
      url: request.url,
      headers,
      body: request.body,
      organisationId: x.principal?.organisationId ?? '',
      storedCredential: stored !== null,
      headersTimeoutMs: request.timeoutMs ?? TOKEN_MS,
      idleMs: TOKEN_MS,
    });
    const secrets = [...target.sent, ...secretsOfCall(headers, request.url)];
    const text = async (limit = MAX_TEXT): Promise<string> =>
      withoutSecrets((await readText(answer.stream, limit)).text, secrets);
    return {
      status: answer.status,
      headers: answer.headers,
      stream: answer.stream,
      text,
      async json() {
        const body = await text();
        try {
          return parseExact(body);
        } catch {
          throw new SluiceError('upstream_invalid', 'The answer of the token endpoint is not JSON.');
        }
      },
    };
  }

  return {
    context: {
      credentials,
      base,
      customHost: base !== provider.baseUrl(credentials),
      call,
      header: (name) => x.header(name),
      now: () => clock.now(),
      uuid: () => uuidv7(clock),
      tokens: {
        async get(key, obtain) {
          const value = await tokens.get(key, obtain);
          taken.push({ key, value });
          return value;
        },
        drop: (key, value) => tokens.drop(key, value),
      },
      ...(ambient === null || stored === null
        ? null
        : { ambient, trusts: (url) => guard.check(url, { storedCredential: true }).trusted }),
    },
    drop() {
      for (const { key, value } of taken) tokens.drop(key, value);
      return taken.length > 0;
    },
  };
}
