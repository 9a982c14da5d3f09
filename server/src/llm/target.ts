import { SluiceError } from '../kernel/errors.ts';
import type { OperationId } from '../operations/operation.ts';
import { type Bound, bindingFor } from '../providers/binding.ts';
import type { Credentials, Provider } from '../providers/provider.ts';
import { secretsOf } from '../providers/sent-secrets.ts';
import type { OpenedAccount, StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { CachePolicy } from './cache/policy.ts';
import type { Hedge } from './relay/hedge-race.ts';
import type { AttemptLimits, BreakRules, Retry } from './relay/retry-rules.ts';
import { modelUnder, type Shaping } from './shaping.ts';

/** Where a call may go, compiled: what an attempt needs without another look at the config. */
export class Target {
  /** JSON path in the config: `config`, `config.targets[0]`. */
  readonly path: string;
  readonly provider: Provider;
  /** Null for a caller's own credential. */
  readonly stored: StoredProvider | null;
  /**
   * Wall time, milliseconds, after which the account must be asked anew: it expires, or its credential is opened again. 0 where
   * a secret manager has another credential by now.
   */
  until: number;
  /** What of the stored account it was made of; null for a caller's own credential. */
  readonly opened: OpenedAccount | null;
  /** Name that is sent in place of the model's; null where the account sends the model's name. */
  readonly deployment: string | null;
  /** The deployment's model by its name in the price list, when the account says it. */
  readonly priced: string | null;
  /** The model, or else the name, of a deployment that the caller has chosen whatever it asks for; null: the account decides. */
  readonly chosen: string | null;
  readonly credentials: Credentials;
  /** `https://host[:port]` and the path prefix without trailing slash. */
  readonly origin: string;
  readonly prefix: string;
  /** A custom host takes the place of the provider's own address. */
  readonly elsewhere: boolean;
  /** Operator's own headers of the integration or virtual key, `[name, value, …]`. */
  readonly customHeaders: readonly string[];
  readonly shaping: Shaping | null;
  readonly forwardHeaders: readonly string[];
  readonly timeoutMs: number | null;
  readonly limits: AttemptLimits;
  /** What becomes of a stream that breaks after its first content; null: an error tells it. */
  readonly onBreak: BreakRules | null;
  /** When a call that has not answered yet is made once more; null: never. */
  readonly hedge: Hedge | null;
  readonly retry: Retry | null;
  /** Null without a cache. */
  readonly cache: CachePolicy | null;
  readonly strict: boolean;
  /** It is sent the trace that a request is part of. */
  readonly propagates: boolean;
  /** Credentials that travel upstream: a header or error that echoes one loses it. */
  readonly sent: readonly string[];

  constructor(parts: {
    path: string;
    provider: Provider;
    stored: StoredProvider | null;
    until?: number;
    opened?: OpenedAccount | null;
    credentials: Credentials;
    url: URL | null;
    customHeaders: readonly string[];
    shaping: Shaping | null;
    forwardHeaders: readonly string[];
    timeoutMs: number | null;
    limits: AttemptLimits;
    onBreak: BreakRules | null;
    hedge: Hedge | null;
    retry: Retry | null;
    cache: CachePolicy | null;
    strict: boolean;
    propagates?: boolean;
    placed?: { readonly model: string; readonly priced: string | null } | null;
    chosen?: string | null;
  }) {
    this.path = parts.path;
    this.provider = parts.provider;
    this.stored = parts.stored;
    this.opened = parts.opened ?? null;
    this.until = parts.until ?? Number.POSITIVE_INFINITY;
    this.deployment = parts.placed?.model ?? null;
    this.priced = parts.placed?.priced ?? null;
    this.chosen = parts.chosen ?? null;
    this.credentials = parts.credentials;
    this.origin = parts.url?.origin ?? 'http://in-process';
    this.prefix = parts.url?.pathname.replace(/\/+$/, '') ?? '';
    this.elsewhere = this.origin + this.prefix !== parts.provider.baseUrl(parts.credentials);
    this.customHeaders = parts.customHeaders;
    this.shaping = parts.shaping;
    this.forwardHeaders = parts.forwardHeaders;
    this.timeoutMs = parts.timeoutMs;
    this.limits = parts.limits;
    this.onBreak = parts.onBreak;
    this.hedge = parts.hedge;
    this.retry = parts.retry;
    this.cache = parts.cache;
    this.strict = parts.strict;
    this.propagates = parts.propagates ?? false;
    this.sent = secretsOf(parts.credentials, parts.customHeaders, parts.provider.account.secrets);
  }

  /** The name that a model is sent by: that of the account's deployment, else of the model that the config makes of it. */
  sends(asked: string): string {
    return this.deployment ?? modelUnder(this.shaping, asked);
  }

  /** The same target for one attempt, which sends other credentials: a list that may still grow. */
  sending(sent: readonly string[]): Target {
    return Object.assign(Object.create(Target.prototype), this, { sent });
  }

  /** The same target with what a secret manager has in place of the account's credential; null where it sends another one. */
  renewed(fresh: OpenedAccount): Target | null {
    const before = this.opened;
    if (before === null || this.credentials.key !== before.key) return null;
    const settings: Record<string, unknown> = { ...this.credentials.settings };
    for (const [name, value] of Object.entries(fresh.settings)) {
      if (settings[name] === before.settings[name]) settings[name] = value;
    }
    const credentials = { key: fresh.key, settings };
    const sent = secretsOf(credentials, this.customHeaders, this.provider.account.secrets);
    return Object.assign(Object.create(Target.prototype), this, { credentials, sent, opened: fresh });
  }

  /**
   * How this target serves an operation with a model; `unsupported_operation` (501, no call) when it does not. `passed` says
   * at which path a request is passed through, for the error.
   */
  bind(operation: OperationId, model: string, passed?: () => string): Bound {
    const bound = bindingFor(this.provider, operation, model, this.credentials);
    if (bound === null) {
      throw new SluiceError(
        'unsupported_operation',
        passed !== undefined && operation === 'proxy'
          ? `Provider ${this.provider.id} has no operation at ${passed()}`
          : `Provider ${this.provider.id} does not offer the operation ${operation}.`,
      );
    }
    return bound;
  }
}

/** Whether rate limits may count a request by where it goes: its provider and integration, or a policy. */
export function countsRates({ ratePolicies }: WorkspaceSnapshot, target: Target | null): boolean {
  return ratePolicies.llm !== null || (target?.stored?.rateLimits.length ?? 0) > 0;
}

/** The same of usage limits. */
export function countsUse({ usagePolicies }: WorkspaceSnapshot, target: Target | null): boolean {
  return usagePolicies !== null || (target?.stored?.usageLimits.length ?? 0) > 0;
}
