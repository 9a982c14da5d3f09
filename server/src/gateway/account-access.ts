/** What a provider works with to reach an account: guarded calls, and the tokens that signing in takes. */
import { pipeline, type Readable, Transform } from 'node:stream';
import { type FetchAnswer, type Fetcher, readText } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { retryHintMs } from '../kernel/retry-hint.ts';
import { errorStatus, recordedAs } from '../operations/dialects/errors.ts';
import { secretsOfCall, withoutSecrets } from '../providers/sent-secrets.ts';
import { dropGrantedToken, grantedToken, setBearer, usesClientCredentials } from '../providers/sign-in.ts';
import type {
  AccessContext,
  AdapterAnswer,
  AdapterContext,
  AdapterRequest,
  AmbientIdentity,
  TokenCache,
} from '../providers/training.ts';
import type { Account } from '../runtime/object-call.ts';
import type { AttemptRecord } from '../telemetry/record.ts';

/** What calls to accounts take of the process; made once. */
export interface AccountServices {
  readonly fetcher: Fetcher;
  readonly egress: EgressGuard;
  readonly clock: Clock;
  /** Access tokens of accounts, shared by all planes. */
  readonly tokens: TokenCache;
  /** The server's own cloud identity; null or absent unless the operator lends it to stored accounts. */
  readonly ambient?: AmbientIdentity | null;
}

/** How long calls of one kind may take, and how much of an answer is read. */
interface Bounds {
  readonly headersMs: number;
  readonly idleMs: number;
  /** Bytes of an answer that is read as text. */
  readonly maxText: number;
  readonly notJson: string;
}

const ADAPTER_CALLS: Bounds = {
  headersMs: 60_000,
  idleMs: 120_000,
  maxText: 16 * 1024 * 1024,
  notJson: "The provider's answer is not JSON.",
};
/** A token endpoint that takes longer is down: a caller waits for it before the first byte is sent to the provider. */
const TOKEN_CALLS: Bounds = {
  headersMs: 10_000,
  idleMs: 10_000,
  maxText: 1024 * 1024,
  notJson: 'The answer of the token endpoint is not JSON.',
};
/** Between two reads: at first, and all waiting of one together. */
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 60_000;
const NOTHING: ReadonlySet<string> = new Set();

export interface ContextOptions {
  readonly organisationId: string;
  readonly header?: (name: string) => string | undefined;
  readonly dropParams?: ReadonlySet<string>;
  readonly signal?: AbortSignal;
  /** Each upstream call, when its head or its failure is there. */
  readonly attempted?: (attempt: AttemptRecord) => void;
  readonly moved?: ((sent: number, received: number) => void) | undefined;
}

/**
 * What an adapter works with: calls with the account's own headers over the guarded fetcher. Another host than the
 * account's gets neither those headers nor any credential but what the adapter itself puts in, and is judged by the
 * egress guard like every other.
 */
export function adapterContext(services: AccountServices, account: Account, options: ContextOptions): AdapterContext {
  const storedCredential = account.stored !== null && account.secrets.length > 0;
  return contextOf(services, account, { ...options, storedCredential }, ADAPTER_CALLS);
}

/** The context of one attempt, and the tokens it took. */
export interface Access {
  readonly context: AccessContext;
  /** Forgets the tokens that this attempt was refused with; false when it took none. */
  drop(): boolean;
}

/** What signing in to an account takes. The tokens that it takes are noted, so that refused ones can be replaced. */
export function accountAccess(
  services: AccountServices,
  account: Account,
  options: Pick<ContextOptions, 'organisationId' | 'header'>,
): Access {
  const { tokens } = services;
  const taken: { readonly key: string; readonly value: unknown }[] = [];
  const noting: TokenCache = {
    async get(key, obtain) {
      const value = await tokens.get(key, obtain);
      taken.push({ key, value });
      return value;
    },
    drop: (key, value) => tokens.drop(key, value),
  };
  const given = { ...options, storedCredential: account.stored !== null };
  return {
    context: contextOf({ ...services, tokens: noting }, account, given, TOKEN_CALLS),
    drop() {
      for (const { key, value } of taken) tokens.drop(key, value);
      return taken.length > 0;
    },
  };
}

/** The server's own identity is there for stored accounts only: what a caller brings along must never borrow it. */
function contextOf(
  services: AccountServices,
  account: Account,
  options: ContextOptions & { readonly storedCredential: boolean },
  bounds: Bounds,
): AdapterContext {
  const { clock, fetcher } = services;
  const origin = account.base === '' ? '' : new URL(account.base).origin;

  const granting = usesClientCredentials(account.credentials);
  /** As secret managers have filled it since. Adapters keep sending the credential of before, which `fitted` replaces. */
  let current = account;

  /**
   * An account that secret managers fill is read anew where the provider refuses its credential, and the call is sent
   * once more. A body that streams cannot be: its caller is refused, and what comes next has the new credential.
   */
  async function once(request: AdapterRequest): Promise<AdapterAnswer> {
    const used = current;
    const answer = await tokened(request);
    if (used.renewed === undefined || !refuses(answer.status) || !isOwn(request)) return answer;
    if (current === used) current = (await used.renewed()) ?? used;
    if (current === used || isStreamed(request) || (!granting && fitted(request) === request)) return answer;
    answer.stream.destroy();
    return tokened(request);
  }

  const isOwn = (request: AdapterRequest): boolean => request.accountHeaders !== false && request.url.origin === origin;

  /** The request with the credential that is current. Itself where it holds none, or a signature made of one. */
  function fitted(request: AdapterRequest): AdapterRequest {
    return current === account || !isOwn(request) ? request : withCredentials(request, account, current);
  }

  /** With the token of an account that has one in place of a key; a token that is refused is replaced once. */
  async function tokened(given: AdapterRequest): Promise<AdapterAnswer> {
    const request = fitted(given);
    if (!granting || !isOwn(request)) return sent(request);
    const signedIn = { ...context, credentials: current.credentials };
    let used = '';
    const authorised = async (): Promise<AdapterRequest> => {
      const headers = [...request.headers];
      used = await grantedToken(signedIn);
      setBearer(headers, used);
      return { ...request, headers };
    };
    const answer = await sent(await authorised());
    if (answer.status !== 401 || isStreamed(request)) return answer;
    answer.stream.destroy();
    dropGrantedToken(signedIn, used);
    return sent(await authorised());
  }

  async function sent(request: AdapterRequest): Promise<AdapterAnswer> {
    const headers = [...request.headers];
    if (isOwn(request)) addMissing(headers, current.customHeaders);
    if (request.length !== undefined && isStreamed(request)) {
      headers.push('content-length', String(request.length));
    }
    const started = clock.monotonic();
    const attempted = (status: number | null, error: string | null) =>
      options.attempted?.({
        target: account.path,
        provider: account.provider.id,
        status,
        error,
        duration_ms: Math.round((clock.monotonic() - started) * 1000) / 1000,
      });
    try {
      const answer = await fetcher.send({
        method: request.method,
        url: request.url,
        headers,
        body: sending(request.body, options.moved),
        organisationId: options.organisationId,
        storedCredential: options.storedCredential,
        headersTimeoutMs: request.timeoutMs ?? bounds.headersMs,
        idleMs: bounds.idleMs,
        ...(options.signal === undefined || request.cleanup === true || request.shared === true
          ? null
          : { signal: options.signal }),
      });
      attempted(answer.status, null);
      const secrets = [...current.secrets, ...secretsOfCall(headers, request.url)];
      return new Answer(answer, secrets, bounds, options.moved);
    } catch (error) {
      attempted(null, error instanceof SluiceError ? recordedAs(error) : 'gateway_failure');
      throw error;
    }
  }

  /** Reads are repeated as the config says; what creates or changes might then happen twice. */
  async function call(request: AdapterRequest): Promise<AdapterAnswer> {
    const { retry } = account;
    const reads = (request.method === 'GET' || request.method === 'HEAD') && request.body === null;
    if (retry == null || !reads) return once(request);
    let waited = 0;
    for (let tries = 0; ; tries++) {
      let wait = FIRST_WAIT_MS * 2 ** tries;
      let failure: unknown = null;
      let answer: AdapterAnswer | null = null;
      try {
        answer = await once(request);
        if (!retry.statusCodes.has(answer.status)) return answer;
        const { headers } = answer;
        if (retry.useRetryAfter) wait = retryHintMs((name) => headers[name], clock.now()) ?? wait;
      } catch (error) {
        if (!(error instanceof SluiceError) || !retry.statusCodes.has(errorStatus(error))) throw error;
        failure = error;
      }
      waited += wait;
      if (tries >= retry.attempts || waited > LONGEST_WAIT_MS || options.signal?.aborted) {
        if (answer === null) throw failure;
        return answer;
      }
      answer?.stream.destroy();
      await pause(clock, wait, options.signal);
    }
  }

  const context: AdapterContext = {
    credentials: account.credentials,
    base: account.base,
    customHost: account.customHost,
    call,
    header: options.header ?? (() => undefined),
    dropParams: options.dropParams ?? NOTHING,
    now: () => clock.now(),
    uuid: () => uuidv7(clock),
    tokens: services.tokens,
    ...(services.ambient == null || account.stored === null
      ? null
      : {
          ambient: services.ambient,
          trusts: (url) => services.egress.check(url, { storedCredential: true }).trusted,
        }),
  };
  return context;
}

const refuses = (status: number): boolean => status === 401 || status === 403;

const isStreamed = ({ body }: AdapterRequest): boolean => body !== null && !Buffer.isBuffer(body);

/** The request with the texts of one account's credential in its headers replaced by those of the other's. */
function withCredentials(request: AdapterRequest, before: Account, after: Account): AdapterRequest {
  const texts = new Map<string, string>();
  const [old, fresh] = [before.credentials, after.credentials];
  for (const [name, value] of Object.entries(old.settings)) {
    const next = fresh.settings[name];
    if (typeof value === 'string' && typeof next === 'string' && next !== value) texts.set(value, next);
  }
  if (old.key !== null && fresh.key !== null) texts.set(old.key.reveal(), fresh.key.reveal());
  const headers = request.headers.map((value, i) => {
    if (i % 2 === 0) return value;
    const space = value.indexOf(' ') + 1;
    const next = texts.get(value) ?? texts.get(value.slice(space));
    return next === undefined ? value : texts.has(value) ? next : value.slice(0, space) + next;
  });
  return headers.every((value, i) => value === request.headers[i]) ? request : { ...request, headers };
}

/** Resolves after `ms`; rejects with the signal's reason when it comes first. */
function pause(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener('abort', leave);
      resolve();
    });
    signal?.addEventListener('abort', leave, { once: true });
  });
}

/** The operator's headers, except for what the adapter set itself. */
function addMissing(headers: string[], more: readonly string[]): void {
  const taken = new Set<string>();
  for (let i = 0; i < headers.length; i += 2) taken.add((headers[i] ?? '').toLowerCase());
  for (let i = 0; i + 1 < more.length; i += 2) {
    const name = more[i] ?? '';
    if (!taken.has(name)) headers.push(name, more[i + 1] ?? '');
  }
}

function sending(body: Buffer | Readable | null, moved: ContextOptions['moved']): Buffer | Readable | null {
  if (body === null || moved === undefined) return body;
  if (Buffer.isBuffer(body)) {
    moved(body.length, 0);
    return body;
  }
  return counted(body, (bytes) => moved(bytes, 0));
}

/** The same bytes and the same end: an error of either side reaches the other. */
function counted(source: Readable, count: (bytes: number) => void): Readable {
  const out = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      count(chunk.length);
      done(null, chunk);
    },
  });
  pipeline(source, out, () => undefined);
  return out;
}

class Answer implements AdapterAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly #source: Readable;
  readonly #secrets: readonly string[];
  readonly #bounds: Bounds;
  readonly #moved: ContextOptions['moved'];
  #stream: Readable | null = null;

  constructor(answer: FetchAnswer, secrets: readonly string[], bounds: Bounds, moved: ContextOptions['moved']) {
    this.status = answer.status;
    const type = answer.headers['content-type'];
    // The one header that is passed on to callers.
    const hidden = type === undefined ? type : withoutSecrets(type, secrets);
    this.headers = hidden === type ? answer.headers : { ...answer.headers, 'content-type': 'application/octet-stream' };
    this.#source = answer.stream;
    this.#secrets = secrets;
    this.#bounds = bounds;
    this.#moved = moved;
  }

  get stream(): Readable {
    const moved = this.#moved;
    this.#stream ??= moved === undefined ? this.#source : counted(this.#source, (bytes) => moved(0, bytes));
    return this.#stream;
  }

  /** Without the credentials of its call: errors, jobs and events that a provider fills with them are passed on and kept. */
  async text(limit = this.#bounds.maxText): Promise<string> {
    const { text, bytes } = await readText(this.#source, limit);
    this.#moved?.(0, bytes);
    return withoutSecrets(text, this.#secrets);
  }

  async json() {
    const text = await this.text();
    try {
      return parseExact(text);
    } catch {
      throw new SluiceError('upstream_invalid', this.#bounds.notJson);
    }
  }
}
