/** What a resource declares; `define.ts` turns it into actions. */
import type { z } from 'zod';
import type { Query, Where } from '../store/ports.ts';
import type { Row, TableName, TenantTable } from '../store/schema.ts';
import type { ItemVerb, LooseCall } from './calls.ts';
import type { Levels } from './kinds/levels.ts';
import type { Envelope, Paging } from './kinds/lists.ts';
import type { NewVersion, Versions, VersionTable } from './kinds/versions.ts';
import type { Reference, Refers } from './references.ts';
import type { Action, AnswerForm, AnyAction, AuditAction, Call } from './resource.ts';
import type { AfterCommit, Work } from './services.ts';

/** Conditions of a query: `where` must hold, and one of `anyOf` when given. */
export interface Filter<N extends TenantTable> {
  readonly where?: Where<N>;
  readonly anyOf?: readonly Where<N>[];
}

export type { ItemVerb, LooseCall } from './calls.ts';

/** What the API reference says of an operation beyond what follows from its resource. */
export interface Described {
  readonly summary?: string;
  readonly description?: string;
  readonly example?: Action['example'];
}

/** A new row, with its first version where the resource has versions. */
export interface Created<N extends TenantTable, V extends VersionTable> {
  readonly row: Row<N>;
  readonly version?: NewVersion<V>;
  readonly answer: unknown;
}

/** What becomes of a row. An empty patch only announces. A new version becomes the current one. */
export interface Changed<N extends TenantTable, V extends VersionTable> {
  readonly patch?: Partial<Row<N>>;
  readonly version?: NewVersion<V>;
}

/**
 * A declared resource: list, get, create, update, delete and what else `actions` names. `defineResource` turns it into
 * Actions. In the one transaction of a write it inserts, patches, archives or removes the row, sets `last_updated_at`,
 * and appends to the change feed under `topic`; rules only check and build.
 */
export interface ResourceSpec<N extends TenantTable, C, U, V extends VersionTable = never> {
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
  /** Of objects at two levels: after the look-up, the scope of the level of the object is needed. */
  readonly levels?: Levels;
  /** Of objects whose content has versions. */
  readonly versions?: Versions<N, V>;
  /** For list and create. Get, update and delete of a `workspace` resource take `workspace_optional`: slugs are unique in the organisation. */
  readonly tenant: Action['tenant'];
  /**
   * The objects are workspaces: a path that names one binds the call to it, and a list shows members what they have joined.
   */
  readonly isWorkspace?: boolean;
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
  /** `whole`: the audit log gets all columns of an object that is updated, as they are stored. Default `changed`. */
  readonly audits?: 'changed' | 'whole';
  /** What of the tenant's rows this caller may see at all; applies to list, get, update and delete. */
  readonly visible?: (call: Call, verb: ItemVerb | 'list') => Filter<N> | Promise<Filter<N>>;
  readonly list:
    | (Described & {
        /** The filters only: paging, `workspace_id` and `organisation_id` are added, unknown parameters refused. */
        readonly query: z.ZodObject;
        /** Filters that may be sent several times (`Action.lists`). */
        readonly lists?: readonly string[];
        readonly where?: (call: LooseCall) => Where<N> | Promise<Where<N>>;
        /** Alternatives beside `where`. */
        readonly anyOf?: (call: LooseCall) => readonly Where<N>[] | undefined;
        /** Default: newest first. With `cursor` it cannot be chosen. */
        readonly orderBy?: Query<N>['orderBy'];
        readonly defaultPageSize: number | ((query: Readonly<Record<string, unknown>>) => number);
        readonly maxPageSize: number;
        /** Default `page`. */
        readonly paging?: Paging;
        /** Default `LIST`, with `cursor` `HAS_MORE`. */
        readonly envelope?: Envelope;
        readonly item: z.ZodType;
        /** Presents a whole page at once, where one by one would need a query per row. */
        readonly presentAll?: (rows: readonly Row<N>[], call: LooseCall) => Promise<unknown[]>;
      })
    | null;
  readonly get?: Described & {
    /** Query parameters beside `workspace_id` and `organisation_id`. */
    readonly query?: z.ZodObject;
    /** Archived rows are found too. */
    readonly archivedToo?: boolean;
    /** A condition on status, in place of the one that hides archived rows. */
    readonly where?: (call: LooseCall) => Where<N>;
  };
  readonly detail: z.ZodType;
  /** Row to answer. `full` is true for get, false in lists. */
  readonly present: (row: Row<N>, call: LooseCall, full: boolean) => unknown | Promise<unknown>;
  readonly create:
    | (Described & {
        readonly tenant?: Action['tenant'];
        readonly body: z.ZodType<C>;
        /** Default: the body names the tenant. */
        readonly query?: z.ZodObject;
        readonly response: z.ZodType;
        readonly answers?: AnswerForm;
        /** The answer shows a secret that is shown once (`Action.secretAnswer`). */
        readonly secretAnswer?: boolean;
        /** Checks rules and builds the row; answers what the caller sees. Rows of other tables that need this one belong in `after`. */
        readonly run: (call: Call<unknown, unknown, C>) => Promise<Created<N, V>>;
        /** Runs in the same transaction, once the row stands; what it answers is added to the answer. */
        readonly after?: (call: Call<unknown, unknown, C>, row: Row<N>) => Promise<object | undefined>;
      })
    | null;
  readonly update:
    | (Described &
        Pick<Action, 'own'> & {
          /** Default `PUT`. */
          readonly method?: 'PUT' | 'PATCH';
          readonly body: z.ZodType<U>;
          readonly response: z.ZodType;
          /** Archived rows are found too: the rule decides what may become of them. */
          readonly archivedToo?: boolean;
          /** As `Action.ahead`; the row is not there yet. */
          readonly ahead?: (call: LooseCall<U>) => Promise<Work<unknown> | null>;
          readonly run: (
            call: Call<unknown, unknown, U>,
            row: Row<N>,
          ) => Promise<Changed<N, V> & { readonly answer: unknown }>;
        })
    | null;
  readonly remove:
    | (Described & {
        readonly query?: z.ZodObject;
        readonly body?: z.ZodObject;
        /** Throws when the row must stay. */
        readonly check?: (call: LooseCall, row: Row<N>) => Promise<void>;
        /** What a 409 says while others refer to the row (`references.ts`). */
        readonly referred?: (first: Reference, all: readonly Reference[]) => string;
        /** Removes what hangs on the row, in the same transaction, before the row itself goes. */
        readonly clean?: (call: LooseCall, row: Row<N>) => Promise<void>;
        /** What a delete makes of the row, in place of archiving it. */
        readonly patch?: (call: LooseCall, row: Row<N>) => Promise<Partial<Row<N>>>;
      })
    | null;
  readonly actions?: readonly AnyAction[];
  /** Where objects of this resource name those of others. */
  readonly refers?: readonly Refers[];
}

/** A further action on one object, or on what is below it; the object is looked up as the verb's own action does. */
export interface ItemAction<N extends TenantTable, V extends VersionTable, Q, B, R, A = unknown> extends Described {
  /** Last part of the id, and of the path unless `path` says otherwise: `ping` is `GET /deployments/:id/ping`. */
  readonly name: string;
  /** Whole id, where it is not the resource's. */
  readonly id?: string;
  /** Below the object, with parameters: `/versions/:versionId`. */
  readonly path?: string;
  /** Further paths below the object, under which the same is answered. */
  readonly alsoAt?: readonly string[];
  readonly method: Action['method'];
  readonly summary: string;
  readonly tag?: string;
  /** Whose scope it needs, and who sees the object. */
  readonly verb: ItemVerb;
  /** Scopes in place of the verb's; that of a level is not asked for then. */
  readonly scopes?: readonly string[];
  readonly tenant?: Action['tenant'];
  /** Who sees the object, in place of the resource's `visible`. */
  readonly visible?: (call: Call) => Filter<N> | Promise<Filter<N>>;
  /** Archived rows are found too. */
  readonly archivedToo?: boolean;
  /** Query parameters. Default those of the tenant; null: none. */
  readonly query?: z.ZodType<Q> | null;
  readonly body?: z.ZodType<B>;
  readonly takes?: Action['takes'];
  readonly response: z.ZodType<unknown, R>;
  readonly answers?: AnswerForm;
  readonly secretAnswer?: boolean;
  /** Null: it only reads. */
  readonly audit: AuditAction | NonNullable<Action['audit']> | null;
  /** As `Action.ahead`, with the row. */
  ahead?(call: Call<Readonly<Record<string, string>>, Q, B>, row: Row<N>): Promise<Work<A> | null>;
  /** The change is written like that of an update. */
  run(
    call: Call<Readonly<Record<string, string>>, Q, B, A>,
    row: Row<N>,
  ): Promise<(Changed<N, V> & { readonly answer: R }) | AfterCommit<R>>;
}
