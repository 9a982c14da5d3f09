/**
 * Where the data plane hands a file, batch or fine-tuning request to `training/`: the two areas are siblings and meet
 * only here.
 */
import type { Readable } from 'node:stream';
import type { Principal } from '../auth/principal.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { LimitSpec } from '../limits/ledger/limit-spec.ts';
import type { OperationId } from '../operations/operation.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { Credentials, Provider } from '../providers/provider.ts';
import type { AttemptRecord } from '../telemetry/record.ts';
import type { StoredProvider, WorkspaceSnapshot } from './snapshot.ts';

/** An account at a provider: whose credential is used and where its calls go. */
export interface Account {
  readonly provider: Provider;
  readonly credentials: Credentials;
  /** Base URL without trailing slash. Empty for a provider that answers inside the process. */
  readonly base: string;
  readonly customHost: boolean;
  /** Operator's own headers, `[name, value, …]`. */
  readonly customHeaders: readonly string[];
  /** Null for a caller's own credential. */
  readonly stored: StoredProvider | null;
  /** JSON path in the config, for the record of attempts. */
  readonly path: string;
  /** Texts that must not come back in an answer or error. */
  readonly secrets: readonly string[];
  /** How often reads are repeated, as the config says; nothing that creates or changes is. */
  readonly retry?: ReadRetry | null;
  /**
   * The same account with what secret managers hold now, after a provider has refused its credential. Resolves with null
   * where that is the same, or where no manager answers; absent where no manager fills the account.
   */
  readonly renewed?: () => Promise<Account | null>;
}

export interface ReadRetry {
  /** After the first. */
  readonly attempts: number;
  readonly statusCodes: ReadonlySet<number>;
  readonly useRetryAfter: boolean;
}

export interface ObjectCall {
  readonly id: string;
  readonly operation: OperationId;
  readonly principal: Principal;
  readonly snapshot: WorkspaceSnapshot;
  /** Decoded `:name` segments of the route. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  /** A request header; lower-case name, aliases already applied. */
  readonly header: (name: string) => string | undefined;
  /** Metadata that the server makes of headers of the request; null without any. */
  readonly copiedHeaders: Readonly<Record<string, string>> | null;
  /** The account that headers, config or key defaults name; null when they name none. */
  readonly account: Account | null;
  /** What to answer when an account is needed and none was named. */
  readonly unnamed: SluiceError | null;
  /** `x-gateway-provider: gateway`: Sluice's own files, jobs and batches. */
  readonly managed: boolean;
  /** The account of a stored provider or virtual key by slug; rejects as the data plane does for a wrong slug. */
  readonly accountOf: (slug: string) => Promise<Account>;
  readonly dropParams: ReadonlySet<string>;
  /** The config's `default_params` under and `override_params` over a JSON body; the identity when there are none. */
  readonly shaped: (body: JsonObject) => JsonObject;
  readonly dryRun: boolean;
  /** JSON and small bodies, already read; empty for uploads. */
  readonly body: Buffer;
  /** The unread body of an upload; null for every other operation. */
  readonly upload: Readable | null;
  /** Aborted when the client leaves or the server has to stop; the reason is a SluiceError. */
  readonly signal: AbortSignal;
  /** Each upstream call, for the record of the request. */
  attempted(attempt: AttemptRecord): void;
  /** Bytes of bodies to and from the provider, for the record; called any number of times. */
  moved?(sent: number, received: number): void;
  /** The model the request is about, for the record. */
  named(model: string): void;
  /** What the operation used, priced by the caller. */
  used(usage: TokenUsage): void;
  /**
   * Usage limits that a batch or job of `account` will count in, told before it is begun; null where no one provider is
   * meant. `metadata`: of its `gateway_options`. Throws `usage_limit_exceeded` when one of them is exhausted. Call
   * `named` first: policies ask for the model.
   */
  limits?(account: Account | null, metadata: Readonly<Record<string, string>> | null): Promise<Counted>;
  /** The refusal of what a model has said and no guardrail has judged; null or absent: no guardrail has to. */
  readonly unjudged?: SluiceError | null;
  /** What was begun will cost something that cannot be read later: the record and the limits say so. */
  uncounted?(): void;
}

export interface ObjectAnswer {
  readonly status: number;
  /** Without framing headers. */
  readonly headers: readonly string[];
  readonly body: Buffer | Readable;
  /** Exact size of a streamed body when known. */
  readonly length?: number | null;
}

export interface Counted {
  readonly specs: readonly LimitSpec[];
  /** As policies see it. */
  readonly metadata: Readonly<Record<string, string>> | null;
}

export const UNLIMITED: Counted = { specs: [], metadata: null };

/** Throws SluiceError for every refusal. */
export interface ObjectHandler {
  handle(call: ObjectCall): Promise<ObjectAnswer>;
}
