import type { z } from 'zod';
import type { Principal } from '../auth/principal.ts';
import type { Clock } from '../kernel/clock.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { Steps } from '../kernel/turns.ts';
import type { SystemTx, TenantContext, TenantTx } from '../store/ports.ts';
import type { TableName } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { CheckHost } from './body-fields.ts';
import type { Reference, ReferredTo } from './references.ts';
import type { AfterCommit, Service, Work } from './services.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
export type AuditAction = 'create' | 'update' | 'delete' | 'publish' | 'export' | 'rotate' | 'manage' | 'duplicate';

/** Who may come in: a key, a console session, either whatever its scopes, the operator key, or nobody in particular. */
export type RouteAuth = 'public' | 'key' | 'key_or_login' | 'any_credential' | 'login' | 'operator';

/** What a rule answers for a schema: it may be read-only. */
export type AnswerValue<T> = T extends object ? { readonly [K in keyof T]: AnswerValue<T[K]> } : T;

/** How an answer is written. */
export type AnswerForm =
  | { readonly as: 'json'; readonly status: 200 | 201 | 202 }
  /** 204, whatever `run` returns. */
  | { readonly as: 'nothing' }
  /** `run` returns the text. */
  | { readonly as: 'text'; readonly contentType: string }
  /** `run` returns the URL. */
  | { readonly as: 'redirect'; readonly status: 302 | 303 }
  /**
   * Server-sent events, without end: the action is carried out every so many milliseconds, with all that is asked of a request, the
   * credential and its rights among it. `run` returns `EventTurn`, of which `next` is `call.since` of the next turn.
   */
  | { readonly as: 'events'; readonly everyMs: number };

/** What one turn of an action that answers events has to say. */
export interface EventTurn {
  readonly events: readonly { readonly event: string; readonly data: unknown }[];
  /** Where the next turn goes on. */
  readonly next: string;
}

/** How a body of large entries is read. */
export interface Entries {
  readonly most: number;
  /** Of one entry. */
  readonly bytes: number;
  /** What the action needs of an entry; the rest is forgotten before the next one is read. */
  readonly keep: (entry: JsonObject) => JsonObject;
}

/**
 * One administration operation, declared. `admin/handle.ts` is the one handler over all of them: it authenticates,
 * checks scopes, validates what comes in and what goes out, opens one transaction and writes the audit row in it.
 */
export interface Action<P = unknown, Q = unknown, B = unknown, R = unknown, A = unknown> {
  /** Operation id, unique: `configs.create`. */
  readonly id: string;
  readonly method: Method;
  /** Under `/v1` and `/v2`, fastify syntax: `/configs/:slug`. */
  readonly path: string;
  /** Where `path` stands; both when absent. */
  readonly prefixes?: readonly ('/v1' | '/v2')[];
  /** Further complete paths, version prefix included: `/v2/workspaces/:id`. */
  readonly aliases?: readonly string[];
  readonly summary: string;
  /** For the API reference. */
  readonly description?: string;
  readonly example?: { readonly body?: unknown; readonly response?: unknown };
  readonly tag: string;
  /** Name of its object in the OpenAPI document: `Config`. Of the five verbs of a resource. */
  readonly component?: string;
  readonly auth: Exclude<RouteAuth, 'operator'>;
  /** Any one of these suffices; empty only for `public`, `any_credential`, `login` and `operator`. `{type}` and `{subType}` stand for path parameters. */
  readonly scopes: readonly string[];
  /**
   * Where the tenant comes from. `workspace`: the key's own, or `workspace_id` (query or body) with an
   * organisation-wide principal. `workspace_optional`: as before, but without one the whole organisation is meant.
   * `organisation`: never narrowed to a workspace, also not for a key bound to one; the action itself decides what such
   * a key may see. A named workspace (UUID or slug) arrives resolved and visible: `call.tenant.workspaceId` is its UUID.
   */
  readonly tenant: 'none' | 'organisation' | 'workspace' | 'workspace_optional';
  /**
   * For routes whose object is a workspace or belongs to the one in the path. `{ param }`: this path parameter names it
   * (UUID or slug) and `call.tenant` is bound to it; one that the caller cannot see is the 404. To organisation-wide
   * callers archived ones resolve too: the action decides. `joined`: no workspace is named; a signed-in member acts with
   * a member's scopes, and the action shows only what was joined. `past`: reads what a workspace has left behind. Archived
   * ones resolve for organisation-wide callers, and `workspace_slug` of the query names one too; a credential that is
   * bound to a workspace reads its own, whatever that says.
   */
  readonly workspace?: { readonly param: string } | 'joined' | 'past';
  readonly params: z.ZodType<P> | null;
  readonly query: z.ZodType<Q> | null;
  /** Query parameters that may be sent several times: the schema gets their values joined by commas. */
  readonly lists?: readonly string[];
  readonly body: z.ZodType<B> | null;
  /** What the body is: a JSON object when absent. `one_or_many`: a JSON object, or a list of them. */
  readonly takes?: 'form' | 'one_or_many';
  /**
   * The body is one JSON object or a list of them, each of which may be large: they are read one by one. Instead of `takes`. The
   * schema judges what is kept of them.
   */
  readonly entries?: Entries;
  /** The answer, which may be an input of the schema: what it does not name is left out. */
  readonly response: z.ZodType<unknown, R>;
  /** JSON with the status 200 when absent. */
  readonly answers?: AnswerForm;
  /** Writes run in a write transaction and leave an audit row, unless `unaudited`; reads do not. A GET writes only what `ahead` found out. */
  readonly writes: boolean;
  /** A POST that only reads: neither audited nor kept for an `Idempotency-Key`. */
  readonly readOnly?: boolean;
  /** Runs outside any transaction, also when the store is lost; `call.tx` must not be touched. Reads only. */
  readonly standalone?: boolean;
  readonly audit: { readonly action: AuditAction; readonly resource: string } | null;
  /**
   * What it writes is data of requests and no configuration, as feedback is: it leaves no audit row, and no change for
   * other nodes. It does not queue with the audited writes of its organisation.
   */
  readonly unaudited?: boolean;
  /**
   * The answer shows a secret that is shown once, such as a new key: it is repeated for 10 minutes only to a caller that
   * sent an `Idempotency-Key`, where other answers of a POST are repeated for 24 hours.
   */
  readonly secretAnswer?: boolean;
  /**
   * A signed-in user needs no scope to change these fields of the body, where the path parameter names that user.
   */
  readonly own?: { readonly param: string; readonly fields: readonly string[] };
  /**
   * What the body means, where it takes longer to find out than its schema does: in steps, before the transaction and
   * outside any, so that neither requests nor other writes wait for it. What it answers is `call.prepared`. Throws
   * `validation`.
   */
  prepare?(body: B, given: Pick<Call, 'checkHost'>): Steps<unknown>;
  /**
   * What an action has to ask of others before its transaction, which may not wait for them. Reads what is needed for it
   * and answers the work, null for nothing; what that answers is `call.asked`.
   */
  ahead?(call: Call<P, Q, B>): Promise<Work<A> | null>;
  /** The answer, or with `afterCommit` how it is made when the transaction has ended; a write has its answer at once. */
  run(call: Call<P, Q, B, A>): Promise<AnswerValue<NoInfer<R>> | AfterCommit<AnswerValue<NoInfer<R>>>>;
}

declare const declared: unique symbol;

/** A declared action, as the handler and the OpenAPI generator see it: `action` has tied its types together. */
export type AnyAction = Action & { readonly [declared]: true };

/** Declares an action: what its schemas say is what `run` gets and answers. */
export function action<P, Q, B, R, A = null>(own: Action<P, Q, B, R, A>): AnyAction {
  // The handler gives `run` nothing but what the schemas of the same action have let through.
  return own as unknown as AnyAction;
}

/** What an action gets: never headers, never HTTP, never SQL. */
export interface Call<P = unknown, Q = unknown, B = unknown, A = unknown> {
  readonly principal: Principal;
  readonly tenant: TenantContext;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  readonly tx: TenantTx;
  readonly clock: Clock;
  readonly vault: Vault;
  /** Null for a custom host that may be stored, else what is wrong with it: the egress guard's syntax check. */
  readonly checkHost: CheckHost;
  readonly requestId: string;
  /** SLUICE_PUBLIC_URL without a trailing slash, for links that are handed out. */
  readonly publicUrl: string;
  /** A service that this node may have; null where it has none. Waiting for it belongs in `ahead` or after the commit. */
  service<T>(wanted: Service<T>): T | null;
  /**
   * Names the object in the audit row, and the object as it was and as it is: rows or answers, whose secrets the audit
   * masks by column and by name. `defineResource` does this for its five verbs; what a rule adds is put beside it, so an
   * action may call this several times. Not for anything that is larger than its object: texts are cut at 64 KiB.
   * The workspace of the object counts where the call has named none.
   */
  audit(resourceId: string, change?: AuditedChange, workspaceId?: string | null): void;
  /** What still refers to an object, asked of every resource that has something to say (`resources/references.ts`). */
  references(to: ReferredTo): Promise<readonly Reference[]>;
  /** Of answers as events: `next` of the turn before; null in the first, and of all other actions. */
  readonly since: string | null;
  /** What `prepare` has found out; null without it. */
  readonly prepared: unknown;
  /** What `ahead` has found out; null without it. */
  readonly asked: A | null;
  /** Runs after the commit (cache invalidation on this node and the like); failures are logged, not answered. */
  onCommit(run: () => void | Promise<void>): void;
}

/** An object before and after a write; null where there was or is none. */
export interface AuditedChange {
  readonly before: object | null;
  readonly after: object | null;
  /** When they are rows: sealed columns are masked then, and times written out. */
  readonly table?: TableName;
}

/**
 * An operation of whoever runs the installation (`/operator/*`): opened by the operator key only, over all
 * organisations, of which it reads no content.
 */
export interface OperatorAction<P = unknown, Q = unknown, B = unknown, R = unknown>
  extends Omit<Action<P, Q, B, R>, 'auth' | 'run' | 'ahead' | 'prepare'> {
  readonly auth: 'operator';
  run(call: OperatorCall<P, Q, B>): Promise<AnswerValue<NoInfer<R>>>;
}

export type AnyOperatorAction = OperatorAction & { readonly [declared]: true };

/** Declares an operation of the operator, as `action` does. */
export function operatorAction<P, Q, B, R>(own: OperatorAction<P, Q, B, R>): AnyOperatorAction {
  return own as unknown as AnyOperatorAction;
}

export interface OperatorCall<P = unknown, Q = unknown, B = unknown>
  extends Omit<
    Call<P, Q, B>,
    | 'principal'
    | 'tenant'
    | 'tx'
    | 'audit'
    | 'vault'
    | 'checkHost'
    | 'publicUrl'
    | 'service'
    | 'references'
    | 'prepared'
    | 'asked'
    | 'since'
  > {
  readonly tx: SystemTx;
  /** Names the organisation whose audit log gets the row; without it a refused or read-only call leaves none. */
  audit(organisationId: string, change?: AuditedChange): void;
}
