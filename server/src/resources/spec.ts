/** What a resource declares; `define.ts` turns it into actions. */
import type { z } from 'zod';
import type { Steps } from '../kernel/turns.ts';
import type { Query, Where } from '../store/ports.ts';
import type { Row, TableName, TenantTable } from '../store/schema.ts';
import type { ItemCall, ItemVerb } from './calls.ts';
import type { Levels } from './kinds/levels.ts';
import type { Envelope, Paging } from './kinds/lists.ts';
import type { NewVersion, Versions, VersionTable } from './kinds/versions.ts';
import type { Reference, Refers } from './references.ts';
import type { Action, AnswerForm, AnswerValue, AnyAction, AuditAction, Call } from './resource.ts';
import type { AfterCommit, Work } from './services.ts';

/** Conditions of a query: `where` must hold, and one of `anyOf` when given. */
export interface Filter<N extends TenantTable> {
  readonly where?: Where<N>;
  readonly anyOf?: readonly Where<N>[];
}

export type { ItemCall, ItemVerb } from './calls.ts';

/** What the API reference says of an operation beyond what follows from its resource. */
export interface Described {
  readonly summary?: string;
  readonly description?: string;
  readonly example?: Action['example'];
}

/** A new row, with its first version where the resource has versions. */
export interface Created<N extends TenantTable, V extends VersionTable, R> {
  readonly row: Row<N>;
  readonly version?: NewVersion<V>;
  readonly answer: R;
}

/** What becomes of a row. An empty patch only announces. A new version becomes the current one. */
export interface Changed<N extends TenantTable, V extends VersionTable> {
  readonly patch?: Partial<Row<N>>;
  readonly version?: NewVersion<V>;
}

/** Types of what the schemas of a resource let in and out. */
export interface ResourceTypes {
  /** Query of the list. */
  readonly filters: z.ZodRawShape;
  readonly item: unknown;
  /** Query of one object. */
  readonly query: z.ZodRawShape;
  readonly detail: unknown;
  readonly create: unknown;
  readonly created: object;
  readonly update: unknown;
  readonly updated: unknown;
  readonly removeQuery: z.ZodRawShape;
  readonly removeBody: unknown;
  readonly version: unknown;
  readonly restored: unknown;
}

/** A query as the rules get it. */
export type Parsed<S extends z.ZodRawShape> = z.output<z.ZodObject<S>>;

/**
 * A declared resource: list, get, create, update, delete and what else `actions` names. `defineResource` turns it into
 * Actions. In the one transaction of a write it inserts, patches, archives or removes the row, sets `last_updated_at`,
 * and appends to the change feed under `topic`; rules only check and build. `resourceSpec` finds `T` in the schemas. Rules
 * are methods, so that a spec of any types is a `ResourceSpec<N, V>`: the handler gives them what the schemas let through.
 */
export interface ResourceSpec<
  N extends TenantTable,
  V extends VersionTable = never,
  T extends ResourceTypes = ResourceTypes,
> {
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
  /** Last parts of the scopes, where they are not the verbs themselves. */
  readonly verbs?: Readonly<Record<'list' | 'read' | 'create' | 'update' | 'delete', string>>;
  /** Of objects at two levels: after the look-up, the scope of the level of the object is needed. */
  readonly levels?: Levels;
  /** Of objects whose content has versions. */
  readonly versions?: Versions<N, V, T['version'], T['restored']>;
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
  readonly list: (ListSpec<N, T> & Presented<N, T>) | null;
  readonly get?: Described & {
    /** Query parameters beside `workspace_id` and `organisation_id`. */
    readonly query?: z.ZodObject<T['query']>;
    /** Archived rows are found too. */
    readonly archivedToo?: boolean;
    /** A condition on status, in place of the one that hides archived rows. */
    where?(call: ItemCall<Parsed<T['query']>>): Where<N>;
  };
  readonly detail: z.ZodType<unknown, T['detail']>;
  /** One object as get answers it. */
  present(
    row: Row<N>,
    call: ItemCall<Parsed<T['query']>>,
  ): AnswerValue<NoInfer<T['detail']>> | Promise<AnswerValue<NoInfer<T['detail']>>>;
  readonly create:
    | (Described & {
        readonly tenant?: Action['tenant'];
        readonly body: z.ZodType<T['create']>;
        /** Default: the body names the tenant. */
        readonly query?: z.ZodObject;
        readonly response: z.ZodType<unknown, T['created']>;
        readonly answers?: AnswerForm;
        /** The answer shows a secret that is shown once (`Action.secretAnswer`). */
        readonly secretAnswer?: boolean;
        /** As `Action.prepare`. */
        prepare?(body: T['create'], given: Pick<Call, 'checkHost'>): Steps<unknown>;
        /** As `Action.ahead`. */
        ahead?(call: Call<unknown, unknown, T['create']>): Promise<Work<unknown> | null>;
      } & (
          | Creates<N, V, T['create'], AnswerValue<NoInfer<T['created']>>>
          | CreatesFirst<N, V, T['create'], AnswerValue<NoInfer<T['created']>>>
        ))
    | null;
  readonly update:
    | (Described &
        Pick<Action, 'own'> & {
          /** Default `PUT`. */
          readonly method?: 'PUT' | 'PATCH';
          readonly body: z.ZodType<T['update']>;
          readonly response: z.ZodType<unknown, T['updated']>;
          /** Archived rows are found too: the rule decides what may become of them. */
          readonly archivedToo?: boolean;
          /** As `Action.prepare`. */
          prepare?(body: T['update'], given: Pick<Call, 'checkHost'>): Steps<unknown>;
          /** As `Action.ahead`; the row is not there yet. */
          ahead?(call: ItemCall<unknown, T['update']>): Promise<Work<unknown> | null>;
          run(
            call: ItemCall<unknown, T['update']>,
            row: Row<N>,
          ): Promise<Changed<N, V> & { readonly answer: AnswerValue<NoInfer<T['updated']>> }>;
        })
    | null;
  readonly remove:
    | (Described & {
        readonly query?: z.ZodObject<T['removeQuery']>;
        readonly body?: z.ZodType<T['removeBody']>;
        /** Throws when the row must stay. */
        check?(call: RemoveCall<T>, row: Row<N>): Promise<void>;
        /** What a 409 says while others refer to the row (`references.ts`). */
        referred?(first: Reference, all: readonly Reference[]): string;
        /** Removes what hangs on the row, in the same transaction, before the row itself goes. */
        clean?(call: RemoveCall<T>, row: Row<N>): Promise<void>;
        /** What a delete makes of the row, in place of archiving it. */
        patch?(call: RemoveCall<T>, row: Row<N>): Promise<Partial<Row<N>>>;
      })
    | null;
  readonly actions?: readonly AnyAction[];
  /** Where objects of this resource name those of others. */
  readonly refers?: readonly Refers[];
}

interface Creates<N extends TenantTable, V extends VersionTable, C, R> {
  /** Checks rules and builds the row; answers what the caller sees. Rows of other tables that need this one belong in `after`. */
  run(call: Call<unknown, unknown, C>): Promise<Created<N, V, R>>;
  /** Runs in the same transaction, once the row stands; what it answers is added to the answer. */
  after?(call: Call<unknown, unknown, C>, row: Row<N>): Promise<Partial<R> | undefined>;
}

/** Where the answer is known only once the row stands. */
interface CreatesFirst<N extends TenantTable, V extends VersionTable, C, R> {
  run(call: Call<unknown, unknown, C>): Promise<Created<N, V, null>>;
  after(call: Call<unknown, unknown, C>, row: Row<N>): Promise<R>;
}

type RemoveCall<T extends ResourceTypes> = ItemCall<Parsed<T['removeQuery']>, T['removeBody']>;

interface ListSpec<N extends TenantTable, T extends ResourceTypes> extends Described {
  /** The filters only: paging, `workspace_id` and `organisation_id` are added, unknown parameters refused. */
  readonly query: z.ZodObject<T['filters']>;
  /** Filters that may be sent several times (`Action.lists`). */
  readonly lists?: readonly string[];
  where?(call: Call<unknown, Parsed<T['filters']>>): Where<N> | Promise<Where<N>>;
  /** Alternatives beside `where`. */
  anyOf?(call: Call<unknown, Parsed<T['filters']>>): readonly Where<N>[] | undefined;
  /** Default: newest first. With `cursor` it cannot be chosen. */
  readonly orderBy?: Query<N>['orderBy'];
  readonly defaultPageSize: number;
  /** In place of `defaultPageSize`, where that depends on the filters. */
  pageSize?(filters: Parsed<T['filters']>): number;
  readonly maxPageSize: number;
  /** Default `page`. */
  readonly paging?: Paging;
  /** Default `LIST`, with `cursor` `HAS_MORE`. */
  readonly envelope?: Envelope;
  readonly item: z.ZodType<unknown, T['item']>;
}

/** A list presents its rows one by one, or a whole page at once, where one by one would need a query per row. */
type Presented<N extends TenantTable, T extends ResourceTypes> =
  | {
      present(
        row: Row<N>,
        call: Call<unknown, Parsed<T['filters']>>,
      ): AnswerValue<NoInfer<T['item']>> | Promise<AnswerValue<NoInfer<T['item']>>>;
      readonly presentAll?: undefined;
    }
  | {
      presentAll(
        rows: readonly Row<N>[],
        call: Call<unknown, Parsed<T['filters']>>,
      ): Promise<readonly AnswerValue<NoInfer<T['item']>>[]>;
      readonly present?: undefined;
    };

/** Declares a resource: what its schemas say is what its rules get and answer. */
export function resourceSpec<
  N extends TenantTable,
  F extends z.ZodRawShape,
  I,
  Q extends z.ZodRawShape,
  D,
  C,
  CR extends object,
  U,
  UR,
  RQ extends z.ZodRawShape,
  RB,
  VI,
  VR,
  V extends VersionTable = never,
>(
  own: ResourceSpec<
    N,
    V,
    {
      filters: F;
      item: I;
      query: Q;
      detail: D;
      create: C;
      created: CR;
      update: U;
      updated: UR;
      removeQuery: RQ;
      removeBody: RB;
      version: VI;
      restored: VR;
    }
  >,
) {
  return own;
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
  ): Promise<(Changed<N, V> & { readonly answer: AnswerValue<NoInfer<R>> }) | AfterCommit<AnswerValue<NoInfer<R>>>>;
}
