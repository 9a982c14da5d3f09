import type { z } from 'zod';
import type { Principal } from '../auth/principal.ts';
import type { GuardrailDesk } from '../guardrails/trial.ts';
import type { Clock } from '../kernel/clock.ts';
import type { SimulationDesk } from '../limits/simulation/desk.ts';
import type { LogSink, Query, SystemTx, TenantContext, TenantTx, Where } from '../store/ports.ts';
import type { Row, TableName, TenantTable } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import type { Gateways, Mails, ProviderAccounts } from './ports.ts';
import type { Reference, ReferredTo } from './references.ts';
import type { CheckHost } from './shapes.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';
export type AuditAction = 'create' | 'update' | 'delete' | 'publish' | 'export' | 'rotate' | 'manage' | 'duplicate';

/** Who may come in: a key, a console session, either whatever its scopes, the operator key, or nobody in particular. */
export type RouteAuth = 'public' | 'key' | 'key_or_login' | 'any_credential' | 'login' | 'operator';

/**
 * One administration operation, declared. `admin/handle.ts` is the one handler over all of them: it authenticates,
 * checks scopes, validates what comes in and what goes out, opens one transaction and writes the audit row in it.
 */
export interface Action<P = unknown, Q = unknown, B = unknown, R = unknown> {
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
   * a member's scopes, and the action shows only what was joined.
   */
  readonly workspace?: { readonly param: string } | 'joined';
  readonly params: z.ZodType<P> | null;
  readonly query: z.ZodType<Q> | null;
  /** Query parameters that may be sent several times: the schema gets their values joined by commas. */
  readonly lists?: readonly string[];
  readonly body: z.ZodType<B> | null;
  readonly response: z.ZodType<R>;
  /** Writes run in a write transaction and leave an audit row; reads do not. A GET writes only what `ahead` found out. */
  readonly writes: boolean;
  /** A POST that only reads: neither audited nor kept for an `Idempotency-Key`. */
  readonly asks?: boolean;
  /** Runs outside any transaction, also when the store is lost; `call.tx` must not be touched. Reads only. */
  readonly standalone?: boolean;
  readonly audit: { readonly action: AuditAction; readonly resource: string } | null;
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
   * What an action has to ask of others: no transaction may wait for them. `find` reads what is needed for it, null for nothing;
   * `ask` runs outside any transaction, and what it answers is `call.asked`.
   */
  readonly ahead?: {
    find(call: Call<P, Q, B>): Promise<unknown>;
    ask(later: Later, found: unknown): Promise<unknown>;
  };
  run(call: Call<P, Q, B>): Promise<R>;
}

/** What an action gets: never headers, never HTTP, never SQL. */
export interface Call<P = unknown, Q = unknown, B = unknown> {
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
  /** Null: no mail server is configured. */
  readonly mails: Mails | null;
  /**
   * Names the object in the audit row, and the object as it was and as it is: rows or answers, whose secrets the audit
   * masks by column and by name. `defineResource` does this for its five verbs; what a rule adds is put beside it, so an
   * action may call this several times. Not for anything that is larger than its object: texts are cut at 64 KiB.
   * The workspace of the object counts where the call has named none.
   */
  audited(resourceId: string, change?: AuditedChange, workspaceId?: string | null): void;
  /** What still refers to an object, asked of every resource that has something to say (`resources/references.ts`). */
  references(to: ReferredTo): Promise<readonly Reference[]>;
  /**
   * For reads that take long: `work` runs when the transaction has ended, and what it returns is the answer of the
   * action, which returns what this returns. `signal` is aborted when the client has gone.
   */
  later<R>(work: (later: Later) => Promise<R>): R;
  /** What `ahead` has found out; null without it. */
  readonly asked: unknown;
  /** Runs after the commit (cache invalidation on this node and the like); failures are logged, not answered. */
  afterCommit(run: () => void | Promise<void>): void;
}

export interface Later {
  readonly signal: AbortSignal;
  readonly simulations: SimulationDesk;
  readonly guardrails: GuardrailDesk;
  /** Records of requests, one at a time; those of this node are there as soon as they are written. */
  readonly records: Pick<LogSink, 'find'>;
  readonly accounts: ProviderAccounts;
  readonly mails: Mails;
  readonly gateways: Gateways;
}

/** An object before and after a write; null where there was or is none. */
export interface AuditedChange {
  readonly before: Readonly<Record<string, unknown>> | null;
  readonly after: Readonly<Record<string, unknown>> | null;
  /** When they are rows: sealed columns are masked then, and times written out. */
  readonly table?: TableName;
}

/** Conditions of a query: `where` must hold, and one of `anyOf` when given. */
export interface Filter<N extends TenantTable> {
  readonly where?: Where<N>;
  readonly anyOf?: readonly Where<N>[];
}

/** What is done to one object; further actions count as the verb that their scope is most like. */
export type ItemVerb = 'read' | 'update' | 'delete';

/**
 * A declared resource: list, get, create, update, delete and what else `actions` names. `defineResource` turns it into
 * Actions. In the one transaction of a write it inserts, patches, archives or removes the row, sets `last_updated_at`,
 * and appends to the change feed under `topic`; rules only check and build.
 */
export interface ResourceSpec<N extends TenantTable, C, U> {
  readonly name: string;
  readonly tag: string;
  readonly table: N;
  /** `/configs`. */
  readonly path: string;
  /** Further complete base paths, version prefix included: `/v2/workspaces`. */
  readonly aliases?: readonly string[];
  /** Name of the path parameter, `slug` or `id`; the value may be the UUID or the slug when the table has one. */
  readonly param: string;
  /** What a path may put before the UUID or slug; no slug begins with it. */
  readonly pathPrefix?: string;
  /** Id of the object that `self` names in a path. Throws for a caller that is none; no slug may be `self` then. */
  readonly self?: (call: Call) => string;
  /** Scope prefix: `configs` gives `configs.list` … Several prefixes mean any of them. */
  readonly scopes: readonly string[];
  /** For list and create. Get, update and delete of a `workspace` resource take `workspace_optional`: slugs are unique in the organisation. */
  readonly tenant: Action['tenant'];
  /** Default `key_or_login`. */
  readonly auth?: Action['auth'];
  /** Value of `object` in answers. */
  readonly object: string;
  /** What the API reference calls one, where that is not `object`. */
  readonly noun?: string;
  /** Rows a delete leaves behind with `status: archived` are hidden from list and get. */
  readonly archives: boolean;
  /** Topic in the change feed; default the table's name. */
  readonly topic?: TableName;
  /** What of the tenant's rows this caller may see at all; applies to list, get, update and delete. */
  readonly visible?: (call: Call, verb: ItemVerb | 'list') => Filter<N> | Promise<Filter<N>>;
  readonly list: {
    /** The filters only: paging, `workspace_id` and `organisation_id` are added, unknown parameters refused. */
    readonly query: z.ZodObject;
    /** Filters that may be sent several times (`Action.lists`). */
    readonly lists?: readonly string[];
    readonly where?: (call: Call<unknown, Record<string, unknown>>) => Where<N> | Promise<Where<N>>;
    /** Alternatives beside `where`. */
    readonly anyOf?: (call: Call<unknown, Record<string, unknown>>) => readonly Where<N>[] | undefined;
    readonly orderBy?: Query<N>['orderBy'];
    readonly defaultPageSize: number | ((query: Readonly<Record<string, unknown>>) => number);
    readonly maxPageSize: number;
    /** `camel`: `currentPage` and `pageSize` beside the snake-case names. */
    readonly style?: 'page' | 'camel';
    readonly item: z.ZodType;
    /** Presents a whole page at once, where one by one would need a query per row. */
    readonly presentAll?: (rows: readonly Row<N>[], call: Call) => Promise<unknown[]>;
  } | null;
  readonly get?: {
    /** Query parameters beside `workspace_id` and `organisation_id`. */
    readonly query?: z.ZodObject;
    /** A condition on status, in place of the one that hides archived rows. */
    readonly where?: (call: Call<Record<string, unknown>, Record<string, unknown>>) => Where<N>;
  };
  readonly detail: z.ZodType;
  /** Row to answer. `full` is true for get, false in lists. */
  readonly present: (row: Row<N>, call: Call, full: boolean) => unknown | Promise<unknown>;
  readonly create: {
    readonly body: z.ZodType<C>;
    readonly response: z.ZodType;
    /** The answer shows a secret that is shown once (`Action.secretAnswer`). */
    readonly secretAnswer?: boolean;
    /** Checks rules and builds the row; answers what the caller sees. Rows of other tables that need this one belong in `after`. */
    readonly run: (call: Call<unknown, unknown, C>) => Promise<{ row: Row<N>; answer: unknown }>;
    /** Runs in the same transaction, once the row stands; what it answers is added to the answer. */
    readonly after?: (call: Call<unknown, unknown, C>, row: Row<N>) => Promise<object | undefined>;
  } | null;
  readonly update: {
    readonly body: z.ZodType<U>;
    readonly response: z.ZodType;
    readonly run: (
      call: Call<unknown, unknown, U>,
      row: Row<N>,
    ) => Promise<{ patch: Partial<Row<N>>; answer: unknown }>;
  } | null;
  readonly remove: {
    readonly query?: z.ZodObject;
    /** Throws when the row is still used. */
    readonly check?: (call: Call, row: Row<N>) => Promise<void>;
    /** Removes what hangs on the row, in the same transaction, before the row itself goes. */
    readonly clean?: (call: Call, row: Row<N>) => Promise<void>;
  } | null;
  // biome-ignore lint/suspicious/noExplicitAny: a list of actions of different inputs
  readonly actions?: readonly Action<any, any, any, any>[];
}

/** An action whose input types no longer matter: what the handler and the OpenAPI generator see. */
// biome-ignore lint/suspicious/noExplicitAny: a list of actions of different inputs
export type AnyAction = Action<any, any, any, any>;

/**
 * An operation of whoever runs the installation (`/operator/*`): opened by the operator key only, over all
 * organisations, of which it reads no content.
 */
export interface OperatorAction<P = unknown, Q = unknown, B = unknown, R = unknown>
  extends Omit<Action<P, Q, B, R>, 'auth' | 'run'> {
  readonly auth: 'operator';
  run(call: OperatorCall<P, Q, B>): Promise<R>;
}

// biome-ignore lint/suspicious/noExplicitAny: a list of actions of different inputs
export type AnyOperatorAction = OperatorAction<any, any, any, any>;

export interface OperatorCall<P = unknown, Q = unknown, B = unknown>
  extends Omit<
    Call<P, Q, B>,
    | 'principal'
    | 'tenant'
    | 'tx'
    | 'audited'
    | 'vault'
    | 'checkHost'
    | 'publicUrl'
    | 'mails'
    | 'references'
    | 'later'
    | 'asked'
  > {
  readonly tx: SystemTx;
  /** Names the organisation whose audit log gets the row; without it a refused or read-only call leaves none. */
  audited(organisationId: string, change?: AuditedChange): void;
}
