/** What the readers of secret managers work with: guarded calls, tokens, and the server's own identity where it is lent. */

import { type FetchAnswer, type Fetcher, readText } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { Secret } from '../kernel/secret.ts';
import type {
  AccessContext,
  AdapterAnswer,
  AdapterRequest,
  AmbientIdentity,
  TokenCache,
} from '../providers/training.ts';
import type { SecretPlace } from '../resources/secret-references/manager.ts';

/** A manager that takes longer is down: requests may wait for it. */
const TIMEOUT_MS = 10_000;
/** The largest secret of all managers is 64 KiB, in base64 and JSON. */
const MAX_TEXT = 256 * 1024;

/** What the operator allows organisations to read of the server itself. */
export interface ServerSecrets {
  /** The identity of the server, for an organisation that may borrow it; null for all others. */
  identity(organisationId: string): AmbientIdentity | null;
  /** A variable of the environment; null where the organisation may not read it, or it is not set. */
  variable(organisationId: string, name: string): string | null;
  /** A file below the organisation's own directory; null where there is none. Rejects for one that is too long or leads elsewhere. */
  file(organisationId: string, path: string): Promise<string | null>;
  /** The token of the service account that a cluster gives the server. Rejects where it gives none. */
  clusterToken(): Promise<string>;
}

export interface SecretServices {
  readonly fetcher: Fetcher;
  readonly egress: EgressGuard;
  readonly clock: Clock;
  readonly tokens: TokenCache;
  readonly server: ServerSecrets;
}

/** One read of one secret. */
export interface Access extends AccessContext {
  readonly place: SecretPlace;
  /** A field of `auth_config`; undefined when it is not set. */
  readonly field: (name: string) => string | undefined;
  readonly server: ServerSecrets;
}

export function accessOf(services: SecretServices, place: SecretPlace, base: string): Access {
  const { fetcher, clock, egress, server } = services;
  const settings = Object.fromEntries(
    Object.entries(place.auth).map(([name, value]) => [name, value instanceof Secret ? value.reveal() : value]),
  );
  const ambient = server.identity(place.organisationId);
  const call = async (request: AdapterRequest): Promise<AdapterAnswer> => {
    const answer = await fetcher.send({
      method: request.method,
      url: request.url,
      headers: request.headers,
      body: request.body,
      organisationId: place.organisationId,
      storedCredential: true,
      headersTimeoutMs: TIMEOUT_MS,
      idleMs: TIMEOUT_MS,
    });
    return new Answer(answer);
  };
  return {
    place,
    server,
    field: (name) => {
      const value = settings[name];
      return typeof value === 'string' && value !== '' ? value : undefined;
    },
    credentials: { key: null, settings },
    base,
    customHost: false,
    call,
    header: () => undefined,
    now: () => clock.now(),
    uuid: () => uuidv7(clock),
    tokens: services.tokens,
    ...(ambient === null
      ? {}
      : { ambient, trusts: (url: string) => egress.check(url, { storedCredential: true }).trusted }),
  };
}

class Answer implements AdapterAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly stream: FetchAnswer['stream'];

  constructor({ status, headers, stream }: FetchAnswer) {
    this.status = status;
    this.headers = headers;
    this.stream = stream;
  }

  async text(limit = MAX_TEXT): Promise<string> {
    return (await readText(this.stream, limit)).text;
  }

  async json() {
    try {
      return parseExact(await this.text());
    } catch (error) {
      if (error instanceof SluiceError) throw error;
      throw new SluiceError('upstream_invalid', 'The answer is not JSON.');
    }
  }
}
